package cluster

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// selection finds which of a cluster's selectors choose a pod. Selectors reach no
// further than their namespace.
type selection struct {
	byNamespace map[string][]chooser
}

// chooser is one selector and the place of its object in a list.
type chooser struct {
	selector labels.Selector
	at       int
}

func (s *selection) add(namespace string, selector labels.Selector, at int) {
	if s.byNamespace == nil {
		s.byNamespace = map[string][]chooser{}
	}
	s.byNamespace[namespace] = append(s.byNamespace[namespace], chooser{selector, at})
}

// keys are the labels that the selectors look at.
func (s *selection) keys() []string {
	var out []string
	for _, all := range s.byNamespace {
		for _, c := range all {
			requirements, _ := c.selector.Requirements()
			for _, r := range requirements {
				out = append(out, r.Key())
			}
		}
	}
	return out
}

// of are the places of all that choose a pod with these labels.
func (s *selection) of(namespace string, set labels.Set) []int {
	var out []int
	for _, c := range s.byNamespace[namespace] {
		if c.selector.Matches(set) {
			out = append(out, c.at)
		}
	}
	return out
}

// budget keeps what is used of a PodDisruptionBudget.
func budget(b *policyv1.PodDisruptionBudget) Budget {
	return Budget{
		Namespace: b.Namespace, Name: b.Name, UID: string(b.UID), Generation: b.Generation, Allowed: b.Status.DisruptionsAllowed, Healthy: b.Status.CurrentHealthy,
		Desired: b.Status.DesiredHealthy, Expected: b.Status.ExpectedPods, Current: b.Status.ObservedGeneration >= b.Generation,
	}
}

// guarded is the selector of a budget as the Eviction API reads it: none chooses no
// pod, an empty one every pod of the namespace, and one that is not valid no pod
// (getPodDisruptionBudgets in kubernetes/pkg/registry/core/pod/storage/eviction.go).
func guarded(b *policyv1.PodDisruptionBudget) labels.Selector {
	s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return labels.Nothing()
	}
	return s
}
