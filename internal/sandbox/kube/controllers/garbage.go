package controllers

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

// observeGarbage queues owners that are gone, or going with their dependents.
func (m *Manager) observeGarbage(r store.Reader, e store.Event) {
	uid := e.Object.GetUID()
	if e.Type == store.Deleted && len(r.Dependents(uid)) > 0 || e.Type == store.Modified && collecting(e.Object) {
		m.garbage.Add(uid)
	}
	for _, o := range e.Object.GetOwnerReferences() {
		owner, alive := r.Find(o.UID)
		switch {
		case !alive && e.Type != store.Deleted:
			m.garbage.Add(o.UID)
		case alive && e.Type == store.Deleted && collecting(r.Get(owner.Resource, owner.Key)):
			m.garbage.Add(o.UID)
		}
	}
}

// collecting is true for objects whose deletion waits for the garbage collector.
func collecting(o store.Object) bool {
	return o != nil && o.GetDeletionTimestamp() != nil &&
		(slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents) || slices.Contains(o.GetFinalizers(), metav1.FinalizerOrphanDependents))
}

// syncGarbage deals with the dependents of an owner: deleted after it, before it
// (foreground), or set free (orphan).
func (m *Manager) syncGarbage(uid types.UID) error {
	var owner store.Object
	var at store.Ref
	var dependents []store.Ref
	m.reg.View(func(r store.Reader) {
		if ref, ok := r.Find(uid); ok {
			at, owner = ref, r.Get(ref.Resource, ref.Key)
		}
		dependents = r.Dependents(uid)
	})
	switch {
	case owner == nil:
		for _, d := range dependents {
			if err := m.collect(d, uid, metav1.DeletePropagationBackground); err != nil {
				return err
			}
		}
		return nil
	case !collecting(owner):
		return nil
	case slices.Contains(owner.GetFinalizers(), metav1.FinalizerOrphanDependents):
		for _, d := range dependents {
			if err := m.disown(d, uid); err != nil {
				return err
			}
		}
		return m.dropFinalizer(at, owner, metav1.FinalizerOrphanDependents)
	}
	blocked := false
	for _, d := range dependents {
		if m.blocks(d, uid) {
			blocked = true
		}
		if err := m.collect(d, uid, metav1.DeletePropagationForeground); err != nil {
			return err
		}
	}
	if blocked {
		return nil // the end of each dependent comes as an event
	}
	return m.dropFinalizer(at, owner, metav1.FinalizerDeleteDependents)
}

func (m *Manager) blocks(d store.Ref, uid types.UID) bool {
	if o := m.reg.Store.Get(d.Resource, d.Key); o != nil {
		for _, ref := range o.GetOwnerReferences() {
			if ref.UID == uid {
				return ptr.Deref(ref.BlockOwnerDeletion, false)
			}
		}
	}
	return false
}

// collect deletes a dependent, unless another owner of it lives: then it only loses this one.
func (m *Manager) collect(d store.Ref, uid types.UID, policy metav1.DeletionPropagation) error {
	o := m.reg.Store.Get(d.Resource, d.Key)
	if o == nil || o.GetDeletionTimestamp() != nil {
		return nil
	}
	shared := false
	m.reg.View(func(r store.Reader) {
		for _, ref := range o.GetOwnerReferences() {
			if _, alive := r.Find(ref.UID); alive && ref.UID != uid {
				shared = true
			}
		}
	})
	if shared {
		return m.disown(d, uid)
	}
	if policy == metav1.DeletePropagationForeground && d.Resource == registry.Pods.GR() {
		policy = metav1.DeletePropagationBackground // nothing depends on pods
	}
	_, _, err := m.reg.Delete(registry.ByGR(d.Resource), o.GetNamespace(), o.GetName(), metav1.DeleteOptions{
		PropagationPolicy: &policy, Preconditions: metav1.NewUIDPreconditions(string(o.GetUID())),
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// disown takes an owner out of a dependent.
func (m *Manager) disown(d store.Ref, uid types.UID) error {
	ns, name := store.Split(d.Key)
	_, err := m.reg.Change(registry.ByGR(d.Resource), ns, name, registry.Whole, false, func(old store.Object) (store.Object, error) {
		next := old.DeepCopyObject().(store.Object)
		next.SetOwnerReferences(slices.DeleteFunc(next.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == uid }))
		return next, nil
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (m *Manager) dropFinalizer(at store.Ref, o store.Object, name string) error {
	_, err := m.reg.Change(registry.ByGR(at.Resource), o.GetNamespace(), o.GetName(), registry.Whole, false, func(old store.Object) (store.Object, error) {
		next := old.DeepCopyObject().(store.Object)
		next.SetFinalizers(slices.DeleteFunc(next.GetFinalizers(), func(f string) bool { return f == name }))
		return next, nil
	})
	return err
}

// syncNamespace empties a namespace that is being deleted, and then lets it go.
func (m *Manager) syncNamespace(_ *controller[string], name string) error {
	ns, ok := get[*corev1.Namespace](m, registry.Namespaces, name)
	if !ok || ns.DeletionTimestamp == nil {
		return nil
	}
	var inside []store.Ref
	m.reg.View(func(r store.Reader) { inside = r.Namespaced(name) })
	for _, ref := range inside {
		_, n := store.Split(ref.Key)
		_, _, err := m.reg.Delete(registry.ByGR(ref.Resource), name, n, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	m.reg.View(func(r store.Reader) { inside = r.Namespaced(name) })
	if len(inside) > 0 {
		return nil // the end of each comes as an event
	}
	return m.reg.Finalize(name)
}
