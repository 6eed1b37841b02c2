package table

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// podRow is the row of a pod: Status is what a human wants to know first, the reason of
// a container over that of the pod over its phase (printPod of kubernetes).
func podRow(p *corev1.Pod, now time.Time) []any {
	ready, restarts := 0, 0
	for _, c := range p.Status.ContainerStatuses {
		restarts += int(c.RestartCount)
		if c.Ready {
			ready++
		}
	}
	ip := "<none>"
	if len(p.Status.PodIPs) > 0 {
		ip = p.Status.PodIPs[0].IP
	}
	return []any{p.Name, fmt.Sprintf("%d/%d", ready, len(p.Spec.Containers)), podStatus(p), fmt.Sprint(restarts), age(p.CreationTimestamp, now),
		ip, or(p.Spec.NodeName, "<none>"), or(p.Status.NominatedNodeName, "<none>"), gates(p)}
}

func podStatus(p *corev1.Pod) string {
	reason := or(p.Status.Reason, string(p.Status.Phase))
	running := false
	for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := p.Status.ContainerStatuses[i]
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			reason = c.State.Waiting.Reason
		case c.State.Terminated != nil && c.State.Terminated.Reason != "":
			reason = c.State.Terminated.Reason
		case c.State.Terminated != nil:
			reason = fmt.Sprintf("ExitCode:%d", c.State.Terminated.ExitCode)
		case c.Ready && c.State.Running != nil:
			running = true
		}
	}
	if reason == "Completed" && running {
		reason = "Running"
	}
	if p.DeletionTimestamp != nil {
		switch p.Status.Phase {
		case corev1.PodSucceeded, corev1.PodFailed:
		default:
			reason = "Terminating"
		}
	}
	return reason
}

// gates counts the readiness gates that hold.
func gates(p *corev1.Pod) string {
	if len(p.Spec.ReadinessGates) == 0 {
		return "<none>"
	}
	n := 0
	for _, g := range p.Spec.ReadinessGates {
		for _, c := range p.Status.Conditions {
			if c.Type == g.ConditionType && c.Status == corev1.ConditionTrue {
				n++
			}
		}
	}
	return fmt.Sprintf("%d/%d", n, len(p.Spec.ReadinessGates))
}
