package controllers

import (
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

// evictionTimeout is how long an eviction that was granted counts although its pod is
// still there (DeletionTimeout of pkg/controller/disruption).
const evictionTimeout = 2 * time.Minute

// syncBudget works out how many pods of a PodDisruptionBudget may go now.
func (m *Manager) syncBudget(c *controller[string], key string) error {
	pdb, ok := get[*policyv1.PodDisruptionBudget](m, registry.PodDisruptionBudgets, key)
	if !ok || pdb.DeletionTimestamp != nil {
		return nil
	}
	sel, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
	if err != nil {
		return nil // refused on creation
	}
	var pods []*corev1.Pod
	items, _ := m.reg.List(registry.Pods.GR(), pdb.Namespace)
	for _, o := range items {
		if p := o.(*corev1.Pod); sel.Matches(labels.Set(p.Labels)) {
			pods = append(pods, p)
		}
	}
	next := pdb.DeepCopy()
	s := &next.Status
	expected, desired, err := m.expected(pdb, pods)
	if err != nil {
		registry.SetDisruptionFailed(next, err, m.reg.Now())
		return m.writeBudget(pdb, next)
	}
	s.ObservedGeneration, s.ExpectedPods, s.DesiredHealthy = pdb.Generation, expected, desired
	var again time.Duration
	s.DisruptedPods, again = m.disrupted(pdb, pods)
	s.CurrentHealthy = 0
	for _, p := range pods {
		if _, going := s.DisruptedPods[p.Name]; p.DeletionTimestamp == nil && !going && registry.PodReady(p) {
			s.CurrentHealthy++
		}
	}
	s.DisruptionsAllowed = s.CurrentHealthy - s.DesiredHealthy
	if s.ExpectedPods <= 0 || s.DisruptionsAllowed < 0 {
		s.DisruptionsAllowed = 0
	}
	registry.SetDisruptionAllowed(next, m.reg.Now())
	if again > 0 {
		c.AddAfter(store.KeyOf(pdb), again)
	}
	return m.writeBudget(pdb, next)
}

func (m *Manager) writeBudget(was, next *policyv1.PodDisruptionBudget) error {
	if equality.Semantic.DeepEqual(next.Status, was.Status) {
		return nil
	}
	_, err := update(m, registry.PodDisruptionBudgets, registry.Status, next)
	return err
}

// expected is how many pods there should be and how many of them healthy: for an absolute
// minAvailable as many as there are, otherwise what their controllers want.
func (m *Manager) expected(pdb *policyv1.PodDisruptionBudget, pods []*corev1.Pod) (expected, healthy int32, err error) {
	scaled := pdb.Spec.MaxUnavailable
	switch {
	case scaled != nil:
	case pdb.Spec.MinAvailable == nil:
		return 0, 0, nil
	case pdb.Spec.MinAvailable.Type == intstr.Int:
		return int32(len(pods)), pdb.Spec.MinAvailable.IntVal, nil
	default:
		scaled = pdb.Spec.MinAvailable
	}
	if expected, err = m.controllersWant(pods); err != nil {
		return 0, 0, err
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(scaled, int(expected), true)
	if err != nil {
		return 0, 0, err
	}
	if pdb.Spec.MaxUnavailable != nil {
		return expected, max(expected-int32(n), 0), nil
	}
	return expected, int32(n), nil
}

// controllersWant sums the replicas of the pods' controllers, each once. Pods without
// one count for nothing; one whose controller has no scale makes the budget fail.
func (m *Manager) controllersWant(pods []*corev1.Pod) (int32, error) {
	sum, seen := int32(0), map[types.UID]bool{}
	for _, p := range pods {
		ref := metav1.GetControllerOf(p)
		if ref == nil {
			continue
		}
		uid, n, err := m.scaleOf(p, ref)
		if err != nil {
			return 0, err
		}
		if !seen[uid] {
			seen[uid] = true
			sum += n
		}
	}
	return sum, nil
}

// scaleOf finds the controller that says how many pods there are: the ReplicaSet's
// Deployment if it has one, and else the pod's own.
func (m *Manager) scaleOf(p *corev1.Pod, ref *metav1.OwnerReference) (types.UID, int32, error) {
	gone := fmt.Errorf("found no controllers for pod %q", p.Name)
	o := m.controllerOf(p.Namespace, ref)
	if rs, ok := o.(*appsv1.ReplicaSet); ok {
		if up := metav1.GetControllerOf(rs); up != nil && up.Kind == deploymentKind.Kind {
			o = m.controllerOf(p.Namespace, up)
		}
	}
	switch o := o.(type) {
	case nil:
		return "", 0, gone
	case *appsv1.Deployment:
		return o.UID, *o.Spec.Replicas, nil
	case *appsv1.ReplicaSet:
		return o.UID, *o.Spec.Replicas, nil
	case *appsv1.StatefulSet:
		return o.UID, *o.Spec.Replicas, nil
	case *corev1.ReplicationController:
		return o.UID, *o.Spec.Replicas, nil
	case *registry.CloneSet:
		return o.UID, *o.Spec.Replicas, nil
	case *registry.Rollout:
		return o.UID, *o.Spec.Replicas, nil
	}
	return "", 0, fmt.Errorf("%s does not implement the scale subresource", registry.For(o).GR())
}

// controllerOf finds what an owner reference names, or nil.
func (m *Manager) controllerOf(namespace string, ref *metav1.OwnerReference) store.Object {
	res := registry.ByKind(ref.APIVersion, ref.Kind)
	if res == nil {
		return nil
	}
	o := m.reg.Store.Get(res.GR(), store.Key(namespace, ref.Name))
	if o == nil || o.GetUID() != ref.UID {
		return nil
	}
	return o
}

// disrupted keeps the evictions granted whose pods are still to be seen Terminating, and
// says when the first of them lapses.
func (m *Manager) disrupted(pdb *policyv1.PodDisruptionBudget, pods []*corev1.Pod) (map[string]metav1.Time, time.Duration) {
	if len(pdb.Status.DisruptedPods) == 0 {
		return nil, 0
	}
	left := maps.Clone(pdb.Status.DisruptedPods)
	here := map[string]bool{}
	for _, p := range pods {
		here[p.Name] = p.DeletionTimestamp == nil
	}
	var again time.Duration
	for name, at := range left {
		wait := at.Add(evictionTimeout).Sub(m.reg.Clock())
		if !here[name] || wait <= 0 {
			delete(left, name)
			continue
		}
		if again == 0 || wait < again {
			again = wait
		}
	}
	if len(left) == 0 {
		left = nil
	}
	return left, again
}
