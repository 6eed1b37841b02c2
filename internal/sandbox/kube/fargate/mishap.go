package fargate

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

// Annotations on pods that make something go wrong. None of them does anything before the
// cluster has settled for the first time, so that a world begins whole.
const (
	// AnnotationForget makes the Fargate scheduler forget that many pods of the owner: they
	// stay Pending until somebody deletes them. Owners are told apart by their namespace and
	// the label app.
	AnnotationForget = "sandbox.eksbg/forget"
	// AnnotationFail with the value "image" keeps the containers waiting with
	// ImagePullBackOff, with "crash" in CrashLoopBackOff.
	AnnotationFail = "sandbox.eksbg/fail"
)

// forgets tells whether the scheduler loses sight of a pod that it sees the first time.
func (f *Fleet) forgets(k podKey, pod *corev1.Pod) bool {
	times, err := strconv.Atoi(pod.Annotations[AnnotationForget])
	if err != nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.forgotten[k] {
		return true
	}
	owner := store.Key(pod.Namespace, pod.Labels["app"])
	if !f.begun || f.lost[owner] >= times {
		return false
	}
	f.lost[owner]++
	f.forgotten[k] = true
	return true
}

// broken is the status of a pod whose containers cannot be started or do not stay up.
func (f *Fleet) broken(p *corev1.Pod, s *slot) {
	wait := corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}
	for i := range p.Status.ContainerStatuses {
		c := &p.Status.ContainerStatuses[i]
		switch p.Annotations[AnnotationFail] {
		case "image":
			wait.Message = `Back-off pulling image "` + c.Image + `"`
		default:
			p.Status.Phase = corev1.PodRunning
			p.Status.PodIP = s.ip.String()
			p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
			wait = corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff",
				Message: "back-off 10s restarting failed container=" + c.Name + " pod=" + p.Name + "_" + p.Namespace + "(" + string(p.UID) + ")"}
			c.RestartCount = 1
			at := f.moment()
			c.LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: 1, Reason: "Error", StartedAt: at, FinishedAt: at, Message: "panic: no configuration"}}
		}
		c.State = corev1.ContainerState{Waiting: &wait}
	}
}

// fails is true for pods whose containers never stay up.
func (f *Fleet) fails(p *corev1.Pod) bool {
	v := p.Annotations[AnnotationFail]
	f.mu.Lock()
	defer f.mu.Unlock()
	return (v == "image" || v == "crash") && f.begun
}

// down is true for pods whose containers wait for ever.
func down(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Waiting != nil && strings.HasSuffix(c.State.Waiting.Reason, "BackOff")
	})
}
