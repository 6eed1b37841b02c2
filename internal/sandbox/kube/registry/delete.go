package registry

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

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
