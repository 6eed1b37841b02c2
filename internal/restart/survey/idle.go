package survey

import (
	"cmp"

	"github.com/eksbg/eksbg/internal/cluster"
)

// UnderWay fills in, of items that the caller has made by hand, what admission goes by:
// group, webhooks, budgets, priority, replicas, profile, vCPU, Takes and Extra. They are
// of owners without a lagging pod of which something is still under way, which Survey
// does not give: a pod that was taken and does not stand again yet, a rollout before its
// last pods are ready. Owner, Pods, Method and the reasons stay as they are.
func UnderWay(inv *cluster.Inventory, o Options, items []Item) []Item {
	if len(items) == 0 {
		return items
	}
	nodes := make(map[string]cluster.Node, len(inv.Nodes))
	for _, n := range inv.Nodes {
		nodes[n.Name] = n
	}
	subjects := make(map[string]*subject, len(items))
	for _, it := range items {
		subjects[key(it.Owner)] = &subject{it: Item{Owner: it.Owner, Group: Rest}, o: &o, hosts: map[string]cluster.Node{}}
	}
	for _, p := range inv.Pods {
		if s := subjects[key(p.Owner)]; s != nil && !p.Finished {
			s.lag(p, nodes[p.Node])
		}
	}
	attach(inv, subjects)
	for _, s := range subjects {
		s.settle(nodes)
	}
	out := make([]Item, 0, len(items))
	for _, it := range items {
		s := subjects[key(it.Owner)]
		it.Group, it.Webhooks, it.Budgets, it.Overlap, it.Priority = s.it.Group, s.it.Webhooks, s.it.Budgets, s.it.Overlap, s.it.Priority
		it.Profile, it.MilliCPU, it.Replicas = s.it.Profile, s.it.MilliCPU, s.it.Replicas
		it.Takes, it.Extra = s.bounds()
		out = append(out, it)
	}
	return out
}

// bounds are the Takes and Extra of the widest way in which the owner may be restarted
// already: which one was taken is not known.
func (s *subject) bounds() (takes, extra int) {
	probe := *s
	takes, extra = 1, 1
	if kind := kindOf(s.it.Owner); kind == "Deployment.apps" || kind == "StatefulSet.apps" {
		for _, w := range kinds[kind](&probe) {
			takes, extra = max(takes, w.takes), max(extra, w.extra)
		}
	}
	return min(takes, max(int(cmp.Or(s.it.Replicas, 1)), 1)), extra
}
