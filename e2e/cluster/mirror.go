package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/eksbg/eksbg/internal/sandbox/kube/fargate"
)

// callTime bounds one call to the API server.
const callTime = 30 * time.Second

// mirror is the real API server as Fargate uses it: pods and nodes as a watch shows
// them, newer where Fargate itself has written since.
type mirror struct {
	client kubernetes.Interface
	pods   *shelf[*corev1.Pod]
	nodes  *shelf[*corev1.Node]
	events chan *corev1.Event

	mu   sync.Mutex
	rand *rand.Rand
}

var _ fargate.Cluster = (*mirror)(nil)

func newMirror(seed int64) *mirror {
	return &mirror{
		pods: newShelf[*corev1.Pod](), nodes: newShelf[*corev1.Node](), events: make(chan *corev1.Event, 1000),
		rand: rand.New(rand.NewPCG(uint64(seed), 1)), //nolint:gosec // a seed has no sign
	}
}

// Pod implements fargate.Cluster.
func (m *mirror) Pod(key string) *corev1.Pod { return m.pods.get(key) }

// Node implements fargate.Cluster.
func (m *mirror) Node(name string) *corev1.Node { return m.nodes.get(name) }

// CreateNode implements fargate.Cluster.
func (m *mirror) CreateNode(n *corev1.Node) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	made, err := m.client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{})
	if err == nil {
		m.nodes.put(made)
	}
	return err
}

// DeleteNode implements fargate.Cluster.
func (m *mirror) DeleteNode(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	return m.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
}

// Bind implements fargate.Cluster: the binding of a scheduler, then the first status of
// a kubelet.
func (m *mirror) Bind(old, next *corev1.Pod) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	err := m.client.CoreV1().Pods(old.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: old.Namespace, Name: old.Name, UID: old.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: next.Spec.NodeName},
	}, metav1.CreateOptions{})
	if apierrors.IsConflict(err) {
		// Bound by the call before whose answer was lost, another pod by now, or in a hurry.
		now, gone := m.same(ctx, old)
		switch {
		case gone != nil:
			return nil, gone
		case now.Spec.NodeName == next.Spec.NodeName:
			err = nil
		}
	}
	if err != nil {
		return nil, err
	}
	return m.SetStatus(old, next)
}

// SetStatus implements fargate.Cluster with a patch, as kubelets write: what others have
// added to the status stays.
func (m *mirror) SetStatus(old, next *corev1.Pod) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	patch, err := statusPatch(old, next)
	if err != nil {
		return nil, fmt.Errorf("patch the status of pod %s/%s: %w", old.Namespace, old.Name, err)
	}
	pod, err := m.client.CoreV1().Pods(old.Namespace).Patch(ctx, old.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsConflict(err) {
		if _, gone := m.same(ctx, old); gone != nil {
			return nil, gone
		}
	}
	if err != nil {
		return nil, err
	}
	m.pods.put(pod)
	return pod, nil
}

// same reads a pod after a conflict. NotFound is that it is gone, or another one has its
// name; otherwise the conflict was with another writer, and to try again helps.
func (m *mirror) same(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	now, err := m.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if now.UID != pod.UID {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), pod.Name)
	}
	m.pods.put(now)
	return now, nil
}

func statusPatch(old, next *corev1.Pod) ([]byte, error) {
	meta := metav1.ObjectMeta{UID: old.UID}
	from, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{}, Status: old.Status})
	if err != nil {
		return nil, err
	}
	to, err := json.Marshal(corev1.Pod{ObjectMeta: meta, Status: next.Status})
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(from, to, corev1.Pod{})
}

// Remove implements fargate.Cluster.
func (m *mirror) Remove(pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	now := int64(0)
	err := m.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if apierrors.IsConflict(err) {
		if _, gone := m.same(ctx, pod); gone != nil {
			err = gone
		}
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Event implements fargate.Cluster. What finds no room in the line is not written: an
// event more or less changes nothing.
func (m *mirror) Event(component string, about *corev1.Pod, kind, reason, message string) {
	now := metav1.NewTime(m.Clock().Truncate(time.Second))
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: about.Namespace, GenerateName: about.Name + "."},
		InvolvedObject: corev1.ObjectReference{
			Kind: "Pod", APIVersion: "v1", Namespace: about.Namespace, Name: about.Name, UID: about.UID, ResourceVersion: about.ResourceVersion,
		},
		Reason: reason, Message: message, Type: kind, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: component}, ReportingController: component,
	}
	select {
	case m.events <- e:
	default:
	}
}

// writeEvents writes them until ctx ends.
func (m *mirror) writeEvents(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-m.events:
			_, _ = m.client.CoreV1().Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{}) // see Event
		}
	}
}

// Clock implements fargate.Cluster.
func (m *mirror) Clock() time.Time { return time.Now() }

// Draw implements fargate.Cluster.
func (m *mirror) Draw(f func(*rand.Rand)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m.rand)
}

// object is what a shelf keeps.
type object interface {
	metav1.Object
	comparable
}

// shelf keeps the newest version of each object that was seen. It is the store of a
// reflector.
type shelf[T object] struct {
	// seen and gone are told of each change, outside of the lock. They come first.
	seen func(now, before T)
	gone func(T)

	mu    sync.Mutex
	items map[string]T
	// dead are the objects that were deleted: an answer that comes late must not bring one back.
	dead   map[types.UID]struct{}
	synced chan struct{}
	once   sync.Once
}

var _ cache.ReflectorStore = (*shelf[*corev1.Pod])(nil)

func newShelf[T object]() *shelf[T] {
	return &shelf[T]{items: map[string]T{}, dead: map[types.UID]struct{}{}, synced: make(chan struct{}), seen: func(T, T) {}, gone: func(T) {}}
}

func keyOf(o metav1.Object) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}

// version orders the resource versions of one kind, which the API guarantees to be
// numbers since Kubernetes 1.35 (KEP-5504) and etcd made them before.
func version(s string) uint64 {
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return v
}

func (s *shelf[T]) get(key string) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.items[key]
}

// list gives all objects, in no order.
func (s *shelf[T]) list() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]T, 0, len(s.items))
	for _, o := range s.items {
		out = append(out, o)
	}
	return out
}

// put takes an object in unless a newer version of it is there.
func (s *shelf[T]) put(o T) {
	var none T
	s.mu.Lock()
	before := s.items[keyOf(o)]
	_, dead := s.dead[o.GetUID()]
	newer := !dead && (before == none || version(before.GetResourceVersion()) < version(o.GetResourceVersion()))
	if newer {
		s.items[keyOf(o)] = o
	}
	s.mu.Unlock()
	if newer {
		s.seen(o, before)
	}
}

// Add implements cache.ReflectorStore.
func (s *shelf[T]) Add(o any) error { s.put(o.(T)); return nil }

// Update implements cache.ReflectorStore.
func (s *shelf[T]) Update(o any) error { s.put(o.(T)); return nil }

// Delete implements cache.ReflectorStore.
func (s *shelf[T]) Delete(o any) error {
	s.drop(o.(T))
	return nil
}

func (s *shelf[T]) drop(o T) {
	var none T
	s.mu.Lock()
	s.dead[o.GetUID()] = struct{}{}
	if now := s.items[keyOf(o)]; now != none && now.GetUID() == o.GetUID() {
		delete(s.items, keyOf(o))
	}
	s.mu.Unlock()
	s.gone(o)
}

// Replace implements cache.ReflectorStore: what a fresh list does not have is gone,
// unless it was made after that list.
func (s *shelf[T]) Replace(list []any, at string) error {
	there := make(map[types.UID]bool, len(list))
	for _, o := range list {
		there[o.(T).GetUID()] = true
		s.put(o.(T))
	}
	for _, o := range s.list() {
		if !there[o.GetUID()] && version(o.GetResourceVersion()) <= version(at) {
			s.drop(o)
		}
	}
	s.once.Do(func() { close(s.synced) })
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *shelf[T]) Resync() error { return nil }
