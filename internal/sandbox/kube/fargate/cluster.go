package fargate

import (
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

// Cluster is the API server as Fargate's scheduler and kubelets use it. Pod and Node tell
// what is there by now, the Cluster's own writes included; what they return must not be
// changed. Errors are those of the API (apimachinery/pkg/api/errors). It is used from as
// many goroutines as the fleet Runs in.
type Cluster interface {
	// Pod finds a pod by namespace/name, or nil; Node a node by name.
	Pod(key string) *corev1.Pod
	Node(name string) *corev1.Node
	CreateNode(n *corev1.Node) error
	DeleteNode(name string) error
	// Bind gives old, which has no node, the node and the status of next.
	Bind(old, next *corev1.Pod) (*corev1.Pod, error)
	// SetStatus writes what the status of next says otherwise than that of old.
	SetStatus(old, next *corev1.Pod) (*corev1.Pod, error)
	// Remove is the kubelet's last word: the pod object goes at once. That it is gone
	// already, or another one by now, is no error.
	Remove(pod *corev1.Pod) error
	// Event records what a component has to say about a pod.
	Event(component string, about *corev1.Pod, kind, reason, message string)
	// Clock is the present time, Draw hands out a source of randomness.
	Clock() time.Time
	Draw(f func(*rand.Rand))
}

// memory is the API server that lives in this process.
type memory struct {
	*registry.Registry
	recorders map[string]*registry.Recorder
}

// InMemory makes a Cluster of a registry. It is for one goroutine.
func InMemory(reg *registry.Registry) Cluster {
	m := memory{reg, map[string]*registry.Recorder{}}
	for _, component := range []string{SchedulerName, corev1.DefaultSchedulerName} {
		m.recorders[component] = reg.Recorder(component)
	}
	return m
}

func (m memory) Pod(key string) *corev1.Pod {
	p, _ := m.Store.Get(registry.Pods.GR(), key).(*corev1.Pod)
	return p
}

func (m memory) Node(name string) *corev1.Node {
	n, _ := m.Store.Get(registry.Nodes.GR(), name).(*corev1.Node)
	return n
}

func (m memory) CreateNode(n *corev1.Node) error {
	_, err := m.Create(registry.Nodes, n, false)
	return err
}

func (m memory) DeleteNode(name string) error {
	_, _, err := m.Delete(registry.Nodes, "", name, metav1.DeleteOptions{})
	return err
}

func (m memory) Bind(old, next *corev1.Pod) (*corev1.Pod, error) {
	return next, m.Registry.Bind(old, next) // not an update that a client could make
}

func (m memory) SetStatus(_, next *corev1.Pod) (*corev1.Pod, error) {
	o, err := m.Change(registry.Pods, next.Namespace, next.Name, registry.Status, false, func(store.Object) (store.Object, error) {
		return next, nil
	})
	if err != nil {
		return nil, err
	}
	return o.(*corev1.Pod), nil
}

func (m memory) Remove(pod *corev1.Pod) error {
	_, _, err := m.Delete(registry.Pods, pod.Namespace, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func (m memory) Event(component string, about *corev1.Pod, kind, reason, message string) {
	m.recorders[component].Event(about, kind, reason, "%s", message)
}
