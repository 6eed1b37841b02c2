package kube

import (
	"net/http"
	"time"
)

// Options say what a cluster of the sandbox is. Durations are taken as they are: the
// sandbox divides them by its speed before it hands them in.
type Options struct {
	// Name is the cluster's name, Region the AWS region that its nodes are named after.
	Name, Region string
	// Version tells the control plane's minor at this moment ("1.31"). It is read for
	// /version and each time a Fargate node is made, so a change shows at once.
	Version func() string
	// Authenticate resolves a bearer token to a user. nil lets everybody in.
	Authenticate func(bearer string) (user string, groups []string, err error)
	// Fargate describes the only compute of the cluster.
	Fargate FargateOptions
	// Now is the clock of timestamps; nil means time.Now.
	Now func() time.Time
	// Seed seeds everything that is random: pod name suffixes, uids, start-up jitter.
	Seed int64
	// History is how many changes of each resource are kept for watches and continued
	// lists; older resource versions answer 410 Gone. 0 means 10000.
	History int
	// Bookmark is how often a watch that allows bookmarks gets one; 0 means a minute,
	// as kube-apiserver does it.
	Bookmark time.Duration
}

// FargateOptions describe the account's Fargate capacity and the profiles of the cluster.
type FargateOptions struct {
	// Startup is how long a pod is Pending until it runs; Jitter is added or taken away
	// at most; Stop is how long a pod is Terminating until it and its node are gone.
	Startup, Jitter, Stop time.Duration
	// Run is how long the containers of a Job's pod run before they exit with 0,
	// unless the pod says otherwise (AnnotationRun). 0 means as long as Startup.
	Run time.Duration
	// MaxNodes is how many Fargate nodes may exist at once; 0 is no limit.
	MaxNodes int
	// Subnets give the addresses; without any a subnet 10.0.0.0/16 in zone "a" is made up.
	Subnets []Subnet
	// Profiles are the Fargate profiles; pods that match none stay Pending.
	Profiles []Profile
}

// Subnet is a private subnet that pods get their address from. As in a VPC the first
// four addresses and the last are not handed out.
type Subnet struct {
	ID, CIDR, Zone string
}

// Profile is a Fargate profile. A pod is taken by the alphanumerically first profile
// that matches, or by the one its label eks.amazonaws.com/fargate-profile names.
type Profile struct {
	Name      string
	Selectors []Selector
}

// Selector matches pods by namespace and labels; both may hold the wildcards * and ?.
type Selector struct {
	Namespace string
	Labels    map[string]string
}

// NodeInfo is a node as the sandbox's AWS half sees it.
type NodeInfo struct {
	// Name of the node; Kubelet is its full version ("v1.31.13-eks-113cf36"), Compute
	// the kind of compute ("fargate").
	Name, Kubelet, Compute string
}

// PodEndpoint is a pod that traffic could be sent to.
type PodEndpoint struct {
	Name, IP string
	// Ready is true when the pod is Ready and not Terminating.
	Ready bool
}

// handlerOr returns h, or d where h is nil.
func handlerOr(h, d http.Handler) http.Handler {
	if h == nil {
		return d
	}
	return h
}
