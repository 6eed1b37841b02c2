package restart

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/planfile"
)

// Method is how the pods of an item get a new kubelet.
type Method string

// The methods.
const (
	// Rollout: kubectl's restartedAt annotation on the pod template makes the
	// controller replace every pod.
	Rollout Method = "rollout"
	// None: this step does nothing to the owner; Item.Reason says why.
	None Method = "none"
)

// Item is one owner of lagging pods and what can be done about them.
type Item struct {
	Owner cluster.Owner
	// Pods are the lagging, unfinished pods, by name; terminating ones included.
	Pods   []cluster.Pod
	Method Method
	// Reason says why the method is None, or why the plan file skips the owner.
	Reason string
	// Skipped is true where the plan file leaves the owner lagging for now.
	Skipped bool
	// Leaving is true where the pods go without anybody's doing: all of them are
	// terminating, or their owner is scaled to 0. They are waited for.
	Leaving bool
}

// Stuck tells whether the item keeps the run from going on: nothing restarts it,
// it does not leave by itself, and the plan file does not skip it.
func (i Item) Stuck() bool { return i.Method == None && !i.Skipped && !i.Leaving }

// String is the item as one line for people.
func (i Item) String() string {
	s := fmt.Sprintf("%s: %s", i.Owner, plural(len(i.Pods), "pod"))
	if i.Reason != "" {
		s += ", " + i.Reason
	}
	return s
}

// Survey puts every unfinished pod on a node whose kubelet minor is below the
// control plane's into exactly one item, by owner. CoreDNS comes first, then the
// namespaces of order, then the rest by name. Skips of the plan file count until
// the end of their day (UTC).
//
// A rollout restart moves Deployments and StatefulSets, except paused ones,
// OnDelete ones, and StatefulSets whose partition keeps a lagging ordinal
// (kubernetes/kubernetes#70442, redpanda-data/redpanda-operator#126).
func Survey(inv *cluster.Inventory, skips []planfile.Skip, now time.Time, order []string) []Item {
	return survey(inv, inv.Version, skips, now, order)
}

// survey is Survey against a minor other than the control plane's.
func survey(inv *cluster.Inventory, minor string, skips []planfile.Skip, now time.Time, order []string) []Item {
	place := places(inv, minor)
	workloads := byOwner(inv)
	groups := map[string]*Item{}
	for _, p := range inv.Pods {
		if p.Finished || place(p.Node) != lagging {
			continue
		}
		key := p.Owner.APIVersion + " " + p.Owner.String()
		if groups[key] == nil {
			groups[key] = &Item{Owner: p.Owner}
		}
		groups[key].Pods = append(groups[key].Pods, p)
	}
	items := make([]Item, 0, len(groups))
	for _, it := range groups {
		slices.SortFunc(it.Pods, func(a, b cluster.Pod) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
		})
		judge(it, workloads[it.Owner.String()])
		if reason, ok := skipped(skips, it.Owner.String(), now); ok {
			it.Method, it.Reason, it.Skipped, it.Leaving = None, reason, true, false
		}
		items = append(items, *it)
	}
	rank := ranks(order)
	slices.SortFunc(items, func(a, b Item) int { return compareOwners(rank, a.Owner, b.Owner) })
	return items
}

// judge fills in what can be done about the pods of one owner.
func judge(it *Item, w *cluster.Workload) {
	it.Method = None
	switch {
	case !slices.ContainsFunc(it.Pods, func(p cluster.Pod) bool { return !p.Terminating }):
		it.Reason, it.Leaving = "terminating: goes by itself", true
	case !rollable(it.Owner):
		it.Reason = unrollable(it.Owner)
	case w == nil:
		it.Reason = it.Owner.Kind + " is not there: its pods have lost their owner"
	case w.Replicas == 0:
		it.Reason, it.Leaving = "scaled to 0: goes by itself", true
	default:
		it.Reason = pinned(it.Owner.Kind, w.Paused, w.Strategy, w.Partition, lagOrdinals(it.Pods))
		if it.Reason == "" {
			it.Method = Rollout
		}
	}
}

// rollable tells whether the owner is of a kind whose controller replaces pods
// when the template changes.
func rollable(o cluster.Owner) bool {
	group, _ := groupVersion(o.APIVersion)
	return group == "apps" && (o.Kind == "Deployment" || o.Kind == "StatefulSet")
}

// unrollable says why an owner that is not rollable is left alone.
func unrollable(o cluster.Owner) string {
	group, _ := groupVersion(o.APIVersion)
	switch kind := o.Kind; {
	case kind == "Pod" && group == "":
		return "bare pod: nothing would make it again"
	case kind == "Node" && group == "":
		return "static pod"
	case kind == "Job" && group == "batch":
		return "Job still running"
	case kind == "CronJob" && group == "batch":
		return "Job of a CronJob still running"
	case kind == "DaemonSet" && group == "apps":
		return "DaemonSet"
	case kind == "ReplicaSet" && group == "apps":
		return "ReplicaSet without a Deployment: a rollout restart does not reach it"
	case kind == "ReplicationController" && group == "":
		return "ReplicationController: a rollout restart does not reach it"
	case group == "":
		return fmt.Sprintf("owner kind %s is unknown", kind)
	default:
		return fmt.Sprintf("owner kind %s.%s is unknown", kind, group)
	}
}

// pinned says what keeps a rollout restart from moving the pods, or "".
func pinned(kind string, paused bool, strategy string, partition int32, ordinals []int) string {
	switch {
	case kind == "Deployment" && paused:
		return "paused Deployment"
	case kind == "StatefulSet" && strategy == "OnDelete":
		return "StatefulSet with OnDelete"
	case kind == "StatefulSet" && slices.ContainsFunc(ordinals, func(n int) bool { return n < int(partition) }):
		return fmt.Sprintf("partition %d keeps ordinals below it", partition)
	}
	return ""
}

// lagOrdinals are the ordinals of the pods of a StatefulSet, from their names.
func lagOrdinals(pods []cluster.Pod) []int {
	var out []int
	for _, p := range pods {
		if n, ok := ordinal(p.Name); ok && !p.Terminating {
			out = append(out, n)
		}
	}
	return out
}

func ordinal(pod string) (int, bool) {
	n, err := strconv.Atoi(pod[strings.LastIndexByte(pod, '-')+1:])
	return n, err == nil && n >= 0
}

func groupVersion(apiVersion string) (group, version string) {
	if g, v, ok := strings.Cut(apiVersion, "/"); ok {
		return g, v
	}
	return "", apiVersion
}

// skipped gives the reason for which the plan file leaves the owner lagging today.
func skipped(skips []planfile.Skip, owner string, now time.Time) (string, bool) {
	s, ok := planfile.Restart{Skip: skips}.Skipped(owner, now)
	return s.Reason, ok
}

// ranks gives the place of a namespace in the order of the plan file; namespaces
// that it does not name share the last place.
func ranks(order []string) func(cluster.Owner) int {
	at := map[string]int{}
	for i, ns := range order {
		if _, ok := at[ns]; !ok {
			at[ns] = i + 1
		}
	}
	return func(o cluster.Owner) int {
		if isCoreDNS(o) {
			return 0
		}
		if n, ok := at[o.Namespace]; ok {
			return n
		}
		return len(order) + 1
	}
}

func compareOwners(rank func(cluster.Owner) int, a, b cluster.Owner) int {
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.APIVersion, b.APIVersion))
}

// isCoreDNS tells whether the owner is the Deployment that EKS installs CoreDNS as.
// It goes first and alone: everything that starts after it needs names.
func isCoreDNS(o cluster.Owner) bool {
	return o.Namespace == "kube-system" && o.Kind == "Deployment" && o.Name == "coredns"
}

// place is where a pod stands with respect to the wanted minor.
type place int

const (
	// nowhere: on no node yet, or on one that is not known (yet).
	nowhere place = iota
	lagging
	current
)

// places tells where pods stand by the name of their node.
func places(inv *cluster.Inventory, minor string) func(node string) place {
	at := make(map[string]place, len(inv.Nodes))
	for _, n := range inv.Nodes {
		at[n.Name] = placeOf(n.Minor, minor)
	}
	return func(node string) place { return at[node] }
}

// placeOf compares the minor of a kubelet with the wanted one; a kubelet that
// states no minor is nowhere, which is neither done nor lagging.
func placeOf(kubelet, minor string) place {
	switch {
	case kubelet == "":
		return nowhere
	case cluster.CompareMinor(kubelet, minor) < 0:
		return lagging
	}
	return current
}

func byOwner(inv *cluster.Inventory) map[string]*cluster.Workload {
	out := make(map[string]*cluster.Workload, len(inv.Workloads))
	for i := range inv.Workloads {
		if w := &inv.Workloads[i]; rollable(w.Owner) {
			out[w.Owner.String()] = w
		}
	}
	return out
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
