// Package cluster puts a whole cluster together as EKS runs one: a real control plane,
// the front that clients meet, the IAM authenticator, and Fargate. It takes the place of
// the sandbox's own Kubernetes.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/eksbg/eksbg/e2e/front"
	"github.com/eksbg/eksbg/e2e/hooks"
	"github.com/eksbg/eksbg/e2e/kubelet"
	"github.com/eksbg/eksbg/e2e/kubernetes"
	"github.com/eksbg/eksbg/internal/sandbox"
	"github.com/eksbg/eksbg/internal/sandbox/kube"
	"github.com/eksbg/eksbg/internal/sandbox/kube/fargate"
	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
	"github.com/eksbg/eksbg/internal/sandbox/kube/work"
)

// workers is how many pods Fargate works on at once: each waits for the API server most
// of the time.
const workers = 16

// Cluster is a real control plane with what EKS puts around it.
type Cluster struct {
	*front.Front
	opts      kube.Options
	ca        *kubernetes.Authority
	plane     *kubernetes.ControlPlane
	hooks     *hooks.Server
	kubelet   *kubelet.Server
	mirror    *mirror
	tracker   *work.Tracker
	fleet     *fargate.Fleet
	client    clientset.Interface
	dynamic   dynamic.Interface
	objects   informers.SharedInformerFactory
	informers []cache.SharedIndexInformer
	changed   chan struct{}
	servers   servers

	running   context.Context // of what Start started
	mu        sync.Mutex
	defined   map[*registry.Resource]bool
	customs   []customs
	listeners []func()
	cancel    context.CancelFunc
	closed    bool
	wg        sync.WaitGroup
}

var _ sandbox.Kubernetes = (*Cluster)(nil)

// New brings a cluster up: its API answers, and Fargate's webhook takes part in it. dir
// gets the state and the logs. ctx bounds the start alone; Close ends it all.
func New(ctx context.Context, dir string, o kube.Options) (_ *Cluster, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("start cluster %s: %w", o.Name, err)
		}
	}()
	if o.Authorize != nil {
		return nil, errors.New("a real API server goes by its own RBAC: the scenario may deny nothing")
	}
	bin, err := kubernetes.Binary(ctx)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	c := &Cluster{opts: o, mirror: newMirror(o.Seed), tracker: work.NewTracker(), changed: make(chan struct{}, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.fleet, err = fargate.New(c.mirror, c.tracker, o.Region, o.Version, o.Fargate); err != nil {
		return nil, err
	}
	if c.ca, err = kubernetes.NewAuthority("kubernetes " + o.Name); err != nil {
		return nil, err
	}
	cert, err := c.ca.TLS("webhooks")
	if err != nil {
		return nil, err
	}
	if c.hooks, err = hooks.Start(hooks.Options{Certificate: cert, Authenticate: o.Authenticate, Mutate: c.fleet.Mutate}); err != nil {
		return nil, err
	}
	if cert, err = c.ca.TLS("kubelet"); err != nil {
		return nil, err
	}
	socket, err := socketPath()
	if err != nil {
		return nil, err
	}
	if c.kubelet, err = kubelet.Start(kubelet.Options{Socket: socket, Certificate: cert, Pod: c.mirror.Pod, Listen: c.listen}); err != nil {
		return nil, err
	}
	c.plane, err = kubernetes.Start(ctx, kubernetes.Options{
		Name: o.Name, Dir: dir, Binary: bin, Authority: c.ca, TokenURL: c.hooks.TokenURL(), KubeletProxy: socket,
	})
	if err != nil {
		return nil, err
	}
	if c.Front, err = front.New(c.plane.URL(), c.ca.PEM(), o.Version); err != nil {
		return nil, err
	}
	return c, c.connect(ctx)
}

// socketPath is a short path: those of unix sockets end after 107 bytes (unix(7)), and
// the folders of tests are long.
func socketPath() (string, error) {
	f, err := os.CreateTemp("", "kubelet-*.sock")
	if err != nil {
		return "", err
	}
	return f.Name(), f.Close()
}

// Maker is a sandbox.Options.Kubernetes whose clusters keep their state below dir.
func Maker(dir string) func(context.Context, kube.Options) (sandbox.Kubernetes, error) {
	return func(ctx context.Context, o kube.Options) (sandbox.Kubernetes, error) {
		c, err := New(ctx, dir+"/"+o.Name, o)
		if err != nil {
			return nil, err
		}
		return c, nil
	}
}

// connect makes the clients and brings in what EKS puts into each cluster.
func (c *Cluster) connect(ctx context.Context) (err error) {
	binary := rest.CopyConfig(c.plane.Config())
	binary.ContentType, binary.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	if c.client, err = clientset.NewForConfig(binary); err != nil {
		return err
	}
	if c.dynamic, err = dynamic.NewForConfig(c.plane.Config()); err != nil {
		return err
	}
	c.mirror.client = c.client
	c.objects = informers.NewSharedInformerFactory(c.client, 0)
	_, err = c.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, c.hooks.Configuration(c.ca.PEM()), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("register Fargate's webhook: %w", err)
	}
	return c.admitted(ctx)
}

// admitted waits until a new pod in kube-system is let in, which needs a service account,
// and goes through the webhook.
func (c *Cluster) admitted(ctx context.Context) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: "probe"}}},
	}
	before := c.hooks.Mutated()
	return c.poll(ctx, "let pods in", func() error {
		_, err := c.client.CoreV1().Pods(metav1.NamespaceSystem).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && c.hooks.Mutated() == before {
			err = errors.New("its webhook was not asked")
		}
		return err
	})
}

// pollEvery is how often what cannot be watched is looked at.
const pollEvery = 25 * time.Millisecond

// poll tries again until f succeeds, a process has ended, or ctx.
func (c *Cluster) poll(ctx context.Context, what string, f func() error) error {
	t := time.NewTicker(pollEvery)
	defer t.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		if dead := c.plane.Running(); dead != nil {
			return dead
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for cluster %s to %s: %w: %w", c.opts.Name, what, context.Cause(ctx), err)
		case <-t.C:
		}
	}
}

// Start implements sandbox.Kubernetes.
func (c *Cluster) Start(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.cancel != nil {
		return fmt.Errorf("cluster %s was started before", c.opts.Name)
	}
	ctx, c.cancel = context.WithCancel(ctx)
	c.running = ctx
	c.follow()
	watch := func(resource string, of runtime.Object, on cache.ReflectorStore) {
		lw := cache.NewListWatchFromClient(c.client.CoreV1().RESTClient(), resource, metav1.NamespaceAll, nothing)
		c.wg.Go(func() { cache.NewReflector(lw, of, on, 0).RunWithContext(ctx) })
	}
	watch("pods", &corev1.Pod{}, c.mirror.pods)
	watch("nodes", &corev1.Node{}, c.mirror.nodes)
	for range workers {
		c.wg.Go(func() { c.fleet.Run(ctx) })
	}
	c.wg.Go(func() { c.mirror.writeEvents(ctx) })
	c.wg.Go(func() { c.notify(ctx) })
	c.startInformers(ctx)
	return nil
}

// follow has Fargate and the listeners told of what the mirror sees.
func (c *Cluster) follow() {
	c.mirror.pods.seen = func(p, _ *corev1.Pod) {
		c.fleet.PodChanged(p)
		c.change()
	}
	c.mirror.pods.gone = func(p *corev1.Pod) {
		c.fleet.PodChanged(p)
		c.change()
	}
	c.mirror.nodes.seen = func(n, before *corev1.Node) {
		if before == nil && n.Labels[fargate.LabelCompute] != "fargate" {
			c.fleet.NodeSeen(n)
			for _, p := range c.mirror.pods.list() {
				if p.Spec.NodeName == n.Name {
					c.fleet.PodChanged(p)
				}
			}
		}
		c.change()
	}
	c.mirror.nodes.gone = func(n *corev1.Node) {
		c.fleet.NodeGone(n.Name)
		c.change()
	}
}

func (c *Cluster) change() {
	select {
	case c.changed <- struct{}{}:
	default: // somebody will look anyway
	}
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

// OnChange implements sandbox.Kubernetes.
func (c *Cluster) OnChange(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners = append(c.listeners[:len(c.listeners):len(c.listeners)], f)
}

// Plane is the control plane itself, for tests that kill a part of it.
func (c *Cluster) Plane() *kubernetes.ControlPlane { return c.plane }

// SetProfiles replaces the Fargate profiles. Pods that exist keep what they have.
func (c *Cluster) SetProfiles(p []kube.Profile) { c.fleet.SetProfiles(p) }

// Close implements sandbox.Kubernetes.
func (c *Cluster) Close() error {
	c.mu.Lock()
	first, cancel := !c.closed, c.cancel
	c.closed = true
	c.mu.Unlock()
	if !first {
		return nil
	}
	errs := []error{c.servers.close()}
	if cancel != nil {
		cancel()
	}
	// The control plane goes first: calls to it that are under way then end at once.
	if c.plane != nil {
		errs = append(errs, c.plane.Close())
	}
	c.wg.Wait()
	if c.objects != nil {
		c.objects.Shutdown()
	}
	if c.fleet != nil {
		c.fleet.Close()
	}
	if c.hooks != nil {
		errs = append(errs, c.hooks.Close())
	}
	if c.kubelet != nil {
		errs = append(errs, c.kubelet.Close())
	}
	if c.Front != nil {
		c.Front.Close()
	}
	return errors.Join(errs...)
}
