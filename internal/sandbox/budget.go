package sandbox

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Budget is a PodDisruptionBudget over pods of any workloads of a namespace, which may
// have one of their own: the Eviction API refuses pods that two budgets select.
type Budget struct {
	Namespace string `yaml:"namespace"`
	Name      string `yaml:"name"`
	// Selector are labels that the pods have.
	Selector map[string]string `yaml:"selector"`
	// MinAvailable or MaxDisrupted is what it asks for, a number or a per cent; the second
	// one is maxUnavailable.
	MinAvailable string `yaml:"minAvailable,omitempty"`
	MaxDisrupted string `yaml:"maxDisrupted,omitempty"`
}

func (b Budget) object() *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: b.Name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: amount(b.MinAvailable), MaxUnavailable: amount(b.MaxDisrupted), Selector: &metav1.LabelSelector{MatchLabels: b.Selector},
		},
	}
}

// check holds a budget against the workloads that it could be over.
func (b Budget) check(c *Cluster, here string, bad complain) {
	over := false
	for _, w := range c.Workloads {
		over = over || w.Namespace == b.Namespace
		if w.Namespace == b.Namespace && w.Name == b.Name && (w.MinAvailable != "" || w.MaxDisrupted != "") {
			bad("%s: %s/%s is the name of a workload's own budget", here, b.Namespace, b.Name)
		}
	}
	switch {
	case b.Name == "" || len(b.Selector) == 0:
		bad("%s needs a name and a selector", here)
	case !over:
		bad("%s: no workload is in namespace %q", here, b.Namespace)
	case (b.MinAvailable == "") == (b.MaxDisrupted == ""):
		bad("%s has either minAvailable or maxDisrupted", here)
	}
}
