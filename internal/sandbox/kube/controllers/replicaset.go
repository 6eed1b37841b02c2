package controllers

import (
	"sort"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

var (
	deploymentKind  = appsv1.SchemeGroupVersion.WithKind("Deployment")
	replicaSetKind  = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	statefulSetKind = appsv1.SchemeGroupVersion.WithKind("StatefulSet")
)

// syncReplicaSet keeps as many pods as a ReplicaSet wants, and its status.
func (m *Manager) syncReplicaSet(c *controller[string], key string) error {
	rs, ok := get[*appsv1.ReplicaSet](m, registry.ReplicaSets, key)
	if !ok {
		return nil
	}
	sel, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
	if err != nil {
		return nil // refused on creation; nothing would make it right later
	}
	var pods []*corev1.Pod
	for _, p := range controlled[*corev1.Pod](m, rs.UID, registry.Pods) {
		switch {
		case !active(p):
		case !sel.Matches(labels.Set(p.Labels)):
			if err := m.release(p, rs.UID); err != nil {
				return err
			}
		default:
			pods = append(pods, p)
		}
	}
	if rs.DeletionTimestamp == nil {
		if err := m.manageReplicas(c, rs, pods); err != nil {
			return err
		}
	}
	return m.replicaSetStatus(c, rs, pods)
}

// release lets go of a pod whose labels have been changed away from its controller's
// selector.
func (m *Manager) release(p *corev1.Pod, owner types.UID) error {
	next := p.DeepCopy()
	next.OwnerReferences = nil
	for _, o := range p.OwnerReferences {
		if o.UID != owner {
			next.OwnerReferences = append(next.OwnerReferences, o)
		}
	}
	_, err := update(m, registry.Pods, registry.Whole, next)
	return err
}

// manageReplicas creates the pods that are missing or deletes those too many.
func (m *Manager) manageReplicas(c *controller[string], rs *appsv1.ReplicaSet, pods []*corev1.Pod) error {
	want := int(*rs.Spec.Replicas)
	for i := len(pods); i < want; i++ {
		pod := podFrom(rs.Spec.Template, rs.Namespace, metav1.NewControllerRef(rs, replicaSetKind))
		pod.GenerateName = rs.Name + "-"
		o, err := m.reg.Create(registry.Pods, pod, false)
		if err != nil {
			c.events.Event(rs, corev1.EventTypeWarning, "FailedCreate", "Error creating: %v", err)
			return err
		}
		c.events.Event(rs, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %s", o.GetName())
	}
	if len(pods) <= want {
		return nil
	}
	for _, p := range victims(pods, len(pods)-want) {
		if err := m.deletePod(p); err != nil {
			return err
		}
		c.events.Event(rs, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %s", p.Name)
	}
	return nil
}

// victims picks the n pods that are missed least, in the order of ActivePodsWithRanks:
// without a node, pending, unready, cheap (pod-deletion-cost), ready for a shorter time,
// younger.
func victims(pods []*corev1.Pod, n int) []*corev1.Pod {
	if n >= len(pods) {
		return pods
	}
	out := append([]*corev1.Pod(nil), pods...)
	sort.SliceStable(out, func(i, j int) bool { return before(out[i], out[j]) })
	return out[:n]
}

func before(a, b *corev1.Pod) bool {
	if x, y := a.Spec.NodeName == "", b.Spec.NodeName == ""; x != y {
		return x
	}
	order := map[corev1.PodPhase]int{corev1.PodPending: 0, corev1.PodUnknown: 1, corev1.PodRunning: 2}
	if x, y := order[a.Status.Phase], order[b.Status.Phase]; x != y {
		return x < y
	}
	if x, y := registry.PodReady(a), registry.PodReady(b); x != y {
		return y
	}
	if x, y := deletionCost(a), deletionCost(b); x != y {
		return x < y
	}
	if x, y := readySince(a), readySince(b); !x.Equal(&y) {
		return y.Before(&x)
	}
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return b.CreationTimestamp.Before(&a.CreationTimestamp)
	}
	return a.Name < b.Name
}

func deletionCost(p *corev1.Pod) int {
	n, _ := strconv.Atoi(p.Annotations[corev1.PodDeletionCost]) // 0 when it is not set
	return n
}

func readySince(p *corev1.Pod) metav1.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime
		}
	}
	return metav1.Time{}
}

// replicaSetStatus counts the pods that were there before this sync, as the original does.
func (m *Manager) replicaSetStatus(c *controller[string], rs *appsv1.ReplicaSet, pods []*corev1.Pod) error {
	s := rs.Status.DeepCopy()
	s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.FullyLabeledReplicas = 0, 0, 0, 0
	s.ObservedGeneration = rs.Generation
	tmpl := labels.Set(rs.Spec.Template.Labels).AsSelectorPreValidated()
	now := m.reg.Clock()
	var again time.Duration
	for _, p := range pods {
		s.Replicas++
		if tmpl.Matches(labels.Set(p.Labels)) {
			s.FullyLabeledReplicas++
		}
		if registry.PodReady(p) {
			s.ReadyReplicas++
		}
		ok, left := available(p, rs.Spec.MinReadySeconds, now)
		if ok {
			s.AvailableReplicas++
		}
		again = max(again, left)
	}
	if again > 0 {
		c.AddAfter(store.KeyOf(rs), again)
	}
	if equality.Semantic.DeepEqual(*s, rs.Status) {
		return nil
	}
	next := rs.DeepCopy()
	next.Status = *s
	_, err := update(m, registry.ReplicaSets, registry.Status, next)
	return err
}
