package cluster

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Labels that EKS puts on nodes and Fargate pods.
const (
	labelCompute = "eks.amazonaws.com/compute-type"
	labelProfile = "eks.amazonaws.com/fargate-profile"
	labelOldZone = "failure-domain.beta.kubernetes.io/zone"
)

func node(n *corev1.Node) Node {
	out := Node{
		Name: n.Name, Kubelet: n.Status.NodeInfo.KubeletVersion,
		Compute: n.Labels[labelCompute], Profile: n.Labels[labelProfile],
		Zone: n.Labels[corev1.LabelTopologyZone],
	}
	if out.Zone == "" {
		out.Zone = n.Labels[labelOldZone]
	}
	if out.Compute == "" {
		out.Compute = ComputeEC2
		if strings.HasPrefix(n.Name, "fargate-") {
			out.Compute = ComputeFargate
		}
	}
	// A kubelet that has not said its version yet has none.
	out.Minor, _ = Minor(out.Kubelet)
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Ready = c.Status == corev1.ConditionTrue
		}
	}
	return out
}

// pod keeps what is used of a pod; its owner is the direct one until the lists of
// what stands in between are read.
func pod(p *corev1.Pod) Pod {
	out := Pod{
		Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Node: p.Spec.NodeName,
		Phase: string(p.Status.Phase), Terminating: p.DeletionTimestamp != nil,
		Finished: p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		Owner:    direct(p), CreatedAt: p.CreationTimestamp.Time, StartTime: unix(p.Status.StartTime),
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			out.Ready = c.Status == corev1.ConditionTrue
		}
	}
	return out
}

func workload(kind string, m *metav1.ObjectMeta, tpl *corev1.PodTemplateSpec) Workload {
	return Workload{
		Owner:      Owner{APIVersion: "apps/v1", Namespace: m.Namespace, Kind: kind, Name: m.Name, UID: string(m.UID)},
		Generation: m.Generation, RestartedAt: tpl.Annotations[RestartedAtAnnotation],
	}
}

func deployment(d *appsv1.Deployment) Workload {
	w := workload("Deployment", &d.ObjectMeta, &d.Spec.Template)
	w.Replicas, w.Paused, w.Strategy = replicas(d.Spec.Replicas), d.Spec.Paused, rolling(string(d.Spec.Strategy.Type))
	w.Ready, w.Updated, w.Current = d.Status.ReadyReplicas, d.Status.UpdatedReplicas, d.Status.Replicas
	w.Observed = d.Status.ObservedGeneration
	return w
}

func statefulSet(s *appsv1.StatefulSet) Workload {
	w := workload("StatefulSet", &s.ObjectMeta, &s.Spec.Template)
	w.Replicas, w.Strategy = replicas(s.Spec.Replicas), rolling(string(s.Spec.UpdateStrategy.Type))
	if ru := s.Spec.UpdateStrategy.RollingUpdate; ru != nil && ru.Partition != nil {
		w.Partition = *ru.Partition
	}
	w.Ready, w.Updated, w.Current = s.Status.ReadyReplicas, s.Status.UpdatedReplicas, s.Status.Replicas
	w.Observed = s.Status.ObservedGeneration
	return w
}

func daemonSet(d *appsv1.DaemonSet) Workload {
	w := workload("DaemonSet", &d.ObjectMeta, &d.Spec.Template)
	w.Replicas, w.Strategy = d.Status.DesiredNumberScheduled, rolling(string(d.Spec.UpdateStrategy.Type))
	w.Ready, w.Updated, w.Current = d.Status.NumberReady, d.Status.UpdatedNumberScheduled, d.Status.CurrentNumberScheduled
	w.Observed = d.Status.ObservedGeneration
	return w
}

func replicaSet(r *appsv1.ReplicaSet) Workload {
	w := workload("ReplicaSet", &r.ObjectMeta, &r.Spec.Template)
	w.Replicas = replicas(r.Spec.Replicas)
	w.Ready, w.Current = r.Status.ReadyReplicas, r.Status.Replicas
	w.Observed = r.Status.ObservedGeneration
	return w
}

// replicas is the wanted number, one where none is stated.
func replicas(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

// rolling is the strategy stated, or the one that API servers fill in.
func rolling(strategy string) string {
	if strategy == "" {
		return StrategyRollingUpdate
	}
	return strategy
}
