package registry

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

// What follows is pkg/registry/core/pod/storage/eviction.go of kubernetes 1.37.

// maxDisrupted is how many evictions may wait for the budget's controller
// (MaxDisruptedPodSize).
const maxDisrupted = 2000

const evictionRefused = "Cannot evict pod as it would violate the pod's disruption budget."

// Evict deletes a pod as pods/eviction does: only when its PodDisruptionBudget allows
// one more disruption. It fails with TooManyRequests otherwise, and with an internal
// error when more than one budget covers the pod. As in the original the budget is
// spent before the preconditions are looked at, so that an eviction with a stale uid
// costs a disruption until the budget's controller has looked again.
func (r *Registry) Evict(namespace, name string, o metav1.DeleteOptions) error {
	dry := len(o.DryRun) > 0
	return r.Update(func(tx *store.Tx) error {
		pod, _ := tx.Get(Pods.GR(), store.Key(namespace, name)).(*corev1.Pod)
		if pod == nil {
			return apierrors.NewNotFound(Pods.GR(), name)
		}
		next, err := r.spend(tx, pod)
		if err != nil {
			return err
		}
		if err := evictable(pod, o.Preconditions); err != nil {
			if next != nil && !dry {
				tx.Put(PodDisruptionBudgets.GR(), next)
				return store.Keep(err)
			}
			return err
		}
		if dry {
			return nil
		}
		if next != nil {
			tx.Put(PodDisruptionBudgets.GR(), next)
		}
		marked := pod.DeepCopy()
		target(marked, r.Now())
		tx.Put(Pods.GR(), marked)
		o.Preconditions = nil // they held for the pod as it was
		_, _, err = r.delete(tx, Pods, marked, o)
		return err
	})
}

// target sets the condition that says why the pod is about to go.
func target(p *corev1.Pod, now metav1.Time) {
	c := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
		Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting", LastTransitionTime: now}
	for i, old := range p.Status.Conditions {
		if old.Type == c.Type {
			if old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
			p.Status.Conditions[i] = c
			return
		}
	}
	p.Status.Conditions = append(p.Status.Conditions, c)
}

// evictable checks the preconditions of an eviction, which has words of its own for them.
func evictable(pod *corev1.Pod, p *metav1.Preconditions) error {
	if p == nil {
		return nil
	}
	gr := schema.GroupResource{Resource: "Pod"}
	if p.UID != nil && *p.UID != "" && *p.UID != pod.UID {
		return apierrors.NewConflict(gr, pod.Name, fmt.Errorf(
			"the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, pod.UID))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != "" && *p.ResourceVersion != pod.ResourceVersion {
		return apierrors.NewConflict(gr, pod.Name, fmt.Errorf(
			"the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, pod.ResourceVersion))
	}
	return nil
}

// spend takes one disruption from the pod's budget, if it has one that counts it, and
// returns the budget as it is then.
func (r *Registry) spend(tx *store.Tx, pod *corev1.Pod) (*policyv1.PodDisruptionBudget, error) {
	switch phase := pod.Status.Phase; {
	case pod.DeletionTimestamp != nil, phase == corev1.PodPending, phase == corev1.PodSucceeded, phase == corev1.PodFailed:
		return nil, nil // not counted as healthy by any budget
	}
	budgets := Budgets(tx.Reader, pod)
	if len(budgets) > 1 {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: 500,
			Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
		}}
	}
	if len(budgets) == 0 {
		return nil, nil
	}
	pdb := budgets[0]
	if !PodReady(pod) {
		if p := pdb.Spec.UnhealthyPodEvictionPolicy; p != nil && *p == policyv1.AlwaysAllow {
			return nil, nil
		}
		if pdb.Status.CurrentHealthy >= pdb.Status.DesiredHealthy && pdb.Status.DesiredHealthy > 0 {
			return nil, nil
		}
	}
	if err := allows(pdb); err != nil {
		return nil, err
	}
	next := pdb.DeepCopy()
	next.Status.DisruptionsAllowed--
	if next.Status.DisruptionsAllowed == 0 {
		SetDisruptionAllowed(next, r.Now())
	}
	if next.Status.DisruptedPods == nil {
		next.Status.DisruptedPods = map[string]metav1.Time{}
	}
	next.Status.DisruptedPods[pod.Name] = r.Now()
	return next, nil
}

// allows refuses when the budget has nothing left, with the words of kube-apiserver.
func allows(pdb *policyv1.PodDisruptionBudget) error {
	cause := func(err *apierrors.StatusError, format string, args ...any) error {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes,
			metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: fmt.Sprintf("The disruption budget "+pdb.Name+" "+format, args...)})
		return err
	}
	forbidden := func(why string) *apierrors.StatusError {
		return apierrors.NewForbidden(schema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudget"}, pdb.Name, errors.New(why))
	}
	s := pdb.Status
	switch {
	case s.ObservedGeneration < pdb.Generation:
		return cause(apierrors.NewTooManyRequests(evictionRefused, 10), "is still being processed by the server.")
	case s.DisruptionsAllowed < 0:
		return cause(forbidden("pdb disruptions allowed is negative"), "does not allow evicting pods currently: pdb disruptions allowed is negative")
	case len(s.DisruptedPods) > maxDisrupted:
		return cause(forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller"),
			"does not allow evicting pods currently: too many pending evictions not confirmed by PDB controller")
	case s.DisruptionsAllowed > 0:
		return nil
	}
	full := apierrors.NewTooManyRequests(evictionRefused, 0)
	var c metav1.Condition
	for _, have := range s.Conditions {
		if have.Type == policyv1.DisruptionAllowedCondition && have.Status == metav1.ConditionFalse {
			c = have
		}
	}
	switch {
	case c.Message != "" && c.Reason == policyv1.SyncFailedReason:
		return cause(full, "does not allow evicting pods currently because it failed sync: %s", c.Message)
	case s.CurrentHealthy <= s.DesiredHealthy:
		return cause(full, "needs %d healthy pods and has %d currently", s.DesiredHealthy, s.CurrentHealthy)
	case c.Message != "":
		return cause(full, "does not allow evicting pods currently (%s): %s", c.Reason, c.Message)
	}
	return cause(full, "does not allow evicting pods currently")
}

// Budgets lists the budgets that cover a pod. One with an empty selector covers every
// pod of its namespace, one without a selector none (policy/v1).
func Budgets(r store.Reader, pod *corev1.Pod) []*policyv1.PodDisruptionBudget {
	var out []*policyv1.PodDisruptionBudget
	for _, o := range r.List(PodDisruptionBudgets.GR(), pod.Namespace) {
		pdb := o.(*policyv1.PodDisruptionBudget)
		sel, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
		if err == nil && sel.Matches(labels.Set(pod.Labels)) {
			out = append(out, pdb)
		}
	}
	return out
}

// SetDisruptionAllowed sets the condition DisruptionAllowed as the counts say.
func SetDisruptionAllowed(pdb *policyv1.PodDisruptionBudget, now metav1.Time) {
	c := metav1.Condition{
		Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse,
		Reason: policyv1.InsufficientPodsReason, ObservedGeneration: pdb.Status.ObservedGeneration, LastTransitionTime: now,
	}
	if pdb.Status.DisruptionsAllowed > 0 {
		c.Status, c.Reason = metav1.ConditionTrue, policyv1.SufficientPodsReason
	}
	for i, old := range pdb.Status.Conditions {
		if old.Type == c.Type {
			if old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
			pdb.Status.Conditions[i] = c
			return
		}
	}
	pdb.Status.Conditions = append(pdb.Status.Conditions, c)
}

// SetDisruptionFailed says that the budget could not be worked out, which allows nothing.
func SetDisruptionFailed(pdb *policyv1.PodDisruptionBudget, why error, now metav1.Time) {
	pdb.Status.DisruptionsAllowed = 0
	SetDisruptionAllowed(pdb, now)
	for i := range pdb.Status.Conditions {
		if c := &pdb.Status.Conditions[i]; c.Type == policyv1.DisruptionAllowedCondition {
			c.Reason, c.Message = policyv1.SyncFailedReason, why.Error()
		}
	}
}
