package eks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// customAMI is the AMI type of node groups whose launch template names an image.
const customAMI = "CUSTOM"

// imageDate is when the images of a sandbox's catalogue were built.
const imageDate = "20261119"

// Nodegroup is one managed node group of a cluster.
type Nodegroup struct {
	Name string
	// Version is the minor of its kubelets (default: the cluster's) and Release the
	// version of its image, "1.31.14-20261119"; with a custom AMI that is the AMI's id.
	Version, Release string
	// AMIType is AL2023_x86_64_STANDARD (default) or CUSTOM, which needs a Template.
	AMIType  string
	Template *LaunchTemplate
	// Min, Max and Desired are its size; Max is at least 1.
	Min, Max, Desired int
	// InstanceTypes is m6i.large when empty.
	InstanceTypes []string
	// Subnets and RoleARN are made when empty.
	Subnets   []string
	RoleARN   string
	Labels    map[string]string
	Taints    []Taint
	CreatedAt time.Time
	Issues    []Issue
}

// LaunchTemplate is the launch template that a node group was made with.
type LaunchTemplate struct {
	ID, Name, Version string
	// Kubelets are, for a custom AMI, the minors of the kubelets that the images of the
	// template's versions hold: "1" to "1.31".
	Kubelets map[string]string
}

// Taint is a taint of a node group; Effect is NO_SCHEDULE, NO_EXECUTE or
// PREFER_NO_SCHEDULE.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Effect string `json:"effect"`
}

// nodegroup is a Nodegroup as it goes through time.
type nodegroup struct {
	Nodegroup
	modified time.Time
	// next is what it becomes when the update that is under way succeeds.
	next *Nodegroup
}

func (g *nodegroup) state() string {
	switch {
	case g.next != nil:
		return updating
	case len(g.Issues) > 0:
		return degraded
	}
	return active
}

// settle ends an update of the group.
func (g *nodegroup) settle(u *update) {
	if u.status == successful {
		g.Nodegroup = *g.next
	}
	g.next, g.modified = nil, u.ends
}

// release is the newest image of a minor.
func (v Version) release() string { return v.Patch + "-" + imageDate }

func (s *Service) seedNodegroup(c *cluster, g Nodegroup) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("add cluster %s: node group %q: "+format, append([]any{c.Name, g.Name}, args...)...)
	}
	g.Version = cmp.Or(g.Version, c.Version)
	g.AMIType = cmp.Or(g.AMIType, "AL2023_x86_64_STANDARD")
	v, ok := s.version(g.Version)
	switch {
	case g.Name == "" || c.nodegroups[g.Name] != nil:
		return bad("it has no name or is there already")
	case !ok:
		return bad("version %q is not in the catalogue", g.Version)
	case g.AMIType == customAMI && (g.Template == nil || g.Template.Kubelets[g.Template.Version] == ""):
		return bad("a custom AMI needs a launch template and the kubelet of its version")
	case g.Max < 1 || g.Min > g.Desired || g.Desired > g.Max || g.Min < 0:
		return bad("%d to %d instances, %d wanted", g.Min, g.Max, g.Desired)
	}
	g.Release = cmp.Or(g.Release, v.release())
	if g.AMIType == customAMI {
		g.Version, g.Release = g.Template.Kubelets[g.Template.Version], g.Template.image()
	}
	if g.InstanceTypes == nil {
		g.InstanceTypes = []string{"m6i.large"}
	}
	if g.Subnets == nil {
		g.Subnets = c.Subnets
	}
	g.RoleARN = cmp.Or(g.RoleARN, fmt.Sprintf("arn:aws:iam::%s:role/%s-nodes", s.opts.Account, c.Name))
	if g.CreatedAt.IsZero() {
		g.CreatedAt = c.CreatedAt
	}
	c.nodegroups[g.Name] = &nodegroup{Nodegroup: g, modified: g.CreatedAt}
	return nil
}

// image is the id of the image of a template's version.
func (t *LaunchTemplate) image() string {
	return fmt.Sprintf("ami-0%x", stable("ami", t.ID, t.Name, t.Version))[:21]
}

// Nodegroups are the node groups of a cluster as they are, by name.
func (s *Service) Nodegroups(cluster string) []Nodegroup {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clusters[cluster]
	if c == nil {
		return nil
	}
	var out []Nodegroup
	for _, name := range sorted(c.nodegroups) {
		out = append(out, c.nodegroups[name].Nodegroup)
	}
	return out
}

func (c *cluster) nodegroup(name string) (*nodegroup, *Error) {
	if g := c.nodegroups[name]; g != nil {
		return g, nil
	}
	e := c.missing("No node group found for name: %s.", name)
	e.Nodegroup = name
	return nil, e
}

// nodegroupsMatch refuses an update of the control plane while a node group runs another
// version, older (hashicorp/terraform-provider-aws#19478) or newer (eksctl-io/eksctl#3727).
func (c *cluster) nodegroupsMatch() *Error {
	var bad []string
	for _, name := range sorted(c.nodegroups) {
		if c.nodegroups[name].Version != c.Version {
			bad = append(bad, name)
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return c.invalid("Nodegroups %s must be updated to match cluster version %s before updating cluster version", strings.Join(bad, ","), c.Version)
}

func (s *Service) listNodegroups(r *request) (any, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, apiErr := s.cluster(r.vars["cluster"])
	if apiErr != nil {
		return nil, apiErr
	}
	part, next, apiErr := page(sorted(c.nodegroups), r.query.Get("nextToken"), r.query.Get("maxResults"), 100)
	return map[string]any{"nodegroups": part, "nextToken": next}, apiErr
}

func (s *Service) describeNodegroup(r *request) (any, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, apiErr := s.cluster(r.vars["cluster"])
	if apiErr != nil {
		return nil, apiErr
	}
	g, apiErr := c.nodegroup(r.vars["nodegroup"])
	if apiErr != nil {
		return nil, apiErr
	}
	return map[string]any{"nodegroup": s.nodegroupJSON(c, g)}, nil
}

type nodegroupJSON struct {
	NodegroupName  string            `json:"nodegroupName"`
	NodegroupArn   string            `json:"nodegroupArn"`
	ClusterName    string            `json:"clusterName"`
	Version        string            `json:"version"`
	ReleaseVersion string            `json:"releaseVersion"`
	CreatedAt      *epoch            `json:"createdAt"`
	ModifiedAt     *epoch            `json:"modifiedAt"`
	Status         string            `json:"status"`
	CapacityType   string            `json:"capacityType"`
	ScalingConfig  scalingJSON       `json:"scalingConfig"`
	InstanceTypes  []string          `json:"instanceTypes"`
	Subnets        []string          `json:"subnets"`
	AmiType        string            `json:"amiType"`
	NodeRole       string            `json:"nodeRole"`
	Labels         map[string]string `json:"labels"`
	Taints         []Taint           `json:"taints"`
	Resources      resourcesJSON     `json:"resources"`
	DiskSize       *int              `json:"diskSize"`
	Health         healthJSON        `json:"health"`
	UpdateConfig   maxJSON           `json:"updateConfig"`
	LaunchTemplate *templateJSON     `json:"launchTemplate"`
	Tags           map[string]string `json:"tags"`
}

type scalingJSON struct {
	MinSize     int `json:"minSize"`
	MaxSize     int `json:"maxSize"`
	DesiredSize int `json:"desiredSize"`
}

type resourcesJSON struct {
	AutoScalingGroups []struct {
		Name string `json:"name"`
	} `json:"autoScalingGroups"`
	RemoteAccessSecurityGroup *string `json:"remoteAccessSecurityGroup"`
}

type maxJSON struct {
	MaxUnavailable int `json:"maxUnavailable"`
}

type templateJSON struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Version string `json:"version"`
}

func (s *Service) nodegroupJSON(c *cluster, g *nodegroup) nodegroupJSON {
	id, _ := uuid.FromBytes(stable("nodegroup", c.ARN, g.Name)) // always 16 bytes
	out := nodegroupJSON{
		NodegroupName: g.Name, ClusterName: c.Name, Version: g.Version, ReleaseVersion: g.Release,
		NodegroupArn: fmt.Sprintf("arn:aws:eks:%s:%s:nodegroup/%s/%s/%s", s.opts.Region, s.opts.Account, c.Name, g.Name, id),
		CreatedAt:    at(g.CreatedAt), ModifiedAt: at(g.modified), Status: g.state(), CapacityType: "ON_DEMAND",
		ScalingConfig: scalingJSON{g.Min, g.Max, g.Desired}, InstanceTypes: list(g.InstanceTypes), Subnets: list(g.Subnets),
		AmiType: g.AMIType, NodeRole: g.RoleARN, Labels: tags(g.Labels), Taints: slices.Clone(g.Taints),
		Health: healthJSON{Issues: issues(g.Issues)}, UpdateConfig: maxJSON{1}, Tags: map[string]string{},
	}
	if t := g.Template; t != nil {
		out.LaunchTemplate = &templateJSON{t.ID, t.Name, t.Version}
	} else {
		size := 20
		out.DiskSize = &size
	}
	out.Resources.AutoScalingGroups = append(out.Resources.AutoScalingGroups, struct {
		Name string `json:"name"`
	}{"eks-" + g.Name + "-" + id.String()})
	return out
}
