// Package fargate is the compute of a simulated cluster: it takes pods by profile, gives
// each a node of its own with the kubelet of that moment, starts and stops their
// containers, and takes the node away with the pod.
package fargate

import (
	"path"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Options describe the account's Fargate capacity and the profiles of the cluster.
// Durations are taken as they are.
type Options struct {
	// Startup is how long a pod is Pending until it runs; Jitter is added or taken away
	// at most; Stop is how long a pod is Terminating until it and its node are gone
	// (never longer than its grace period). Below some 300 ms kubectl delete pod can miss
	// that a StatefulSet's pod was replaced, and wait for ever.
	Startup, Jitter, Stop time.Duration
	// Run is how long the containers of pods that may end (a Job's) run before they exit
	// with 0, unless the pod says otherwise (AnnotationRun). 0 means as long as Startup.
	Run time.Duration
	// MaxNodes is how many Fargate nodes may exist at once; 0 is no limit.
	MaxNodes int
	// Subnets give the addresses; without any a subnet 10.0.0.0/16 in zone "a" is made up.
	Subnets []Subnet
	// Profiles are the Fargate profiles; pods that match none stay Pending.
	Profiles []Profile
	// Account bounds what the clusters of one account run together; nil bounds nothing.
	Account *Account
}

// Subnet is a private subnet that pods get their address from. As in a VPC the first
// four addresses and the last are not handed out.
type Subnet struct {
	// ID is the subnet's id, CIDR its IPv4 range, Zone its availability zone: the full
	// name or its last letter.
	ID, CIDR, Zone string
}

// Profile is a Fargate profile. A pod is taken by the alphanumerically first profile
// that matches, or by the one its label eks.amazonaws.com/fargate-profile names.
type Profile struct {
	Name      string
	Selectors []Selector
	// Subnets are the ids of the subnets that its pods get their addresses from; none
	// means all of the cluster's.
	Subnets []string
}

// Selector matches pods by namespace and labels; both may hold the wildcards * and ?.
type Selector struct {
	Namespace string
	Labels    map[string]string
}

const (
	// LabelProfile and LabelCompute are what EKS puts on pods and nodes.
	LabelProfile = "eks.amazonaws.com/fargate-profile"
	LabelCompute = "eks.amazonaws.com/compute-type"
	// SchedulerName is the scheduler of the pods that a profile takes.
	SchedulerName = "fargate-scheduler"

	// AnnotationRun on a pod says how long its containers run before they exit: a
	// duration, or "forever". Pods with restartPolicy Always ignore it.
	AnnotationRun = "sandbox.eksbg/run"
	// AnnotationExit is the code that its containers exit with, 0 by default.
	AnnotationExit = "sandbox.eksbg/exit"
	// AnnotationReady with the value "never" keeps a running pod unready.
	AnnotationReady = "sandbox.eksbg/ready"
)

// profileOf finds the profile that takes a pod, or "".
func profileOf(profiles []Profile, pod *corev1.Pod) string {
	var names []string
	for _, p := range profiles {
		for _, s := range p.Selectors {
			if s.matches(pod) {
				names = append(names, p.Name)
				break
			}
		}
	}
	sort.Strings(names)
	if wanted, ok := pod.Labels[LabelProfile]; ok {
		if i := sort.SearchStrings(names, wanted); i < len(names) && names[i] == wanted {
			return wanted
		}
		return ""
	}
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

func (s Selector) matches(pod *corev1.Pod) bool {
	if !wild(s.Namespace, pod.Namespace) {
		return false
	}
	for k, v := range s.Labels {
		if !wildLabel(pod.Labels, k, v) {
			return false
		}
	}
	return true
}

func wildLabel(labels map[string]string, k, v string) bool {
	for lk, lv := range labels {
		if wild(k, lk) && wild(v, lv) {
			return true
		}
	}
	return false
}

// wild matches with * and ?. Namespaces hold no slash; those of label keys are masked so
// that * spans them.
func wild(pattern, s string) bool {
	mask := func(s string) string {
		b := []byte(s)
		for i, c := range b {
			switch c {
			case '/':
				b[i] = 1
			case '[', ']', '\\':
				b[i] = 2
			}
		}
		return string(b)
	}
	ok, err := path.Match(mask(pattern), mask(s))
	return err == nil && ok
}
