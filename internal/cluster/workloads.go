package cluster

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// priorities are the values of the cluster's priority classes by name; "" is that of
// the class that counts where none is named.
type priorities map[string]int32

// newPriorities are the classes that every API server makes
// (kubernetes/pkg/apis/scheduling/v1/helpers.go).
func newPriorities() priorities {
	return priorities{"system-node-critical": 2000001000, "system-cluster-critical": 2000000000}
}

func (p priorities) add(c *schedulingv1.PriorityClass) {
	p[c.Name] = c.Value
	if c.GlobalDefault {
		p[""] = c.Value
	}
}

// of is the value of the class that a pod template names.
func (p priorities) of(tpl *corev1.PodTemplateSpec) int32 { return p[tpl.Spec.PriorityClassName] }

func (p priorities) workload(apiVersion, kind string, m *metav1.ObjectMeta, tpl *corev1.PodTemplateSpec) Workload {
	return Workload{
		Owner:      Owner{APIVersion: apiVersion, Namespace: m.Namespace, Kind: kind, Name: m.Name, UID: string(m.UID)},
		Generation: m.Generation, RestartedAt: tpl.Annotations[RestartedAtAnnotation], Priority: p.of(tpl),
		Mark: m.Annotations[SurgeAnnotation],
	}
}

func (p priorities) deployment(d *appsv1.Deployment) Workload {
	w := p.workload("apps/v1", "Deployment", &d.ObjectMeta, &d.Spec.Template)
	w.Replicas, w.Paused, w.Strategy = replicas(d.Spec.Replicas), d.Spec.Paused, rolling(string(d.Spec.Strategy.Type))
	if w.Strategy == StrategyRollingUpdate {
		w.MaxSurge, w.MaxUnavailable = fenceposts(d.Spec.Strategy.RollingUpdate, w.Replicas)
	}
	w.Ready, w.Updated, w.Current = d.Status.ReadyReplicas, d.Status.UpdatedReplicas, d.Status.Replicas
	w.Observed = d.Status.ObservedGeneration
	return w
}

// fenceposts are how many pods a rolling update may have too many and too few, as
// ResolveFenceposts and MaxUnavailable of
// kubernetes/pkg/controller/deployment/util/deployment_util.go have it: percentages
// of the surge round up, those of the unavailable down, and where both come to 0 one
// pod may be away. 25 % each where nothing is stated.
func fenceposts(rolling *appsv1.RollingUpdateDeployment, replicas int32) (surge, unavailable int32) {
	quarter := intstr.FromString("25%")
	up, down := &quarter, &quarter
	if rolling != nil && rolling.MaxSurge != nil {
		up = rolling.MaxSurge
	}
	if rolling != nil && rolling.MaxUnavailable != nil {
		down = rolling.MaxUnavailable
	}
	surge, unavailable = scaled(up, replicas, true), scaled(down, replicas, false)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, min(unavailable, replicas)
}

// scaled is a number of pods or a percentage of replicas; 0 for what is neither, which
// the API does not let in.
func scaled(v *intstr.IntOrString, replicas int32, up bool) int32 {
	n, err := intstr.GetScaledValueFromIntOrPercent(v, int(replicas), up)
	if err != nil || n < 0 {
		return 0
	}
	return int32(n)
}

func (p priorities) statefulSet(s *appsv1.StatefulSet) Workload {
	w := p.workload("apps/v1", "StatefulSet", &s.ObjectMeta, &s.Spec.Template)
	w.Replicas, w.Strategy = replicas(s.Spec.Replicas), rolling(string(s.Spec.UpdateStrategy.Type))
	if ru := s.Spec.UpdateStrategy.RollingUpdate; ru != nil {
		if ru.Partition != nil {
			w.Partition = *ru.Partition
		}
		if ru.MaxUnavailable != nil {
			w.MaxUnavailable = max(scaled(ru.MaxUnavailable, w.Replicas, false), 1)
		}
	}
	if s.Spec.Ordinals != nil {
		w.Start = s.Spec.Ordinals.Start
	}
	w.Parallel = s.Spec.PodManagementPolicy == appsv1.ParallelPodManagement
	w.Ready, w.Updated, w.Current = s.Status.ReadyReplicas, s.Status.UpdatedReplicas, s.Status.Replicas
	w.Observed = s.Status.ObservedGeneration
	return w
}

func (p priorities) daemonSet(d *appsv1.DaemonSet) Workload {
	w := p.workload("apps/v1", "DaemonSet", &d.ObjectMeta, &d.Spec.Template)
	w.Replicas, w.Strategy = d.Status.DesiredNumberScheduled, rolling(string(d.Spec.UpdateStrategy.Type))
	w.Ready, w.Updated, w.Current = d.Status.NumberReady, d.Status.UpdatedNumberScheduled, d.Status.CurrentNumberScheduled
	w.Observed = d.Status.ObservedGeneration
	return w
}

func (p priorities) replicaSet(r *appsv1.ReplicaSet) Workload {
	w := p.workload("apps/v1", "ReplicaSet", &r.ObjectMeta, &r.Spec.Template)
	w.Replicas = replicas(r.Spec.Replicas)
	w.Ready, w.Current = r.Status.ReadyReplicas, r.Status.Replicas
	w.Observed = r.Status.ObservedGeneration
	return w
}

func (p priorities) replicationController(r *corev1.ReplicationController) Workload {
	tpl := r.Spec.Template
	if tpl == nil {
		tpl = &corev1.PodTemplateSpec{}
	}
	w := p.workload("v1", "ReplicationController", &r.ObjectMeta, tpl)
	w.Replicas = replicas(r.Spec.Replicas)
	w.Ready, w.Current = r.Status.ReadyReplicas, r.Status.Replicas
	w.Observed = r.Status.ObservedGeneration
	return w
}

// WorkloadOf reads a Deployment, StatefulSet, ReplicaSet or ReplicationController as an
// inventory does, but for its priority, so that what a watch shows can be compared with
// what an inventory has shown. False for anything else.
func WorkloadOf(obj any) (Workload, bool) {
	var p priorities
	switch o := obj.(type) {
	case *appsv1.Deployment:
		return p.deployment(o), true
	case *appsv1.StatefulSet:
		return p.statefulSet(o), true
	case *appsv1.ReplicaSet:
		return p.replicaSet(o), true
	case *corev1.ReplicationController:
		return p.replicationController(o), true
	}
	return Workload{}, false
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
