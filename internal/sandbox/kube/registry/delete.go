package registry

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

// maxDisrupted is how many evictions may wait for the budget's controller (MaxDisruptedPodSize
// of kube-apiserver's eviction storage).
const maxDisrupted = 2000

// Delete starts or completes the deletion of an object: pods on a node are Terminating
// for their grace period first, objects with finalizers until those are gone. It returns
// the object as it was left and whether it is gone.
func (r *Registry) Delete(res *Resource, namespace, name string, o metav1.DeleteOptions) (store.Object, bool, error) {
	var out store.Object
	gone := false
	err := r.Update(func(tx *store.Tx) error {
		old := tx.Get(res.GR(), store.Key(namespace, name))
		if old == nil {
			return apierrors.NewNotFound(res.GR(), name)
		}
		var err error
		if out, gone, err = r.delete(tx, res, old, o); err != nil {
			return err
		}
		if len(o.DryRun) > 0 {
			return errDryRun
		}
		return nil
	})
	if err != nil && !errors.Is(err, errDryRun) {
		return nil, false, err
	}
	return out, gone, nil
}

func (r *Registry) delete(tx *store.Tx, res *Resource, old store.Object, o metav1.DeleteOptions) (store.Object, bool, error) {
	if err := checkPreconditions(res, old, o.Preconditions); err != nil {
		return nil, false, err
	}
	next := old.DeepCopyObject().(store.Object)
	setPropagation(next, o)
	grace := gracePeriod(next, o.GracePeriodSeconds)
	if ns, ok := next.(*corev1.Namespace); ok {
		ns.Status.Phase = corev1.NamespaceTerminating
	}
	if grace == 0 && len(next.GetFinalizers()) == 0 && expiredOnceDeleted(next) {
		tx.Delete(res.GR(), store.KeyOf(old))
		return next, true, nil
	}
	if old.GetDeletionTimestamp() != nil && !shorter(old, grace) && slices.Equal(old.GetFinalizers(), next.GetFinalizers()) {
		return old, false, nil
	}
	at := metav1.NewTime(r.Now().Add(time.Duration(grace) * time.Second))
	next.SetDeletionTimestamp(&at)
	next.SetDeletionGracePeriodSeconds(&grace)
	if res.Generation {
		next.SetGeneration(next.GetGeneration() + 1)
	}
	tx.Put(res.GR(), next)
	return next, false, nil
}

func expiredOnceDeleted(o store.Object) bool {
	ns, ok := o.(*corev1.Namespace)
	return !ok || len(ns.Spec.Finalizers) == 0
}

// shorter is true when a second deletion asks for less time than the first.
func shorter(o store.Object, grace int64) bool {
	g := o.GetDeletionGracePeriodSeconds()
	return g != nil && grace < *g
}

// gracePeriod is how long an object is Terminating: only pods that a kubelet has are.
func gracePeriod(o store.Object, asked *int64) int64 {
	pod, ok := o.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return 0
	}
	switch {
	case asked != nil:
		return max(*asked, 0)
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return *pod.Spec.TerminationGracePeriodSeconds
	}
	return corev1.DefaultTerminationGracePeriodSeconds
}

// setPropagation turns the propagation policy into the finalizer that the garbage
// collector acts on.
func setPropagation(o store.Object, d metav1.DeleteOptions) {
	policy := metav1.DeletePropagationBackground
	switch {
	case d.PropagationPolicy != nil:
		policy = *d.PropagationPolicy
	case d.OrphanDependents != nil && *d.OrphanDependents: //nolint:staticcheck // old clients still send it
		policy = metav1.DeletePropagationOrphan
	case slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents), slices.Contains(o.GetFinalizers(), metav1.FinalizerOrphanDependents):
		return
	}
	fin := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool {
		return f == metav1.FinalizerDeleteDependents || f == metav1.FinalizerOrphanDependents
	})
	switch policy {
	case metav1.DeletePropagationForeground:
		fin = append(fin, metav1.FinalizerDeleteDependents)
	case metav1.DeletePropagationOrphan:
		fin = append(fin, metav1.FinalizerOrphanDependents)
	}
	if len(fin) == 0 {
		fin = nil
	}
	o.SetFinalizers(fin)
}

func checkPreconditions(res *Resource, o store.Object, p *metav1.Preconditions) error {
	if p == nil {
		return nil
	}
	if p.UID != nil && *p.UID != o.GetUID() {
		return unmet(res, o, "UID", *p.UID, o.GetUID())
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != o.GetResourceVersion() {
		return unmet(res, o, "ResourceVersion", *p.ResourceVersion, o.GetResourceVersion())
	}
	return nil
}

// unmet is the Conflict of a precondition, in the words of kube-apiserver.
func unmet(res *Resource, o store.Object, what string, want, have any) error {
	return apierrors.NewConflict(res.GR(), o.GetName(), fmt.Errorf( //nolint:staticcheck // its words, capital and all
		"Precondition failed: %s in precondition: %v, %s in object meta: %v", what, want, what, have))
}

// Evict deletes a pod as pods/eviction does: only when its PodDisruptionBudget allows
// one more disruption. It fails with TooManyRequests otherwise, and with an internal
// error when more than one budget covers the pod (pkg/registry/core/pod/storage/eviction.go
// of kubernetes).
func (r *Registry) Evict(namespace, name string, o metav1.DeleteOptions) error {
	err := r.Update(func(tx *store.Tx) error {
		pod, _ := tx.Get(Pods.GR(), store.Key(namespace, name)).(*corev1.Pod)
		if pod == nil {
			return apierrors.NewNotFound(Pods.GR(), name)
		}
		if err := r.spend(tx, pod); err != nil {
			return err
		}
		if _, _, err := r.delete(tx, Pods, pod, o); err != nil {
			return err
		}
		if len(o.DryRun) > 0 {
			return errDryRun
		}
		return nil
	})
	if errors.Is(err, errDryRun) {
		return nil
	}
	return err
}

// spend takes one disruption from the pod's budget, if it has one that counts it.
func (r *Registry) spend(tx *store.Tx, pod *corev1.Pod) error {
	switch phase := pod.Status.Phase; {
	case pod.DeletionTimestamp != nil, phase == corev1.PodPending, phase == corev1.PodSucceeded, phase == corev1.PodFailed:
		return nil // not counted as healthy by any budget
	}
	budgets := Budgets(tx.Reader, pod)
	if len(budgets) > 1 {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: 500,
			Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
		}}
	}
	if len(budgets) == 0 {
		return nil
	}
	pdb := budgets[0]
	if !PodReady(pod) {
		if p := pdb.Spec.UnhealthyPodEvictionPolicy; p != nil && *p == policyv1.AlwaysAllow {
			return nil
		}
		if pdb.Status.CurrentHealthy >= pdb.Status.DesiredHealthy && pdb.Status.DesiredHealthy > 0 {
			return nil
		}
	}
	if err := allows(pdb); err != nil {
		return err
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
	tx.Put(PodDisruptionBudgets.GR(), next)
	return nil
}

// allows refuses when the budget has nothing left, with the words of kube-apiserver.
func allows(pdb *policyv1.PodDisruptionBudget) error {
	const refusal = "Cannot evict pod as it would violate the pod's disruption budget."
	budget := schema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudget"}
	tooMany := func(retry int, cause string) error {
		err := apierrors.NewTooManyRequests(refusal, retry)
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes,
			metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: cause})
		return err
	}
	s := pdb.Status
	switch {
	case s.ObservedGeneration < pdb.Generation:
		return tooMany(10, fmt.Sprintf("The disruption budget %s is still being processed by the server.", pdb.Name))
	case s.DisruptionsAllowed < 0:
		return apierrors.NewForbidden(budget, pdb.Name, errors.New("pdb disruptions allowed is negative"))
	case len(s.DisruptedPods) > maxDisrupted:
		return apierrors.NewForbidden(budget, pdb.Name, errors.New(
			"DisruptedPods map too big - too many evictions not confirmed by PDB controller"))
	case s.DisruptionsAllowed == 0:
		return tooMany(0, fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently",
			pdb.Name, s.DesiredHealthy, s.CurrentHealthy))
	}
	return nil
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

// PodReady is true when the pod's condition Ready is.
func PodReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Finalize removes a namespace that is being deleted and empty.
func (r *Registry) Finalize(name string) error {
	return r.Update(func(tx *store.Tx) error {
		ns, _ := tx.Get(Namespaces.GR(), name).(*corev1.Namespace)
		if ns == nil || ns.DeletionTimestamp == nil || len(tx.Namespaced(name)) > 0 {
			return nil
		}
		if len(ns.Finalizers) == 0 {
			tx.Delete(Namespaces.GR(), name)
			return nil
		}
		next := ns.DeepCopy()
		next.Spec.Finalizers = nil
		tx.Put(Namespaces.GR(), next)
		return nil
	})
}
