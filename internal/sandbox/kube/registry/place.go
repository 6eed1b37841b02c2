package registry

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Tolerates is true when tolerations cover every taint that keeps pods away.
func Tolerates(ts []corev1.Toleration, taints []corev1.Taint) bool {
	for _, taint := range taints {
		if taint.Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		if !slices.ContainsFunc(ts, func(t corev1.Toleration) bool {
			return (t.Effect == "" || t.Effect == taint.Effect) && (t.Key == "" && t.Operator == corev1.TolerationOpExists ||
				t.Key == taint.Key && (t.Operator == corev1.TolerationOpExists || t.Value == taint.Value))
		}) {
			return false
		}
	}
	return true
}

// NodeMatches is true when one of the terms selects the node. Of the operators it knows
// In, NotIn, Exists and DoesNotExist.
func NodeMatches(n *corev1.Node, s *corev1.NodeSelector) bool {
	return slices.ContainsFunc(s.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool {
		for _, e := range t.MatchExpressions {
			v, ok := n.Labels[e.Key]
			if !holds(e, v, ok) {
				return false
			}
		}
		for _, e := range t.MatchFields {
			if e.Key != metav1.ObjectNameField || !holds(e, n.Name, true) {
				return false
			}
		}
		return len(t.MatchExpressions)+len(t.MatchFields) > 0
	})
}

func holds(e corev1.NodeSelectorRequirement, v string, there bool) bool {
	in := there && slices.Contains(e.Values, v)
	switch e.Operator {
	case corev1.NodeSelectorOpIn:
		return in
	case corev1.NodeSelectorOpNotIn:
		return !in
	case corev1.NodeSelectorOpExists:
		return there
	case corev1.NodeSelectorOpDoesNotExist:
		return !there
	}
	return false
}

// BindFor makes a pod wait for one node, as the DaemonSet controller does: the scheduler
// binds it.
func BindFor(p *corev1.Pod, node string) {
	only := corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	if p.Spec.Affinity.NodeAffinity == nil {
		p.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{only}}},
	}
}

// BoundFor is the node that BindFor named, or "".
func BoundFor(p *corev1.Pod) string {
	a := p.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, t := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, e := range t.MatchFields {
			if e.Key == metav1.ObjectNameField && len(e.Values) == 1 {
				return e.Values[0]
			}
		}
	}
	return ""
}
