package survey

import (
	"fmt"
	"time"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/planfile"
)

var day = time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)

// world is an inventory at 1.33 in the making. The nodes old and new are Fargate's;
// metal, auto and hybrid are not, and lag; patch has an older patch of 1.33; mute has
// not said its kubelet.
type world struct{ *cluster.Inventory }

func newWorld() world {
	return world{&cluster.Inventory{Name: "shop-green", Version: "1.33", Nodes: []cluster.Node{
		{Name: "old", Kubelet: "v1.32.9-eks-3025e55", Minor: "1.32", Compute: cluster.ComputeFargate, Profile: "fp-node"},
		{Name: "new", Kubelet: "v1.33.5-eks-3025e55", Minor: "1.33", Compute: cluster.ComputeFargate, Profile: "fp-node"},
		{Name: "patch", Kubelet: "v1.33.0-eks-1", Minor: "1.33", Compute: cluster.ComputeFargate},
		{Name: "mute", Compute: cluster.ComputeFargate},
		{Name: "metal", Kubelet: "v1.31.2-eks-94953ac", Minor: "1.31", Compute: cluster.ComputeEC2},
		{Name: "auto", Kubelet: "v1.32.2-eks-94953ac", Minor: "1.32", Compute: cluster.ComputeAuto},
		{Name: "hybrid", Kubelet: "v1.32.2", Minor: "1.32", Compute: cluster.ComputeHybrid},
	}}}
}

func own(apiVersion, namespace, kind, name string) cluster.Owner {
	return cluster.Owner{APIVersion: apiVersion, Namespace: namespace, Kind: kind, Name: name, UID: namespace + kind + name}
}

func deploy(namespace, name string) cluster.Owner {
	return own("apps/v1", namespace, "Deployment", name)
}
func stateful(namespace, name string) cluster.Owner {
	return own("apps/v1", namespace, "StatefulSet", name)
}

// pods puts that many ready pods of the owner onto a node, named by ordinals.
func (w world) pods(o cluster.Owner, n int, node string, change ...func(*cluster.Pod)) world {
	for range n {
		name := fmt.Sprintf("%s-%d", o.Name, w.count(o))
		p := cluster.Pod{Namespace: o.Namespace, Name: name, UID: o.UID + name, Node: node, Phase: "Running", Ready: true, Owner: o}
		for _, c := range change {
			c(&p)
		}
		w.Pods = append(w.Pods, p)
	}
	return w
}

func (w world) count(o cluster.Owner) int {
	n := 0
	for _, p := range w.Pods {
		if p.Owner == o {
			n++
		}
	}
	return n
}

// workload adds one with that many lagging pods.
func (w world) workload(o cluster.Owner, replicas int, change func(*cluster.Workload)) world {
	l := cluster.Workload{Owner: o, Replicas: int32(replicas), Ready: int32(replicas), Updated: int32(replicas), Current: int32(replicas)}
	if o.Kind == "Deployment" || o.Kind == "StatefulSet" {
		l.Strategy = cluster.StrategyRollingUpdate
	}
	if o.Kind == "Deployment" {
		l.MaxSurge = 1
	}
	if change != nil {
		change(&l)
	}
	w.Workloads = append(w.Workloads, l)
	return w.pods(o, replicas, "old")
}

// budget adds a PodDisruptionBudget over all pods of the owners that lets spare of them
// go when all are ready, as all are.
func (w world) budget(name string, spare int, owners ...cluster.Owner) world {
	b := cluster.Budget{Namespace: owners[0].Namespace, Name: name, Current: true}
	at := len(w.Budgets)
	for _, o := range owners {
		for i := range w.Pods {
			if w.Pods[i].Owner == o {
				w.Pods[i].Budgets = append(w.Pods[i].Budgets, at)
				b.Expected++
			}
		}
	}
	b.Healthy, b.Desired, b.Allowed = b.Expected, b.Expected-int32(spare), max(int32(spare), 0)
	w.Budgets = append(w.Budgets, b)
	return w
}

func (w world) webhook(name string, owners ...cluster.Owner) world {
	w.Webhooks = append(w.Webhooks, cluster.Webhook{Configuration: "guard", Name: name, Service: "platform/" + name, Owners: owners})
	return w
}

func permit(o cluster.Owner, action string) planfile.Allow {
	return planfile.Allow{Owner: o.String(), Action: action, Reason: "agreed on"}
}

func terminating(p *cluster.Pod) { p.Terminating = true }
func once(p *cluster.Pod)        { p.Once = true }
func static(p *cluster.Pod)      { p.Static = true }

// row is an item as a line: group, method, bounds, who, why.
func row(it Item) string {
	s := fmt.Sprintf("%d %s -%d+%d %s", it.Group, it.Method, it.Takes, it.Extra, it)
	switch {
	case it.Skipped:
		s += " (skipped)"
	case it.Stuck():
		s += " (stuck)"
	}
	if it.Outage != "" {
		s += " (outage)"
	}
	return s
}

func rows(items []Item) []string {
	var out []string
	for _, it := range items {
		out = append(out, row(it))
	}
	return out
}

// only is the one item of the survey.
func only(w world, o Options) Item {
	items := Survey(w.Inventory, o)
	if len(items) != 1 {
		panic(fmt.Sprintf("%d items: %q", len(items), rows(items)))
	}
	return items[0]
}
