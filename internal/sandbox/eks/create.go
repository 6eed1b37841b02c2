package eks

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// names is what clusters and Fargate profiles can be called
// (https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateCluster.html).
var names = regexp.MustCompile(`^[0-9A-Za-z][A-Za-z0-9_-]{0,99}$`)

type createClusterInput struct {
	Name               string `json:"name"`
	Version            string `json:"version"`
	RoleArn            string `json:"roleArn"`
	ResourcesVpcConfig struct {
		SubnetIDs             []string `json:"subnetIds"`
		SecurityGroupIDs      []string `json:"securityGroupIds"`
		EndpointPublicAccess  *bool    `json:"endpointPublicAccess"`
		EndpointPrivateAccess *bool    `json:"endpointPrivateAccess"`
	} `json:"resourcesVpcConfig"`
	AccessConfig *struct {
		AuthenticationMode string `json:"authenticationMode"`
	} `json:"accessConfig"`
	UpgradePolicy *struct {
		SupportType string `json:"supportType"`
	} `json:"upgradePolicy"`
	ComputeConfig *struct {
		Enabled bool `json:"enabled"`
	} `json:"computeConfig"`
	BootstrapSelfManagedAddons *bool             `json:"bootstrapSelfManagedAddons"`
	DeletionProtection         bool              `json:"deletionProtection"`
	Tags                       map[string]string `json:"tags"`
	ClientRequestToken         string            `json:"clientRequestToken"`
}

// asked is the request without its token, to tell one from another.
func (in createClusterInput) asked() string {
	in.ClientRequestToken = ""
	b, _ := json.Marshal(in) // nothing in it can fail to encode
	return string(b)
}

func (s *Service) createCluster(r *request) (any, *Error) {
	var in createClusterInput
	if apiErr := r.input(&in); apiErr != nil {
		return nil, apiErr
	}
	wire.Note(r.Context(), "version", in.Version)
	wire.Note(r.Context(), "token", in.ClientRequestToken)
	vpc, apiErr := s.vpcOf(in)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.clusters[in.Name]; c != nil && in.ClientRequestToken != "" && c.token == in.ClientRequestToken && c.asked == in.asked() {
		return map[string]any{"cluster": s.clusterJSON(c, r.now)}, nil
	}
	if apiErr != nil {
		return nil, apiErr
	}
	seed, apiErr := s.ordered(in, vpc, r.now)
	if apiErr != nil {
		return nil, apiErr
	}
	c := newCluster(seed)
	c.state, c.settled, c.token, c.asked = creating, r.now.Add(s.opts.Create), in.ClientRequestToken, in.asked()
	s.clusters[c.Name] = c
	selfManaged := (in.BootstrapSelfManagedAddons == nil || *in.BootstrapSelfManagedAddons) && !seed.AutoMode
	s.work(func(ctx context.Context) { s.bringUp(ctx, c, seed, selfManaged) })
	s.after(s.opts.Create)
	return map[string]any{"cluster": s.clusterJSON(c, r.now)}, nil
}

// ordered is the cluster that a request asks for. mu is held.
func (s *Service) ordered(in createClusterInput, vpc string, now time.Time) (Cluster, *Error) {
	none := &cluster{Cluster: Cluster{Name: in.Name}}
	if in.Version == "" {
		i := slices.IndexFunc(s.opts.Versions, func(v Version) bool { return v.Default })
		if i >= 0 {
			in.Version = s.opts.Versions[i].Minor
		}
	}
	v, known := s.version(in.Version)
	switch {
	case !names.MatchString(in.Name):
		return Cluster{}, none.invalid("Cluster name %q is not valid", in.Name)
	case !known || v.Status == Unsupported:
		return Cluster{}, none.invalid("unsupported Kubernetes version")
	case !strings.HasPrefix(in.RoleArn, "arn:"):
		return Cluster{}, none.invalid("roleArn %q is not valid", in.RoleArn)
	case s.clusters[in.Name] != nil:
		return Cluster{}, none.inUse("Cluster already exists with name: %s", in.Name)
	case len(s.clusters) >= s.opts.MaxClusters:
		// As in pulumi/pulumi-eks#48.
		return Cluster{}, &Error{Status: 400, Code: "ResourceLimitExceededException", Message: "Cluster limit exceeded for account.", Cluster: in.Name}
	}
	out := Cluster{
		Name: in.Name, Version: in.Version, RoleARN: in.RoleArn, VPC: vpc, Subnets: in.ResourcesVpcConfig.SubnetIDs,
		SecurityGroups: list(in.ResourcesVpcConfig.SecurityGroupIDs), CreatedAt: now, Tags: in.Tags, DeletionProtection: in.DeletionProtection,
		PublicEndpoint: true, AuthenticationMode: "CONFIG_MAP",
	}
	if p := in.ResourcesVpcConfig.EndpointPublicAccess; p != nil {
		out.PublicEndpoint = *p
	}
	if p := in.ResourcesVpcConfig.EndpointPrivateAccess; p != nil {
		out.PrivateEndpoint = *p
	}
	if in.AccessConfig != nil && in.AccessConfig.AuthenticationMode != "" {
		out.AuthenticationMode = in.AccessConfig.AuthenticationMode
	}
	if in.UpgradePolicy != nil {
		out.SupportType = in.UpgradePolicy.SupportType
	}
	out.AutoMode = in.ComputeConfig != nil && in.ComputeConfig.Enabled
	if !out.PublicEndpoint && !out.PrivateEndpoint {
		return Cluster{}, none.invalid("Private and public endpoint access cannot be false")
	}
	s.fill(&out, now)
	return out, nil
}

// vpcOf is the VPC of the subnets of a request: there have to be two zones of one VPC. The
// words about zones are those of awsdocs/amazon-eks-user-guide#795.
func (s *Service) vpcOf(in createClusterInput) (string, *Error) {
	none := &cluster{Cluster: Cluster{Name: in.Name}}
	vpcs, zones := map[string]bool{}, map[string]bool{}
	for _, id := range in.ResourcesVpcConfig.SubnetIDs {
		vpc, zone, ok := s.opts.World.Subnet(id)
		if !ok {
			return "", none.invalid("The subnet ID '%s' does not exist (Service: Ec2, Status Code: 400, Error Code: InvalidSubnetID.NotFound)", id)
		}
		vpcs[vpc], zones[zone] = true, true
	}
	switch {
	case len(zones) < 2:
		return "", none.invalid("Subnets specified must be in at least two different AZs")
	case len(vpcs) > 1:
		return "", none.invalid("Subnets specified must belong to the same VPC")
	}
	for vpc := range vpcs {
		return vpc, nil
	}
	return "", nil
}

// bringUp has the World start a cluster and notes where it is.
func (s *Service) bringUp(ctx context.Context, c *cluster, seed Cluster, selfManaged bool) {
	endpoint, ca, err := s.opts.World.StartCluster(ctx, seed, selfManaged)
	s.mu.Lock()
	defer s.mu.Unlock()
	c.Endpoint, c.CA, c.up = endpoint, ca, true
	if err != nil {
		c.Issues = append(c.Issues, Issue{Code: "InternalFailure", Message: fmt.Sprintf("The control plane could not be started: %v", err)})
	}
}

// deleteCluster wants the node groups and profiles away first: the words are those of
// gruntwork-io/cloud-nuke#148 and kubernetes-sigs/cluster-api-provider-aws#4728.
func (s *Service) deleteCluster(r *request) (any, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, apiErr := s.cluster(r.vars["cluster"])
	if apiErr != nil {
		return nil, apiErr
	}
	switch {
	case c.state == deleting:
		return nil, c.inUse("Cluster %s is in status %s", c.Name, c.state)
	case c.state == creating:
		return nil, c.inUse("Cannot delete because cluster %s currently has an update in progress", c.Name)
	case c.DeletionProtection:
		return nil, c.refused("Cluster %s cannot be deleted because deletion protection is enabled", c.Name)
	case len(c.nodegroups) > 0:
		return nil, c.inUse("Cluster has nodegroups attached")
	case len(c.profiles) > 0:
		return nil, c.inUse("Cluster has Fargate Profiles in ACTIVE/CREATING state")
	}
	if apiErr := c.free("delete"); c.state == "" && apiErr != nil {
		return nil, apiErr
	}
	c.state, c.settled = deleting, r.now.Add(s.opts.Delete)
	s.after(s.opts.Delete)
	return map[string]any{"cluster": s.clusterJSON(c, r.now)}, nil
}

// settleCluster lets a cluster become active or go. mu is held.
func (s *Service) settleCluster(c *cluster, now time.Time) []func() {
	switch {
	case c.state == creating && c.up && !now.Before(c.settled):
		c.state = ""
		if len(c.Issues) > 0 {
			c.state = broken
		}
		if fn, name, minor := s.opts.OnVersion, c.Name, c.Version; fn != nil {
			return []func(){func() { fn(name, minor) }}
		}
	case c.state == deleting && !now.Before(c.settled):
		delete(s.clusters, c.Name)
		return []func(){func() { s.opts.World.StopCluster(c.Name) }}
	}
	return nil
}

// sorted are the keys of a map, in order; never nil.
func sorted[V any](m map[string]V) []string {
	return slices.AppendSeq([]string{}, slices.Values(slices.Sorted(maps.Keys(m))))
}
