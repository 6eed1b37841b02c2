package cluster

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sort"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/eksbg/eksbg/internal/sandbox/kube"
	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
)

// controlAgain is when a custom resource is looked at again of which something could not
// be done, or is to be done later.
const controlAgain = 200 * time.Millisecond

// control runs the controller of a custom resource until Close. It looks at all objects
// of the resource whenever anything changes: there are few.
func (c *Cluster) control(res *registry.Resource) error {
	ctx := c.running
	f := dynamicinformer.NewDynamicSharedInformerFactory(c.dynamic, 0)
	i := f.ForResource(res.GroupVersionResource).Informer()
	wake := make(chan struct{}, 1)
	poke := func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { poke() }, UpdateFunc: func(any, any) { poke() }, DeleteFunc: func(any) { poke() },
	})
	if err != nil {
		return err
	}
	c.OnChange(poke)
	c.mu.Lock()
	c.customs = append(c.customs[:len(c.customs):len(c.customs)], customs{res, i.GetStore()})
	c.mu.Unlock()
	f.Start(ctx.Done())
	c.wg.Go(func() {
		defer f.Shutdown()
		again := time.NewTimer(0)
		defer again.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-wake:
			case <-again.C:
			}
			for _, o := range i.GetStore().List() {
				u := o.(*unstructured.Unstructured)
				if u.GetDeletionTimestamp() == nil && custom[res](c, ctx, u) != nil {
					again.Reset(controlAgain)
				}
			}
		}
	})
	return nil
}

// customs are the objects of a custom resource as a watch shows them.
type customs struct {
	res   *registry.Resource
	store cache.Store
}

// objects gives them as the sandbox's own types.
func (s customs) objects() []runtime.Object {
	var out []runtime.Object
	for _, o := range s.store.List() {
		typed := s.res.New()
		if runtime.DefaultUnstructuredConverter.FromUnstructured(o.(*unstructured.Unstructured).Object, typed) == nil {
			out = append(out, typed.(runtime.Object))
		}
	}
	return out
}

// podsOf are the unfinished pods that an owner controls, oldest first.
func (c *Cluster) podsOf(owner types.UID) []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range c.mirror.pods.list() {
		if ref := metav1.GetControllerOf(p); ref != nil && ref.UID == owner && unfinished(p) {
			out = append(out, p)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].CreationTimestamp.Before(&out[j].CreationTimestamp) })
	return out
}

// syncCloneSet makes a pod for each that is missing: all that is known of an owner that
// nobody knows.
func (c *Cluster) syncCloneSet(ctx context.Context, u *unstructured.Unstructured) error {
	var cs kube.CloneSet
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &cs); err != nil {
		return err
	}
	pods := c.podsOf(cs.UID)
	want, active := ptr.Deref(cs.Spec.Replicas, 1), int32(0)
	status := registry.CloneSetStatus{ObservedGeneration: cs.Generation}
	for _, p := range pods {
		if p.DeletionTimestamp != nil {
			continue
		}
		active++
		if registry.PodReady(p) {
			status.ReadyReplicas++
		}
	}
	status.Replicas, status.AvailableReplicas = active, status.ReadyReplicas
	for range max(want-active, 0) {
		pod := &corev1.Pod{ObjectMeta: *cs.Spec.Template.ObjectMeta.DeepCopy(), Spec: cs.Spec.Template.Spec}
		pod.GenerateName = cs.Name + "-"
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&cs, registry.CloneSets.GVK())}
		made, err := c.client.CoreV1().Pods(cs.Namespace).Create(ctx, pod, metav1.CreateOptions{FieldManager: "cloneset-controller"})
		if err != nil {
			return err
		}
		c.mirror.pods.put(made)
	}
	if equality.Semantic.DeepEqual(cs.Status, status) {
		return nil
	}
	cs.Status = status
	return c.writeStatus(ctx, registry.CloneSets, &cs, cs.Namespace)
}

// writeStatus replaces the status of a custom resource.
func (c *Cluster) writeStatus(ctx context.Context, res *registry.Resource, o runtime.Object, namespace string) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return err
	}
	_, err = c.dynamic.Resource(res.GroupVersionResource).Namespace(namespace).
		UpdateStatus(ctx, &unstructured.Unstructured{Object: fields}, metav1.UpdateOptions{FieldManager: "controller"})
	return err
}

// rolloutHash is the label that tells the ReplicaSets of a Rollout apart.
const rolloutHash = "rollouts-pod-template-hash"

// syncRollout keeps the one ReplicaSet of a Rollout, and restarts its pods when
// spec.restartAt asks for it. New templates are not rolled out: no test changes one.
func (c *Cluster) syncRollout(ctx context.Context, u *unstructured.Unstructured) error {
	var ro kube.Rollout
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &ro); err != nil {
		return err
	}
	h := fnv.New32a()
	fmt.Fprint(h, ro.UID)
	hash := strconv.FormatUint(uint64(h.Sum32()), 36)
	rs, err := c.objects.Apps().V1().ReplicaSets().Lister().ReplicaSets(ro.Namespace).Get(ro.Name + "-" + hash)
	if apierrors.IsNotFound(err) {
		rs, err = c.client.AppsV1().ReplicaSets(ro.Namespace).Create(ctx, replicaSet(&ro, hash), metav1.CreateOptions{FieldManager: "rollouts-controller"})
	}
	if err != nil {
		return err
	}
	restarted, waits := c.restartRollout(ctx, &ro, rs)
	want := ptr.Deref(ro.Spec.Replicas, 1)
	s := registry.RolloutStatus{
		ObservedGeneration: strconv.FormatInt(ro.Generation, 10), CurrentPodHash: hash, StableRS: hash, RestartedAt: restarted,
		Replicas: rs.Status.Replicas, UpdatedReplicas: rs.Status.Replicas, ReadyReplicas: rs.Status.ReadyReplicas,
		AvailableReplicas: rs.Status.AvailableReplicas, Selector: metav1.FormatLabelSelector(ro.Spec.Selector), Phase: "Healthy",
	}
	if s.Replicas != want || s.AvailableReplicas != want {
		s.Phase, s.Message = "Progressing", "more replicas need to be updated"
	}
	if equality.Semantic.DeepEqual(ro.Status, s) {
		return waits
	}
	ro.Status = s
	return errors.Join(waits, c.writeStatus(ctx, registry.Rollouts, &ro, ro.Namespace))
}

func replicaSet(ro *kube.Rollout, hash string) *appsv1.ReplicaSet {
	with := func(m map[string]string) map[string]string {
		out := map[string]string{rolloutHash: hash}
		for k, v := range m {
			out[k] = v
		}
		return out
	}
	t, sel := *ro.Spec.Template.DeepCopy(), ro.Spec.Selector.DeepCopy()
	t.Labels, sel.MatchLabels = with(t.Labels), with(sel.MatchLabels)
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: ro.Name + "-" + hash, Labels: t.Labels, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(ro, registry.Rollouts.GVK())},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: ro.Spec.Replicas, Selector: sel, Template: t},
	}
}

var errLater = errors.New("to be looked at again")

// restartRollout evicts pods that were made before spec.restartAt, no more at a time than
// maxUnavailable lets go, and at least one (rollout/restart.go of argo-rollouts). It tells
// when the last restart was complete; an error is that there is more to do.
func (c *Cluster) restartRollout(ctx context.Context, ro *kube.Rollout, rs *appsv1.ReplicaSet) (*metav1.Time, error) {
	at, done := ro.Spec.RestartAt, ro.Status.RestartedAt
	switch {
	case at == nil || done != nil && done.Equal(at):
		return done, nil
	case time.Until(at.Time) > 0:
		return done, errLater
	}
	var old []*corev1.Pod
	ready := 0
	for _, p := range c.podsOf(rs.UID) {
		if p.DeletionTimestamp != nil {
			continue
		}
		if registry.PodReady(p) {
			ready++
		}
		if p.CreationTimestamp.Before(at) {
			old = append(old, p)
		}
	}
	if len(old) == 0 {
		return at, nil
	}
	replicas := int(ptr.Deref(ro.Spec.Replicas, 1))
	unavailable := 1
	if can := ro.Spec.Strategy.Canary; can != nil {
		n, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(can.MaxUnavailable, intstr.FromString("25%")), replicas, false)
		if err == nil {
			unavailable = max(n, 1)
		}
	}
	for _, p := range old[:min(len(old), max(ready-(replicas-unavailable), 0))] {
		err := c.client.CoreV1().Pods(p.Namespace).EvictV1(ctx, &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}, DeleteOptions: metav1.NewPreconditionDeleteOptions(string(p.UID)),
		})
		if err != nil {
			return done, err
		}
		// Seen at once, so that the next look does not take it for ready.
		if now, err := c.client.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{}); err == nil {
			c.mirror.pods.put(now)
		}
	}
	return done, errLater
}
