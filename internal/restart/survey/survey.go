package survey

import (
	"cmp"
	"slices"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/planfile"
)

// Survey puts every unfinished pod, terminating ones included, on a node whose kubelet
// minor is below the wanted one into exactly one item, by owner, and says what is done
// about it (Owners has the table). A node that states no kubelet is neither current nor
// lagging, and so is a pod without a node.
//
// The items come in the order in which they are to begin: CoreDNS, then what stands
// behind fail-closed webhooks, then the rest; within those the namespaces of o.Order,
// then the others by name; within a namespace the higher priority class first, then
// kind and name.
//
// Skips of the plan file count until the end of their day (UTC). The inventory is not
// changed; equal ones give equal items.
func Survey(inv *cluster.Inventory, o Options) []Item {
	subjects := gather(inv, o)
	items := make([]Item, 0, len(subjects))
	for _, s := range subjects {
		s.judge()
		if skipped, ok := (planfile.Restart{Skip: o.Skips}).Skipped(s.it.Owner.String(), o.Now); ok {
			s.none(skipped.Reason, "")
			s.it.Skipped = true
		}
		items = append(items, s.it)
	}
	rank := ranks(o.Order)
	slices.SortFunc(items, func(a, b Item) int { return compare(rank, a, b) })
	return items
}

// subject is one owner of lagging pods with all that the survey knows of it.
type subject struct {
	it      Item
	o       *Options
	w       *cluster.Workload
	budgets []cluster.Budget
	// standing counts the owner's unfinished pods that do not terminate, lagging or not.
	standing int
	// once is true where a lagging pod is meant to end.
	once bool
	// static is true where a lagging pod is the mirror of a static one.
	static bool
	// hosts are the nodes under the lagging pods that do not terminate, by name.
	hosts map[string]cluster.Node
}

// gather makes a subject of each owner that has a lagging pod.
func gather(inv *cluster.Inventory, o Options) map[string]*subject {
	minor := cmp.Or(o.Minor, inv.Version)
	nodes := make(map[string]cluster.Node, len(inv.Nodes))
	for _, n := range inv.Nodes {
		nodes[n.Name] = n
	}
	out := map[string]*subject{}
	for _, p := range inv.Pods {
		n, ok := nodes[p.Node]
		if p.Finished || !ok || !lags(n.Minor, minor) {
			continue
		}
		s := out[key(p.Owner)]
		if s == nil {
			s = &subject{it: Item{Owner: p.Owner, Group: Rest}, o: &o, hosts: map[string]cluster.Node{}}
			out[key(p.Owner)] = s
		}
		s.lag(p, n)
	}
	attach(inv, out)
	for _, s := range out {
		s.settle(nodes)
	}
	return out
}

// lags tells whether a kubelet of that minor is behind; one that states none is not.
func lags(kubelet, minor string) bool {
	return kubelet != "" && cluster.CompareMinor(kubelet, minor) < 0
}

// key tells owners apart: a custom StatefulSet may share the name of one of apps.
func key(o cluster.Owner) string {
	group, _ := groupVersion(o.APIVersion)
	return group + " " + o.String()
}

// lag enters a lagging pod.
func (s *subject) lag(p cluster.Pod, n cluster.Node) {
	s.it.Pods = append(s.it.Pods, p)
	s.static = s.static || p.Static
	if !p.Terminating {
		s.hosts[n.Name], s.once = n, s.once || p.Once
	}
}

// attach adds what the inventory's other lists say about the owners.
func attach(inv *cluster.Inventory, out map[string]*subject) {
	for i := range inv.Workloads {
		if s := out[key(inv.Workloads[i].Owner)]; s != nil {
			s.w = &inv.Workloads[i]
		}
	}
	for _, h := range inv.Webhooks {
		for _, o := range h.Owners {
			if s := out[key(o)]; s != nil {
				s.it.Webhooks = append(s.it.Webhooks, h.Configuration+"/"+h.Name)
			}
		}
	}
	for _, p := range inv.Pods {
		s := out[key(p.Owner)]
		if s == nil || p.Finished {
			continue
		}
		if !p.Terminating {
			s.standing++
			s.overlap(inv, p)
		}
		for _, b := range p.Budgets {
			if b >= 0 && b < len(inv.Budgets) {
				s.budget(inv.Budgets[b])
			}
		}
	}
}

// settle sorts what was collected and fills in the fields that follow from it.
func (s *subject) settle(nodes map[string]cluster.Node) {
	it := &s.it
	slices.SortFunc(it.Pods, func(a, b cluster.Pod) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	slices.Sort(it.Webhooks)
	it.Webhooks = slices.Compact(it.Webhooks)
	slices.SortFunc(s.budgets, func(a, b cluster.Budget) int { return cmp.Compare(a.String(), b.String()) })
	for _, b := range s.budgets {
		it.Budgets = append(it.Budgets, b.String())
	}
	it.Replicas = int32(s.standing)
	if s.w != nil {
		it.Replicas, it.Priority = s.w.Replicas, s.w.Priority
	}
	switch {
	case isCoreDNS(it.Owner):
		it.Group = CoreDNS
	case len(it.Webhooks) > 0:
		it.Group = WebhookBackends
	}
	if len(it.Pods) == 0 {
		return
	}
	// The newest pod tells what the next one will get: profiles are chosen at creation.
	newest := it.Pods[0]
	for _, p := range it.Pods {
		it.MilliCPU = max(it.MilliCPU, p.MilliCPU)
		if p.CreatedAt.After(newest.CreatedAt) {
			newest = p
		}
	}
	it.Profile = cmp.Or(newest.Profile, nodes[newest.Node].Profile)
}

// ranks gives the place of a namespace in the order of the plan file; namespaces that
// it does not name share the last place.
func ranks(order []string) func(cluster.Owner) int {
	at := map[string]int{}
	for i, ns := range order {
		if _, ok := at[ns]; !ok {
			at[ns] = i
		}
	}
	return func(o cluster.Owner) int {
		if n, ok := at[o.Namespace]; ok {
			return n
		}
		return len(order)
	}
}

func compare(rank func(cluster.Owner) int, a, b Item) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(rank(a.Owner), rank(b.Owner)),
		cmp.Compare(a.Owner.Namespace, b.Owner.Namespace), cmp.Compare(b.Priority, a.Priority),
		cmp.Compare(a.Owner.Kind, b.Owner.Kind), cmp.Compare(a.Owner.Name, b.Owner.Name),
		cmp.Compare(a.Owner.APIVersion, b.Owner.APIVersion))
}

// isCoreDNS tells whether the owner is the Deployment that EKS installs CoreDNS as.
// It goes first and alone: everything that starts after it needs names.
func isCoreDNS(o cluster.Owner) bool {
	group, _ := groupVersion(o.APIVersion)
	return o.Namespace == "kube-system" && group == "apps" && o.Kind == "Deployment" && o.Name == "coredns"
}
