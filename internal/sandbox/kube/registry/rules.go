package registry

import (
	"fmt"
	"maps"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

func podTemplateRules(r *Resource) {
	r.defaults = func(o store.Object) { defaultPodSpec(&o.(*corev1.PodTemplate).Template.Spec) }
	r.create = func(o store.Object) fieldErrors {
		return validatePodSpec(o.(*corev1.PodTemplate).Template.Spec, field.NewPath("template", "spec"))
	}
}

// replicationControllerRules take selector and labels from the template where they are
// left out (SetDefaults_ReplicationController).
func replicationControllerRules(r *Resource) {
	r.defaults = func(o store.Object) {
		rc := o.(*corev1.ReplicationController)
		defp(&rc.Spec.Replicas, 1)
		defp(&rc.Spec.Template, corev1.PodTemplateSpec{})
		if len(rc.Spec.Selector) == 0 {
			rc.Spec.Selector = maps.Clone(rc.Spec.Template.Labels)
		}
		if len(rc.Labels) == 0 {
			rc.Labels = maps.Clone(rc.Spec.Template.Labels)
		}
		defaultPodSpec(&rc.Spec.Template.Spec)
	}
	r.create = func(o store.Object) fieldErrors {
		s := o.(*corev1.ReplicationController).Spec
		at := field.NewPath("spec")
		var errs fieldErrors
		if len(s.Selector) == 0 {
			errs = append(errs, field.Required(at.Child("selector"), ""))
		} else if !labels.SelectorFromSet(s.Selector).Matches(labels.Set(s.Template.Labels)) {
			errs = append(errs, field.Invalid(at.Child("template", "metadata", "labels"), s.Template.Labels, "`selector` does not match template `labels`"))
		}
		return append(errs, validatePodSpec(s.Template.Spec, at.Child("template", "spec"))...)
	}
}

func rolloutRules(r *Resource) {
	r.defaults = func(o store.Object) {
		defp(&o.(*Rollout).Spec.Replicas, 1)
		defaultPodSpec(&o.(*Rollout).Spec.Template.Spec)
	}
	r.create = func(o store.Object) fieldErrors {
		s := o.(*Rollout).Spec
		return validateWorkload(s.Selector, s.Template, s.Replicas)
	}
}

func priorityClassRules(r *Resource) {
	r.defaults = func(o store.Object) {
		defp(&o.(*schedulingv1.PriorityClass).PreemptionPolicy, corev1.PreemptLowerPriority)
	}
	r.create = func(o store.Object) fieldErrors {
		c := o.(*schedulingv1.PriorityClass)
		if c.Value > highestUserPriority && !strings.HasPrefix(c.Name, "system-") {
			return fieldErrors{field.Forbidden(field.NewPath("value"), fmt.Sprintf("maximum allowed value of a user defined priority is %v", highestUserPriority))}
		}
		return nil
	}
	r.update = func(next, old store.Object) fieldErrors {
		if next.(*schedulingv1.PriorityClass).Value != old.(*schedulingv1.PriorityClass).Value {
			return fieldErrors{field.Forbidden(field.NewPath("value"), "may not be changed in an update.")}
		}
		return nil
	}
}

// highestUserPriority is scheduling.HighestUserDefinablePriority.
const highestUserPriority = 1000000000

// SystemPriorities are the classes that every cluster has (scheduling.SystemPriorityClasses).
func SystemPriorities() []*schedulingv1.PriorityClass {
	class := func(name string, value int32, what string) *schedulingv1.PriorityClass {
		return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, Description: what}
	}
	return []*schedulingv1.PriorityClass{
		class("system-cluster-critical", 2*highestUserPriority,
			"Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."),
		class("system-node-critical", 2*highestUserPriority+1000,
			"Used for system critical pods that must not be moved from their node."),
	}
}

// prioritize is the admission plugin Priority: a new pod gets the value of its class, or
// of the default class.
func prioritize(r store.Reader, o store.Object) error {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return nil
	}
	if pod.Spec.PriorityClassName == "" {
		for _, c := range r.List(PriorityClasses.GR(), "") {
			if c := c.(*schedulingv1.PriorityClass); c.GlobalDefault {
				pod.Spec.PriorityClassName = c.Name
			}
		}
	}
	var value int32
	if name := pod.Spec.PriorityClassName; name != "" {
		c, ok := r.Get(PriorityClasses.GR(), name).(*schedulingv1.PriorityClass)
		if !ok {
			return apierrors.NewForbidden(Pods.GR(), pod.Name, fmt.Errorf("no PriorityClass with name %v was found", name))
		}
		value = c.Value
		defp(&pod.Spec.PreemptionPolicy, *c.PreemptionPolicy)
	} else {
		defp(&pod.Spec.PreemptionPolicy, corev1.PreemptLowerPriority)
	}
	if p := pod.Spec.Priority; p != nil && *p != value {
		return apierrors.NewForbidden(Pods.GR(), pod.Name, fmt.Errorf(
			"the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name", *p, value))
	}
	pod.Spec.Priority = &value
	return nil
}

func validatingWebhookRules(r *Resource) {
	r.defaults = func(o store.Object) {
		hooks := o.(*admissionv1.ValidatingWebhookConfiguration).Webhooks
		for i := range hooks {
			h := &hooks[i]
			defaultWebhook(&h.FailurePolicy, &h.MatchPolicy, &h.NamespaceSelector, &h.ObjectSelector, &h.TimeoutSeconds, &h.ClientConfig, h.Rules)
		}
	}
	r.create = func(o store.Object) (errs fieldErrors) {
		for i, h := range o.(*admissionv1.ValidatingWebhookConfiguration).Webhooks {
			errs = append(errs, validateWebhook(i, h.SideEffects, h.AdmissionReviewVersions)...)
		}
		return errs
	}
}

func mutatingWebhookRules(r *Resource) {
	r.defaults = func(o store.Object) {
		hooks := o.(*admissionv1.MutatingWebhookConfiguration).Webhooks
		for i := range hooks {
			h := &hooks[i]
			defp(&h.ReinvocationPolicy, admissionv1.NeverReinvocationPolicy)
			defaultWebhook(&h.FailurePolicy, &h.MatchPolicy, &h.NamespaceSelector, &h.ObjectSelector, &h.TimeoutSeconds, &h.ClientConfig, h.Rules)
		}
	}
	r.create = func(o store.Object) (errs fieldErrors) {
		for i, h := range o.(*admissionv1.MutatingWebhookConfiguration).Webhooks {
			errs = append(errs, validateWebhook(i, h.SideEffects, h.AdmissionReviewVersions)...)
		}
		return errs
	}
}

// defaultWebhook fills in pkg/apis/admissionregistration/v1/defaults.go; above all a
// webhook that does not say otherwise fails closed.
func defaultWebhook(fail **admissionv1.FailurePolicyType, match **admissionv1.MatchPolicyType, namespaces, objects **metav1.LabelSelector,
	timeout **int32, c *admissionv1.WebhookClientConfig, rules []admissionv1.RuleWithOperations) {
	defp(fail, admissionv1.Fail)
	defp(match, admissionv1.Equivalent)
	defp(namespaces, metav1.LabelSelector{})
	defp(objects, metav1.LabelSelector{})
	defp(timeout, 10)
	if c.Service != nil {
		defp(&c.Service.Port, 443)
	}
	for i := range rules {
		defp(&rules[i].Scope, admissionv1.AllScopes)
	}
}

func validateWebhook(i int, effects *admissionv1.SideEffectClass, versions []string) (errs fieldErrors) {
	at := field.NewPath("webhooks").Index(i)
	if effects == nil {
		errs = append(errs, field.Required(at.Child("sideEffects"), "must specify one of None, NoneOnDryRun"))
	}
	if len(versions) == 0 {
		errs = append(errs, field.Required(at.Child("admissionReviewVersions"), "must specify one of v1, v1beta1"))
	}
	return errs
}
