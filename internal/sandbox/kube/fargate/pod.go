package fargate

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
)

// status writes what f makes of a pod's status, and of the node name while there is
// none (the binding).
func (f *Fleet) status(pod *corev1.Pod, change func(*corev1.Pod)) (*corev1.Pod, error) {
	next := pod.DeepCopy()
	change(next)
	if next.Spec.NodeName != pod.Spec.NodeName {
		return f.api.Bind(pod, next)
	}
	return f.api.SetStatus(pod, next)
}

// setCondition sets a condition; its transition time moves when its status does.
func setCondition(p *corev1.Pod, t corev1.PodConditionType, ok bool, at metav1.Time, reason, message string) {
	c := corev1.PodCondition{Type: t, Status: corev1.ConditionFalse, LastTransitionTime: at, Reason: reason, Message: message}
	if ok {
		c.Status = corev1.ConditionTrue
	}
	for i, old := range p.Status.Conditions {
		if old.Type == t {
			if old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
			p.Status.Conditions[i] = c
			return
		}
	}
	p.Status.Conditions = append(p.Status.Conditions, c)
}

// moment is the time that transitions get now. In a hurry they lie an hour back, so that
// nothing waits for minReadySeconds.
func (f *Fleet) moment() metav1.Time {
	if f.hurried() {
		return metav1.NewTime(f.now().Add(-time.Hour))
	}
	return f.now()
}

// now is the present time as the API has times: in whole seconds.
func (f *Fleet) now() metav1.Time { return metav1.NewTime(f.api.Clock().Truncate(time.Second)) }

// unschedulable marks a pod that finds no room, and says so in an event.
func (f *Fleet) unschedulable(scheduler string, pod *corev1.Pod, why string) error {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Message == why {
			return nil
		}
	}
	pod, err := f.status(pod, func(p *corev1.Pod) {
		setCondition(p, corev1.PodScheduled, false, f.now(), corev1.PodReasonUnschedulable, why)
	})
	if err == nil {
		f.api.Event(scheduler, pod, corev1.EventTypeWarning, "FailedScheduling", why)
	}
	return err
}

// bind puts a pod on its node, with its containers being created.
func (f *Fleet) bind(p *corev1.Pod, s *slot) {
	at := f.moment()
	p.Spec.NodeName = s.node
	setCondition(p, corev1.PodScheduled, true, at, "", "")
	creating(p, at, s.ip.String())
}

// creating is the status of a pod whose containers are being created.
func creating(p *corev1.Pod, at metav1.Time, hostIP string) {
	p.Status.StartTime = &at
	p.Status.HostIP = hostIP
	p.Status.HostIPs = []corev1.HostIP{{IP: hostIP}}
	setCondition(p, corev1.PodInitialized, true, at, "", "")
	setCondition(p, corev1.PodReady, false, at, "ContainersNotReady", "containers with unready status: "+names(p))
	setCondition(p, corev1.ContainersReady, false, at, "ContainersNotReady", "containers with unready status: "+names(p))
	p.Status.ContainerStatuses = nil
	no := false
	for _, c := range p.Spec.Containers {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Started: &no,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}},
		})
	}
}

// names spells the containers as the kubelet's messages do: [a b].
func names(p *corev1.Pod) string {
	out := "["
	for i, c := range p.Spec.Containers {
		if i > 0 {
			out += " "
		}
		out += c.Name
	}
	return out + "]"
}

// keep is the kubelet of a pod that has a node: it starts the containers, keeps the
// condition Ready in step with the readiness gates, and ends containers that end.
func (f *Fleet) keep(k podKey, s *slot, pod *corev1.Pod) error {
	if s == nil {
		return f.adopt(k, pod)
	}
	if pod.Status.Phase == corev1.PodPending {
		if !f.soon(k, s.runAt) {
			return nil
		}
		if f.fails(pod) {
			_, err := f.status(pod, func(p *corev1.Pod) { f.broken(p, s) })
			return err
		}
		running, err := f.status(pod, func(p *corev1.Pod) { f.start(p, s) })
		if err != nil {
			return err
		}
		if lasts, ends := f.lifetime(running); ends {
			s.exitAt = f.api.Clock().Add(lasts)
		}
		pod = running
	}
	if !s.exitAt.IsZero() && f.due(k, s.exitAt) {
		_, err := f.status(pod, f.finish)
		return err
	}
	if want := ready(pod) && !down(pod); want != registry.PodReady(pod) {
		_, err := f.status(pod, func(p *corev1.Pod) { f.setReady(p) })
		return err
	}
	return nil
}

// adopt begins to look after a pod that came with a node: one that is no Fargate node.
func (f *Fleet) adopt(k podKey, pod *corev1.Pod) error {
	node := f.api.Node(pod.Spec.NodeName)
	if node == nil {
		return nil // waits for its node, as a pod bound by hand does
	}
	f.room.Lock()
	pl, ok := f.pool.take()
	f.room.Unlock()
	if !ok {
		return f.unschedulable(corev1.DefaultSchedulerName, pod, noAddresses)
	}
	s := &slot{place: pl, runAt: f.api.Clock().Add(f.startup() / 4)}
	f.keepSlot(k, s)
	host := pl.ip.String()
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			host = a.Address
		}
	}
	_, err := f.status(pod, func(p *corev1.Pod) {
		setCondition(p, corev1.PodScheduled, true, f.moment(), "", "")
		creating(p, f.moment(), host)
	})
	return err
}

// start is the status of a pod whose containers run.
func (f *Fleet) start(p *corev1.Pod, s *slot) {
	at := f.moment()
	p.Status.Phase = corev1.PodRunning
	p.Status.PodIP = s.ip.String()
	p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
	yes := true
	for i := range p.Status.ContainerStatuses {
		c := &p.Status.ContainerStatuses[i]
		c.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}
		c.Started = &yes
		c.ContainerID = "containerd://" + containerID(p.UID, i)
		c.ImageID = c.Image
	}
	f.setReady(p)
}

func containerID(uid types.UID, i int) string { return string(uid) + "-" + strconv.Itoa(i) }

// ready is whether a running pod should be Ready: its containers are, and the conditions
// that its readiness gates name are true.
func ready(p *corev1.Pod) bool {
	if p.Annotations[AnnotationReady] == "never" {
		return false
	}
	for _, g := range p.Spec.ReadinessGates {
		held := false
		for _, c := range p.Status.Conditions {
			held = held || c.Type == g.ConditionType && c.Status == corev1.ConditionTrue
		}
		if !held {
			return false
		}
	}
	return true
}

func (f *Fleet) setReady(p *corev1.Pod) {
	at := f.moment()
	containers := p.Annotations[AnnotationReady] != "never"
	for i := range p.Status.ContainerStatuses {
		p.Status.ContainerStatuses[i].Ready = containers
	}
	reason, message := "", ""
	if !containers {
		reason, message = "ContainersNotReady", "containers with unready status: "+names(p)
	}
	setCondition(p, corev1.ContainersReady, containers, at, reason, message)
	ok := ready(p)
	if containers && !ok {
		reason, message = "ReadinessGatesNotReady", "the conditions of the readiness gates are not all true"
	}
	setCondition(p, corev1.PodReady, ok, at, reason, message)
}

// lifetime is how long a pod runs, and whether it ends at all.
func (f *Fleet) lifetime(p *corev1.Pod) (time.Duration, bool) {
	if p.Spec.RestartPolicy == corev1.RestartPolicyAlways || p.Spec.RestartPolicy == "" {
		return 0, false
	}
	switch v := p.Annotations[AnnotationRun]; v {
	case "":
		return f.opts.Run, true
	case "forever":
		return 0, false
	default:
		d, err := time.ParseDuration(v)
		if err != nil {
			return f.opts.Run, true
		}
		return d, true
	}
}

// finish is the status of a pod whose containers have exited.
func (f *Fleet) finish(p *corev1.Pod) {
	at := f.moment()
	code, _ := strconv.Atoi(p.Annotations[AnnotationExit]) // 0 when it does not say
	reason := "Completed"
	p.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		reason = "Error"
		p.Status.Phase = corev1.PodFailed
	}
	for i := range p.Status.ContainerStatuses {
		c := &p.Status.ContainerStatuses[i]
		began := at
		if c.State.Running != nil {
			began = c.State.Running.StartedAt
		}
		c.Ready = false
		c.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: int32(code), Reason: reason, StartedAt: began, FinishedAt: at, ContainerID: c.ContainerID,
		}}
	}
	setCondition(p, corev1.PodReady, false, at, "PodCompleted", "")
	setCondition(p, corev1.ContainersReady, false, at, "PodCompleted", "")
}
