package registry

import (
	"fmt"
	"math"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

// def sets a field that holds its zero value.
func def[T comparable](f *T, v T) {
	var zero T
	if *f == zero {
		*f = v
	}
}

// defp sets a pointer that is nil.
func defp[T any](f **T, v T) {
	if *f == nil {
		*f = &v
	}
}

// defaultPodSpec fills in what kube-apiserver does (pkg/apis/core/v1/defaults.go), as far
// as something here or in a client reads it.
func defaultPodSpec(s *corev1.PodSpec) {
	def(&s.RestartPolicy, corev1.RestartPolicyAlways)
	def(&s.DNSPolicy, corev1.DNSClusterFirst)
	def(&s.SchedulerName, corev1.DefaultSchedulerName)
	defp(&s.TerminationGracePeriodSeconds, int64(corev1.DefaultTerminationGracePeriodSeconds))
	defp(&s.SecurityContext, corev1.PodSecurityContext{})
	for _, cs := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range cs {
			defaultContainer(&cs[i])
		}
	}
}

func defaultContainer(c *corev1.Container) {
	def(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	def(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	policy := corev1.PullIfNotPresent
	if untagged(c.Image) {
		policy = corev1.PullAlways
	}
	def(&c.ImagePullPolicy, policy)
	for i := range c.Ports {
		def(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if p != nil {
			def(&p.TimeoutSeconds, 1)
			def(&p.PeriodSeconds, 10)
			def(&p.SuccessThreshold, 1)
			def(&p.FailureThreshold, 3)
			if p.HTTPGet != nil {
				def(&p.HTTPGet.Path, "/")
				def(&p.HTTPGet.Scheme, corev1.URISchemeHTTP)
			}
		}
	}
	for name, v := range c.Resources.Limits {
		if _, ok := c.Resources.Requests[name]; !ok {
			if c.Resources.Requests == nil {
				c.Resources.Requests = corev1.ResourceList{}
			}
			c.Resources.Requests[name] = v
		}
	}
}

// untagged is true for images at :latest, by name or for want of a tag.
func untagged(image string) bool {
	for i := len(image) - 1; i >= 0 && image[i] != '/'; i-- {
		switch image[i] {
		case '@':
			return false
		case ':':
			return image[i:] == ":latest"
		}
	}
	return true
}

func podRules(r *Resource) {
	r.defaults = func(o store.Object) {
		p := o.(*corev1.Pod)
		defaultPodSpec(&p.Spec)
		defp(&p.Spec.EnableServiceLinks, true)
		def(&p.Status.Phase, corev1.PodPending)
		def(&p.Status.QOSClass, qosClass(p))
		if len(p.Spec.Tolerations) == 0 {
			for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
				p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{
					Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300),
				})
			}
		}
	}
	r.create = validatePod
	r.update = validatePodUpdate
}

// qosClass is BestEffort without requests, Guaranteed with limits everywhere that equal
// the requests, and Burstable between.
func qosClass(p *corev1.Pod) corev1.PodQOSClass {
	any, all := false, true
	for _, c := range p.Spec.Containers {
		any = any || len(c.Resources.Requests) > 0 || len(c.Resources.Limits) > 0
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			l, ok := c.Resources.Limits[name]
			if req, has := c.Resources.Requests[name]; !ok || has && req.Cmp(l) != 0 {
				all = false
			}
		}
	}
	switch {
	case !any:
		return corev1.PodQOSBestEffort
	case all:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

func deploymentRules(r *Resource) {
	r.defaults = func(o store.Object) {
		d := &o.(*appsv1.Deployment).Spec
		defp(&d.Replicas, 1)
		defp(&d.RevisionHistoryLimit, 10)
		defp(&d.ProgressDeadlineSeconds, 600)
		def(&d.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
		if d.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
			defp(&d.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
			defp(&d.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
			defp(&d.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		}
		defaultPodSpec(&d.Template.Spec)
	}
	r.create = func(o store.Object) fieldErrors {
		d := o.(*appsv1.Deployment)
		return append(validateWorkload(d.Spec.Selector, d.Spec.Template, d.Spec.Replicas), validateStrategy(d)...)
	}
	r.update = func(next, old store.Object) fieldErrors {
		return immutable("selector", next.(*appsv1.Deployment).Spec.Selector, old.(*appsv1.Deployment).Spec.Selector)
	}
}

func replicaSetRules(r *Resource) {
	r.defaults = func(o store.Object) {
		s := &o.(*appsv1.ReplicaSet).Spec
		defp(&s.Replicas, 1)
		defaultPodSpec(&s.Template.Spec)
	}
	r.create = func(o store.Object) fieldErrors {
		s := o.(*appsv1.ReplicaSet).Spec
		return validateWorkload(s.Selector, s.Template, s.Replicas)
	}
	r.update = func(next, old store.Object) fieldErrors {
		return immutable("selector", next.(*appsv1.ReplicaSet).Spec.Selector, old.(*appsv1.ReplicaSet).Spec.Selector)
	}
}

func statefulSetRules(r *Resource) {
	r.defaults = func(o store.Object) {
		s := &o.(*appsv1.StatefulSet).Spec
		defp(&s.Replicas, 1)
		defp(&s.RevisionHistoryLimit, 10)
		def(&s.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
		if s.UpdateStrategy.Type == "" {
			s.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
			defp(&s.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
		}
		// A type that is given without its fields is left as it is.
		if ru := s.UpdateStrategy.RollingUpdate; ru != nil && s.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
			defp(&ru.Partition, 0)
			defp(&ru.MaxUnavailable, intstr.FromInt32(1))
		}
		defp(&s.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
		})
		defaultPodSpec(&s.Template.Spec)
	}
	r.create = func(o store.Object) fieldErrors {
		s := o.(*appsv1.StatefulSet).Spec
		return validateWorkload(s.Selector, s.Template, s.Replicas)
	}
	r.update = validateStatefulSetUpdate
}

func daemonSetRules(r *Resource) {
	r.defaults = func(o store.Object) {
		s := &o.(*appsv1.DaemonSet).Spec
		defp(&s.RevisionHistoryLimit, 10)
		def(&s.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
		defaultPodSpec(&s.Template.Spec)
	}
	r.create = func(o store.Object) fieldErrors {
		s := o.(*appsv1.DaemonSet).Spec
		return validateWorkload(s.Selector, s.Template, nil)
	}
}

func jobRules(r *Resource) {
	r.defaults = func(o store.Object) { defaultJob(o.(*batchv1.Job)) }
	r.create = func(o store.Object) fieldErrors {
		s := o.(*batchv1.Job).Spec
		return validateWorkload(s.Selector, s.Template, s.Parallelism)
	}
	r.update = validateJobUpdate
}

// defaultJob also makes the selector, from the job's uid, unless it is chosen by hand.
func defaultJob(j *batchv1.Job) {
	s := &j.Spec
	if s.Completions == nil && s.Parallelism == nil {
		s.Completions = ptr.To[int32](1)
	}
	defp(&s.Parallelism, 1)
	defp(&s.BackoffLimit, 6)
	defp(&s.CompletionMode, batchv1.NonIndexedCompletion)
	defp(&s.Suspend, false)
	defp(&s.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	defp(&s.ManualSelector, false)
	if !*s.ManualSelector && j.UID != "" && s.Selector == nil {
		s.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{batchv1.ControllerUidLabel: string(j.UID)}}
		if s.Template.Labels == nil {
			s.Template.Labels = map[string]string{}
		}
		for _, k := range []string{batchv1.ControllerUidLabel, "controller-uid"} {
			s.Template.Labels[k] = string(j.UID)
		}
		for _, k := range []string{batchv1.JobNameLabel, "job-name"} {
			s.Template.Labels[k] = j.Name
		}
	}
	defaultPodSpec(&s.Template.Spec)
}

func cronJobRules(r *Resource) {
	r.defaults = func(o store.Object) {
		s := &o.(*batchv1.CronJob).Spec
		def(&s.ConcurrencyPolicy, batchv1.AllowConcurrent)
		defp(&s.Suspend, false)
		defp(&s.SuccessfulJobsHistoryLimit, 3)
		defp(&s.FailedJobsHistoryLimit, 1)
		defaultPodSpec(&s.JobTemplate.Spec.Template.Spec)
	}
}

func budgetRules(r *Resource) {
	r.create = func(o store.Object) fieldErrors { return validateBudget(o.(*policyv1.PodDisruptionBudget)) }
}

func autoscalerRules(r *Resource) {
	r.defaults = func(o store.Object) { defp(&o.(*autoscalingv2.HorizontalPodAutoscaler).Spec.MinReplicas, 1) }
	r.create = func(o store.Object) fieldErrors {
		return validateAutoscaler(o.(*autoscalingv2.HorizontalPodAutoscaler))
	}
}

func namespaceRules(r *Resource) {
	r.defaults = func(o store.Object) {
		ns := o.(*corev1.Namespace)
		if ns.Labels == nil {
			ns.Labels = map[string]string{}
		}
		ns.Labels[corev1.LabelMetadataName] = ns.Name
		if ns.DeletionTimestamp == nil {
			ns.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
		}
		def(&ns.Status.Phase, corev1.NamespaceActive)
	}
}

func secretRules(r *Resource) {
	r.defaults = func(o store.Object) {
		s := o.(*corev1.Secret)
		def(&s.Type, corev1.SecretTypeOpaque)
		for k, v := range s.StringData {
			if s.Data == nil {
				s.Data = map[string][]byte{}
			}
			s.Data[k] = []byte(v)
		}
		s.StringData = nil
	}
}

func claimRules(r *Resource) {
	r.defaults = func(o store.Object) {
		c := o.(*corev1.PersistentVolumeClaim)
		defp(&c.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
		def(&c.Status.Phase, corev1.ClaimPending)
	}
}

// serviceRules give a Service an address that depends on its uid alone.
func serviceRules(r *Resource) {
	r.defaults = func(o store.Object) {
		s := o.(*corev1.Service)
		def(&s.Spec.Type, corev1.ServiceTypeClusterIP)
		def(&s.Spec.SessionAffinity, corev1.ServiceAffinityNone)
		for i := range s.Spec.Ports {
			p := &s.Spec.Ports[i]
			def(&p.Protocol, corev1.ProtocolTCP)
			if p.TargetPort == (intstr.IntOrString{}) && p.Port > 0 && p.Port <= math.MaxUint16 {
				p.TargetPort = intstr.FromInt32(p.Port)
			}
		}
		if s.Spec.ClusterIP == "" && s.Spec.Type != corev1.ServiceTypeExternalName && len(s.UID) >= 4 {
			var a, b byte
			fmt.Sscanf(string(s.UID[:4]), "%02x%02x", &a, &b) //nolint:errcheck // a uid is hexadecimal
			s.Spec.ClusterIP = fmt.Sprintf("172.20.%d.%d", a, max(b, 2))
		}
		if len(s.Spec.ClusterIPs) == 0 && s.Spec.ClusterIP != "" {
			s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
		}
	}
}
