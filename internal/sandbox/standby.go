package sandbox

import (
	"fmt"
	"slices"
	"time"

	"github.com/eksbg/eksbg/internal/sandbox/eks"
)

// Standby says what a cluster has not, beside one that serves.
type Standby struct {
	// Absent is a cluster that is not there when the world begins. Its subnets are, and
	// what names it (target groups, records) finds it once it has been created by its
	// name in its subnets. Its workloads are what a deployment would apply: the sandbox
	// writes them to a file (Sandbox.Manifests).
	Absent bool `yaml:"absent,omitempty"`
	// Idle is a cluster whose workloads outside of kube-system are scaled to zero: no
	// replicas, CronJobs suspended, Jobs and Pods of nobody not there.
	Idle bool `yaml:"idle,omitempty"`
}

// Upgrade says how a cluster came to its version and whether it goes back.
type Upgrade struct {
	// UpgradedAgo is how long ago, by the wall clock, the cluster was upgraded to its
	// version from the minor before; without it the cluster was created at it.
	UpgradedAgo time.Duration `yaml:"upgradedAgo,omitempty"`
	// SupportType is STANDARD or EXTENDED (default), AutoMode that EKS runs the nodes, and
	// DeletionProtection that the cluster cannot be deleted.
	SupportType        string `yaml:"supportType,omitempty"`
	AutoMode           bool   `yaml:"autoMode,omitempty"`
	DeletionProtection bool   `yaml:"deletionProtection,omitempty"`
}

// Nodegroup is a managed node group with its instances.
type Nodegroup struct {
	Name string `yaml:"name"`
	// Version is the minor of its kubelets, the cluster's when left out.
	Version string `yaml:"version,omitempty"`
	// Min, Max and Desired are its size; Max is at least 1.
	Min     int `yaml:"min,omitempty"`
	Max     int `yaml:"max"`
	Desired int `yaml:"desired,omitempty"`
	// Images makes it a group with a custom AMI: the minors of the kubelets in the images
	// of its launch template's versions. It begins with version 1.
	Images map[string]string `yaml:"images,omitempty"`
	Labels map[string]string `yaml:"labels,omitempty"`
	Taints []NodeTaint       `yaml:"taints,omitempty"`
}

// NodeTaint is a taint as EKS spells it; Effect is NO_SCHEDULE, NO_EXECUTE or
// PREFER_NO_SCHEDULE.
type NodeTaint struct {
	Key    string `yaml:"key"`
	Value  string `yaml:"value,omitempty"`
	Effect string `yaml:"effect"`
}

// seed is the group as EKS has it at first.
func (g Nodegroup) seed(cluster string) eks.Nodegroup {
	out := eks.Nodegroup{Name: g.Name, Version: g.Version, Min: g.Min, Max: g.Max, Desired: g.Desired, Labels: g.Labels}
	for _, t := range g.Taints {
		out.Taints = append(out.Taints, eks.Taint(t))
	}
	if g.Images != nil {
		out.AMIType = "CUSTOM"
		out.Template = &eks.LaunchTemplate{ID: "lt-0" + vpc(cluster + g.Name)[5:], Name: cluster + "-" + g.Name, Version: "1", Kubelets: g.Images}
	}
	return out
}

// awake leaves out of the workloads what an idle cluster does not run.
func (c *Cluster) awake() []Workload {
	if !c.Idle {
		return c.Workloads
	}
	var out []Workload
	for _, w := range c.Workloads {
		if w.Namespace != "kube-system" {
			switch w.Kind {
			case "Job", "Pod":
				continue
			case "CronJob":
				w.Suspend, w.Ran, w.Running = true, 0, 0
			default:
				w.Replicas = ptr(int32(0))
			}
		}
		out = append(out, w)
	}
	return out
}

// checkSides wants a blue cluster that is there, and a plan for what there is.
func (s *Scenario) checkSides(bad complain) {
	g := s.Clusters.Green
	switch {
	case g.Name == "" && len(g.Subnets)+len(g.Workloads)+len(g.Version) > 0:
		bad("clusters.green.name is missing")
	case s.Clusters.Blue.Name == s.Clusters.Green.Name && s.Clusters.Blue.Name != "":
		bad("clusters: blue and green have the same name %q", s.Clusters.Blue.Name)
	case s.Clusters.Blue.Absent && s.Clusters.Green.Absent || len(s.Sides()) == 1 && s.Clusters.Blue.Absent:
		bad("clusters: none is there when the world begins")
	case len(s.Sides()) == 1 && len(s.Plan.Traffic) > 0:
		bad("plan.traffic needs two clusters")
	}
	if v := []string{"hot", "warm", "cold", "in-place"}; !slices.Contains(v, s.Plan.Variant) {
		bad("plan.variant is %q; it can be %v", s.Plan.Variant, v)
	}
}

// checkStandby holds what is special about a cluster against itself.
func (c *Cluster) checkStandby(at string, bad complain) {
	if c.Absent && (len(c.Nodes)+len(c.Nodegroups) > 0 || c.GitOps != nil || c.Idle) {
		bad("%s: an absent cluster has no nodes, node groups and gitops, and is not idle", at)
	}
	if v := []string{"", "STANDARD", "EXTENDED"}; !slices.Contains(v, c.SupportType) {
		bad("%s.supportType is %q; it can be STANDARD or EXTENDED", at, c.SupportType)
	}
	seen := map[string]bool{}
	for i, g := range c.Nodegroups {
		here := fmt.Sprintf("%s.nodegroups[%d]", at, i)
		switch {
		case g.Name == "" || seen[g.Name]:
			bad("%s: %q has no name or is there twice", here, g.Name)
		case g.Version != "" && !minorPattern.MatchString(g.Version):
			bad(`%s.version is %q; write a minor, "1.31"`, here, g.Version)
		case g.Max < 1 || g.Min < 0 || g.Desired < g.Min || g.Desired > g.Max:
			bad("%s: min %d, desired %d and max %d do not go together; max is at least 1", here, g.Min, g.Desired, g.Max)
		case g.Images != nil && (g.Version != "" || !minorPattern.MatchString(g.Images["1"])):
			bad("%s: images needs the minor of version 1, which is the group's version", here)
		}
		seen[g.Name] = true
	}
}
