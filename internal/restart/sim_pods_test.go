package restart

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clienttesting "k8s.io/client-go/testing"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/restart/survey"
)

// own and twoNodes make inventories by hand: at 1.33, with a node on the older and one
// on the newer minor.
func own(apiVersion, ns, kind, name string) cluster.Owner {
	return cluster.Owner{APIVersion: apiVersion, Namespace: ns, Kind: kind, Name: name, UID: ns + kind + name}
}

func twoNodes() *cluster.Inventory {
	return &cluster.Inventory{Name: "shop-green", Version: "1.33", Nodes: []cluster.Node{
		{Name: "old", Kubelet: oldKubelet, Minor: "1.32"}, {Name: "new", Kubelet: newKubelet, Minor: "1.33"}}}
}

// bareSet is a ReplicaSet without an owner, bareController a ReplicationController.
func (s *sim) bareSet(ns, name string, n int, kubelet string) *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{ObjectMeta: s.meta(ns, name, nil), Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(n))}}
	rs.Status = appsv1.ReplicaSetStatus{ObservedGeneration: 1, Replicas: int32(n), ReadyReplicas: int32(n)}
	s.put(replicaSetsGVR, rs)
	for range n {
		s.addPod(ns, fmt.Sprintf("%s-%d", name, s.next()), kubelet, ref("apps/v1", "ReplicaSet", name, rs.UID))
	}
	return rs
}

func (s *sim) bareController(ns, name string, n int, kubelet string) *corev1.ReplicationController {
	rc := &corev1.ReplicationController{ObjectMeta: s.meta(ns, name, nil), Spec: corev1.ReplicationControllerSpec{Replicas: new(int32(n))}}
	rc.Status = corev1.ReplicationControllerStatus{ObservedGeneration: 1, Replicas: int32(n), ReadyReplicas: int32(n)}
	s.put(controllersGVR, rc)
	for range n {
		s.addPod(ns, fmt.Sprintf("%s-%d", name, s.next()), kubelet, ref("v1", "ReplicationController", name, rc.UID))
	}
	return rc
}

func (s *sim) cronJob(ns, name string, suspend bool) {
	s.put(cronJobsGVR, &batchv1.CronJob{ObjectMeta: s.meta(ns, name, nil), Spec: batchv1.CronJobSpec{Suspend: new(suspend)}})
}

func (s *sim) budget(ns, name string, allowed, healthy, desired, expected int32) {
	s.put(budgetsGVR, &policyv1.PodDisruptionBudget{ObjectMeta: s.meta(ns, name, nil), Status: policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: 1, DisruptionsAllowed: allowed, CurrentHealthy: healthy, DesiredHealthy: desired, ExpectedPods: expected}})
}

// topOf names the owner at the top of a pod.
func (s *sim) topOf(p *corev1.Pod) string {
	c := metav1.GetControllerOf(p)
	if c == nil {
		return p.Namespace + "/Pod/" + p.Name
	}
	if c.Kind == "ReplicaSet" {
		if obj, err := s.client.Tracker().Get(replicaSetsGVR, p.Namespace, c.Name); err == nil {
			if up := metav1.GetControllerOf(obj.(*appsv1.ReplicaSet)); up != nil {
				c = up
			}
		}
	}
	return p.Namespace + "/" + c.Kind + "/" + c.Name
}

func (s *sim) getPod(ns, name string) (*corev1.Pod, error) {
	obj, err := s.client.Tracker().Get(podsGVR, ns, name)
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Pod), nil
}

// createdPod takes evictions, and runs pods that somebody creates.
func (s *sim) createdPod(action clienttesting.Action) (bool, runtime.Object, error) {
	a := action.(clienttesting.CreateAction)
	if a.GetSubresource() == "eviction" {
		e := a.GetObject().(*policyv1.Eviction)
		p, err := s.getPod(e.Namespace, e.Name)
		if err != nil {
			return true, nil, err
		}
		if *e.DeleteOptions.Preconditions.UID != p.UID {
			return true, nil, apierrors.NewConflict(podsGVR.GroupResource(), p.Name, errors.New("precondition failed: UID in precondition does not match"))
		}
		owner := s.topOf(p)
		if s.refuse != nil {
			if err := s.refuse(owner, p.Name); err != nil {
				return true, nil, err
			}
		}
		if p.DeletionTimestamp == nil {
			s.takePod(owner, p)
		}
		if s.evicted != nil {
			return true, nil, s.evicted(owner, p.Name)
		}
		return true, nil, nil
	}
	p := a.GetObject().(*corev1.Pod).DeepCopy()
	if _, err := s.getPod(p.Namespace, p.Name); err == nil {
		return true, nil, apierrors.NewAlreadyExists(podsGVR.GroupResource(), p.Name)
	}
	if p.Spec.NodeName != "" || p.UID != "" {
		panic("a pod is created with what only servers fill in")
	}
	if s.before != nil {
		if err := s.before(s.topOf(p), "create"); err != nil {
			return true, nil, err
		}
	}
	spec := p.Spec
	p.ObjectMeta = metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: types.UID(fmt.Sprintf("uid-%d", s.next())),
		CreationTimestamp: s.now(), Labels: p.Labels, Annotations: p.Annotations}
	p.Spec, p.Status = spec, corev1.PodStatus{Phase: corev1.PodPending}
	s.put(podsGVR, p)
	owner := s.topOf(p)
	s.wg.Go(func() { s.run(owner, p.DeepCopy()) })
	if s.after != nil {
		if err := s.after(owner, "create"); err != nil {
			return true, nil, err
		}
	}
	return true, p, nil
}

func (s *sim) deletedPod(action clienttesting.Action) (bool, runtime.Object, error) {
	a := action.(clienttesting.DeleteActionImpl)
	p, err := s.getPod(a.Namespace, a.Name)
	if err != nil {
		return true, nil, err
	}
	if pre := a.DeleteOptions.Preconditions; pre == nil || *pre.UID != p.UID {
		return true, nil, apierrors.NewConflict(podsGVR.GroupResource(), p.Name, errors.New("precondition failed"))
	}
	s.takePod(s.topOf(p), p)
	return true, nil, nil
}

// takePod lets a pod go, and its controller makes another one.
func (s *sim) takePod(owner string, p *corev1.Pod) {
	s.mu.Lock()
	if len(s.takes[owner]) == 0 {
		s.order = append(s.order, owner)
	}
	s.takes[owner] = append(s.takes[owner], p.Name)
	s.rolling[owner] = true
	s.most = max(s.most, len(s.rolling))
	if s.rolling["kube-system/Deployment/coredns"] {
		for o := range s.rolling {
			s.beside = append(s.beside, o)
		}
	}
	number, gate := len(s.takes[owner]), s.gate[owner]
	s.mu.Unlock()
	gone := p.DeepCopy()
	gone.DeletionTimestamp = new(metav1.Now())
	s.put(podsGVR, gone)
	s.wg.Go(func() {
		s.roll(owner, gate, func() {
			name := p.Name
			c := metav1.GetControllerOf(p)
			if c != nil && c.Kind != "StatefulSet" {
				name = fmt.Sprintf("%s-%d", c.Name, s.next())
			}
			s.remove(owner, p)
			if owner == s.noMore && number == 1 {
				s.settled(owner)
				return
			}
			end := func() { s.settled(owner) }
			if c == nil {
				end()
				return
			}
			s.newPod(owner, p.Namespace, name, number, c, end)
		})
	})
}

// run starts a pod that is there.
func (s *sim) run(owner string, p *corev1.Pod) {
	s.roll(owner, s.gate[owner], func() {
		kubelet := newKubelet
		if k := s.kubelet[owner]; len(k) > 0 {
			kubelet = k[0]
		}
		s.schedule(p, kubelet)
		if f := s.pod[owner]; f != nil && !f(p) {
			s.put(podsGVR, p)
			return
		}
		s.settled(owner) // before a watch can show the end
		ready(p)
		s.put(podsGVR, p)
	})
}

// merged applies a merge patch as the API server does: the resourceVersion in it is a
// precondition, and a UID that is not the object's is an invalid change of it.
func (s *sim) merged(a clienttesting.PatchAction) (bool, runtime.Object, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	obj, err := s.client.Tracker().Get(a.GetResource(), a.GetNamespace(), a.GetName())
	if err != nil {
		return true, nil, err
	}
	if a.GetPatchType() != types.MergePatchType {
		panic("patch type " + a.GetPatchType())
	}
	var pre struct{ Metadata metav1.ObjectMeta }
	must(json.Unmarshal(a.GetPatch(), &pre))
	m := obj.(metav1.Object)
	if v := pre.Metadata.ResourceVersion; v != "" && v != m.GetResourceVersion() {
		return true, nil, apierrors.NewConflict(a.GetResource().GroupResource(), a.GetName(), errors.New("the object has been modified"))
	}
	if u := pre.Metadata.UID; u != "" && u != m.GetUID() {
		return true, nil, apierrors.NewInvalid(schema.GroupKind{Group: a.GetResource().Group, Kind: a.GetResource().Resource}, a.GetName(),
			field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), string(u), "field is immutable")})
	}
	name := a.GetNamespace() + "/" + a.GetResource().Resource + "/" + a.GetName()
	if s.before != nil {
		if err := s.before(name, ""); err != nil {
			return true, nil, err
		}
	}
	old, err := json.Marshal(obj)
	must(err)
	after, err := jsonpatch.MergePatch(old, a.GetPatch())
	must(err)
	changed := obj.DeepCopyObject()
	switch o := changed.(type) { // json.Unmarshal merges maps
	case *appsv1.ReplicaSet:
		*o = appsv1.ReplicaSet{}
	case *corev1.ReplicationController:
		*o = corev1.ReplicationController{}
	case *corev1.Pod:
		*o = corev1.Pod{}
	case *batchv1.CronJob:
		*o = batchv1.CronJob{}
	default:
		panic(fmt.Sprintf("%T", o))
	}
	must(json.Unmarshal(after, changed))
	m = changed.(metav1.Object)
	m.SetResourceVersion(fmt.Sprint(s.next()))
	if a.GetResource() != podsGVR {
		m.SetGeneration(m.GetGeneration() + 1)
	}
	s.put(a.GetResource(), changed)
	switch o := changed.(type) {
	case *appsv1.ReplicaSet:
		s.wg.Go(func() { s.scale(o.Namespace+"/ReplicaSet/"+o.Name, o.DeepCopy()) })
	case *corev1.ReplicationController:
		s.wg.Go(func() { s.scale(o.Namespace+"/ReplicationController/"+o.Name, o.DeepCopy()) })
	}
	if s.after != nil {
		if err := s.after(name, ""); err != nil {
			return true, nil, err
		}
	}
	return true, changed, nil
}

// scale makes as many pods of a bare set as it wants now: new ones, or the cheapest of
// those that are there go (ActivePodsWithRanks in kubernetes/pkg/controller).
func (s *sim) scale(owner string, obj runtime.Object) {
	m := obj.(metav1.Object)
	gvr, kind, api := replicaSetsGVR, "ReplicaSet", "apps/v1"
	if _, ok := obj.(*corev1.ReplicationController); ok {
		gvr, kind, api = controllersGVR, "ReplicationController", "v1"
	}
	mine := func(u types.UID) bool { return u == m.GetUID() }
	s.roll(owner, nil, func() {
		s.scaling.Lock()
		defer s.scaling.Unlock()
		obj, err := s.client.Tracker().Get(gvr, m.GetNamespace(), m.GetName())
		must(err)
		want := int32(0)
		switch o := obj.(type) {
		case *appsv1.ReplicaSet:
			want = *o.Spec.Replicas
		case *corev1.ReplicationController:
			want = *o.Spec.Replicas
		}
		for pods := s.podsOf(m.GetNamespace(), mine); len(pods) > int(want); pods = pods[1:] {
			slices.SortFunc(pods, func(a, b *corev1.Pod) int { return rank(a) - rank(b) })
			s.remove(owner, pods[0])
		}
		for i := len(s.podsOf(m.GetNamespace(), mine)); i < int(want); i++ {
			s.mu.Lock()
			s.takes[owner] = append(s.takes[owner], "")
			number := len(s.takes[owner])
			s.mu.Unlock()
			s.newPod(owner, m.GetNamespace(), fmt.Sprintf("%s-%d", m.GetName(), s.next()), number, ref(api, kind, m.GetName(), m.GetUID()))
		}
		s.count(gvr, m, want)
	})
}

// rank is the order in which pods go when a set shrinks.
func rank(p *corev1.Pod) int {
	if c := podCondition(p, corev1.PodReady); p.Spec.NodeName == "" || c == nil || c.Status != corev1.ConditionTrue {
		return math.MinInt
	}
	n, _ := strconv.Atoi(p.Annotations[corev1.PodDeletionCost])
	return n
}

// count writes the status of a bare set.
func (s *sim) count(gvr schema.GroupVersionResource, m metav1.Object, want int32) {
	s.writing.Lock()
	defer s.writing.Unlock()
	obj, err := s.client.Tracker().Get(gvr, m.GetNamespace(), m.GetName())
	if err != nil {
		return
	}
	obj = obj.DeepCopyObject()
	obj.(metav1.Object).SetResourceVersion(fmt.Sprint(s.next()))
	switch o := obj.(type) {
	case *appsv1.ReplicaSet:
		o.Status.ObservedGeneration, o.Status.Replicas, o.Status.ReadyReplicas = o.Generation, want, want
	case *corev1.ReplicationController:
		o.Status.ObservedGeneration, o.Status.Replicas, o.Status.ReadyReplicas = o.Generation, want, want
	}
	s.put(gvr, obj)
}

// disruption is the API server's answer when a budget forbids an eviction.
func disruption(budget, said string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: fmt.Sprintf("The disruption budget %s %s", budget, said)}}
	return err
}

// ordinals are the numbers of the pods that were taken.
func ordinals(names []string) (out []int) {
	for _, n := range names {
		o, _ := survey.Ordinal(n)
		out = append(out, o)
	}
	return out
}

func prefixed(all []string, prefix string) (n int) {
	for _, s := range all {
		if strings.HasPrefix(s, prefix) {
			n++
		}
	}
	return n
}
