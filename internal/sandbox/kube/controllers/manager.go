// Package controllers are the workload controllers of a simulated cluster. Each follows
// the algorithm of its namesake in kubernetes/pkg/controller, so that rollouts go through
// the same states; they differ in that they read the store itself and so need no caches
// and no expectations.
package controllers

import (
	"context"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
	"github.com/eksbg/eksbg/internal/sandbox/kube/work"
)

// Manager runs all controllers.
type Manager struct {
	reg *registry.Registry

	deployments, replicaSets, statefulSets, daemonSets *controller[string]
	replicationControllers, cloneSets, rollouts        *controller[string]
	jobs, cronJobs, budgets, namespaces                *controller[string]
	garbage                                            *controller[types.UID]
}

// controller is a queue with what is done for its keys.
type controller[K comparable] struct {
	*work.Queue[K]
	events *registry.Recorder
	sync   func(K) error
}

// New makes the controllers; Observe must be made a hook of the store.
func New(reg *registry.Registry, t *work.Tracker) *Manager {
	m := &Manager{reg: reg}
	named := func(name string, f func(*controller[string], string) error) *controller[string] {
		c := &controller[string]{Queue: work.NewQueue[string](t), events: reg.Recorder(name)}
		c.sync = func(k string) error { return f(c, k) }
		return c
	}
	m.deployments = named("deployment-controller", m.syncDeployment)
	m.replicaSets = named("replicaset-controller", m.replicas(registry.ReplicaSets))
	m.statefulSets = named("statefulset-controller", m.syncStatefulSet)
	m.daemonSets = named("daemonset-controller", m.syncDaemonSet)
	m.replicationControllers = named("replication-controller", m.replicas(registry.ReplicationControllers))
	m.cloneSets = named("cloneset-controller", m.replicas(registry.CloneSets))
	m.rollouts = named("rollouts-controller", m.syncRollout)
	m.jobs = named("job-controller", m.syncJob)
	m.cronJobs = named("cronjob-controller", m.syncCronJob)
	m.budgets = named("controllermanager", m.syncBudget)
	m.namespaces = named("namespace-controller", m.syncNamespace)
	m.garbage = &controller[types.UID]{Queue: work.NewQueue[types.UID](t), sync: m.syncGarbage}
	return m
}

// all are the controllers whose keys are those of objects.
func (m *Manager) all() []*controller[string] {
	return []*controller[string]{m.deployments, m.replicaSets, m.statefulSets, m.daemonSets, m.replicationControllers, m.cloneSets, m.rollouts,
		m.jobs, m.cronJobs, m.budgets, m.namespaces}
}

// Run works until ctx ends, and returns when every controller has stopped.
func (m *Manager) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, c := range m.all() {
		wg.Go(func() { c.run(ctx) })
	}
	wg.Go(func() { m.garbage.run(ctx) })
	wg.Wait()
}

// Close stops the timers. It comes after Run has returned.
func (m *Manager) Close() {
	for _, c := range m.all() {
		c.Close()
	}
	m.garbage.Close()
}

func (c *controller[K]) run(ctx context.Context) {
	c.Run(ctx, func(_ context.Context, k K) error {
		err := c.sync(k)
		if apierrors.IsNotFound(err) {
			return nil // gone meanwhile, which comes as an event of its own
		}
		return err
	}, apierrors.IsConflict)
}

// Observe is the store's hook: it queues whatever a change concerns.
func (m *Manager) Observe(r store.Reader, e store.Event) {
	key := store.KeyOf(e.Object)
	switch e.Resource {
	case registry.Deployments.GR():
		m.deployments.Add(key)
		m.budgetsOf(r, e.Object.GetNamespace())
	case registry.ReplicaSets.GR():
		m.replicaSets.Add(key)
		m.owner(e.Object, "Deployment", m.deployments)
		m.owner(e.Object, "Rollout", m.rollouts)
		if e.Type != store.Deleted && metav1.GetControllerOfNoCopy(e.Object) == nil {
			m.adopters(r, e.Object, map[*registry.Resource]*controller[string]{registry.Deployments: m.deployments})
		}
		m.budgetsOf(r, e.Object.GetNamespace())
	case registry.StatefulSets.GR():
		m.statefulSets.Add(key)
		m.budgetsOf(r, e.Object.GetNamespace())
	case registry.ReplicationControllers.GR():
		m.replicationControllers.Add(key)
		m.budgetsOf(r, e.Object.GetNamespace())
	case registry.CloneSets.GR():
		m.cloneSets.Add(key)
		m.budgetsOf(r, e.Object.GetNamespace())
	case registry.Rollouts.GR():
		m.rollouts.Add(key)
	case registry.DaemonSets.GR():
		m.daemonSets.Add(key)
	case registry.Nodes.GR():
		for _, o := range r.List(registry.DaemonSets.GR(), "") {
			m.daemonSets.Add(store.KeyOf(o))
		}
	case registry.Jobs.GR():
		m.jobs.Add(key)
		m.owner(e.Object, "CronJob", m.cronJobs)
	case registry.CronJobs.GR():
		m.cronJobs.Add(key)
	case registry.PodDisruptionBudgets.GR():
		m.budgets.Add(key)
	case registry.Namespaces.GR():
		m.namespaces.Add(key)
	case registry.Pods.GR():
		m.observePod(r, e)
	}
	m.observeGarbage(r, e)
	if e.Type == store.Deleted && e.Object.GetNamespace() != "" {
		if ns, ok := r.Get(registry.Namespaces.GR(), e.Object.GetNamespace()).(*corev1.Namespace); ok && ns.DeletionTimestamp != nil {
			m.namespaces.Add(ns.Name)
		}
	}
}

func (m *Manager) observePod(r store.Reader, e store.Event) {
	pod := e.Object.(*corev1.Pod)
	m.owner(pod, "ReplicaSet", m.replicaSets)
	m.owner(pod, "StatefulSet", m.statefulSets)
	m.owner(pod, "DaemonSet", m.daemonSets)
	m.owner(pod, "ReplicationController", m.replicationControllers)
	m.owner(pod, "CloneSet", m.cloneSets)
	m.owner(pod, "Job", m.jobs)
	if e.Type != store.Deleted && metav1.GetControllerOfNoCopy(pod) == nil {
		m.adopters(r, pod, map[*registry.Resource]*controller[string]{registry.ReplicaSets: m.replicaSets,
			registry.ReplicationControllers: m.replicationControllers, registry.CloneSets: m.cloneSets, registry.StatefulSets: m.statefulSets})
	}
	if e.Type == store.Deleted {
		// A Deployment that recreates waits for the last old pod to be gone.
		if c := metav1.GetControllerOf(pod); c != nil && c.Kind == "ReplicaSet" {
			if rs := r.Get(registry.ReplicaSets.GR(), store.Key(pod.Namespace, c.Name)); rs != nil {
				m.owner(rs, "Deployment", m.deployments)
				m.owner(rs, "Rollout", m.rollouts)
			}
		}
	}
	for _, o := range []store.Object{e.Prev, e.Object} {
		if p, ok := o.(*corev1.Pod); ok {
			for _, b := range registry.Budgets(r, p) {
				m.budgets.Add(store.KeyOf(b))
			}
		}
	}
}

// adopters queues every owner of some resources that selects an orphan.
func (m *Manager) adopters(r store.Reader, orphan store.Object, of map[*registry.Resource]*controller[string]) {
	for res, c := range of {
		for _, o := range r.List(res.GR(), orphan.GetNamespace()) {
			if sel := selectorOf(o); sel != nil && sel.Matches(labels.Set(orphan.GetLabels())) {
				c.Add(store.KeyOf(o))
			}
		}
	}
}

func selectorOf(o store.Object) labels.Selector {
	var s *metav1.LabelSelector
	switch o := o.(type) {
	case *appsv1.Deployment:
		s = o.Spec.Selector
	case *appsv1.ReplicaSet:
		s = o.Spec.Selector
	case *appsv1.StatefulSet:
		s = o.Spec.Selector
	case *corev1.ReplicationController:
		return labels.SelectorFromSet(o.Spec.Selector)
	case *registry.CloneSet:
		s = o.Spec.Selector
	}
	sel, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil
	}
	return sel
}

// owner queues the controller of an object when it is of a kind.
func (m *Manager) owner(o store.Object, kind string, c *controller[string]) {
	if ref := metav1.GetControllerOf(o); ref != nil && ref.Kind == kind {
		c.Add(store.Key(o.GetNamespace(), ref.Name))
	}
}

func (m *Manager) budgetsOf(r store.Reader, namespace string) {
	for _, b := range r.List(registry.PodDisruptionBudgets.GR(), namespace) {
		m.budgets.Add(store.KeyOf(b))
	}
}

// get reads an object by key; nil when it is not there.
func get[T store.Object](m *Manager, res *registry.Resource, key string) (T, bool) {
	o, ok := m.reg.Store.Get(res.GR(), key).(T)
	return o, ok
}

// controlled lists the objects of a resource whose controller has uid.
func controlled[T store.Object](m *Manager, uid types.UID, res *registry.Resource) []T {
	var out []T
	for _, o := range m.reg.Owned(uid, res.GR()) {
		if c := metav1.GetControllerOf(o); c != nil && c.UID == uid {
			out = append(out, o.(T))
		}
	}
	return out
}

// update writes a changed copy; it is a Conflict when the object has changed meanwhile.
func update[T store.Object](m *Manager, res *registry.Resource, sub registry.Sub, next T) (T, error) {
	o, err := m.reg.Change(res, next.GetNamespace(), next.GetName(), sub, false, func(store.Object) (store.Object, error) {
		return next, nil
	})
	if err != nil {
		return next, err
	}
	return o.(T), nil
}

// deletePod starts the deletion of a pod; one that is gone or replaced is fine.
func (m *Manager) deletePod(p *corev1.Pod) error {
	_, _, err := m.reg.Delete(registry.Pods, p.Namespace, p.Name, metav1.DeleteOptions{
		Preconditions:     metav1.NewUIDPreconditions(string(p.UID)),
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// podFrom makes a pod of a template for its controller.
func podFrom(t corev1.PodTemplateSpec, namespace string, owner *metav1.OwnerReference) *corev1.Pod {
	t = *t.DeepCopy()
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Labels: t.Labels, Annotations: t.Annotations, Finalizers: t.Finalizers,
			OwnerReferences: []metav1.OwnerReference{*owner},
		},
		Spec: t.Spec,
	}
}

// active is true for pods that run or will.
func active(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// available is true for pods that have been Ready for minReady seconds; if not yet, it
// says how long that takes.
func available(p *corev1.Pod, minReady int32, now time.Time) (bool, time.Duration) {
	if !registry.PodReady(p) {
		return false, 0
	}
	if minReady == 0 {
		return true, 0
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			left := time.Duration(minReady)*time.Second - now.Sub(c.LastTransitionTime.Time)
			return left <= 0, max(left, 0)
		}
	}
	return false, 0
}
