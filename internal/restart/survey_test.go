package restart

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/planfile"
)

func own(apiVersion, ns, kind, name string) cluster.Owner {
	return cluster.Owner{APIVersion: apiVersion, Namespace: ns, Kind: kind, Name: name, UID: ns + kind + name}
}

// twoNodes is an inventory at 1.33 with a node on the older and one on the newer minor.
func twoNodes() *cluster.Inventory {
	return &cluster.Inventory{Name: "shop-green", Version: "1.33", Nodes: []cluster.Node{
		{Name: "old", Kubelet: oldKubelet, Minor: "1.32"}, {Name: "new", Kubelet: newKubelet, Minor: "1.33"},
		{Name: "patch", Kubelet: "v1.33.0-eks-1", Minor: "1.33"}, {Name: "mute"}}}
}

// rows are the items as one line each.
func rows(items []Item) []string {
	var out []string
	for _, it := range items {
		s := fmt.Sprintf("%s %s", it.Method, it)
		if it.Skipped {
			s += " (skipped)"
		}
		if it.Leaving {
			s += " (leaving)"
		}
		if it.Stuck() {
			s += " (stuck)"
		}
		out = append(out, s)
	}
	return out
}

func TestSurveyListsEveryOwner(t *testing.T) {
	inv := twoNodes()
	add := func(o cluster.Owner, pod string, change func(*cluster.Pod)) {
		p := cluster.Pod{Namespace: o.Namespace, Name: pod, UID: pod + o.Namespace, Node: "old", Phase: "Running", Owner: o}
		if change != nil {
			change(&p)
		}
		inv.Pods = append(inv.Pods, p)
	}
	workload := func(w cluster.Workload) cluster.Owner {
		inv.Workloads = append(inv.Workloads, w)
		return w.Owner
	}
	terminating := func(p *cluster.Pod) { p.Terminating = true }
	deploy := func(ns, name string) cluster.Owner {
		return workload(cluster.Workload{Owner: own("apps/v1", ns, "Deployment", name), Replicas: 2})
	}
	cart := deploy("shop", "cart")
	add(cart, "cart-1", nil)
	add(cart, "cart-2", terminating)
	add(cart, "cart-3", func(p *cluster.Pod) { p.Node = "new" })
	add(cart, "cart-4", func(p *cluster.Pod) { p.Finished = true })
	add(cart, "cart-5", func(p *cluster.Pod) { p.Node = "" })
	add(deploy("kube-system", "coredns"), "coredns-1", nil)
	add(deploy("platform", "gate"), "gate-1", nil)
	add(deploy("audit", "log"), "log-1", nil)
	add(deploy("shop", "patched"), "patched-1", func(p *cluster.Pod) { p.Node = "patch" })
	add(deploy("shop", "unsaid"), "unsaid-1", func(p *cluster.Pod) { p.Node = "mute" })
	add(deploy("shop", "going"), "going-1", terminating)
	add(workload(cluster.Workload{Owner: own("apps/v1", "shop", "Deployment", "halted"), Replicas: 1, Paused: true}), "halted-1", nil)
	add(workload(cluster.Workload{Owner: own("apps/v1", "shop", "Deployment", "zero")}), "zero-1", nil)
	add(own("apps/v1", "shop", "Deployment", "gone"), "gone-1", nil)
	add(workload(cluster.Workload{Owner: own("apps/v1", "data", "StatefulSet", "db"), Replicas: 3, Strategy: "RollingUpdate"}), "db-0", nil)
	add(workload(cluster.Workload{Owner: own("apps/v1", "data", "StatefulSet", "manual"), Replicas: 3, Strategy: "OnDelete"}), "manual-0", nil)
	canary := workload(cluster.Workload{Owner: own("apps/v1", "data", "StatefulSet", "canary"), Replicas: 3, Strategy: "RollingUpdate", Partition: 2})
	add(canary, "canary-1", nil)
	add(canary, "canary-2", nil)
	add(workload(cluster.Workload{Owner: own("apps/v1", "data", "StatefulSet", "canary-done"), Replicas: 3, Strategy: "RollingUpdate", Partition: 2}), "canary-done-2", nil)
	add(own("v1", "shop", "Pod", "debug"), "debug", nil)
	add(own("batch/v1", "shop", "Job", "seed"), "seed-x", nil)
	add(own("batch/v1", "shop", "CronJob", "nightly"), "nightly-x", nil)
	add(own("apps/v1", "shop", "ReplicaSet", "alone"), "alone-x", nil)
	add(own("v1", "shop", "ReplicationController", "ancient"), "ancient-x", nil)
	add(own("apps/v1", "kube-system", "DaemonSet", "logs"), "logs-x", nil)
	add(own("v1", "", "Node", "old"), "kube-proxy-old", nil)
	add(own("argoproj.io/v1alpha1", "shop", "Rollout", "api"), "api-x", nil)
	add(own("apps.kruise.io/v1beta1", "data", "StatefulSet", "kruise"), "kruise-0", nil)
	add(own("v1", "shop", "Widget", "odd"), "odd-x", nil)

	got := rows(Survey(inv, nil, start, []string{"platform", "data"}))
	if diff := cmp.Diff([]string{
		"rollout kube-system/Deployment/coredns: 1 pod",
		"rollout platform/Deployment/gate: 1 pod",
		"none data/StatefulSet/canary: 2 pods, partition 2 keeps ordinals below it (stuck)",
		"rollout data/StatefulSet/canary-done: 1 pod",
		"rollout data/StatefulSet/db: 1 pod",
		"none data/StatefulSet/kruise: 1 pod, owner kind StatefulSet.apps.kruise.io is unknown (stuck)",
		"none data/StatefulSet/manual: 1 pod, StatefulSet with OnDelete (stuck)",
		"none Node/old: 1 pod, static pod (stuck)",
		"rollout audit/Deployment/log: 1 pod",
		"none kube-system/DaemonSet/logs: 1 pod, DaemonSet (stuck)",
		"none shop/CronJob/nightly: 1 pod, Job of a CronJob still running (stuck)",
		"rollout shop/Deployment/cart: 2 pods",
		"none shop/Deployment/going: 1 pod, terminating: goes by itself (leaving)",
		"none shop/Deployment/gone: 1 pod, Deployment is not there: its pods have lost their owner (stuck)",
		"none shop/Deployment/halted: 1 pod, paused Deployment (stuck)",
		"none shop/Deployment/zero: 1 pod, scaled to 0: goes by itself (leaving)",
		"none shop/Job/seed: 1 pod, Job still running (stuck)",
		"none shop/Pod/debug: 1 pod, bare pod: nothing would make it again (stuck)",
		"none shop/ReplicaSet/alone: 1 pod, ReplicaSet without a Deployment: a rollout restart does not reach it (stuck)",
		"none shop/ReplicationController/ancient: 1 pod, ReplicationController: a rollout restart does not reach it (stuck)",
		"none shop/Rollout/api: 1 pod, owner kind Rollout.argoproj.io is unknown (stuck)",
		"none shop/Widget/odd: 1 pod, owner kind Widget is unknown (stuck)",
	}, got); diff != "" {
		t.Error(diff)
	}
}

func TestSurveySkips(t *testing.T) {
	inv := twoNodes()
	job := own("batch/v1", "shop", "Job", "seed")
	inv.Pods = []cluster.Pod{{Namespace: "shop", Name: "seed-x", Node: "old", Owner: job}}
	until := func(d time.Time) []planfile.Skip {
		return []planfile.Skip{{Owner: "shop/Job/other", Reason: "no", Until: planfile.Date{Time: d}},
			{Owner: "shop/Job/seed", Reason: "ends at 04:00", Until: planfile.Date{Time: d}}}
	}
	day := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		skips []planfile.Skip
		now   time.Time
		want  string
	}{
		"today":     {until(day), day.Add(23*time.Hour + 59*time.Minute), "none shop/Job/seed: 1 pod, ends at 04:00 (skipped)"},
		"yesterday": {until(day), day.Add(24 * time.Hour), "none shop/Job/seed: 1 pod, Job still running (stuck)"},
		"no skip":   {nil, day, "none shop/Job/seed: 1 pod, Job still running (stuck)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := rows(Survey(inv, tt.skips, tt.now, nil)); len(got) != 1 || got[0] != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// drawInventory makes any mix of owners, pods and nodes.
func drawInventory(t *rapid.T) *cluster.Inventory {
	inv := twoNodes()
	kinds := []cluster.Owner{own("apps/v1", "", "Deployment", ""), own("apps/v1", "", "StatefulSet", ""), own("v1", "", "Pod", ""),
		own("batch/v1", "", "Job", ""), own("example.com/v1", "", "Deployment", ""), own("apps/v1", "", "DaemonSet", ""), own("v1", "", "Node", "")}
	for i := range rapid.IntRange(0, 12).Draw(t, "owners") {
		o := rapid.SampledFrom(kinds).Draw(t, "kind")
		o.Namespace = rapid.SampledFrom([]string{"a", "b", "kube-system", "z"}).Draw(t, "namespace")
		o.Name = rapid.SampledFrom([]string{"coredns", fmt.Sprint("w", i)}).Draw(t, "name")
		if rapid.Bool().Draw(t, "listed") {
			inv.Workloads = append(inv.Workloads, cluster.Workload{Owner: o, Replicas: rapid.Int32Range(0, 3).Draw(t, "replicas"),
				Paused: rapid.Bool().Draw(t, "paused"), Partition: rapid.Int32Range(0, 2).Draw(t, "partition"),
				Strategy: rapid.SampledFrom([]string{"RollingUpdate", "OnDelete"}).Draw(t, "strategy")})
		}
		for n := range rapid.IntRange(0, 3).Draw(t, "pods") {
			inv.Pods = append(inv.Pods, cluster.Pod{Namespace: o.Namespace, Name: fmt.Sprintf("%s-%d", o.Name, n), UID: fmt.Sprint(i, "/", n), Owner: o,
				Node:        rapid.SampledFrom([]string{"old", "new", "patch", "mute", "", "away"}).Draw(t, "node"),
				Terminating: rapid.Bool().Draw(t, "terminating"), Finished: rapid.Bool().Draw(t, "finished")})
		}
	}
	return inv
}

// Every lagging pod is in exactly one item, of its own owner; every item that is not
// rolled says why; CoreDNS comes first, then the namespaces in their order.
func TestSurveyProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inv := drawInventory(t)
		order := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "kube-system", "z"}), 0, 3, rapid.ID).Draw(t, "order")
		items := Survey(inv, nil, start, order)
		var want, got []string
		for _, p := range inv.Lagging() {
			want = append(want, p.UID)
		}
		for _, it := range items {
			if (it.Method == Rollout) == (it.Reason != "") || len(it.Pods) == 0 {
				t.Fatalf("method and reason disagree: %+v", it)
			}
			if it.Method == Rollout && it.Owner.APIVersion != "apps/v1" {
				t.Fatalf("%s of %s cannot be rolled", it.Owner, it.Owner.APIVersion)
			}
			for _, p := range it.Pods {
				got = append(got, p.UID)
				if p.Owner.String() != it.Owner.String() || p.Owner.APIVersion != it.Owner.APIVersion {
					t.Fatalf("pod of %s in item of %s", p.Owner, it.Owner)
				}
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			t.Fatalf("lagging %v, in items %v", want, got)
		}
		at := func(o cluster.Owner) int {
			if o.String() == "kube-system/Deployment/coredns" {
				return -1
			}
			if n := slices.Index(order, o.Namespace); n >= 0 {
				return n
			}
			return len(order)
		}
		if !slices.IsSortedFunc(items, func(a, b Item) int { return at(a.Owner) - at(b.Owner) }) {
			t.Fatalf("order %v: %v", order, rows(items))
		}
	})
}
