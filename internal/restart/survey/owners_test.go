package survey

import (
	"testing"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/planfile"
)

// examples has one world with one lagging owner for each row of Owners.
func examples() map[string]func() world {
	d, s := deploy("shop", "cart"), stateful("data", "db")
	rs, rc := own("apps/v1", "shop", "ReplicaSet", "alone"), own("v1", "shop", "ReplicationController", "ancient")
	kruise, flow := own("apps.kruise.io/v1beta1", "data", "StatefulSet", "kv"), own("argoproj.io/v1alpha1", "ci", "Workflow", "build")
	coredns := deploy("kube-system", "coredns")
	recreate := func(w *cluster.Workload) { w.Strategy, w.MaxSurge = cluster.StrategyRecreate, 0 }
	return map[string]func() world{
		"Deployment": func() world { return newWorld().workload(d, 2, nil) },
		"Deployment/the rollout would take all of several replicas at once": func() world { return newWorld().workload(d, 2, recreate) },
		"Deployment/paused": func() world {
			return newWorld().workload(d, 2, func(w *cluster.Workload) { w.Paused = true })
		},
		"Deployment/CoreDNS with several replicas": func() world { return newWorld().workload(coredns, 2, nil) },
		"Deployment/CoreDNS with one replica":      func() world { return newWorld().workload(coredns, 1, nil) },
		"StatefulSet":                              func() world { return newWorld().workload(s, 2, nil) },
		"StatefulSet/a partition keeps lagging pods": func() world {
			return newWorld().workload(s, 3, func(w *cluster.Workload) { w.Partition = 1 })
		},
		"StatefulSet/OnDelete": func() world {
			return newWorld().workload(s, 3, func(w *cluster.Workload) { w.Strategy = cluster.StrategyOnDelete })
		},
		"ReplicaSet/without an owner, several replicas": func() world { return newWorld().workload(rs, 2, nil) },
		"ReplicaSet/without an owner, one replica":      func() world { return newWorld().workload(rs, 1, nil) },
		"ReplicationController/several replicas":        func() world { return newWorld().workload(rc, 2, nil) },
		"ReplicationController/one replica":             func() world { return newWorld().workload(rc, 1, nil) },
		"Rollout (argoproj.io)": func() world {
			return newWorld().pods(own("argoproj.io/v1alpha1", "shop", "Rollout", "api"), 3, "old")
		},
		"another custom kind":                             func() world { return newWorld().pods(kruise, 2, "old") },
		"another custom kind/pods that end by themselves": func() world { return newWorld().pods(flow, 2, "old", once) },
		"Job":                  func() world { return newWorld().pods(own("batch/v1", "shop", "Job", "seed"), 1, "old", once) },
		"CronJob":              func() world { return newWorld().pods(own("batch/v1", "shop", "CronJob", "nightly"), 1, "old", once) },
		"Pod/bare":             func() world { return newWorld().pods(own("v1", "shop", "Pod", "debug"), 1, "old") },
		"Pod/static or mirror": func() world { return newWorld().pods(own("v1", "", "Node", "metal"), 2, "metal", static) },
		"DaemonSet":            func() world { return newWorld().pods(own("apps/v1", "kube-system", "DaemonSet", "logs"), 1, "metal") },
		"any/all lagging pods on nodes that are not Fargate": func() world {
			w := newWorld().workload(d, 2, nil)
			w.Pods[0].Node, w.Pods[1].Node = "metal", "auto"
			return w
		},
		"any/all lagging pods terminating": func() world {
			return newWorld().workload(d, 0, func(w *cluster.Workload) { w.Replicas = 3 }).pods(d, 2, "old", terminating).pods(d, 3, "new")
		},
		"any/scaled to 0": func() world { return newWorld().workload(d, 0, nil).pods(d, 1, "old") },
		"any/no ready pod meanwhile, and the cluster has the traffic": func() world { return newWorld().workload(d, 1, recreate) },
		"any/behind a fail-closed webhook, no ready pod meanwhile": func() world {
			return newWorld().workload(d, 1, recreate).webhook("pods", d)
		},
		"any/a budget never allows the rollout, but one pod": func() world {
			return newWorld().workload(d, 4, func(w *cluster.Workload) { w.MaxUnavailable = 2 }).budget("cart", 1, d)
		},
		"any/a budget never allows a pod to go": func() world { return newWorld().workload(s, 2, nil).budget("db", 0, s) },
		"any/evicted, and two budgets select a pod": func() world {
			return newWorld().workload(rs, 2, nil).budget("a", 1, rs).budget("b", 2, rs)
		},
		"any/in restart.skip": func() world { return newWorld().workload(d, 2, nil) },
	}
}

// TestOwnersTable holds the table against what a survey decides, with and without the
// permission that the row names.
func TestOwnersTable(t *testing.T) {
	worlds := examples()
	for _, r := range Owners() {
		name := r.Owner
		if r.When != "" {
			name += "/" + r.When
		}
		t.Run(name, func(t *testing.T) {
			make, ok := worlds[name]
			if !ok {
				t.Fatal("no example")
			}
			delete(worlds, name)
			if r.How == "" || (r.Action == "") != (r.Allowed == "") {
				t.Errorf("row %+v is not complete", r)
			}
			o := Options{Now: day, Live: r.When == "no ready pod meanwhile, and the cluster has the traffic"}
			owner := make().Pods[0].Owner
			if r.When == "in restart.skip" {
				o.Skips = []planfile.Skip{{Owner: owner.String(), Reason: "retires", Until: planfile.Date{Time: day}}}
			}
			got := only(make(), o)
			if got.Method != r.Method {
				t.Errorf("unasked: %s, the table says %s: %s", got.Method, r.Method, got)
			}
			for _, action := range []string{planfile.ActionEvict, planfile.ActionRecreate, planfile.ActionOutage} {
				o.Allow = []planfile.Allow{permit(owner, action)}
				want := r.Method
				if action == r.Action {
					want = r.Allowed
				}
				if got := only(make(), o); got.Method != want {
					t.Errorf("%s allowed: %s, the table says %s: %s", action, got.Method, want, got)
				}
			}
		})
	}
	for name := range worlds {
		t.Errorf("no row for %s", name)
	}
}
