package sandbox

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/eksbg/eksbg/internal/sandbox/kube"
)

// builtInNamespaces are in every cluster already.
var builtInNamespaces = map[string]bool{"default": true, "kube-system": true, "kube-public": true, "kube-node-lease": true}

// objects turns what runs in a cluster into what a user would have applied: namespaces
// and priority classes first, then budgets, then each workload after its service,
// disruption budget and webhook.
func (c *Cluster) objects() []runtime.Object {
	var objs []runtime.Object
	seen := maps.Clone(builtInNamespaces)
	for _, w := range c.Workloads {
		if !seen[w.Namespace] {
			seen[w.Namespace] = true
			objs = append(objs, &corev1.Namespace{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
				ObjectMeta: metav1.ObjectMeta{Name: w.Namespace},
			})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Priorities)) {
		objs = append(objs, &schedulingv1.PriorityClass{
			TypeMeta:   metav1.TypeMeta{APIVersion: "scheduling.k8s.io/v1", Kind: "PriorityClass"},
			ObjectMeta: metav1.ObjectMeta{Name: name}, Value: c.Priorities[name],
		})
	}
	for _, n := range c.Nodes {
		objs = append(objs, n.object(c.Version))
	}
	for _, b := range c.Budgets {
		objs = append(objs, b.object())
	}
	for _, w := range c.awake() {
		if w.Port != 0 || w.Kind == "StatefulSet" {
			objs = append(objs, w.service())
		}
		if w.MinAvailable != "" || w.MaxDisrupted != "" {
			objs = append(objs, w.budget())
		}
		if w.Webhook != "" {
			objs = append(objs, w.webhook())
		}
		objs = append(objs, w.object())
	}
	return objs
}

func (w Workload) object() runtime.Object {
	kind := func(apiVersion string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: apiVersion, Kind: w.Kind} }
	switch w.Kind {
	case "StatefulSet":
		return w.statefulSet()
	case "DaemonSet":
		return &appsv1.DaemonSet{TypeMeta: kind("apps/v1"), ObjectMeta: w.meta(), Spec: appsv1.DaemonSetSpec{
			Selector: w.selector(), Template: w.template(), UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.DaemonSetUpdateStrategyType(w.Strategy)}}}
	case "ReplicaSet":
		return &appsv1.ReplicaSet{TypeMeta: kind("apps/v1"), ObjectMeta: w.meta(), Spec: appsv1.ReplicaSetSpec{
			Replicas: w.replicas(), Selector: w.selector(), Template: w.template()}}
	case "ReplicationController":
		return &corev1.ReplicationController{TypeMeta: kind("v1"), ObjectMeta: w.meta(), Spec: corev1.ReplicationControllerSpec{
			Replicas: w.replicas(), Selector: w.selector().MatchLabels, Template: ptr(w.template())}}
	case "Rollout":
		return w.rollout()
	case "CloneSet":
		return &kube.CloneSet{TypeMeta: kind(kube.CloneSetGroup.String()), ObjectMeta: w.meta(), Spec: kube.CloneSetSpec{
			Replicas: w.replicas(), Selector: w.selector(), Template: w.template()}}
	case "Job":
		return &batchv1.Job{TypeMeta: kind("batch/v1"), ObjectMeta: w.meta(), Spec: w.jobSpec()}
	case "CronJob":
		return &batchv1.CronJob{
			TypeMeta: kind("batch/v1"), ObjectMeta: w.meta(),
			Spec: batchv1.CronJobSpec{
				Schedule: w.Schedule, Suspend: ptr(w.Suspend), ConcurrencyPolicy: batchv1.AllowConcurrent,
				JobTemplate: batchv1.JobTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: w.labels()}, Spec: w.jobSpec()},
			},
		}
	case "Pod":
		return w.pod()
	default:
		return w.deployment()
	}
}

func (w Workload) deployment() *appsv1.Deployment {
	d := &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: w.meta(),
		Spec: appsv1.DeploymentSpec{
			Replicas: w.replicas(), Selector: w.selector(), Template: w.template(),
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.DeploymentStrategyType(w.Strategy)},
		},
	}
	if w.MaxSurge != "" || w.MaxUnavailable != "" {
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: amount(w.MaxSurge), MaxUnavailable: amount(w.MaxUnavailable)}
	}
	return d
}

func (w Workload) statefulSet() *appsv1.StatefulSet {
	s := &appsv1.StatefulSet{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"}, ObjectMeta: w.meta(),
		Spec: appsv1.StatefulSetSpec{
			Replicas: w.replicas(), Selector: w.selector(), Template: w.template(), ServiceName: w.Name,
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.StatefulSetUpdateStrategyType(w.Strategy)},
		},
	}
	if w.Start > 0 {
		s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: w.Start}
	}
	if w.Parallel {
		s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	}
	if w.Partition > 0 || w.MaxUnavailable != "" {
		s.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr(w.Partition), MaxUnavailable: amount(w.MaxUnavailable)}
	}
	return s
}

func (w Workload) jobSpec() batchv1.JobSpec {
	return batchv1.JobSpec{
		Completions: w.replicas(), Parallelism: w.replicas(),
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: w.labels(), Annotations: w.runs()}, Spec: w.podSpec(corev1.RestartPolicyNever),
		},
	}
}

// runs tells the sandbox's Fargate when the containers of a Job exit.
func (w Workload) runs() map[string]string {
	if w.Kind == "CronJob" && w.Runs == 0 {
		return nil
	}
	return map[string]string{kube.AnnotationRun: w.Runs.String()}
}

// restarts is the restart policy of pods that are not a Job's.
func (w Workload) restarts() corev1.RestartPolicy {
	if w.RestartPolicy == "" {
		return corev1.RestartPolicyAlways
	}
	return corev1.RestartPolicy(w.RestartPolicy)
}

func (w Workload) service() *corev1.Service {
	s := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: w.meta(),
		Spec: corev1.ServiceSpec{Selector: w.selector().MatchLabels},
	}
	if w.Port != 0 {
		s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: w.Port, TargetPort: intstr.FromInt32(w.Port), Protocol: corev1.ProtocolTCP}}
	} else {
		s.Spec.ClusterIP = corev1.ClusterIPNone
	}
	return s
}

func (w Workload) budget() *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}, ObjectMeta: w.meta(),
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: amount(w.MinAvailable), MaxUnavailable: amount(w.MaxDisrupted), Selector: w.selector()},
	}
}

func (w Workload) template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: w.labels(), Annotations: w.fate()}, Spec: w.podSpec(w.restarts()),
	}
}

func (w Workload) podSpec(restart corev1.RestartPolicy) corev1.PodSpec {
	c := corev1.Container{Name: w.Name, Image: w.Image}
	if w.Port != 0 {
		c.Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: w.Port, Protocol: corev1.ProtocolTCP}}
	}
	return corev1.PodSpec{
		Containers: []corev1.Container{c}, RestartPolicy: restart, TerminationGracePeriodSeconds: w.Grace, PriorityClassName: w.PriorityClass,
	}
}

func (w Workload) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name, Labels: map[string]string{"app": w.Name}}
}

func (w Workload) labels() map[string]string {
	labels := map[string]string{"app": w.Name}
	maps.Copy(labels, w.Labels)
	return labels
}

func (w Workload) selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": w.Name}}
}

func (w Workload) replicas() *int32 {
	if w.Replicas == nil {
		return ptr(int32(1))
	}
	return ptr(*w.Replicas)
}

// amount reads "1" or "25%"; empty is nil.
func amount(s string) *intstr.IntOrString {
	if s == "" {
		return nil
	}
	return ptr(intstr.Parse(s))
}

func ptr[T any](v T) *T { return &v }
