package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/eksbg/eksbg/internal/sandbox/eks"
	"github.com/eksbg/eksbg/internal/sandbox/kube"
)

// behind is what the objects of EKS's API stand for: the Kubernetes clusters of the
// sandbox.
type behind struct{ s *Sandbox }

var _ eks.World = behind{}

// handy is how long something inside may take that is done while somebody waits for it.
const handy = 10 * time.Second

// Subnet implements eks.World.
func (b behind) Subnet(id string) (inVPC, zone string, ok bool) {
	for _, side := range b.s.scenario.Sides() {
		c := b.s.scenario.Side(side)
		for _, n := range c.Subnets {
			if n.ID == id {
				return vpc(c.Name), n.Zone, true
			}
		}
	}
	return "", "", false
}

// StartCluster implements eks.World: a cluster comes up in the subnets of a side, and is
// that side when it has its name. A VPC has room for one cluster, since each hands out the
// addresses of its subnets by itself.
func (b behind) StartCluster(ctx context.Context, c eks.Cluster, selfManaged bool) (string, []byte, error) {
	s := b.s
	for n, side := range s.scenario.Sides() {
		in := s.scenario.Side(side)
		if vpc(in.Name) != c.VPC {
			continue
		}
		for _, other := range s.running() {
			if other.in == in {
				return "", nil, fmt.Errorf("cluster %s is in the VPC %s, and the sandbox has room for one in each", other.name, c.VPC)
			}
		}
		if in.Name != c.Name {
			side = c.Name
		}
		made, err := s.bringUp(ctx, side, in, c.Name, int64(n), nil)
		if err != nil {
			return "", nil, err
		}
		if selfManaged {
			if err := made.installCoreDNS(ctx, s.scenario.Region, s.eks.DefaultAddon("coredns", c.Version), false); err != nil {
				return "", nil, errors.Join(err, made.stop())
			}
		}
		s.register(made)
		return made.url, made.kube.CA(), s.rewriteKubeconfig()
	}
	return "", nil, fmt.Errorf("the sandbox has no VPC %s", c.VPC)
}

// StopCluster implements eks.World.
func (b behind) StopCluster(name string) {
	c := b.s.cluster(name)
	if c == nil {
		return
	}
	b.s.mu.Lock()
	delete(b.s.clusters, c.side)
	b.s.mu.Unlock()
	_ = c.stop() // Close tells what went wrong
	b.s.elbv2.Observe()
	_ = b.s.rewriteKubeconfig() // the file is of people's use alone, and names a cluster too many now
	b.s.changed()
}

// SetProfiles implements eks.World.
func (b behind) SetProfiles(cluster string, profiles []eks.FargateProfile) {
	if c := b.s.cluster(cluster); c != nil {
		c.kube.SetProfiles(kubeProfiles(profiles))
	}
}

func kubeProfiles(profiles []eks.FargateProfile) []kube.Profile {
	var out []kube.Profile
	for _, p := range profiles {
		profile := kube.Profile{Name: p.Name, Subnets: p.Subnets}
		for _, sel := range p.Selectors {
			profile.Selectors = append(profile.Selectors, kube.Selector{Namespace: sel.Namespace, Labels: sel.Labels})
		}
		out = append(out, profile)
	}
	return out
}

// DropPods implements eks.World: the pods that a profile took are deleted
// (https://docs.aws.amazon.com/eks/latest/APIReference/API_DeleteFargateProfile.html).
func (b behind) DropPods(cluster, profile string) {
	c := b.s.cluster(cluster)
	if c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), handy)
	defer cancel()
	pods, err := c.pods(ctx, "labelSelector="+url.QueryEscape("eks.amazonaws.com/fargate-profile="+profile))
	if err != nil {
		return // an API server that is away keeps its pods, as it would
	}
	for _, p := range pods {
		_ = c.remove(ctx, &p, "") // likewise
	}
}

// InstallAddon implements eks.World. CoreDNS is the one add-on with pods on Fargate; the
// others' DaemonSets are left out.
func (b behind) InstallAddon(cluster, addon, version string) {
	c := b.s.cluster(cluster)
	if c == nil || addon != "coredns" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), handy)
	defer cancel()
	_ = c.installCoreDNS(ctx, b.s.scenario.Region, version, true) // AddonIssues tells that it is not there
}

// RemoveAddon implements eks.World.
func (b behind) RemoveAddon(cluster, addon string) {
	c := b.s.cluster(cluster)
	if c == nil || addon != "coredns" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), handy)
	defer cancel()
	for _, path := range []string{coreDNSPath, coreDNSBudget, coreDNSService} {
		_ = c.call(ctx, http.MethodDelete, path, mediaJSON, `{"propagationPolicy":"Background"}`, nil) // what is not there need not go
	}
}

// AddonIssues implements eks.World: CoreDNS without a pod that is ready is none.
func (b behind) AddonIssues(cluster, addon string) []eks.Issue {
	c := b.s.cluster(cluster)
	if c == nil || addon != "coredns" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), handy)
	defer cancel()
	var d struct {
		Status struct {
			ReadyReplicas int `json:"readyReplicas"`
		} `json:"status"`
	}
	if err := c.call(ctx, http.MethodGet, coreDNSPath, mediaJSON, "", &d); err == nil && d.Status.ReadyReplicas > 0 {
		return nil
	}
	return []eks.Issue{{
		Code: "InsufficientNumberOfReplicas", Message: "The add-on is unhealthy because it doesn't have the desired number of replicas.",
	}}
}
