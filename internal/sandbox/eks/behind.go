package eks

import "context"

// World is what the API's objects stand for. No locks are held over a call of it. Those
// that take a context run beside everything else and give up when it ends; the others
// have to be quick.
type World interface {
	// Subnet finds a subnet of the account: its VPC and its availability zone.
	Subnet(id string) (vpc, zone string, ok bool)
	// StartCluster brings up the Kubernetes of a cluster that is being created, with
	// self-managed add-ons where those are wanted. It answers the URL of its API server
	// and the PEM that vouches for it.
	StartCluster(ctx context.Context, c Cluster, selfManaged bool) (endpoint string, ca []byte, err error)
	// StopCluster ends it for good.
	StopCluster(cluster string)
	// SetProfiles says which Fargate profiles of a cluster are active from now on, and
	// DropPods has the pods deleted that a profile took.
	SetProfiles(cluster string, profiles []FargateProfile)
	DropPods(cluster, profile string)
	// InstallAddon puts the software of an add-on into a cluster, RemoveAddon takes it
	// out, and AddonIssues tells what ails it.
	InstallAddon(cluster, addon, version string)
	RemoveAddon(cluster, addon string)
	AddonIssues(cluster, addon string) []Issue
	// SetNodes brings the instances of a node group to what the group says, and answers
	// what could not be done.
	SetNodes(ctx context.Context, w NodegroupWork) []UpdateError
}

// NodegroupWork is a node group as it is to be.
type NodegroupWork struct {
	Cluster   string
	Nodegroup Nodegroup
	// Replace has every instance replaced by a new one: a version update. Force goes on
	// where a disruption budget keeps a node from being drained.
	Replace, Force bool
}

// nowhere is a World without anything: every subnet is there, in a zone of its own.
type nowhere struct{}

func (nowhere) Subnet(id string) (string, string, bool) { return "vpc-0123456789abcdef0", id, true }

func (nowhere) StartCluster(context.Context, Cluster, bool) (string, []byte, error) {
	return "", nil, nil
}

func (nowhere) StopCluster(string)                                    {}
func (nowhere) SetProfiles(string, []FargateProfile)                  {}
func (nowhere) DropPods(string, string)                               {}
func (nowhere) InstallAddon(string, string, string)                   {}
func (nowhere) RemoveAddon(string, string)                            {}
func (nowhere) AddonIssues(string, string) []Issue                    { return nil }
func (nowhere) SetNodes(context.Context, NodegroupWork) []UpdateError { return nil }
