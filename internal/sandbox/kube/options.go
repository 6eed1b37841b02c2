package kube

import (
	"time"

	"github.com/eksbg/eksbg/internal/sandbox/kube/apiserver"
	"github.com/eksbg/eksbg/internal/sandbox/kube/fargate"
	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
	"github.com/eksbg/eksbg/internal/sandbox/kube/release"
)

// Options say what a cluster of the sandbox is. Durations are taken as they are: the
// sandbox divides them by its speed before it hands them in.
type Options struct {
	// Name is the cluster's name, Region the AWS region that its nodes are named after.
	Name, Region string
	// Version tells the control plane's minor at this moment ("1.31"). It is read for
	// /version and each time a Fargate node is made, so a change shows at once. It must
	// not call back into the cluster.
	Version func() string
	// Authenticate resolves a bearer token to a user. nil lets everybody in. It is
	// called for every request, from many goroutines.
	Authenticate func(bearer string) (user string, groups []string, err error)
	// Authorize judges what a user may do, and may say why; nil allows everything. It is
	// asked about each request, and by callers who ask what they may do
	// (SelfSubjectAccessReview).
	Authorize func(user string, groups []string, a Attributes) (allowed bool, reason string)
	// Fargate describes the compute of the cluster.
	Fargate FargateOptions
	// Now is the clock of timestamps; nil means time.Now.
	Now func() time.Time
	// Seed seeds everything that is random: pod name suffixes, uids, start-up jitter.
	Seed int64
	// History is how many changes of each resource are kept at least for watches and
	// continued lists; older resource versions answer 410 Gone. 0 means 10000.
	History int
	// Bookmark is how often a watch that allows bookmarks gets one; 0 means a minute,
	// as kube-apiserver does it.
	Bookmark time.Duration
}

// Attributes are what a request is judged by.
type Attributes = apiserver.Attributes

// FargateOptions describe the account's Fargate capacity and the profiles of the cluster.
type FargateOptions = fargate.Options

// Subnet is a private subnet that pods get their address from.
type Subnet = fargate.Subnet

// Profile is a Fargate profile.
type Profile = fargate.Profile

// Selector matches pods of a profile by namespace and labels.
type Selector = fargate.Selector

// Account is the Fargate of one AWS account, which the clusters of it share.
type Account = fargate.Account

// Quota is what an account may run on Fargate.
type Quota = fargate.Quota

// NewAccount makes an account that runs nothing yet.
func NewAccount(q Quota) *Account { return fargate.NewAccount(q) }

// Annotations on pods that steer the simulation; see package fargate.
const (
	AnnotationRun   = fargate.AnnotationRun
	AnnotationExit  = fargate.AnnotationExit
	AnnotationReady = fargate.AnnotationReady

	AnnotationForget = fargate.AnnotationForget
	AnnotationFail   = fargate.AnnotationFail
	AnnotationDNS    = apiserver.AnnotationDNS
)

// The custom resources that a cluster serves; see package registry.
type (
	Rollout         = registry.Rollout
	RolloutSpec     = registry.RolloutSpec
	RolloutStrategy = registry.RolloutStrategy
	CanaryStrategy  = registry.CanaryStrategy
	CloneSet        = registry.CloneSet
	CloneSetSpec    = registry.CloneSetSpec
)

// Their groups and versions.
var (
	RolloutGroup  = registry.RolloutGroup
	CloneSetGroup = registry.CloneSetGroup
)

// Kubelet is the full version that a kubelet of a minor says of itself.
func Kubelet(minor string) string { return release.Kubelet(minor) }

// NodeInfo is a node as the sandbox's AWS half sees it.
type NodeInfo struct {
	// Name of the node; Kubelet is its full version ("v1.31.13-eks-113cf36"), Compute
	// the kind of compute ("fargate", or "ec2" for nodes that were seeded).
	Name, Kubelet, Compute string
}

// PodEndpoint is a pod that traffic could be sent to.
type PodEndpoint struct {
	Name, IP string
	// Ready is true when the pod is Ready and not Terminating.
	Ready bool
}
