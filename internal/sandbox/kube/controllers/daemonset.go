package controllers

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
)

var daemonSetKind = appsv1.SchemeGroupVersion.WithKind("DaemonSet")

// syncDaemonSet keeps one pod on every node that wants one: not on those of Fargate, whose
// taint is tolerated only by what Fargate runs itself. A changed template takes the old
// pods away one after the other, unless it is OnDelete.
func (m *Manager) syncDaemonSet(_ *controller[string], key string) error {
	ds, ok := get[*appsv1.DaemonSet](m, registry.DaemonSets, key)
	if !ok {
		return nil
	}
	hash := templateHash(&ds.Spec.Template, ds.Status.CollisionCount)
	byNode := map[string][]*corev1.Pod{}
	for _, p := range controlled[*corev1.Pod](m, ds.UID, registry.Pods) {
		n := nodeOf(p)
		byNode[n] = append(byNode[n], p)
	}
	s := appsv1.DaemonSetStatus{ObservedGeneration: ds.Generation, CollisionCount: ds.Status.CollisionCount}
	var outdated []*corev1.Pod
	items, _ := m.reg.List(registry.Nodes.GR(), "")
	for _, o := range items {
		n := o.(*corev1.Node)
		if !wantsDaemon(n, ds.Spec.Template.Spec) {
			continue
		}
		s.DesiredNumberScheduled++
		pods := byNode[n.Name]
		delete(byNode, n.Name)
		if len(pods) == 0 {
			if ds.DeletionTimestamp == nil {
				if err := m.newDaemon(ds, n, hash); err != nil {
					return err
				}
			}
			continue
		}
		p := pods[0]
		if p.Status.Phase == corev1.PodFailed && p.DeletionTimestamp == nil {
			if err := m.deletePod(p); err != nil {
				return err
			}
		}
		s.CurrentNumberScheduled++
		if registry.PodReady(p) && p.DeletionTimestamp == nil {
			s.NumberReady++
			s.NumberAvailable++
		}
		if p.Labels[appsv1.ControllerRevisionHashLabelKey] == hash {
			s.UpdatedNumberScheduled++
		} else if p.DeletionTimestamp == nil {
			outdated = append(outdated, p)
		}
	}
	s.NumberUnavailable = s.DesiredNumberScheduled - s.NumberAvailable
	for _, pods := range byNode { // on nodes that are gone or no longer want one
		s.NumberMisscheduled += int32(len(pods))
		if err := m.deletePods(pods); err != nil {
			return err
		}
	}
	rolls := ds.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType && ds.DeletionTimestamp == nil
	if rolls && len(outdated) > 0 && s.NumberUnavailable == 0 {
		if err := m.deletePod(outdated[0]); err != nil {
			return err
		}
	}
	if equality.Semantic.DeepEqual(s, ds.Status) {
		return nil
	}
	next := ds.DeepCopy()
	next.Status = s
	_, err := update(m, registry.DaemonSets, registry.Status, next)
	return err
}

// nodeOf is the node that a pod is on, or the one that it is meant for.
func nodeOf(p *corev1.Pod) string {
	if p.Spec.NodeName != "" {
		return p.Spec.NodeName
	}
	return registry.BoundFor(p)
}

// wantsDaemon is true when the template's pods may run on the node.
func wantsDaemon(n *corev1.Node, spec corev1.PodSpec) bool {
	if n.DeletionTimestamp != nil || !labels.SelectorFromSet(spec.NodeSelector).Matches(labels.Set(n.Labels)) {
		return false
	}
	if a := spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		if !registry.NodeMatches(n, a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution) {
			return false
		}
	}
	return registry.Tolerates(spec.Tolerations, n.Spec.Taints)
}

func (m *Manager) newDaemon(ds *appsv1.DaemonSet, n *corev1.Node, hash string) error {
	p := podFrom(ds.Spec.Template, ds.Namespace, metav1.NewControllerRef(ds, daemonSetKind))
	p.GenerateName = ds.Name + "-"
	p.Labels = with(p.Labels, appsv1.ControllerRevisionHashLabelKey, hash)
	registry.BindFor(p, n.Name)
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
		if !slices.Contains(p.Spec.Tolerations, t) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, t)
		}
	}
	_, err := m.reg.Create(registry.Pods, p, false)
	return err
}
