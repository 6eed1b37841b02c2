package registry

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

// fieldErrors are what is wrong with an object, field by field.
type fieldErrors = field.ErrorList

// validateCreate checks a new object: its metadata and the rules of its resource.
func validateCreate(r *Resource, o store.Object) fieldErrors {
	name := apivalidation.ValidateNameFunc(apivalidation.NameIsDNSSubdomain)
	if r == Namespaces || r == Services {
		name = apivalidation.NameIsDNSLabel
	}
	errs := apivalidation.ValidateObjectMetaAccessor(o, r.Namespaced, name, field.NewPath("metadata"))
	if r.create != nil {
		errs = append(errs, r.create(o)...)
	}
	return errs
}

// validateUpdate checks a changed object against what it was.
func validateUpdate(r *Resource, next, old store.Object) fieldErrors {
	meta := field.NewPath("metadata")
	errs := metav1validation.ValidateLabels(next.GetLabels(), meta.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(next.GetAnnotations(), meta.Child("annotations"))...)
	if r.create != nil && r != Pods {
		errs = append(errs, r.create(next)...)
	}
	if r.update != nil {
		errs = append(errs, r.update(next, old)...)
	}
	return errs
}

// immutable refuses a change of spec.<name>.
func immutable(name string, next, old any) fieldErrors {
	if equality.Semantic.DeepEqual(next, old) {
		return nil
	}
	return fieldErrors{field.Invalid(field.NewPath("spec", name), next, apivalidation.FieldImmutableErrorMsg)}
}

// validateWorkload checks what all workloads have: replicas, a selector that selects the
// template, and the template.
func validateWorkload(sel *metav1.LabelSelector, t corev1.PodTemplateSpec, replicas *int32) fieldErrors {
	spec := field.NewPath("spec")
	var errs fieldErrors
	if replicas != nil && *replicas < 0 {
		errs = append(errs, field.Invalid(spec.Child("replicas"), *replicas, apivalidation.IsNegativeErrorMsg))
	}
	if sel == nil {
		errs = append(errs, field.Required(spec.Child("selector"), ""))
	} else if s, err := metav1.LabelSelectorAsSelector(sel); err != nil {
		errs = append(errs, field.Invalid(spec.Child("selector"), sel, "invalid label selector"))
	} else if s.Empty() {
		errs = append(errs, field.Invalid(spec.Child("selector"), sel, "empty selector is invalid for deployment"))
	} else if !s.Matches(labels.Set(t.Labels)) {
		errs = append(errs, field.Invalid(spec.Child("template", "metadata", "labels"), t.Labels, "`selector` does not match template `labels`"))
	}
	errs = append(errs, metav1validation.ValidateLabels(t.Labels, spec.Child("template", "metadata", "labels"))...)
	errs = append(errs, apivalidation.ValidateAnnotations(t.Annotations, spec.Child("template", "metadata", "annotations"))...)
	return append(errs, validatePodSpec(t.Spec, spec.Child("template", "spec"))...)
}

func validatePodSpec(s corev1.PodSpec, at *field.Path) fieldErrors {
	var errs fieldErrors
	if len(s.Containers) == 0 {
		errs = append(errs, field.Required(at.Child("containers"), ""))
	}
	seen := map[string]bool{}
	for i, c := range s.Containers {
		p := at.Child("containers").Index(i)
		switch {
		case c.Name == "":
			errs = append(errs, field.Required(p.Child("name"), ""))
		case seen[c.Name]:
			errs = append(errs, field.Duplicate(p.Child("name"), c.Name))
		}
		seen[c.Name] = true
		if strings.TrimSpace(c.Image) == "" {
			errs = append(errs, field.Required(p.Child("image"), ""))
		}
	}
	return errs
}

func validatePod(o store.Object) fieldErrors {
	return validatePodSpec(o.(*corev1.Pod).Spec, field.NewPath("spec"))
}

// validatePodUpdate allows what kube-apiserver allows: images and the grace period.
func validatePodUpdate(next, old store.Object) fieldErrors {
	n, o := next.(*corev1.Pod), old.(*corev1.Pod)
	masked := n.Spec.DeepCopy()
	if len(masked.Containers) == len(o.Spec.Containers) {
		for i := range masked.Containers {
			masked.Containers[i].Image = o.Spec.Containers[i].Image
		}
	}
	masked.ActiveDeadlineSeconds = o.Spec.ActiveDeadlineSeconds
	masked.TerminationGracePeriodSeconds = o.Spec.TerminationGracePeriodSeconds
	masked.Tolerations = o.Spec.Tolerations
	if equality.Semantic.DeepEqual(*masked, o.Spec) {
		return nil
	}
	return fieldErrors{field.Forbidden(field.NewPath("spec"), "pod updates may not change fields other than "+
		"`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"+
		"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)")}
}

func validateStrategy(d *appsv1.Deployment) fieldErrors {
	at := field.NewPath("spec", "strategy")
	ru := d.Spec.Strategy.RollingUpdate
	switch d.Spec.Strategy.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if ru != nil {
			return fieldErrors{field.Forbidden(at.Child("rollingUpdate"), "may not be specified when strategy `type` is 'Recreate'")}
		}
	case appsv1.RollingUpdateDeploymentStrategyType:
		if ru != nil && isZero(ru.MaxSurge) && isZero(ru.MaxUnavailable) {
			return fieldErrors{field.Invalid(at.Child("rollingUpdate", "maxUnavailable"), ru.MaxUnavailable, "may not be 0 when `maxSurge` is 0")}
		}
	default:
		return fieldErrors{field.NotSupported(at.Child("type"), d.Spec.Strategy.Type,
			[]appsv1.DeploymentStrategyType{appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType})}
	}
	return nil
}

func isZero(v *intstr.IntOrString) bool {
	n, err := intstr.GetScaledValueFromIntOrPercent(v, 100, true)
	return err == nil && n == 0
}

func validateStatefulSetUpdate(next, old store.Object) fieldErrors {
	n, o := next.(*appsv1.StatefulSet).Spec.DeepCopy(), old.(*appsv1.StatefulSet).Spec
	n.Replicas, n.Ordinals, n.Template, n.UpdateStrategy = o.Replicas, o.Ordinals, o.Template, o.UpdateStrategy
	n.RevisionHistoryLimit, n.MinReadySeconds = o.RevisionHistoryLimit, o.MinReadySeconds
	n.PersistentVolumeClaimRetentionPolicy = o.PersistentVolumeClaimRetentionPolicy
	if equality.Semantic.DeepEqual(*n, o) {
		return nil
	}
	return fieldErrors{field.Forbidden(field.NewPath("spec"), "updates to statefulset spec for fields other than 'replicas', 'ordinals', "+
		"'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden")}
}

func validateJobUpdate(next, old store.Object) fieldErrors {
	n, o := next.(*batchv1.Job).Spec, old.(*batchv1.Job).Spec
	errs := immutable("completions", n.Completions, o.Completions)
	errs = append(errs, immutable("selector", n.Selector, o.Selector)...)
	return append(errs, immutable("template", n.Template, o.Template)...)
}

func validateBudget(p *policyv1.PodDisruptionBudget) fieldErrors {
	spec := field.NewPath("spec")
	if p.Spec.MinAvailable != nil && p.Spec.MaxUnavailable != nil {
		return fieldErrors{field.Invalid(spec, p.Spec, "minAvailable and maxUnavailable cannot be both set")}
	}
	if _, err := metav1.LabelSelectorAsSelector(p.Spec.Selector); err != nil {
		return fieldErrors{field.Invalid(spec.Child("selector"), p.Spec.Selector, "invalid label selector")}
	}
	return nil
}

func validateAutoscaler(h *autoscalingv2.HorizontalPodAutoscaler) fieldErrors {
	spec := field.NewPath("spec")
	var errs fieldErrors
	if h.Spec.MaxReplicas < 1 {
		errs = append(errs, field.Invalid(spec.Child("maxReplicas"), h.Spec.MaxReplicas, "must be greater than 0"))
	}
	if m := h.Spec.MinReplicas; m != nil && *m > h.Spec.MaxReplicas {
		errs = append(errs, field.Invalid(spec.Child("maxReplicas"), h.Spec.MaxReplicas, fmt.Sprintf("must be greater than or equal to `minReplicas` (%d)", *m)))
	}
	return errs
}
