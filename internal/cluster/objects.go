package cluster

import (
	"math"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Labels that EKS puts on nodes and Fargate pods.
const (
	labelCompute = "eks.amazonaws.com/compute-type"
	labelProfile = "eks.amazonaws.com/fargate-profile"
	labelOldZone = "failure-domain.beta.kubernetes.io/zone"
)

const (
	// AnnotationCapacity is what Fargate says that it provisioned for a pod.
	AnnotationCapacity = "CapacityProvisioned"
	// mostCPU is far more vCPU than Fargate has for one pod (16).
	mostCPU = 1 << 20
)

func node(n *corev1.Node) Node {
	out := Node{
		Name: n.Name, Kubelet: n.Status.NodeInfo.KubeletVersion,
		Compute: n.Labels[labelCompute], Profile: n.Labels[labelProfile],
		Zone: n.Labels[corev1.LabelTopologyZone],
	}
	if out.Zone == "" {
		out.Zone = n.Labels[labelOldZone]
	}
	if out.Compute == "" {
		out.Compute = ComputeEC2
		if strings.HasPrefix(n.Name, "fargate-") {
			out.Compute = ComputeFargate
		}
	}
	// A kubelet that has not said its version yet has none.
	out.Minor, _ = Minor(out.Kubelet)
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Ready = c.Status == corev1.ConditionTrue
		}
	}
	return out
}

// pod keeps what is used of a pod; its owner is the direct one until the lists of
// what stands in between are read.
func pod(p *corev1.Pod) Pod {
	out := Pod{
		Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Node: p.Spec.NodeName,
		Phase: string(p.Status.Phase), Terminating: p.DeletionTimestamp != nil,
		Finished: p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		Owner:    direct(p), CreatedAt: p.CreationTimestamp.Time, StartTime: unix(p.Status.StartTime),
		Profile: p.Labels[labelProfile], MilliCPU: provisioned(p.Annotations[AnnotationCapacity]),
		Once: p.Spec.RestartPolicy == corev1.RestartPolicyNever || p.Spec.RestartPolicy == corev1.RestartPolicyOnFailure,
	}
	out.Static = isNode(out.Owner)
	if out.Owner.Kind == "Job" && group(out.Owner.APIVersion) == "batch" {
		out.Job = out.Owner.UID
	}
	if out.Finished {
		out.FinishedAt = ended(p)
	}
	if p.Spec.SchedulerName != corev1.DefaultSchedulerName {
		out.Scheduler = p.Spec.SchedulerName
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			out.Ready = c.Status == corev1.ConditionTrue
		}
	}
	return out
}

// Provisioned is what Fargate provisioned for a pod with the annotations, in thousandths
// of a vCPU; 0 where that is not said.
func Provisioned(annotations map[string]string) int32 {
	return provisioned(annotations[AnnotationCapacity])
}

// provisioned is the vCPU part of the annotation CapacityProvisioned, such as
// "0.25vCPU 0.5GB", in thousandths; 0 for what does not read so.
func provisioned(annotation string) int32 {
	cpu, _, ok := strings.Cut(annotation, "vCPU")
	if !ok {
		return 0
	}
	n, err := strconv.ParseFloat(cpu, 64)
	if err != nil || !(n > 0 && n <= mostCPU) {
		return 0
	}
	return int32(math.Round(n * 1000))
}

// ended is when the last container of a finished pod did. A pod that was evicted or
// never started has no ended containers: then it is when the kubelet last changed a
// condition of it.
func ended(p *corev1.Pod) time.Time {
	var last time.Time
	for _, c := range p.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil && t.FinishedAt.After(last) {
			last = t.FinishedAt.Time
		}
	}
	if !last.IsZero() {
		return last
	}
	for _, c := range p.Status.Conditions {
		if c.LastTransitionTime.After(last) {
			last = c.LastTransitionTime.Time
		}
	}
	return last
}
