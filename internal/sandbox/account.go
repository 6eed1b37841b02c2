package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/eksbg/eksbg/internal/sandbox/ec2"
	"github.com/eksbg/eksbg/internal/sandbox/kube"
	"github.com/eksbg/eksbg/internal/sandbox/servicequotas"
)

// Quotas are what the account may run on Fargate, over both clusters.
type Quotas struct {
	// VCPU is how many vCPUs may run at once (L-3032A538); 0 is 4000, which accounts that
	// have run Fargate for a while were seen to have.
	VCPU float64 `yaml:"vcpu,omitempty"`
	// Burst is how many pods start at once (L-6BAD92DD); 0 leaves the account without a
	// value of its own, so that AWS's default is in force.
	Burst float64 `yaml:"burst,omitempty"`
}

const (
	// usualVCPU is the vCPU quota of a scenario that names none.
	usualVCPU = 4000
	// podRate is how many pods start at once, and then each second, in an account that
	// launches pods of EKS alone and has AWS's default burst rate ("AWS Fargate throttling
	// quotas" in the ECS developer guide).
	podRate = 20
)

// checkAccount wants quotas that can be, and each subnet in one place.
func (s *Scenario) checkAccount(bad complain) {
	q := s.Quotas
	if q.VCPU < 0 || q.Burst < 0 {
		bad("quotas: vcpu is %g, burst is %g; neither can be below 0", q.VCPU, q.Burst)
	}
	seen := map[string]bool{}
	for _, side := range s.Sides() {
		c := s.Side(side)
		for _, n := range c.Subnets {
			if seen[n.ID] {
				bad("clusters.%s.subnets: %s is there already; each cluster hands out the addresses of subnets of its own", side, n.ID)
			}
			seen[n.ID] = true
		}
		for _, p := range c.Profiles {
			for _, id := range p.Subnets {
				if !slices.ContainsFunc(c.Subnets, func(n Subnet) bool { return n.ID == id }) {
					bad("clusters.%s.fargateProfiles: %s has subnet %q, which is none of the cluster's", side, p.Name, id)
				}
			}
		}
	}
}

// makeAccount makes what the two clusters share of AWS: Fargate's capacity, the subnets,
// and the services that tell of them.
func (s *Sandbox) makeAccount() error {
	q := s.scenario.Quotas
	def(&q.VCPU, usualVCPU)
	quotas := servicequotas.Catalogue()
	if err := servicequotas.Apply(quotas, servicequotas.VCPU, q.VCPU); err != nil {
		return err
	}
	if q.Burst > 0 {
		if err := servicequotas.Apply(quotas, servicequotas.Burst, q.Burst); err != nil {
			return err
		}
	}
	def(&q.Burst, podRate)
	// The world's seconds are shorter by the speed.
	s.fargate = kube.NewAccount(kube.Quota{VCPU: q.VCPU, Burst: q.Burst, PerSecond: podRate * s.speed})
	s.quotas = servicequotas.New(servicequotas.Options{Region: s.scenario.Region, Account: s.scenario.Account, Keys: s.keys, Quotas: quotas})
	s.ec2 = ec2.New(ec2.Options{Region: s.scenario.Region, Account: s.scenario.Account, Keys: s.keys, Free: s.freeAddresses})
	return s.seedSubnets()
}

// seedSubnets puts the subnets of both clusters into EC2.
func (s *Sandbox) seedSubnets() error {
	for _, side := range s.scenario.Sides() {
		c := s.scenario.Side(side)
		for _, n := range c.Subnets {
			tags := map[string]string{"Name": c.Name + "-" + n.Zone}
			if err := s.ec2.AddSubnet(ec2.Subnet{ID: n.ID, VPC: vpc(c.Name), CIDR: n.CIDR, Zone: n.Zone, Tags: tags}); err != nil {
				return fmt.Errorf("seed cluster %s: %w", c.Name, err)
			}
		}
	}
	return nil
}

// vpc is the id of the VPC of a cluster, the same for the same name.
func vpc(cluster string) string {
	h := sha256.Sum256([]byte(cluster))
	return "vpc-0" + hex.EncodeToString(h[:8])
}

// freeAddresses is what the cluster that has a subnet has left of it.
func (s *Sandbox) freeAddresses(id string) (int, bool) {
	s.mu.Lock()
	clusters := slices.Collect(maps.Values(s.clusters))
	s.mu.Unlock()
	for _, c := range clusters {
		if n, ok := c.kube.Free()[id]; ok {
			return n, true
		}
	}
	return 0, false
}
