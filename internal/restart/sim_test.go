package restart

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/eksbg/eksbg/internal/cluster"
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

	// size is what Fargate says that it provisioned for each pod that is made.
	size string
	// skew is how far the API server's clock is ahead of the one here.
	skew time.Duration

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
	// noMore is an owner that makes no pod again for the first one that is taken.
	noMore string
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

// now is the time of the API server, as it writes it into objects.
func (s *sim) now() metav1.Time {
	return metav1.Time{Time: time.Now().Add(s.skew).Truncate(time.Second)}
}

// meta makes the metadata of an object with a UID of its own.
func (s *sim) meta(ns, name string, owner *metav1.OwnerReference) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(fmt.Sprintf("uid-%d", s.next())), Generation: 1,
		CreationTimestamp: s.now(), ResourceVersion: fmt.Sprint(s.next())}
	if owner != nil {
		m.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	if s.size != "" {
		m.Annotations = map[string]string{cluster.AnnotationCapacity: s.size}
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
