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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

var (
	deploymentKind  = appsv1.SchemeGroupVersion.WithKind("Deployment")
	statefulSetKind = appsv1.SchemeGroupVersion.WithKind("StatefulSet")
)

// replicaSync is one look at a ReplicaSet, or at another owner that does the same: a
// ReplicationController, which the original turns into a ReplicaSet as well
// (pkg/controller/replication/conversion.go), or a CloneSet.
type replicaSync struct {
	m     *Manager
	c     *controller[string]
	res   *registry.Resource
	owner store.Object       // what pods belong to and events are about
	rs    *appsv1.ReplicaSet // the owner as a ReplicaSet
}

// replicas makes the sync of a resource of such owners: it keeps as many pods as they
// want, and their status.
func (m *Manager) replicas(res *registry.Resource) func(*controller[string], string) error {
	return func(c *controller[string], key string) error {
		o := m.reg.Store.Get(res.GR(), key)
		if o == nil {
			return nil
		}
		rs, ok := registry.AsReplicaSet(o)
		if !ok {
			return nil
		}
		s := &replicaSync{m: m, c: c, res: res, owner: o, rs: rs}
		return s.sync()
	}
}

func (s *replicaSync) sync() error {
	sel, err := metav1.LabelSelectorAsSelector(s.rs.Spec.Selector)
	if err != nil {
		return nil // refused on creation; nothing would make it right later
	}
	owned, err := s.m.claim(s.owner, s.res.GVK(), registry.Pods, sel)
	if err != nil {
		return err
	}
	var pods []*corev1.Pod
	for _, o := range owned {
		if p := o.(*corev1.Pod); active(p) {
			pods = append(pods, p)
		}
	}
	if s.rs.DeletionTimestamp == nil {
		if err := s.manage(pods); err != nil {
			return err
		}
	}
	return s.status(pods)
}

// claim returns what an owner controls and selects. It adopts orphans that the owner
// selects, and lets go of what it controls and no longer selects
// (BaseControllerRefManager.ClaimObject of kubernetes).
func (m *Manager) claim(owner store.Object, kind schema.GroupVersionKind, res *registry.Resource, sel labels.Selector) ([]store.Object, error) {
	var out []store.Object
	for _, o := range controlled[store.Object](m, owner.GetUID(), res) {
		switch {
		case sel.Matches(labels.Set(o.GetLabels())):
			out = append(out, o)
		case owner.GetDeletionTimestamp() == nil && o.GetDeletionTimestamp() == nil:
			if err := m.release(res, o, owner.GetUID()); err != nil {
				return nil, err
			}
		}
	}
	if owner.GetDeletionTimestamp() != nil {
		return out, nil
	}
	for _, o := range m.reg.Orphans(res.GR(), owner.GetNamespace()) {
		if o.GetDeletionTimestamp() != nil || !sel.Matches(labels.Set(o.GetLabels())) {
			continue
		}
		if p, ok := o.(*corev1.Pod); ok && !active(p) {
			continue
		}
		next := o.DeepCopyObject().(store.Object)
		next.SetOwnerReferences(append(next.GetOwnerReferences(), *metav1.NewControllerRef(owner, kind)))
		made, err := update(m, res, registry.Whole, next)
		if err != nil {
			return nil, err
		}
		out = append(out, made)
	}
	return out, nil
}

// release lets go of an object.
func (m *Manager) release(res *registry.Resource, o store.Object, owner types.UID) error {
	next := o.DeepCopyObject().(store.Object)
	var left []metav1.OwnerReference
	for _, ref := range o.GetOwnerReferences() {
		if ref.UID != owner {
			left = append(left, ref)
		}
	}
	next.SetOwnerReferences(left)
	_, err := update(m, res, registry.Whole, next)
	return err
}

// manage creates the pods that are missing or deletes those too many.
func (s *replicaSync) manage(pods []*corev1.Pod) error {
	want := int(*s.rs.Spec.Replicas)
	for i := len(pods); i < want; i++ {
		pod := podFrom(s.rs.Spec.Template, s.rs.Namespace, metav1.NewControllerRef(s.owner, s.res.GVK()))
		pod.GenerateName = s.rs.Name + "-"
		o, err := s.m.reg.Create(registry.Pods, pod, false)
		if err != nil {
			s.c.events.Event(s.owner, corev1.EventTypeWarning, "FailedCreate", "Error creating: %v", err)
			return err
		}
		s.c.events.Event(s.owner, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %s", o.GetName())
	}
	if len(pods) <= want {
		return nil
	}
	for _, p := range victims(pods, len(pods)-want) {
		if err := s.m.deletePod(p); err != nil {
			return err
		}
		s.c.events.Event(s.owner, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %s", p.Name)
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

// status counts the pods that were there before this sync, as the original does.
func (s *replicaSync) status(pods []*corev1.Pod) error {
	rs := s.rs
	st := rs.Status.DeepCopy()
	st.Replicas, st.ReadyReplicas, st.AvailableReplicas, st.FullyLabeledReplicas = 0, 0, 0, 0
	st.ObservedGeneration = rs.Generation
	tmpl := labels.Set(rs.Spec.Template.Labels).AsSelectorPreValidated()
	now := s.m.reg.Clock()
	var again time.Duration
	for _, p := range pods {
		st.Replicas++
		if tmpl.Matches(labels.Set(p.Labels)) {
			st.FullyLabeledReplicas++
		}
		if registry.PodReady(p) {
			st.ReadyReplicas++
		}
		ok, left := available(p, rs.Spec.MinReadySeconds, now)
		if ok {
			st.AvailableReplicas++
		}
		again = max(again, left)
	}
	if again > 0 {
		s.c.AddAfter(store.KeyOf(rs), again)
	}
	if equality.Semantic.DeepEqual(*st, rs.Status) {
		return nil
	}
	next := s.owner.DeepCopyObject().(store.Object)
	registry.SetReplicaStatus(next, *st)
	_, err := update(s.m, s.res, registry.Status, next)
	return err
}
