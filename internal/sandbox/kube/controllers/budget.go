package controllers

import (
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
	s.ObservedGeneration = pdb.Generation
	s.ExpectedPods, s.DesiredHealthy = m.expected(pdb, pods)
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
	if equality.Semantic.DeepEqual(next.Status, pdb.Status) {
		return nil
	}
	_, err = update(m, registry.PodDisruptionBudgets, registry.Status, next)
	return err
}

// expected is how many pods there should be and how many of them healthy: for an absolute
// minAvailable as many as there are, otherwise what their controllers want.
func (m *Manager) expected(pdb *policyv1.PodDisruptionBudget, pods []*corev1.Pod) (expected, healthy int32) {
	switch {
	case pdb.Spec.MaxUnavailable != nil:
		expected = m.controllersWant(pods)
		n, err := intstr.GetScaledValueFromIntOrPercent(pdb.Spec.MaxUnavailable, int(expected), true)
		if err != nil {
			return expected, expected
		}
		return expected, max(expected-int32(n), 0)
	case pdb.Spec.MinAvailable == nil:
		return int32(len(pods)), 0
	case pdb.Spec.MinAvailable.Type == intstr.Int:
		return int32(len(pods)), pdb.Spec.MinAvailable.IntVal
	}
	expected = m.controllersWant(pods)
	n, err := intstr.GetScaledValueFromIntOrPercent(pdb.Spec.MinAvailable, int(expected), true)
	if err != nil {
		return expected, expected
	}
	return expected, int32(n)
}

// controllersWant sums the replicas of the pods' controllers, each once. Pods without
// one count for nothing.
func (m *Manager) controllersWant(pods []*corev1.Pod) int32 {
	sum, seen := int32(0), map[types.UID]bool{}
	for _, p := range pods {
		uid, n := m.scaleOf(p)
		if uid != "" && !seen[uid] {
			seen[uid] = true
			sum += n
		}
	}
	return sum
}

func (m *Manager) scaleOf(p *corev1.Pod) (types.UID, int32) {
	ref := metav1.GetControllerOf(p)
	if ref == nil {
		return "", 0
	}
	switch ref.Kind {
	case "StatefulSet":
		if set, ok := get[*appsv1.StatefulSet](m, registry.StatefulSets, store.Key(p.Namespace, ref.Name)); ok && set.UID == ref.UID {
			return set.UID, *set.Spec.Replicas
		}
	case "ReplicaSet":
		rs, ok := get[*appsv1.ReplicaSet](m, registry.ReplicaSets, store.Key(p.Namespace, ref.Name))
		if !ok || rs.UID != ref.UID {
			return "", 0
		}
		if up := metav1.GetControllerOf(rs); up != nil && up.Kind == "Deployment" {
			if d, ok := get[*appsv1.Deployment](m, registry.Deployments, store.Key(p.Namespace, up.Name)); ok && d.UID == up.UID {
				return d.UID, *d.Spec.Replicas
			}
			return "", 0
		}
		return rs.UID, *rs.Spec.Replicas
	}
	return "", 0
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
