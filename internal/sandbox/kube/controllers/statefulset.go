package controllers

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

// setSync is one look at a StatefulSet.
type setSync struct {
	m               *Manager
	c               *controller[string]
	set             *appsv1.StatefulSet
	current, update *appsv1.ControllerRevision
	pods            []*corev1.Pod // all that it controls
	replicas        []*corev1.Pod // by ordinal; nil where a pod is missing
	condemned       []*corev1.Pod // beyond the ordinals wanted, highest first
	again           time.Duration
}

// syncStatefulSet takes a StatefulSet one step further: a pod created, or one deleted.
func (m *Manager) syncStatefulSet(c *controller[string], key string) error {
	set, ok := get[*appsv1.StatefulSet](m, registry.StatefulSets, key)
	if !ok {
		return nil
	}
	sel, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return nil // refused on creation
	}
	s := &setSync{m: m, c: c, set: set}
	claimed, err := m.claim(set, statefulSetKind, registry.Pods, sel)
	if err != nil {
		return err
	}
	for _, o := range claimed {
		s.pods = append(s.pods, o.(*corev1.Pod))
	}
	if err := s.revisions(); err != nil {
		return err
	}
	s.partition()
	if set.DeletionTimestamp == nil {
		if err := s.step(); err != nil {
			return err
		}
	}
	return s.writeStatus()
}

func (s *setSync) start() int {
	if s.set.Spec.Ordinals != nil {
		return int(s.set.Spec.Ordinals.Start)
	}
	return 0
}

// ordinal is the number at the end of a pod's name, or -1.
func ordinal(set, pod string) int {
	tail, ok := strings.CutPrefix(pod, set+"-")
	if !ok {
		return -1
	}
	n, err := strconv.Atoi(tail)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

func (s *setSync) partition() {
	first, n := s.start(), int(*s.set.Spec.Replicas)
	s.replicas = make([]*corev1.Pod, n)
	for _, p := range s.pods {
		switch o := ordinal(s.set.Name, p.Name); {
		case o < 0:
		case o >= first && o < first+n:
			s.replicas[o-first] = p
		default:
			s.condemned = append(s.condemned, p)
		}
	}
	sort.Slice(s.condemned, func(i, j int) bool {
		return ordinal(s.set.Name, s.condemned[i].Name) > ordinal(s.set.Name, s.condemned[j].Name)
	})
}

func (s *setSync) parallel() bool {
	return s.set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement
}

// settled is true for pods that are Running, Ready and available, Terminating or not.
func (s *setSync) settled(p *corev1.Pod) bool {
	if p == nil || p.Status.Phase != corev1.PodRunning {
		return false
	}
	ok, left := available(p, s.set.Spec.MinReadySeconds, s.m.reg.Clock())
	if left > 0 && (s.again == 0 || left < s.again) {
		s.again = left
	}
	return ok
}

// step creates what is missing in order, then scales down, then updates; with
// OrderedReady every pod has to be settled before the next thing happens.
func (s *setSync) step() error {
	for i := range s.replicas {
		if wait, err := s.ensure(i); wait || err != nil {
			return err
		}
	}
	for _, p := range s.condemned {
		if wait, err := s.condemn(p); wait || err != nil {
			return err
		}
	}
	return s.roll()
}

// ensure makes the pod of an index; wait is true when nothing else may happen before it
// is settled.
func (s *setSync) ensure(i int) (wait bool, err error) {
	p := s.replicas[i]
	if p != nil && (p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded) {
		if p.DeletionTimestamp == nil {
			err = s.m.deletePod(p)
		}
		return true, err // a new one comes when this one is gone
	}
	if p == nil {
		if err := s.create(s.start() + i); err != nil {
			return true, err
		}
		return !s.parallel(), nil
	}
	if s.parallel() {
		return false, nil
	}
	return p.DeletionTimestamp != nil || !s.settled(p), nil
}

func (s *setSync) condemn(p *corev1.Pod) (wait bool, err error) {
	if p.DeletionTimestamp != nil {
		return !s.parallel(), nil
	}
	if !s.parallel() && !s.settled(p) && p != s.firstUnsettled() {
		return true, nil
	}
	return !s.parallel(), s.take(p)
}

// firstUnsettled is the unsettled pod with the lowest ordinal.
func (s *setSync) firstUnsettled() *corev1.Pod {
	for _, p := range s.replicas {
		if p != nil && (p.DeletionTimestamp != nil || !s.settled(p)) {
			return p
		}
	}
	for i := len(s.condemned) - 1; i >= 0; i-- {
		if p := s.condemned[i]; p.DeletionTimestamp != nil || !s.settled(p) {
			return p
		}
	}
	return nil
}

// roll deletes pods that are not at the new revision, from the highest ordinal down to the
// partition, as many as maxUnavailable lets be away; with Parallel first those that are
// (updateStatefulSetAfterInvariantEstablished of kubernetes 1.37).
func (s *setSync) roll() error {
	u := s.set.Spec.UpdateStrategy
	if u.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return nil
	}
	low, most := 0, 1
	if ru := u.RollingUpdate; ru != nil {
		low = int(ptr.Deref(ru.Partition, 0))
		n, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(ru.MaxUnavailable, intstr.FromInt32(1)), len(s.replicas), false)
		if err != nil {
			return err
		}
		most = max(n, 1)
	}
	away, stuck := 0, []*corev1.Pod(nil)
	for i, p := range slices.Backward(s.replicas) {
		if p != nil && p.DeletionTimestamp == nil && s.settled(p) {
			continue
		}
		away++
		if s.parallel() && i >= low && s.outdated(p) {
			stuck = append(stuck, p)
		}
	}
	for _, p := range stuck {
		if err := s.take(p); err != nil {
			return err
		}
	}
	for i := len(s.replicas) - 1; i >= low && away < most; i-- {
		p := s.replicas[i]
		if !s.outdated(p) || slices.Contains(stuck, p) {
			continue
		}
		if err := s.take(p); err != nil {
			return err
		}
		away++
	}
	return nil
}

// outdated is true for a pod that stays and is not at the new revision.
func (s *setSync) outdated(p *corev1.Pod) bool {
	return p != nil && p.DeletionTimestamp == nil && p.Labels[appsv1.ControllerRevisionHashLabelKey] != s.update.Name
}

// take deletes a pod and says so.
func (s *setSync) take(p *corev1.Pod) error {
	s.c.events.Event(s.set, corev1.EventTypeNormal, "SuccessfulDelete", "delete Pod %s in StatefulSet %s successful", p.Name, s.set.Name)
	return s.m.deletePod(p)
}

// create makes the pod of an ordinal, at the current revision below the partition and at
// the new one from there, with its claims.
func (s *setSync) create(ord int) error {
	rev, u := s.update, s.set.Spec.UpdateStrategy
	if u.Type == appsv1.RollingUpdateStatefulSetStrategyType && u.RollingUpdate != nil && u.RollingUpdate.Partition != nil &&
		ord < s.start()+int(*u.RollingUpdate.Partition) {
		rev = s.current
	}
	t, err := templateOf(s.set, rev)
	if err != nil {
		return err
	}
	pod := podFrom(t, s.set.Namespace, metav1.NewControllerRef(s.set, statefulSetKind))
	pod.Name = fmt.Sprintf("%s-%d", s.set.Name, ord)
	pod.Labels = with(pod.Labels, appsv1.StatefulSetPodNameLabel, pod.Name)
	pod.Labels = with(pod.Labels, appsv1.PodIndexLabel, strconv.Itoa(ord))
	pod.Labels = with(pod.Labels, appsv1.ControllerRevisionHashLabelKey, rev.Name)
	pod.Spec.Hostname, pod.Spec.Subdomain = pod.Name, s.set.Spec.ServiceName
	if err := s.claims(pod); err != nil {
		return err
	}
	_, err = s.m.reg.Create(registry.Pods, pod, false)
	if apierrors.IsAlreadyExists(err) {
		return nil // somebody else's pod is in the way; its end comes as an event
	}
	if err != nil {
		s.c.events.Event(s.set, corev1.EventTypeWarning, "FailedCreate", "create Pod %s in StatefulSet %s failed error: %v", pod.Name, s.set.Name, err)
		return err
	}
	s.c.events.Event(s.set, corev1.EventTypeNormal, "SuccessfulCreate", "create Pod %s in StatefulSet %s successful", pod.Name, s.set.Name)
	return nil
}

// claims makes the volume claims of a pod that are not there yet, and mounts them. They
// are bound at once and stay when the pod goes.
func (s *setSync) claims(pod *corev1.Pod) error {
	for _, t := range s.set.Spec.VolumeClaimTemplates {
		c := t.DeepCopy()
		c.Name, c.Namespace = t.Name+"-"+pod.Name, s.set.Namespace
		for k, v := range s.set.Spec.Selector.MatchLabels {
			c.Labels = with(c.Labels, k, v)
		}
		o, err := s.m.reg.Create(registry.Claims, c, false)
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		if err == nil {
			made := o.DeepCopyObject().(*corev1.PersistentVolumeClaim)
			made.Status = corev1.PersistentVolumeClaimStatus{
				Phase: corev1.ClaimBound, AccessModes: c.Spec.AccessModes, Capacity: c.Spec.Resources.Requests,
			}
			if _, err := update(s.m, registry.Claims, registry.Status, made); err != nil {
				return err
			}
		}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: t.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.Name}}})
	}
	return nil
}

// writeStatus counts what there is now, and completes a rolling update whose pods are
// all new and ready.
func (s *setSync) writeStatus() error {
	st := appsv1.StatefulSetStatus{
		ObservedGeneration: s.set.Generation, CurrentRevision: s.current.Name, UpdateRevision: s.update.Name,
		CollisionCount: s.set.Status.CollisionCount, Conditions: s.set.Status.Conditions,
	}
	if st.CollisionCount == nil {
		st.CollisionCount = new(int32)
	}
	for _, p := range controlled[*corev1.Pod](s.m, s.set.UID, registry.Pods) {
		st.Replicas++
		if p.Status.Phase == corev1.PodRunning && registry.PodReady(p) {
			st.ReadyReplicas++
			if s.settled(p) {
				st.AvailableReplicas++
			}
		}
		if p.DeletionTimestamp == nil {
			switch p.Labels[appsv1.ControllerRevisionHashLabelKey] {
			case s.current.Name:
				st.CurrentReplicas++
			}
			if p.Labels[appsv1.ControllerRevisionHashLabelKey] == s.update.Name {
				st.UpdatedReplicas++
			}
		}
	}
	if s.set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && st.CurrentRevision != st.UpdateRevision &&
		st.UpdatedReplicas == st.Replicas && st.ReadyReplicas == st.Replicas && st.Replicas == *s.set.Spec.Replicas {
		st.CurrentReplicas, st.CurrentRevision = st.UpdatedReplicas, st.UpdateRevision
	}
	if s.again > 0 {
		s.c.AddAfter(store.KeyOf(s.set), s.again)
	}
	if equality.Semantic.DeepEqual(st, s.set.Status) {
		return nil
	}
	next := s.set.DeepCopy()
	next.Status = st
	_, err := update(s.m, registry.StatefulSets, registry.Status, next)
	return err
}
