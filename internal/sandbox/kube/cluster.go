// Package kube is the Kubernetes half of the sandbox: an API server, the controllers of
// the workloads and Fargate, in memory, true enough for client-go and kubectl.
package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/eksbg/eksbg/internal/sandbox/kube/apiserver"
	"github.com/eksbg/eksbg/internal/sandbox/kube/controllers"
	"github.com/eksbg/eksbg/internal/sandbox/kube/fargate"
	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
	"github.com/eksbg/eksbg/internal/sandbox/kube/work"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// Cluster is one Kubernetes cluster. It implements wire.Service.
type Cluster struct {
	*apiserver.Server
	opts    Options
	reg     *registry.Registry
	tracker *work.Tracker
	manager *controllers.Manager
	fleet   *fargate.Fleet
	ca      *authority
	done    chan struct{}
	changed chan struct{}

	mu        sync.Mutex
	listeners []func()
	servers   []*http.Server
	cancel    context.CancelFunc
	closed    bool
	wg        sync.WaitGroup
}

var _ wire.Service = (*Cluster)(nil)

// New makes a cluster with what every cluster has (namespaces, the Service kubernetes, the
// priority classes of the system) and nothing else. Nothing runs before Start.
func New(o Options) (*Cluster, error) {
	if o.Version == nil {
		return nil, errors.New("kube: Options.Version is needed")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.History <= 0 {
		o.History = 10000
	}
	if o.Bookmark <= 0 {
		o.Bookmark = time.Minute
	}
	c := &Cluster{opts: o, tracker: work.NewTracker(), done: make(chan struct{}), changed: make(chan struct{}, 1)}
	c.reg = registry.New(store.New(o.History), o.Now, o.Seed)
	c.manager = controllers.New(c.reg, c.tracker)
	var err error
	if c.fleet, err = fargate.New(fargate.InMemory(c.reg), c.tracker, o.Region, o.Version, o.Fargate); err != nil {
		return nil, fmt.Errorf("kube: cluster %s: %w", o.Name, err)
	}
	if c.ca, err = newAuthority(o.Name); err != nil {
		return nil, fmt.Errorf("kube: cluster %s: %w", o.Name, err)
	}
	c.reg.Admit(c.fleet.Admit)
	c.reg.Hook(c.manager.Observe)
	c.reg.Hook(c.fleet.Observe)
	c.reg.Hook(func(store.Reader, store.Event) {
		select {
		case c.changed <- struct{}{}:
		default:
		}
	})
	c.Server = &apiserver.Server{
		Registry: c.reg, Version: o.Version, Authenticate: o.Authenticate, Authorize: o.Authorize, Bookmark: o.Bookmark, Done: c.done,
	}
	for _, ns := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease} {
		if err := c.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
			return nil, err
		}
	}
	for _, p := range registry.SystemPriorities() {
		if err := c.Create(p); err != nil {
			return nil, err
		}
	}
	return c, c.Create(ownService())
}

// ownService is the Service that the API server keeps for itself.
func ownService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "kubernetes", Labels: map[string]string{"component": "apiserver", "provider": "kubernetes"}},
		Spec: corev1.ServiceSpec{ClusterIP: "172.20.0.1", Ports: []corev1.ServicePort{
			{Name: "https", Port: 443, TargetPort: intstr.FromInt32(443), Protocol: corev1.ProtocolTCP}}},
	}
}

// Start runs the controllers and Fargate until ctx ends or Close is called. It returns
// at once.
func (c *Cluster) Start(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.cancel != nil {
		return fmt.Errorf("kube: cluster %s was started before", c.opts.Name)
	}
	ctx, c.cancel = context.WithCancel(ctx)
	c.wg.Go(func() { c.manager.Run(ctx) })
	c.wg.Go(func() { c.fleet.Run(ctx) })
	c.wg.Go(func() { c.notify(ctx) })
	return nil
}

// notify tells the listeners of changes, one after the other.
func (c *Cluster) notify(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
		}
		c.mu.Lock()
		fs := c.listeners
		c.mu.Unlock()
		for _, f := range fs {
			f()
		}
	}
}

// OnChange registers f to be called after changes while the cluster runs. Calls are
// coalesced and come one at a time.
func (c *Cluster) OnChange(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners = append(c.listeners[:len(c.listeners):len(c.listeners)], f)
}

// Close ends the controllers, the servers and every watch, and waits for them. It may be
// called more than once.
func (c *Cluster) Close() error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	cancel, servers := c.cancel, c.servers
	c.servers = nil
	c.mu.Unlock()
	if first {
		close(c.done)
	}
	if cancel != nil {
		cancel()
	}
	var errs []error
	for _, s := range servers {
		errs = append(errs, s.Close())
	}
	c.wg.Wait()
	c.manager.Close()
	c.fleet.Close()
	return errors.Join(errs...)
}

// Create stores an object as the API server would (defaults, admission, validation), for
// seeding. Namespaced objects without a namespace go to default; their namespace must be
// there.
func (c *Cluster) Create(obj runtime.Object) error {
	res := registry.For(obj)
	o, ok := obj.(store.Object)
	if res == nil || !ok {
		return fmt.Errorf("kube: the sandbox serves no %T", obj)
	}
	if res.Namespaced && o.GetNamespace() == "" {
		o = o.DeepCopyObject().(store.Object)
		o.SetNamespace(metav1.NamespaceDefault)
	}
	if _, err := c.reg.Create(res, o, false); err != nil {
		return fmt.Errorf("kube: creating %s %s: %w", res.Kind, store.KeyOf(o), err)
	}
	return nil
}

// Settle lets the controllers and Fargate work without any delay until nothing is left
// to do but to wait: workloads are ready, or never will be. Start comes first.
func (c *Cluster) Settle(ctx context.Context) error {
	c.mu.Lock()
	running := c.cancel != nil && !c.closed
	c.mu.Unlock()
	if !running {
		return fmt.Errorf("kube: cluster %s is not running", c.opts.Name)
	}
	c.fleet.Hurry(true)
	defer c.fleet.Hurry(false)
	return c.tracker.Wait(ctx)
}

// SetProfiles replaces the Fargate profiles. Pods that exist keep what they have.
func (c *Cluster) SetProfiles(p []Profile) { c.fleet.SetProfiles(p) }

// Compact forgets the history up to now, so that every earlier resource version and
// continue token is expired, as after etcd's compaction.
func (c *Cluster) Compact() { c.reg.Compact(c.reg.Rev()) }

// Nodes lists the nodes by name.
func (c *Cluster) Nodes() []NodeInfo {
	items, _ := c.reg.List(registry.Nodes.GR(), "")
	out := make([]NodeInfo, 0, len(items))
	for _, o := range items {
		n := o.(*corev1.Node)
		out = append(out, NodeOf(n))
	}
	return out
}

// NodeOf is what the sandbox's AWS half sees of a node.
func NodeOf(n *corev1.Node) NodeInfo {
	return NodeInfo{Name: n.Name, Kubelet: n.Status.NodeInfo.KubeletVersion, Compute: compute(n)}
}

// EndpointOf is a pod as a place for traffic; false when it is none, being without an
// address or not running.
func EndpointOf(p *corev1.Pod) (PodEndpoint, bool) {
	if p.Status.PodIP == "" || p.Status.Phase != corev1.PodRunning {
		return PodEndpoint{}, false
	}
	return PodEndpoint{Name: p.Name, IP: p.Status.PodIP, Ready: registry.PodReady(p) && p.DeletionTimestamp == nil}, true
}

// ReadyPods lists the unfinished pods with an address in a namespace that have all the
// labels, by name; Ready says which of them traffic may go to.
func (c *Cluster) ReadyPods(namespace string, selector map[string]string) []PodEndpoint {
	sel := labels.SelectorFromValidatedSet(selector)
	items, _ := c.reg.List(registry.Pods.GR(), namespace)
	var out []PodEndpoint
	for _, o := range items {
		p := o.(*corev1.Pod)
		if e, ok := EndpointOf(p); ok && sel.Matches(labels.Set(p.Labels)) {
			out = append(out, e)
		}
	}
	return out
}

// Free is how many addresses each of the cluster's subnets has left, by its id.
func (c *Cluster) Free() map[string]int { return c.fleet.Free() }
