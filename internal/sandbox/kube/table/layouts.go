package table

import (
	"fmt"
	"sort"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

// row adapts a function over one Go type.
func row[T store.Object](f func(T, time.Time) []any) func(store.Object, time.Time) []any {
	return func(o store.Object, now time.Time) []any { return f(o.(T), now) }
}

var layouts = map[*registry.Resource]layout{
	registry.Nodes: {cols("Name", "Status", "Roles", "Age", "Version", "|", "Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
		row(nodeRow)},
	registry.Pods: {cols("Name", "Ready", "Status", "Restarts", "Age", "|", "IP", "Node", "Nominated Node", "Readiness Gates"),
		row(podRow)},
	registry.Deployments: {cols("Name", "Ready", "Up-to-date", "Available", "Age", "|", "Containers", "Images", "Selector"),
		row(func(d *appsv1.Deployment, now time.Time) []any {
			c, i := containers(d.Spec.Template.Spec)
			return []any{d.Name, fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, *d.Spec.Replicas), d.Status.UpdatedReplicas,
				d.Status.AvailableReplicas, age(d.CreationTimestamp, now), c, i, metav1.FormatLabelSelector(d.Spec.Selector)}
		})},
	registry.ReplicaSets: {cols("Name", "Desired", "Current", "Ready", "Age", "|", "Containers", "Images", "Selector"),
		row(func(r *appsv1.ReplicaSet, now time.Time) []any {
			c, i := containers(r.Spec.Template.Spec)
			return []any{r.Name, *r.Spec.Replicas, r.Status.Replicas, r.Status.ReadyReplicas, age(r.CreationTimestamp, now),
				c, i, metav1.FormatLabelSelector(r.Spec.Selector)}
		})},
	registry.ReplicationControllers: {cols("Name", "Desired", "Current", "Ready", "Age", "|", "Containers", "Images", "Selector"),
		row(func(r *corev1.ReplicationController, now time.Time) []any {
			c, i := containers(r.Spec.Template.Spec)
			return []any{r.Name, *r.Spec.Replicas, r.Status.Replicas, r.Status.ReadyReplicas, age(r.CreationTimestamp, now),
				c, i, labels.FormatLabels(r.Spec.Selector)}
		})},
	registry.Rollouts: {cols("Name", "Desired", "Current", "Up-to-date", "Available", "Age"),
		row(func(r *registry.Rollout, now time.Time) []any {
			s := r.Status
			return []any{r.Name, *r.Spec.Replicas, s.Replicas, s.UpdatedReplicas, s.AvailableReplicas, age(r.CreationTimestamp, now)}
		})},
	registry.CloneSets: {cols("Name", "Desired", "Ready", "Total", "Age"),
		row(func(s *registry.CloneSet, now time.Time) []any {
			return []any{s.Name, *s.Spec.Replicas, s.Status.ReadyReplicas, s.Status.Replicas, age(s.CreationTimestamp, now)}
		})},
	registry.PodTemplates: {cols("Name", "Containers", "Images", "Pod Labels"),
		row(func(p *corev1.PodTemplate, _ time.Time) []any {
			c, i := containers(p.Template.Spec)
			return []any{p.Name, c, i, labels.FormatLabels(p.Template.Labels)}
		})},
	registry.PriorityClasses: {cols("Name", "Value", "Global-Default", "Age", "PreemptionPolicy"),
		row(func(p *schedulingv1.PriorityClass, now time.Time) []any {
			return []any{p.Name, p.Value, fmt.Sprint(p.GlobalDefault), age(p.CreationTimestamp, now), string(*p.PreemptionPolicy)}
		})},
	registry.ValidatingWebhooks: {cols("Name", "Webhooks", "Age"),
		row(func(w *admissionv1.ValidatingWebhookConfiguration, now time.Time) []any {
			return []any{w.Name, len(w.Webhooks), age(w.CreationTimestamp, now)}
		})},
	registry.MutatingWebhooks: {cols("Name", "Webhooks", "Age"),
		row(func(w *admissionv1.MutatingWebhookConfiguration, now time.Time) []any {
			return []any{w.Name, len(w.Webhooks), age(w.CreationTimestamp, now)}
		})},
	registry.StatefulSets: {cols("Name", "Ready", "Age", "|", "Containers", "Images"),
		row(func(s *appsv1.StatefulSet, now time.Time) []any {
			c, i := containers(s.Spec.Template.Spec)
			return []any{s.Name, fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, *s.Spec.Replicas), age(s.CreationTimestamp, now), c, i}
		})},
	registry.DaemonSets: {cols("Name", "Desired", "Current", "Ready", "Up-to-date", "Available", "Node Selector", "Age", "|", "Containers", "Images", "Selector"),
		row(func(d *appsv1.DaemonSet, now time.Time) []any {
			c, i := containers(d.Spec.Template.Spec)
			s := d.Status
			return []any{d.Name, s.DesiredNumberScheduled, s.CurrentNumberScheduled, s.NumberReady, s.UpdatedNumberScheduled, s.NumberAvailable,
				labelsOr(d.Spec.Template.Spec.NodeSelector), age(d.CreationTimestamp, now), c, i, metav1.FormatLabelSelector(d.Spec.Selector)}
		})},
	registry.ControllerRevisions: {cols("Name", "Controller", "Revision", "Age"),
		row(func(r *appsv1.ControllerRevision, now time.Time) []any {
			owner := "<none>"
			if c := metav1.GetControllerOf(r); c != nil {
				owner = strings.ToLower(c.Kind) + ".apps/" + c.Name
			}
			return []any{r.Name, owner, r.Revision, age(r.CreationTimestamp, now)}
		})},
	registry.Jobs: {cols("Name", "Status", "Completions", "Duration", "Age", "|", "Containers", "Images", "Selector"), row(jobRow)},
	registry.CronJobs: {cols("Name", "Schedule", "Timezone", "Suspend", "Active", "Last Schedule", "Age", "|", "Containers", "Images"),
		row(func(j *batchv1.CronJob, now time.Time) []any {
			c, i := containers(j.Spec.JobTemplate.Spec.Template.Spec)
			zone, last := "<none>", "<none>"
			if j.Spec.TimeZone != nil {
				zone = *j.Spec.TimeZone
			}
			if j.Status.LastScheduleTime != nil {
				last = age(*j.Status.LastScheduleTime, now)
			}
			suspend := j.Spec.Suspend != nil && *j.Spec.Suspend
			return []any{j.Name, j.Spec.Schedule, zone, fmt.Sprint(suspend), len(j.Status.Active), last, age(j.CreationTimestamp, now), c, i}
		})},
	registry.Services: {cols("Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "|", "Selector"), row(serviceRow)},
	registry.Namespaces: {cols("Name", "Status", "Age"),
		row(func(n *corev1.Namespace, now time.Time) []any {
			return []any{n.Name, string(n.Status.Phase), age(n.CreationTimestamp, now)}
		})},
	registry.PodDisruptionBudgets: {cols("Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age"),
		row(func(p *policyv1.PodDisruptionBudget, now time.Time) []any {
			return []any{p.Name, number(p.Spec.MinAvailable), number(p.Spec.MaxUnavailable), p.Status.DisruptionsAllowed, age(p.CreationTimestamp, now)}
		})},
	registry.HorizontalPodAutoscalers: {cols("Name", "Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age"), row(autoscalerRow)},
	registry.Leases: {cols("Name", "Holder", "Age"),
		row(func(l *coordinationv1.Lease, now time.Time) []any {
			holder := ""
			if l.Spec.HolderIdentity != nil {
				holder = *l.Spec.HolderIdentity
			}
			return []any{l.Name, holder, age(l.CreationTimestamp, now)}
		})},
	registry.Events: {cols("Last Seen", "Type", "Reason", "Object", "|", "Subobject", "Source", "|", "Message", "|", "First Seen", "Count", "Name"),
		row(eventRow)},
	registry.ConfigMaps: {cols("Name", "Data", "Age"),
		row(func(c *corev1.ConfigMap, now time.Time) []any {
			return []any{c.Name, len(c.Data) + len(c.BinaryData), age(c.CreationTimestamp, now)}
		})},
	registry.Secrets: {cols("Name", "Type", "Data", "Age"),
		row(func(s *corev1.Secret, now time.Time) []any {
			return []any{s.Name, string(s.Type), len(s.Data), age(s.CreationTimestamp, now)}
		})},
	registry.ServiceAccounts: {cols("Name", "Secrets", "Age"),
		row(func(s *corev1.ServiceAccount, now time.Time) []any {
			return []any{s.Name, len(s.Secrets), age(s.CreationTimestamp, now)}
		})},
	registry.Claims: {cols("Name", "Status", "Volume", "Capacity", "Access Modes", "StorageClass", "Age"), row(claimRow)},
}

func eventRow(e *corev1.Event, now time.Time) []any {
	obj := strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name
	return []any{age(e.LastTimestamp, now), e.Type, e.Reason, obj, e.InvolvedObject.FieldPath, e.Source.Component,
		strings.TrimSpace(e.Message), age(e.FirstTimestamp, now), e.Count, e.Name}
}

func nodeRow(n *corev1.Node, now time.Time) []any {
	status := "Unknown"
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			status = "NotReady"
			if c.Status == corev1.ConditionTrue {
				status = "Ready"
			}
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	var roles []string
	for k := range n.Labels {
		if r, ok := strings.CutPrefix(k, "node-role.kubernetes.io/"); ok {
			roles = append(roles, r)
		}
	}
	sort.Strings(roles)
	internal, external := "<none>", "<none>"
	for _, a := range n.Status.Addresses {
		switch a.Type {
		case corev1.NodeInternalIP:
			internal = a.Address
		case corev1.NodeExternalIP:
			external = a.Address
		}
	}
	i := n.Status.NodeInfo
	return []any{n.Name, status, or(strings.Join(roles, ","), "<none>"), age(n.CreationTimestamp, now), i.KubeletVersion,
		internal, external, or(i.OSImage, "<unknown>"), or(i.KernelVersion, "<unknown>"), or(i.ContainerRuntimeVersion, "<unknown>")}
}

func jobRow(j *batchv1.Job, now time.Time) []any {
	done := fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, *j.Spec.Parallelism)
	if j.Spec.Completions != nil {
		done = fmt.Sprintf("%d/%d", j.Status.Succeeded, *j.Spec.Completions)
	}
	took := ""
	if j.Status.StartTime != nil {
		end := now
		if j.Status.CompletionTime != nil {
			end = j.Status.CompletionTime.Time
		}
		took = duration.HumanDuration(end.Sub(j.Status.StartTime.Time))
	}
	status := "Running"
	for _, c := range j.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			switch c.Type {
			case batchv1.JobComplete, batchv1.JobFailed, batchv1.JobSuspended:
				status = string(c.Type)
			}
		}
	}
	if j.DeletionTimestamp != nil {
		status = "Terminating"
	}
	c, i := containers(j.Spec.Template.Spec)
	return []any{j.Name, status, done, took, age(j.CreationTimestamp, now), c, i, metav1.FormatLabelSelector(j.Spec.Selector)}
}

func serviceRow(s *corev1.Service, now time.Time) []any {
	var ports []string
	for _, p := range s.Spec.Ports {
		t := fmt.Sprintf("%d/%s", p.Port, p.Protocol)
		if p.NodePort > 0 {
			t = fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol)
		}
		ports = append(ports, t)
	}
	external := "<none>"
	switch s.Spec.Type {
	case corev1.ServiceTypeExternalName:
		external = s.Spec.ExternalName
	case corev1.ServiceTypeLoadBalancer:
		external = "<pending>"
		for _, in := range s.Status.LoadBalancer.Ingress {
			external = or(in.Hostname, in.IP)
		}
	}
	return []any{s.Name, string(s.Spec.Type), or(s.Spec.ClusterIP, "<none>"), external, or(strings.Join(ports, ","), "<none>"),
		age(s.CreationTimestamp, now), labelsOr(s.Spec.Selector)}
}

func autoscalerRow(h *autoscalingv2.HorizontalPodAutoscaler, now time.Time) []any {
	var targets []string
	for _, m := range h.Spec.Metrics {
		if m.Resource != nil && m.Resource.Target.AverageUtilization != nil {
			targets = append(targets, fmt.Sprintf("%s: <unknown>/%d%%", m.Resource.Name, *m.Resource.Target.AverageUtilization))
		}
	}
	return []any{h.Name, h.Spec.ScaleTargetRef.Kind + "/" + h.Spec.ScaleTargetRef.Name, or(strings.Join(targets, ", "), "<none>"),
		fmt.Sprint(*h.Spec.MinReplicas), h.Spec.MaxReplicas, h.Status.CurrentReplicas, age(h.CreationTimestamp, now)}
}

func claimRow(c *corev1.PersistentVolumeClaim, now time.Time) []any {
	size := ""
	if q, ok := c.Status.Capacity[corev1.ResourceStorage]; ok {
		size = q.String()
	}
	var modes []string
	for _, m := range c.Spec.AccessModes {
		modes = append(modes, map[corev1.PersistentVolumeAccessMode]string{
			corev1.ReadWriteOnce: "RWO", corev1.ReadOnlyMany: "ROX", corev1.ReadWriteMany: "RWX", corev1.ReadWriteOncePod: "RWOP"}[m])
	}
	class := ""
	if c.Spec.StorageClassName != nil {
		class = *c.Spec.StorageClassName
	}
	return []any{c.Name, string(c.Status.Phase), c.Spec.VolumeName, size, strings.Join(modes, ","), class, age(c.CreationTimestamp, now)}
}

// containers lists names and images as the wide columns have them.
func containers(s corev1.PodSpec) (names, images string) {
	var n, i []string
	for _, c := range s.Containers {
		n, i = append(n, c.Name), append(i, c.Image)
	}
	return strings.Join(n, ","), strings.Join(i, ",")
}

func labelsOr(m map[string]string) string {
	var out []string
	for k, v := range m {
		out = append(out, k+"="+v)
	}
	sort.Strings(out)
	return or(strings.Join(out, ","), "<none>")
}

func number(v *intstr.IntOrString) string {
	if v == nil {
		return "N/A"
	}
	return v.String()
}
