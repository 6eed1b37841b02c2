package fargate

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
)

// What follows is the default scheduler of a cluster that has other nodes than those of
// Fargate: EC2 instances, which are seeded and stay.

const noNodes = "no nodes available to schedule pods"

// NodeSeen tells of a node that is not Fargate's. Pods that found none are tried again.
func (f *Fleet) NodeSeen(n *corev1.Node) {
	if n.Labels[LabelCompute] == "fargate" {
		return
	}
	f.mu.Lock()
	f.ec2[n.Name] = n
	stranded := f.stranded
	f.stranded = map[podKey]struct{}{}
	f.mu.Unlock()
	for k := range stranded {
		f.queue.Add(k)
	}
}

// assign binds a pod of the default scheduler to the node that it asks for, or to the
// one with the fewest pods of those that it may run on.
func (f *Fleet) assign(k podKey, pod *corev1.Pod) error {
	f.mu.Lock()
	node := f.choose(pod)
	if node == "" {
		f.stranded[k] = struct{}{}
	} else {
		f.load[node]++
	}
	f.mu.Unlock()
	if node == "" {
		return f.unschedulable(corev1.DefaultSchedulerName, pod, noNodes)
	}
	bound, err := f.status(pod, func(p *corev1.Pod) {
		p.Spec.NodeName = node
		setCondition(p, corev1.PodScheduled, true, f.moment(), "", "")
	})
	if err == nil {
		f.api.Event(corev1.DefaultSchedulerName, bound, corev1.EventTypeNormal, "Scheduled", fmt.Sprintf("Successfully assigned %s to %s", k.key, node))
	}
	return err
}

func (f *Fleet) choose(pod *corev1.Pod) string {
	best := ""
	for _, name := range slices.Sorted(maps.Keys(f.ec2)) {
		n := f.ec2[name]
		if n.Spec.Unschedulable || !labels.SelectorFromSet(pod.Spec.NodeSelector).Matches(labels.Set(n.Labels)) ||
			!registry.Tolerates(pod.Spec.Tolerations, n.Spec.Taints) || !wanted(pod, n) {
			continue
		}
		if best == "" || f.load[name] < f.load[best] {
			best = name
		}
	}
	return best
}

func wanted(pod *corev1.Pod, n *corev1.Node) bool {
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	return registry.NodeMatches(n, a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
}

// daemon is true for pods of a DaemonSet: EKS leaves them alone, for there is no such
// thing on Fargate.
func daemon(pod *corev1.Pod) bool {
	ref := metav1.GetControllerOf(pod)
	return ref != nil && ref.Kind == "DaemonSet" && ptr.Deref(ref.Controller, false)
}
