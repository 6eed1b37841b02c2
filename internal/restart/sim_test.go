package restart

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

var (
	podsGVR        = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	nodesGVR       = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	controllersGVR = schema.GroupVersionResource{Version: "v1", Resource: "replicationcontrollers"}
	cronJobsGVR    = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "cronjobs"}
	budgetsGVR     = schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}
	replicaSetsGVR = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
	appsGVR        = map[string]schema.GroupVersionResource{
		"Deployment":  {Group: "apps", Version: "v1", Resource: "deployments"},
		"StatefulSet": {Group: "apps", Version: "v1", Resource: "statefulsets"},
	}
)

const (
	oldKubelet = "v1.32.9-eks-113cf36"
	newKubelet = "v1.33.5-eks-113cf36"
)

// sim is a cluster on Fargate around the fake clientset: a patched template is
// rolled out pod by pod, one node a pod, as the controllers of Kubernetes do it.
type sim struct {
	client  *fake.Clientset
	dynamic *dynamicfake.FakeDynamicClient
	ctx     context.Context
	stop    context.CancelFunc
	wg      sync.WaitGroup

	// noRoll keeps a patched Deployment shop/cart from being rolled out.
	noRoll bool
	// writing is held from reading an object to writing it back.
	writing sync.Mutex
	scaling sync.Mutex

	mu     sync.Mutex
	cond   *sync.Cond
	serial int
	// watches were begun, wanted have to be before anything rolls.
	watches, wanted int
	// stamps are the values patched, in order, by owner.
	stamps map[string][]string
	order  []string
	// rolling are the workloads whose rollout is under way; most is how many at once.
	rolling map[string]bool
	most    int
	// together are the sets of workloads that were seen rolling together with CoreDNS.
	beside []string
	// kubelet is what new pods of an owner get, by attempt; newKubelet otherwise.
	kubelet map[string][]string
	// pod changes a new pod of an owner before it would get ready; false keeps it so.
	pod map[string]func(*corev1.Pod) bool
	// linger keeps the old pods of an owner terminating.
	linger map[string]bool
	// gate holds the rollouts of an owner until it is closed.
	gate map[string]chan struct{}
	// before and after run around a patch; an error of theirs is the client's answer.
	before, after func(owner, stamp string) error
	// calls are all requests but watches, "patch deployments".
	calls []string
	// takes are the pods that were evicted or deleted, in order, by owner; refuse answers
	// an eviction of a pod with an error.
	takes  map[string][]string
	refuse func(owner, pod string) error
	// evicted runs after an eviction, with its error as the client's answer.
	evicted func(owner, pod string) error
}

func newSim() *sim {
	s := &sim{client: fake.NewSimpleClientset(), stamps: map[string][]string{}, rolling: map[string]bool{}, kubelet: map[string][]string{},
		pod: map[string]func(*corev1.Pod) bool{}, linger: map[string]bool{}, gate: map[string]chan struct{}{},
		takes: map[string][]string{}}
	s.cond = sync.NewCond(&s.mu)
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.client.PrependReactor("patch", "*", s.patched)
	s.client.PrependReactor("create", "pods", s.createdPod)
	s.client.PrependReactor("delete", "pods", s.deletedPod)
	s.client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		s.mu.Lock()
		s.calls = append(s.calls, a.GetVerb()+" "+a.GetResource().Resource)
		s.mu.Unlock()
		return false, nil, nil
	})
	s.client.PrependWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, err := s.client.Tracker().Watch(a.GetResource(), a.GetNamespace(), a.(clienttesting.WatchActionImpl).ListOptions)
		s.mu.Lock()
		s.watches++
		s.cond.Broadcast()
		s.mu.Unlock()
		return true, w, err
	})
	return s
}

// close ends the rollouts that are still held.
func (s *sim) close() {
	s.stop()
	s.cond.Broadcast()
	s.wg.Wait()
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (s *sim) next() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serial++
	return s.serial
}

func (s *sim) put(gvr schema.GroupVersionResource, obj runtime.Object) {
	m := obj.(metav1.Object)
	if _, err := s.client.Tracker().Get(gvr, m.GetNamespace(), m.GetName()); err == nil {
		must(s.client.Tracker().Update(gvr, obj, m.GetNamespace()))
		return
	}
	must(s.client.Tracker().Create(gvr, obj, m.GetNamespace()))
}

// meta makes the metadata of an object with a UID of its own.
func (s *sim) meta(ns, name string, owner *metav1.OwnerReference) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(fmt.Sprintf("uid-%d", s.next())), Generation: 1,
		CreationTimestamp: metav1.Now().Rfc3339Copy(), ResourceVersion: fmt.Sprint(s.next())}
	if owner != nil {
		m.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return m
}

func ref(apiVersion, kind, name string, uid types.UID) *metav1.OwnerReference {
	return &metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: uid, Controller: new(true)}
}

// addPod puts a running pod on a node of its own; kubelet "" leaves it Pending.
func (s *sim) addPod(ns, name, kubelet string, owner *metav1.OwnerReference) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: s.meta(ns, name, owner), Status: corev1.PodStatus{Phase: corev1.PodPending}}
	if kubelet != "" {
		s.schedule(p, kubelet)
		ready(p)
	}
	s.put(podsGVR, p)
	return p
}

func (s *sim) schedule(p *corev1.Pod, kubelet string) {
	n := &corev1.Node{ObjectMeta: s.meta("", fmt.Sprintf("fargate-ip-10-0-%d.internal", s.next()), nil)}
	n.Status.NodeInfo.KubeletVersion = kubelet
	s.put(nodesGVR, n)
	p.Spec.NodeName = n.Name
}

func ready(p *corev1.Pod) {
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

func (s *sim) deployment(ns, name string, n int, kubelet string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: s.meta(ns, name, nil), Spec: appsv1.DeploymentSpec{Replicas: new(int32(n))}}
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: int32(n), UpdatedReplicas: int32(n), ReadyReplicas: int32(n)}
	s.put(appsGVR["Deployment"], d)
	rs := s.replicaSet(d)
	for range n {
		s.addPod(ns, fmt.Sprintf("%s-%d", rs.Name, s.next()), kubelet, ref("apps/v1", "ReplicaSet", rs.Name, rs.UID))
	}
	return d
}

func (s *sim) replicaSet(d *appsv1.Deployment) *appsv1.ReplicaSet {
	return s.setOf(d.Namespace, d.Name, ref("apps/v1", "Deployment", d.Name, d.UID))
}

func (s *sim) setOf(ns, name string, owner *metav1.OwnerReference) *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{ObjectMeta: s.meta(ns, fmt.Sprintf("%s-%d", name, s.next()), owner)}
	s.put(replicaSetsGVR, rs)
	return rs
}

// above is the UID of the controller of a ReplicaSet.
func (s *sim) above(ns string, set types.UID) types.UID {
	l, err := s.client.Tracker().List(replicaSetsGVR, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}, ns)
	must(err)
	for i := range l.(*appsv1.ReplicaSetList).Items {
		rs := &l.(*appsv1.ReplicaSetList).Items[i]
		if c := metav1.GetControllerOf(rs); c != nil && rs.UID == set {
			return c.UID
		}
	}
	return ""
}

func (s *sim) statefulSet(ns, name string, n int, kubelet string) *appsv1.StatefulSet {
	st := &appsv1.StatefulSet{ObjectMeta: s.meta(ns, name, nil), Spec: appsv1.StatefulSetSpec{Replicas: new(int32(n))}}
	st.Status = appsv1.StatefulSetStatus{ObservedGeneration: 1, Replicas: int32(n), UpdatedReplicas: int32(n), ReadyReplicas: int32(n)}
	s.put(appsGVR["StatefulSet"], st)
	for i := range n {
		s.addPod(ns, fmt.Sprintf("%s-%d", name, i), kubelet, ref("apps/v1", "StatefulSet", name, st.UID))
	}
	return st
}

// patched applies a patch as the API server does and sets the rollout going.
func (s *sim) patched(action clienttesting.Action) (bool, runtime.Object, error) {
	a := action.(clienttesting.PatchAction)
	if r := a.GetResource().Resource; r != "deployments" && r != "statefulsets" {
		return s.merged(a)
	}
	kind := map[string]string{"deployments": "Deployment", "statefulsets": "StatefulSet"}[a.GetResource().Resource]
	owner := a.GetNamespace() + "/" + kind + "/" + a.GetName()
	obj, err := s.client.Tracker().Get(a.GetResource(), a.GetNamespace(), a.GetName())
	if err != nil {
		return true, nil, err
	}
	old, err := json.Marshal(obj)
	must(err)
	merged, err := strategicpatch.StrategicMergePatch(old, a.GetPatch(), obj)
	must(err)
	if a.GetPatchType() != types.StrategicMergePatchType {
		panic("patch type " + a.GetPatchType())
	}
	changed := obj.DeepCopyObject()
	must(json.Unmarshal(merged, changed))
	stamp := template(changed).Annotations[restartedAt]
	if s.before != nil {
		if err := s.before(owner, stamp); err != nil {
			return true, nil, err
		}
	}
	if template(obj).Annotations[restartedAt] != stamp {
		s.restart(owner, changed, stamp)
	}
	if s.after != nil {
		if err := s.after(owner, stamp); err != nil {
			return true, nil, err
		}
	}
	return true, changed, nil
}

func template(obj runtime.Object) *corev1.PodTemplateSpec {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		return &o.Spec.Template
	case *appsv1.StatefulSet:
		return &o.Spec.Template
	}
	panic("no template")
}

// restart stores the changed template and rolls it out.
func (s *sim) restart(owner string, obj runtime.Object, stamp string) {
	m := obj.(metav1.Object)
	m.SetGeneration(m.GetGeneration() + 1)
	s.mu.Lock()
	s.stamps[owner] = append(s.stamps[owner], stamp)
	s.order = append(s.order, owner)
	s.rolling[owner] = true
	s.most = max(s.most, len(s.rolling))
	if s.rolling["kube-system/Deployment/coredns"] {
		s.beside = append(s.beside, slices.Sorted(maps.Keys(s.rolling))...)
	}
	number, gate := len(s.stamps[owner]), s.gate[owner]
	s.mu.Unlock()
	switch o := obj.(type) {
	case *appsv1.Deployment:
		s.put(appsGVR["Deployment"], o)
		s.wg.Go(func() {
			s.roll(owner, gate, func() {
				s.mu.Lock()
				off := s.noRoll && owner == "shop/Deployment/cart"
				s.mu.Unlock()
				if !off {
					s.rollDeployment(owner, o.DeepCopy(), number)
				}
			})
		})
	case *appsv1.StatefulSet:
		s.put(appsGVR["StatefulSet"], o)
		s.wg.Go(func() { s.roll(owner, gate, func() { s.rollStatefulSet(owner, o.DeepCopy(), number) }) })
	}
}

// expectWatches holds everything until one more step watches.
func (s *sim) expectWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = s.watches + 6
	if l, err := s.client.Tracker().List(controllersGVR, corev1.SchemeGroupVersion.WithKind("ReplicationController"), ""); err == nil {
		if len(l.(*corev1.ReplicationControllerList).Items) > 0 {
			s.wanted++
		}
	}
}

// roll runs one rollout once all watches stand, for the fake clientset forgets
// deletions between a list and its watch.
func (s *sim) roll(owner string, gate chan struct{}, do func()) {
	if gate != nil {
		select {
		case <-gate:
		case <-s.ctx.Done():
		}
	}
	s.mu.Lock()
	for s.watches < s.wanted && s.ctx.Err() == nil {
		s.cond.Wait()
	}
	s.mu.Unlock()
	if s.ctx.Err() == nil {
		do()
	}
}

func (s *sim) settled(owner string) {
	s.mu.Lock()
	delete(s.rolling, owner)
	s.mu.Unlock()
}

// newPod makes the next pod of an owner; false when it does not get ready.
func (s *sim) newPod(owner, ns, name string, number int, of *metav1.OwnerReference) bool {
	kubelet := newKubelet
	if k := s.kubelet[owner]; number <= len(k) {
		kubelet = k[number-1]
	}
	p := s.addPod(ns, name, "", of).DeepCopy()
	s.schedule(p, kubelet)
	if f := s.pod[owner]; f != nil && !f(p) {
		s.put(podsGVR, p)
		return false
	}
	ready(p)
	s.put(podsGVR, p)
	return true
}

// remove deletes a pod as a kubelet does, its node with it.
func (s *sim) remove(owner string, p *corev1.Pod) {
	s.writing.Lock() // a patch at the same moment would bring it back
	defer s.writing.Unlock()
	p = p.DeepCopy()
	p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	s.put(podsGVR, p)
	if s.linger[owner] {
		return
	}
	must(s.client.Tracker().Delete(podsGVR, p.Namespace, p.Name))
	if p.Spec.NodeName != "" {
		must(s.client.Tracker().Delete(nodesGVR, "", p.Spec.NodeName))
	}
}

// podsOf lists the pods whose controller is not the given one but of the workload.
func (s *sim) podsOf(ns string, owned func(types.UID) bool) []*corev1.Pod {
	l, err := s.client.Tracker().List(podsGVR, schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, ns)
	must(err)
	var out []*corev1.Pod
	for i := range l.(*corev1.PodList).Items {
		p := &l.(*corev1.PodList).Items[i]
		if c := metav1.GetControllerOf(p); c != nil && owned(c.UID) && p.DeletionTimestamp == nil {
			out = append(out, p)
		}
	}
	return out
}

func (s *sim) setsOf(d *appsv1.Deployment) map[types.UID]bool {
	l, err := s.client.Tracker().List(replicaSetsGVR, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}, d.Namespace)
	must(err)
	out := map[types.UID]bool{}
	for i := range l.(*appsv1.ReplicaSetList).Items {
		rs := &l.(*appsv1.ReplicaSetList).Items[i]
		if c := metav1.GetControllerOf(rs); c != nil && c.UID == d.UID {
			out[rs.UID] = true
		}
	}
	return out
}
