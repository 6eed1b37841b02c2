// Package survey decides, from one look at a cluster, how the owner of every lagging
// pod gets new kubelets, in which order, and which of them may be under way at the
// same time. It changes nothing and waits for nothing.
package survey

import (
	"fmt"
	"time"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/planfile"
)

// Method is how the pods of an owner get a new kubelet.
type Method string

// The methods.
const (
	// Rollout: kubectl's restartedAt annotation on the pod template makes the
	// controller replace every pod.
	Rollout Method = "rollout"
	// Evict: one pod after the other through the Eviction API; the controller makes a new
	// one, and the next goes once that is ready on a current kubelet.
	Evict Method = "evict"
	// InOrder: as Evict, for a StatefulSet, from the highest ordinal down, as its
	// controller updates.
	InOrder Method = "in-order"
	// RestartAt: spec.restartAt of an Argo Rollout.
	RestartAt Method = "restart-at"
	// Surge: a ReplicaSet or ReplicationController with one replica gets one more, the
	// old pod is marked as the one to go, and the number is put back.
	Surge Method = "surge"
	// Recreate: a bare pod is deleted and made again from its own spec.
	Recreate Method = "recreate"
	// Wait: the pods go without anybody's doing: a Job still running, pods that
	// terminate, an owner scaled to 0.
	Wait Method = "wait"
	// None: nothing restarts the owner; Item.Reason says why.
	None Method = "none"
)

// Group is the first thing that the order goes by.
type Group int

// The groups, in order.
const (
	CoreDNS Group = iota
	WebhookBackends
	Rest
)

// Item is one owner of lagging pods and what is done about them.
type Item struct {
	Owner cluster.Owner
	// Pods are the lagging, unfinished pods, by name; terminating ones included.
	Pods   []cluster.Pod
	Method Method
	// Reason says why the method is None or Wait or not the usual one, or why the plan
	// file skips the owner.
	Reason string
	// Cure is what a person can do about an item that is stuck.
	Cure string
	// Skipped is true where the plan file leaves the owner lagging for now.
	Skipped bool
	Group   Group
	// Webhooks are the fail-closed webhooks that the owner's pods serve.
	Webhooks []string
	// Priority is that of the owner's priority class.
	Priority int32
	// Replicas is how many pods the owner wants.
	Replicas int32
	// Takes is how many ready pods the restart may take away at one time, Extra how many
	// pods it may have beyond Replicas at one time, terminating ones included.
	Takes, Extra int
	// Leaving is true for an active item whose new pods are all ready and whose old ones
	// only terminate: its Extra pods still have their addresses and vCPUs, and nothing else
	// of it bounds what begins. It is not for good: a new pod may turn unready again.
	Leaving bool
	// Profile is the Fargate profile of the pods, MilliCPU what Fargate provisions for one.
	Profile  string
	MilliCPU int32
	// Budgets name (namespace/name) the PodDisruptionBudgets over its pods.
	Budgets []string
	// Breaks are those of the Budgets that the plan file's consent lets the restart break.
	Breaks []string
	// Overlap says which pod more than one budget selects: the Eviction API refuses it
	// with 500 whatever they allow. Empty for none.
	Overlap string
	// Outage says why no pod of the owner is ready for a while; empty where one always is.
	Outage string
}

// Stuck tells whether the item keeps the run from going on.
func (i Item) Stuck() bool { return i.Method == None && !i.Skipped }

// Waits tells whether the item is waited for and not worked on.
func (i Item) Waits() bool { return i.Method == Wait && !i.Skipped }

// Works tells whether the restart changes something for the item.
func (i Item) Works() bool { return i.Method != None && i.Method != Wait && !i.Skipped }

// String is the item as one line for people.
func (i Item) String() string {
	s := fmt.Sprintf("%s: %s", i.Owner, count(len(i.Pods), "pod"))
	if i.Reason != "" {
		s += ", " + i.Reason
	}
	return s
}

// Options are what a survey goes by beside the cluster.
type Options struct {
	// Minor is what kubelets must have; empty means the control plane's.
	Minor string
	Now   time.Time
	// Order are the namespaces to begin with.
	Order []string
	Skips []planfile.Skip
	Allow []planfile.Allow
	// Live is true where the cluster gets traffic: outages need a consent by name then.
	Live bool
}
