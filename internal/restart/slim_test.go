package restart

import (
	"maps"
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eksbg/eksbg/internal/cluster"
)

// wholePods are pods as an API server sends them, in every state that a view tells apart.
func wholePods() map[string]*corev1.Pod {
	pod := func(node string, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart-x", UID: "uid", Labels: map[string]string{"app": "cart"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}}}
		p.Spec.NodeName, p.Spec.Containers = node, []corev1.Container{{Name: "app"}, {Name: "proxy"}}
		p.Status.Phase = corev1.PodRunning
		for _, t := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodScheduled, corev1.ContainersReady, corev1.PodReady} {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: t, Status: corev1.ConditionTrue})
		}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
			{Name: "proxy", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		change(p)
		return p
	}
	waits := func(reason string, restarts int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions[3].Status, p.Status.Conditions[3].Reason, p.Status.Conditions[3].Message = corev1.ConditionFalse, "ContainersNotReady", "proxy"
			p.Status.ContainerStatuses[1] = corev1.ContainerStatus{Name: "proxy", RestartCount: restarts,
				State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "back-off"}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 7, Reason: "Error", Message: "no database"}}}
		}
	}
	return map[string]*corev1.Pod{
		"running":       pod("n", func(*corev1.Pod) {}),
		"crash loop":    pod("n", waits("CrashLoopBackOff", 4)),
		"image pull":    pod("n", waits("ImagePullBackOff", 0)),
		"being created": pod("n", waits("ContainerCreating", 0)),
		"an init container waits": pod("n", func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "init", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such tag"}}}}
		}),
		"not ready": pod("n", func(p *corev1.Pod) {
			p.Status.Conditions[3].Status, p.Status.Conditions[3].Reason, p.Status.Conditions[3].Message = corev1.ConditionFalse, "ReadinessGatesNotReady", "the target is not healthy"
		}),
		"no place": pod("", func(p *corev1.Pod) {
			p.Status.Phase, p.Status.ContainerStatuses = corev1.PodPending, nil
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no addresses"}}
		}),
	}
}

// A slim pod says what the whole one says.
func TestASlimPodSaysTheSame(t *testing.T) {
	for name, p := range wholePods() {
		made, err := slim(p)
		s, ok := made.(*corev1.Pod)
		if err != nil || !ok || len(s.Labels)+len(s.Spec.Containers)+len(s.ManagedFields) > 0 {
			t.Fatalf("%s: %v %+v", name, err, made)
		}
		text, fatal := podTrouble(p)
		gotText, gotFatal := podTrouble(s)
		if gotText != text || gotFatal != fatal || podNote(s) != podNote(p) {
			t.Errorf("%s: %q %t %q, want %q %t %q", name, gotText, gotFatal, podNote(s), text, fatal, podNote(p))
		}
		ready := func(p *corev1.Pod) bool {
			c := podCondition(p, corev1.PodReady)
			return c != nil && c.Status == corev1.ConditionTrue
		}
		if ready(s) != ready(p) {
			t.Errorf("%s: ready %t", name, ready(s))
		}
	}
}

// Pods of one size share what says so; what else is used stays beside it.
func TestASlimPodKeepsItsSize(t *testing.T) {
	size := map[string]string{cluster.AnnotationCapacity: "0.5vCPU 1GB", "other": "x"}
	one, two := slimPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: maps.Clone(size)}}), slimPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: maps.Clone(size)}})
	if cluster.Provisioned(one.Annotations) != 500 || len(one.Annotations) != 1 || reflect.ValueOf(one.Annotations).Pointer() != reflect.ValueOf(two.Annotations).Pointer() {
		t.Errorf("%v and %v", one.Annotations, two.Annotations)
	}
	size[corev1.PodDeletionCost] = "-1"
	three := slimPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: size}})
	if cluster.Provisioned(three.Annotations) != 500 || three.Annotations[corev1.PodDeletionCost] != "-1" || len(three.Annotations) != 2 || len(one.Annotations) != 1 {
		t.Errorf("%v, %v", three.Annotations, one.Annotations)
	}
}

// client-go hands the objects of a first list over twice: the second time nothing is
// copied.
func TestWhatIsSlimStaysAsItIs(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: "uid", Labels: map[string]string{"app": "cart"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}}
	selector := &metav1.LabelSelector{MatchLabels: meta.Labels}
	for _, obj := range []any{
		wholePods()["running"], &corev1.Node{ObjectMeta: meta},
		&appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: selector}},
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: selector}},
		&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: selector}},
		&corev1.ReplicationController{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{Selector: meta.Labels}},
		&policyv1.PodDisruptionBudget{ObjectMeta: meta, Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector}},
	} {
		once, err := slim(obj)
		if err != nil || once == obj || len(once.(metav1.Object).GetManagedFields()) > 0 {
			t.Errorf("%T: not slim (%v)", obj, err)
		}
		if twice, err := slim(once); err != nil || twice != once {
			t.Errorf("%T: copied once more (%v)", obj, err)
		}
	}
}
