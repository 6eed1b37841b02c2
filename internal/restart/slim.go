package restart

import (
	"fmt"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/state"
)

// node is a node as the watch keeps it: there is one for each pod on Fargate.
type node struct {
	metav1.ObjectMeta
	// minor is that of its kubelet, "" where it states none.
	minor string
}

// slim is the transform of every watch: it keeps of an object what a view is made
// of, so that a cluster with thousands of pods costs little memory. It makes new
// objects and leaves the given ones alone; what is slim already, since client-go
// transforms the objects of a first list twice, it gives back.
func slim(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok && slimmed(obj) && o.GetManagedFields() == nil {
		return obj, nil
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		return slimPod(o), nil
	case *corev1.Node:
		n := &node{ObjectMeta: slimMeta(o.ObjectMeta)}
		n.minor, _ = cluster.Minor(o.Status.NodeInfo.KubeletVersion) // one that has not said its version has none
		return n, nil
	case *appsv1.ReplicaSet:
		rs := &appsv1.ReplicaSet{ObjectMeta: slimMeta(o.ObjectMeta), Status: o.Status}
		rs.Spec.MinReadySeconds = o.Spec.MinReadySeconds
		rs.Spec.Replicas, rs.Annotations = o.Spec.Replicas, slimAnnotations(o.Annotations, surgeAnnotation)
		return rs, nil
	case *corev1.ReplicationController:
		rc := &corev1.ReplicationController{ObjectMeta: slimMeta(o.ObjectMeta), Status: o.Status}
		rc.Spec.MinReadySeconds = o.Spec.MinReadySeconds
		rc.Spec.Replicas, rc.Annotations = o.Spec.Replicas, slimAnnotations(o.Annotations, surgeAnnotation)
		return rc, nil
	case *policyv1.PodDisruptionBudget:
		b := &policyv1.PodDisruptionBudget{ObjectMeta: slimMeta(o.ObjectMeta), Status: o.Status}
		b.Status.DisruptedPods, b.Status.Conditions = nil, nil
		return b, nil
	case *appsv1.Deployment:
		d := &appsv1.Deployment{ObjectMeta: slimMeta(o.ObjectMeta), Status: o.Status}
		d.Spec.Replicas, d.Spec.Paused, d.Spec.Strategy = o.Spec.Replicas, o.Spec.Paused, o.Spec.Strategy
		d.Spec.MinReadySeconds = o.Spec.MinReadySeconds
		d.Spec.Template.Annotations = slimAnnotations(o.Spec.Template.Annotations, restartedAt)
		return d, nil
	case *appsv1.StatefulSet:
		s := &appsv1.StatefulSet{ObjectMeta: slimMeta(o.ObjectMeta), Status: o.Status}
		s.Spec.Replicas, s.Spec.UpdateStrategy, s.Spec.Ordinals = o.Spec.Replicas, o.Spec.UpdateStrategy, o.Spec.Ordinals
		s.Spec.MinReadySeconds = o.Spec.MinReadySeconds
		s.Spec.Template.Annotations = slimAnnotations(o.Spec.Template.Annotations, restartedAt)
		return s, nil
	}
	return obj, nil
}

// slimmed tells whether an object lacks what every one of an API server has: containers of
// a pod, a selector of what makes pods.
func slimmed(obj any) bool {
	switch o := obj.(type) {
	case *corev1.Pod:
		return len(o.Spec.Containers) == 0
	case *appsv1.ReplicaSet:
		return o.Spec.Selector == nil
	case *corev1.ReplicationController:
		return len(o.Spec.Selector) == 0
	case *appsv1.Deployment:
		return o.Spec.Selector == nil
	case *appsv1.StatefulSet:
		return o.Spec.Selector == nil
	case *policyv1.PodDisruptionBudget:
		return o.Spec.Selector == nil
	}
	return false
}

func slimMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	out := metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		Generation: m.Generation, DeletionTimestamp: m.DeletionTimestamp}
	// As in the inventory: one that is not marked as the controller counts when it is
	// the only one.
	for _, ref := range m.OwnerReferences {
		if ref.Controller != nil && *ref.Controller || len(m.OwnerReferences) == 1 {
			ref.Controller = new(true)
			out.OwnerReferences = []metav1.OwnerReference{ref}
		}
	}
	return out
}

func slimAnnotations(all map[string]string, key string) map[string]string {
	if v, ok := all[key]; ok {
		return map[string]string{key: v}
	}
	return nil
}

// sizes are the annotations of pods that have no others that are used, by what Fargate
// provisioned: thousands of pods share a few.
var sizes sync.Map

// podAnnotations keeps of a pod's annotations what is used.
func podAnnotations(all map[string]string) map[string]string {
	out := slimAnnotations(all, corev1.PodDeletionCost)
	size, ok := all[cluster.AnnotationCapacity]
	switch {
	case !ok:
		return out
	case out != nil:
		out[cluster.AnnotationCapacity] = size
		return out
	}
	shared, ok := sizes.Load(size)
	if !ok {
		shared, _ = sizes.LoadOrStore(size, slimAnnotations(all, cluster.AnnotationCapacity))
	}
	out, _ = shared.(map[string]string)
	return out
}

func slimPod(o *corev1.Pod) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: slimMeta(o.ObjectMeta)}
	p.CreationTimestamp, p.Annotations = o.CreationTimestamp, podAnnotations(o.Annotations)
	p.Spec.NodeName, p.Spec.SchedulerName, p.Spec.RestartPolicy = o.Spec.NodeName, o.Spec.SchedulerName, o.Spec.RestartPolicy
	p.Status.Phase = o.Status.Phase
	for _, t := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodReady} {
		if c := podCondition(o, t); c != nil && (c.Status != corev1.ConditionTrue || t == corev1.PodReady) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: t, Status: c.Status, Reason: c.Reason, Message: c.Message})
		}
	}
	p.Status.InitContainerStatuses = slimStatuses(o.Status.InitContainerStatuses)
	p.Status.ContainerStatuses = slimStatuses(o.Status.ContainerStatuses)
	return p
}

// slimStatuses keeps the containers that wait: the others say nothing about why a pod does
// not start.
func slimStatuses(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for _, s := range all {
		if s.State.Waiting == nil {
			continue
		}
		out = append(out, corev1.ContainerStatus{Name: s.Name, State: s.State, LastTerminationState: s.LastTerminationState,
			RestartCount: s.RestartCount, Ready: s.Ready})
	}
	return out
}

// crashes is how often a container must have been started again before its crash
// loop counts as certain; a service that waits for another one that is restarting
// too may crash a few times.
const crashes = 3

// troubles are the waiting reasons of a container that does not start by itself
// (kubelet, pkg/kubelet/images/types.go and pkg/kubelet/kuberuntime). The value tells whether
// waiting cannot help at all.
var troubles = map[string]bool{
	"CrashLoopBackOff":           false,
	"ImagePullBackOff":           false,
	"ErrImagePull":               false,
	"RegistryUnavailable":        false,
	"CreateContainerConfigError": false,
	"CreateContainerError":       false,
	"RunContainerError":          false,
	"InvalidImageName":           true,
	"ErrImageNeverPull":          true,
}

// podTrouble says what keeps a pod from starting, in the kubelet's words.
func podTrouble(p *corev1.Pod) (text string, fatal bool) {
	for _, s := range containers(p) {
		w := s.State.Waiting
		if w == nil {
			continue
		}
		hopeless, known := troubles[w.Reason]
		if !known {
			continue
		}
		text = fmt.Sprintf("%s of container %s: %s", w.Reason, s.Name, w.Message)
		if t := s.LastTerminationState.Terminated; t != nil {
			text += fmt.Sprintf("; last exit code %d %s %s", t.ExitCode, t.Reason, t.Message)
		}
		hopeless = hopeless || w.Reason == "CrashLoopBackOff" && s.RestartCount >= crashes
		return tidy(text), hopeless
	}
	return "", false
}

// podNote says what a pod that is not ready waits for.
func podNote(p *corev1.Pod) string {
	if c := podCondition(p, corev1.PodScheduled); p.Spec.NodeName == "" && c != nil && c.Status == corev1.ConditionFalse {
		return tidy(string(p.Status.Phase) + ", " + c.Reason + ": " + c.Message)
	}
	if p.Spec.NodeName == "" {
		return "Pending, on no node"
	}
	for _, s := range containers(p) {
		if s.Ready || s.State.Waiting == nil {
			continue
		}
		return tidy(s.State.Waiting.Reason + " of container " + s.Name + ": " + s.State.Waiting.Message)
	}
	if c := podCondition(p, corev1.PodReady); c != nil && c.Status != corev1.ConditionTrue {
		return tidy("not ready, " + c.Reason + ": " + c.Message)
	}
	return ""
}

func containers(p *corev1.Pod) []corev1.ContainerStatus {
	return append(append([]corev1.ContainerStatus(nil), p.Status.InitContainerStatuses...), p.Status.ContainerStatuses...)
}

func podCondition(p *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == t {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// tidy cleans text of a cluster and drops what empty parts leave at its end.
func tidy(s string) string { return strings.TrimRight(state.Clean(s), " :,;") }
