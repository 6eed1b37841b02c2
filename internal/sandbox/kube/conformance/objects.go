package conformance

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Annotations that steer the simulated kubelets; see package fargate.
const (
	annotationRun   = "sandbox.eksbg/run"
	annotationExit  = "sandbox.eksbg/exit"
	annotationReady = "sandbox.eksbg/ready"
)

// template is a pod template with one container and the label app. Its pods end within a
// second of being asked to.
func template(app string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers:                    []corev1.Container{{Name: "main", Image: "registry.k8s.io/pause:3.10"}},
		},
	}
}

func selector(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

func deployment(name string, replicas int32, change ...func(*appsv1.Deployment)) *appsv1.Deployment {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: selector(name), Template: template(name)},
	}
	for _, f := range change {
		f(d)
	}
	return d
}

func statefulSet(name string, replicas int32, change ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	s := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       appsv1.StatefulSetSpec{Replicas: &replicas, ServiceName: name, Selector: selector(name), Template: template(name)},
	}
	for _, f := range change {
		f(s)
	}
	return s
}

func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	t := template(name)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: t.Labels}, Spec: t.Spec}
	for _, f := range change {
		f(p)
	}
	return p
}

// restart is the patch of kubectl rollout restart.
func restart(at string) []byte {
	return []byte(`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"` + at + `"}}}}}`)
}

// rolledOut is kubectl's condition for a finished Deployment rollout.
func rolledOut(d *appsv1.Deployment) bool {
	return d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas == *d.Spec.Replicas &&
		d.Status.Replicas == d.Status.UpdatedReplicas && d.Status.AvailableReplicas == d.Status.UpdatedReplicas
}

func podReady(p corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// whole is true when there are n pods and all are ready and stay.
func whole(n int) func([]corev1.Pod) bool {
	return func(pods []corev1.Pod) bool {
		for _, p := range pods {
			if !podReady(p) || p.DeletionTimestamp != nil {
				return false
			}
		}
		return len(pods) == n
	}
}

func sorted(byName map[string]*corev1.Pod) []corev1.Pod {
	out := make([]corev1.Pod, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, *byName[name])
	}
	return out
}
