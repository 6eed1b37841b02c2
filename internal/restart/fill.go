package restart

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/eksbg/eksbg/internal/cluster"
)

// fargateScheduler is the scheduler's name that EKS's webhook writes into pods that a
// Fargate profile selects.
const fargateScheduler = "fargate-scheduler"

// known tells whether the owner is of a kind whose objects the mirror watches.
func known(o cluster.Owner) bool {
	group, _ := groupVersion(o.APIVersion)
	switch o.Kind {
	case "Deployment", "StatefulSet", "ReplicaSet":
		return group == "apps"
	case "ReplicationController":
		return group == ""
	}
	return false
}

// fill reads the workload itself; one that was made again under the same name is
// taken as it is now.
func (m *mirror) fill(v *view, owner cluster.Owner) {
	informer := m.workloads[owner.Kind]
	if informer == nil || !known(owner) {
		return
	}
	obj, ok, err := informer.GetStore().GetByKey(owner.Namespace + "/" + owner.Name)
	if err != nil || !ok {
		return
	}
	switch o := obj.(type) {
	case *appsv1.Deployment:
		fillDeployment(v, o)
	case *appsv1.StatefulSet:
		fillStatefulSet(v, o)
	case *appsv1.ReplicaSet:
		v.Found, v.UID, v.Generation, v.Observed = true, string(o.UID), o.Generation, o.Status.ObservedGeneration
		v.Desired, v.Replicas, v.Ready = replicas(o.Spec.Replicas), o.Status.Replicas, o.Status.ReadyReplicas
		v.Available, v.MinReady = o.Status.AvailableReplicas, o.Spec.MinReadySeconds
		v.Mark, v.ResourceVersion = o.Annotations[surgeAnnotation], o.ResourceVersion
		v.Note = failureOf(o.Status.Conditions)
	case *corev1.ReplicationController:
		v.Found, v.UID, v.Generation, v.Observed = true, string(o.UID), o.Generation, o.Status.ObservedGeneration
		v.Desired, v.Replicas, v.Ready = replicas(o.Spec.Replicas), o.Status.Replicas, o.Status.ReadyReplicas
		v.Available, v.MinReady = o.Status.AvailableReplicas, o.Spec.MinReadySeconds
		v.Mark, v.ResourceVersion = o.Annotations[surgeAnnotation], o.ResourceVersion
		for _, c := range o.Status.Conditions {
			if c.Type == corev1.ReplicationControllerReplicaFailure && c.Status == corev1.ConditionTrue {
				v.Note = tidy(c.Reason + ": " + c.Message)
			}
		}
	}
}

func failureOf(all []appsv1.ReplicaSetCondition) string {
	for _, c := range all {
		if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
			return tidy(c.Reason + ": " + c.Message)
		}
	}
	return ""
}

func fillDeployment(v *view, d *appsv1.Deployment) {
	v.Found, v.UID, v.Generation, v.Observed = true, string(d.UID), d.Generation, d.Status.ObservedGeneration
	v.Desired = replicas(d.Spec.Replicas)
	v.Replicas, v.Updated, v.Ready = d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.ReadyReplicas
	v.Available, v.MinReady = d.Status.AvailableReplicas, d.Spec.MinReadySeconds
	v.Paused, v.Strategy = d.Spec.Paused, string(d.Spec.Strategy.Type)
	v.Stamp = d.Spec.Template.Annotations[restartedAt]
	for _, c := range d.Status.Conditions {
		switch {
		case c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse && c.Reason == "ProgressDeadlineExceeded":
			v.Deadline = tidy(c.Reason + ": " + c.Message)
		case c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue:
			v.Note = tidy(c.Reason + ": " + c.Message)
		}
	}
}

func fillStatefulSet(v *view, s *appsv1.StatefulSet) {
	v.Found, v.UID, v.Generation, v.Observed = true, string(s.UID), s.Generation, s.Status.ObservedGeneration
	v.Desired = replicas(s.Spec.Replicas)
	v.Replicas, v.Updated, v.Ready = s.Status.Replicas, s.Status.UpdatedReplicas, s.Status.ReadyReplicas
	v.Available, v.MinReady = s.Status.AvailableReplicas, s.Spec.MinReadySeconds
	v.Strategy = string(s.Spec.UpdateStrategy.Type)
	v.Stamp = s.Spec.Template.Annotations[restartedAt]
	if r := s.Spec.UpdateStrategy.RollingUpdate; r != nil && r.Partition != nil {
		v.Partition = *r.Partition
	}
	if s.Spec.Ordinals != nil {
		v.Start = s.Spec.Ordinals.Start
	}
}

// replicas reads spec.replicas; the API defaults it to 1.
func replicas(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

func (m *mirror) podView(p *corev1.Pod) podView {
	v := podView{Name: p.Name, UID: string(p.UID), Place: m.place(p.Spec.NodeName), Terminating: p.DeletionTimestamp != nil,
		Node: p.Spec.NodeName, Created: p.CreationTimestamp.Time, Cost: p.Annotations[corev1.PodDeletionCost], Note: podNote(p)}
	v.Waiting = p.Spec.NodeName == "" && p.Spec.SchedulerName == fargateScheduler && p.Status.Phase == corev1.PodPending
	v.Once = p.Spec.RestartPolicy == corev1.RestartPolicyNever || p.Spec.RestartPolicy == corev1.RestartPolicyOnFailure
	v.Trouble, v.Fatal = podTrouble(p)
	if c := podCondition(p, corev1.PodReady); c != nil {
		v.Ready = c.Status == corev1.ConditionTrue
	}
	return v
}
