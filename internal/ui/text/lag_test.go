package text_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/restart/survey"
	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/ui/text"
)

// fleet is a cluster at 1.33 on which every kind of owner lags.
func fleet() *cluster.Inventory {
	inv := &cluster.Inventory{Name: "shop-green", Version: "1.33"}
	node := func(compute, minor string) string {
		name := fmt.Sprintf("%s-ip-10-0-1-%d.ap-northeast-1.compute.internal", compute, len(inv.Nodes))
		inv.Nodes = append(inv.Nodes, cluster.Node{Name: name, Kubelet: "v" + minor + ".9-eks-113cf36", Minor: minor, Compute: compute})
		return name
	}
	add := func(apiVersion, ns, kind, name string, pods int32, change func(*cluster.Workload)) cluster.Owner {
		o := cluster.Owner{APIVersion: apiVersion, Namespace: ns, Kind: kind, Name: name, UID: ns + kind + name}
		for i := range pods {
			inv.Pods = append(inv.Pods, cluster.Pod{Namespace: ns, Name: fmt.Sprintf("%s-7d9f8b6c5-x2x%d", name, i), UID: fmt.Sprint(o.UID, i),
				Node: node(cluster.ComputeFargate, []string{"1.32", "1.31"}[i%2]), Phase: "Running", Ready: true, Owner: o})
		}
		if change != nil {
			w := cluster.Workload{Owner: o, Replicas: pods, Ready: pods, Strategy: cluster.StrategyRollingUpdate, MaxSurge: 1}
			change(&w)
			inv.Workloads = append(inv.Workloads, w)
		}
		return o
	}
	same := func(*cluster.Workload) {}
	add("apps/v1", "kube-system", "Deployment", "coredns", 2, same)
	add("apps/v1", "shop", "Deployment", "cart", 6, same)
	add("apps/v1", "shop", "Deployment", "checkout-of-the-second-generation-with-a-long-name", 4, same)
	add("apps/v1", "shop", "Deployment", "frozen", 1, func(w *cluster.Workload) { w.Paused = true })
	add("apps/v1", "shop", "Deployment", "legacy-cart", 1, func(w *cluster.Workload) { w.Strategy = cluster.StrategyRecreate })
	add("apps/v1", "shop", "StatefulSet", "ledger", 3, func(w *cluster.Workload) { w.Strategy = cluster.StrategyOnDelete })
	add("batch/v1", "shop", "Job", "nightly-report", 1, nil)
	add("v1", "ops", "Pod", "toolbox", 1, nil)
	add("v1", "ops", "Pod", "debug", 1, nil)
	hook := add("apps/v1", "platform", "Deployment", "policy", 2, same)
	inv.Webhooks = []cluster.Webhook{{Configuration: "policy", Name: "validate.policy.example.com", Service: "platform/policy", Owners: []cluster.Owner{hook}}}
	return inv
}

func TestLag(t *testing.T) {
	inv := fleet()
	for name, live := range map[string]bool{"lag": false, "lag-live": true} {
		items := survey.Survey(inv, survey.Options{Now: at, Live: live,
			Skips: []planfile.Skip{{Owner: "ops/Pod/debug", Reason: "an open session, until Friday", Until: planfile.Date{Time: at}}}})
		var b bytes.Buffer
		text.Lag(&b, text.LagView{Side: state.Green, Inventory: inv, Items: items,
			Leftovers: "12 finished Jobs hold 12 Fargate addresses\neksbg jobs clean plans/shop-hot.yaml --cluster green"})
		check(t, name, b.Bytes())
	}
	none := &cluster.Inventory{Name: "shop-blue", Version: "1.33", Pods: make([]cluster.Pod, 1)}
	var b bytes.Buffer
	text.Lag(&b, text.LagView{Side: state.Blue, Inventory: none})
	check(t, "lag-nothing", b.Bytes())
}
