package restart

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eksbg/eksbg/internal/cluster"
)

// inventory reads the simulated cluster afresh, at the minor.
func (s *sim) inventory(minor string) func(context.Context) (*cluster.Inventory, error) {
	return func(ctx context.Context) (*cluster.Inventory, error) {
		inv := &cluster.Inventory{Name: "shop-green", Version: minor, Status: "ACTIVE"}
		pods, err := s.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		must(err)
		sets, err := s.client.AppsV1().ReplicaSets("").List(ctx, metav1.ListOptions{})
		must(err)
		nodes, err := s.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		must(err)
		above := map[types.UID]metav1.OwnerReference{}
		for i := range sets.Items {
			if c := metav1.GetControllerOf(&sets.Items[i]); c != nil {
				above[sets.Items[i].UID] = *c
			}
		}
		for _, n := range nodes.Items {
			m, err := cluster.Minor(n.Status.NodeInfo.KubeletVersion)
			if n.Status.NodeInfo.KubeletVersion != "" {
				must(err)
			}
			inv.Nodes = append(inv.Nodes, cluster.Node{Name: n.Name, Kubelet: n.Status.NodeInfo.KubeletVersion, Minor: m})
		}
		for i := range pods.Items {
			inv.Pods = append(inv.Pods, seen(&pods.Items[i], above))
		}
		s.others(ctx, inv)
		inv.Workloads = append(s.workloads(ctx), s.bare(ctx)...)
		return inv, ctx.Err()
	}
}

func seen(p *corev1.Pod, above map[types.UID]metav1.OwnerReference) cluster.Pod {
	out := cluster.Pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Node: p.Spec.NodeName, Phase: string(p.Status.Phase),
		Terminating: p.DeletionTimestamp != nil, Finished: finished(p),
		Once:  p.Spec.RestartPolicy == corev1.RestartPolicyNever || p.Spec.RestartPolicy == corev1.RestartPolicyOnFailure,
		Owner: cluster.Owner{APIVersion: "v1", Namespace: p.Namespace, Kind: "Pod", Name: p.Name, UID: string(p.UID)}}
	if c := metav1.GetControllerOf(p); c != nil {
		o := *c
		if up, ok := above[o.UID]; ok {
			o = up
		}
		out.Owner = cluster.Owner{APIVersion: o.APIVersion, Namespace: p.Namespace, Kind: o.Kind, Name: o.Name, UID: string(o.UID)}
	}
	if c := podCondition(p, corev1.PodReady); c != nil {
		out.Ready = c.Status == corev1.ConditionTrue
	}
	return out
}

func (s *sim) workloads(ctx context.Context) []cluster.Workload {
	var out []cluster.Workload
	ds, err := s.client.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
	must(err)
	for _, d := range ds.Items {
		w, _ := cluster.WorkloadOf(&d)
		out = append(out, w)
	}
	sts, err := s.client.AppsV1().StatefulSets("").List(ctx, metav1.ListOptions{})
	must(err)
	for _, st := range sts.Items {
		w, _ := cluster.WorkloadOf(&st)
		out = append(out, w)
	}
	return out
}

// others adds CronJobs, budgets (each over the whole of its namespace) and the sets
// that nobody controls.
func (s *sim) others(ctx context.Context, inv *cluster.Inventory) {
	crons, err := s.client.BatchV1().CronJobs("").List(ctx, metav1.ListOptions{})
	must(err)
	for i := range crons.Items {
		cj := &crons.Items[i]
		inv.CronJobs = append(inv.CronJobs, cluster.CronJob{ResourceVersion: cj.ResourceVersion, Suspended: suspended(cj), Mark: cj.Annotations[suspendAnnotation],
			Owner: cluster.Owner{APIVersion: "batch/v1", Namespace: cj.Namespace, Kind: "CronJob", Name: cj.Name, UID: string(cj.UID)}})
	}
	budgets, err := s.client.PolicyV1().PodDisruptionBudgets("").List(ctx, metav1.ListOptions{})
	must(err)
	for i, b := range budgets.Items {
		inv.Budgets = append(inv.Budgets, cluster.Budget{Namespace: b.Namespace, Name: b.Name, UID: string(b.UID), Generation: b.Generation, Allowed: b.Status.DisruptionsAllowed,
			Healthy: b.Status.CurrentHealthy, Desired: b.Status.DesiredHealthy, Expected: b.Status.ExpectedPods, Current: true})
		for j := range inv.Pods {
			if inv.Pods[j].Namespace == b.Namespace {
				inv.Pods[j].Budgets = append(inv.Pods[j].Budgets, i)
			}
		}
	}
}

func (s *sim) bare(ctx context.Context) (out []cluster.Workload) {
	sets, err := s.client.AppsV1().ReplicaSets("").List(ctx, metav1.ListOptions{})
	must(err)
	for _, rs := range sets.Items {
		if metav1.GetControllerOf(&rs) == nil {
			w, _ := cluster.WorkloadOf(&rs)
			out = append(out, w)
		}
	}
	rcs, err := s.client.CoreV1().ReplicationControllers("").List(ctx, metav1.ListOptions{})
	must(err)
	for _, rc := range rcs.Items {
		w, _ := cluster.WorkloadOf(&rc)
		out = append(out, w)
	}
	return out
}
