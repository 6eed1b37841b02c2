package fargate

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
	"github.com/eksbg/eksbg/internal/sandbox/kube/work"
)

// Fleet is the Fargate of one cluster: its scheduler and all its kubelets.
type Fleet struct {
	api     Cluster
	opts    Options
	region  string
	version func() string
	queue   *work.Queue[podKey]

	mu       sync.Mutex
	profiles []Profile
	hurry    bool
	begun    bool              // the cluster has settled once
	nodes    map[string]podKey // pod of each Fargate node
	// Nodes that are not Fargate's, how many pods they were given, and who found none.
	ec2      map[string]*corev1.Node
	load     map[string]int
	stranded map[podKey]struct{}
	// How many pods of each owner were forgotten, and which.
	lost      map[string]int
	forgotten map[podKey]bool

	// What is handed out. A slot itself belongs to who works on its pod.
	room  sync.Mutex
	pool  *pool
	slots map[types.UID]*slot
	count int              // slots that hold a Fargate node, made or on its way
	lines map[string]*line // of each profile: pods for which there is no capacity
	waits map[types.UID]waiter
}

// podKey is a pod, not just a name: a StatefulSet reuses names.
type podKey struct {
	key string
	uid types.UID
}

// slot is what Fargate knows of a pod.
type slot struct {
	place
	node    string // name of the Fargate node; empty for pods on other nodes
	made    bool   // the node exists
	profile string
	cpu     int64 // thousandths of a vCPU that it takes of the account's
	bindAt  time.Time
	runAt   time.Time
	exitAt  time.Time
	stopAt  time.Time
}

// New makes the fleet of a cluster. version tells the control plane's minor now.
func New(api Cluster, t *work.Tracker, region string, version func() string, o Options) (*Fleet, error) {
	p, err := newPool(o.Subnets)
	if err != nil {
		return nil, err
	}
	if o.Run == 0 {
		o.Run = o.Startup
	}
	f := &Fleet{
		api: api, opts: o, region: region, version: version, queue: work.NewQueue[podKey](t),
		profiles: slices.Clone(o.Profiles), nodes: map[string]podKey{}, pool: p,
		ec2: map[string]*corev1.Node{}, load: map[string]int{}, stranded: map[podKey]struct{}{},
		lost: map[string]int{}, forgotten: map[podKey]bool{},
		slots: map[types.UID]*slot{}, lines: map[string]*line{}, waits: map[types.UID]waiter{},
	}
	// The lines are the queue's, so it is the queue that looks at them.
	o.Account.join(func() { f.queue.Add(podKey{}) })
	return f, nil
}

// Free is how many addresses each subnet has left, by its id.
func (f *Fleet) Free() map[string]int { return f.pool.free() }

// SetProfiles replaces the profiles; they count for pods created from now on.
func (f *Fleet) SetProfiles(p []Profile) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.profiles = slices.Clone(p)
}

// Hurry makes everything happen without delay while it is on.
func (f *Fleet) Hurry(on bool) {
	f.mu.Lock()
	f.hurry = on
	f.begun = f.begun || !on
	f.mu.Unlock()
	if on {
		f.queue.Flush()
	}
}

func (f *Fleet) hurried() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hurry
}

// Run works until ctx ends. Several Runs may share the work.
func (f *Fleet) Run(ctx context.Context) { f.queue.Run(ctx, f.reconcile, apierrors.IsConflict) }

// Close stops the timers. It comes after Run has ended.
func (f *Fleet) Close() { f.queue.Close() }

// Admit is the in-memory API server's hook of Mutate.
func (f *Fleet) Admit(_ *registry.Resource, o store.Object) error {
	if pod, ok := o.(*corev1.Pod); ok {
		f.Mutate(pod)
	}
	return nil
}

// Mutate is the admission webhook of EKS: it marks new pods that a profile takes
// (0500-amazon-eks-fargate-mutation.amazonaws.com).
func (f *Fleet) Mutate(pod *corev1.Pod) {
	if pod.Spec.NodeName != "" || daemon(pod) {
		return
	}
	f.mu.Lock()
	name := profileOf(f.profiles, pod)
	f.mu.Unlock()
	if name == "" {
		return
	}
	set := func(m *map[string]string, k, v string) {
		if *m == nil {
			*m = map[string]string{}
		}
		(*m)[k] = v
	}
	set(&pod.Labels, LabelProfile, name)
	if c := capacity(pod); c != "" {
		set(&pod.Annotations, "CapacityProvisioned", c)
	}
	pod.Spec.SchedulerName = SchedulerName
	pod.Spec.PriorityClassName = "system-node-critical"
	pod.Spec.Priority = ptr.To[int32](2000001000)
}

// Observe is the in-memory store's hook.
func (f *Fleet) Observe(r store.Reader, e store.Event) {
	switch o := e.Object.(type) {
	case *corev1.Pod:
		f.PodChanged(o)
	case *corev1.Node:
		if e.Type == store.Deleted {
			f.NodeGone(o.Name)
		}
		if e.Type == store.Modified {
			f.NodeSeen(o) // it may have been cordoned, or is so no more
		}
		if e.Type == store.Added && o.Labels[LabelCompute] != "fargate" {
			f.NodeSeen(o)
			for _, p := range r.List(registry.Pods.GR(), "") {
				if p.(*corev1.Pod).Spec.NodeName == o.Name {
					f.PodChanged(p.(*corev1.Pod))
				}
			}
		}
	}
}

// PodChanged has a pod looked at that was made, changed or deleted, or whose node, one
// that is not Fargate's, has come.
func (f *Fleet) PodChanged(p *corev1.Pod) { f.queue.Add(podKey{store.KeyOf(p), p.UID}) }

// NodeGone has the pod of a Fargate node looked at that was deleted.
func (f *Fleet) NodeGone(name string) {
	f.mu.Lock()
	k, ok := f.nodes[name]
	delete(f.ec2, name)
	delete(f.load, name)
	f.mu.Unlock()
	if ok {
		f.queue.Add(k)
	}
}

// due is true when t has come, and else looks again at the pod then.
func (f *Fleet) due(k podKey, t time.Time) bool {
	left := t.Sub(f.api.Clock())
	if left <= 0 {
		return true
	}
	f.queue.AddAfter(k, left)
	return false
}

func (f *Fleet) soon(k podKey, t time.Time) bool { return f.hurried() || f.due(k, t) }

func (f *Fleet) reconcile(_ context.Context, k podKey) error {
	if k == (podKey{}) {
		f.room.Lock()
		f.wake()
		f.room.Unlock()
		return nil
	}
	err := f.step(k)
	if apierrors.IsNotFound(err) {
		return nil // gone meanwhile, which comes as an event of its own
	}
	return err
}

// step brings one pod as far as it can get now.
func (f *Fleet) step(k podKey) error {
	pod := f.api.Pod(k.key)
	if pod == nil || pod.UID != k.uid {
		return f.gone(k)
	}
	s := f.slot(k)
	if s != nil && s.made && pod.Spec.NodeName != "" && f.api.Node(s.node) == nil {
		return f.api.Remove(pod) // its node was deleted, and it cannot live without
	}
	switch {
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return nil // keeps its node until it is deleted
	case pod.DeletionTimestamp != nil:
		return f.stop(k, s, pod)
	case pod.Spec.NodeName == "" && pod.Spec.SchedulerName == SchedulerName:
		return f.schedule(k, s, pod)
	case pod.Spec.NodeName == "":
		return f.assign(k, pod)
	default:
		return f.keep(k, s, pod)
	}
}

// schedule finds room for a pod and, when the start-up delay has passed, makes its node
// and binds it.
func (f *Fleet) schedule(k podKey, s *slot, pod *corev1.Pod) error {
	if s == nil {
		if f.forgets(k, pod) {
			return nil
		}
		var why string
		if s, why = f.allocate(k, pod); s == nil {
			return f.unschedulable(SchedulerName, pod, why)
		}
	}
	if !f.soon(k, s.bindAt) {
		return nil
	}
	if !s.made {
		if err := f.api.CreateNode(f.newNode(s, pod)); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		s.made = true
		f.mu.Lock()
		f.nodes[s.node] = k
		f.mu.Unlock()
	}
	bound, err := f.status(pod, func(p *corev1.Pod) { f.bind(p, s) })
	if err == nil {
		f.api.Event(SchedulerName, bound, corev1.EventTypeNormal, "Scheduled", fmt.Sprintf("Successfully assigned %s to %s", k.key, s.node))
	}
	return err
}

// slot is what Fargate knows of a pod, nil when that is nothing.
func (f *Fleet) slot(k podKey) *slot {
	f.room.Lock()
	defer f.room.Unlock()
	return f.slots[k.uid]
}

func (f *Fleet) keepSlot(k podKey, s *slot) {
	f.room.Lock()
	defer f.room.Unlock()
	f.slots[k.uid] = s
}

// gone takes a node away with its pod.
func (f *Fleet) gone(k podKey) error {
	f.mu.Lock()
	delete(f.forgotten, k)
	delete(f.stranded, k)
	f.mu.Unlock()
	s := f.slot(k)
	if s != nil && s.made {
		if err := f.api.DeleteNode(s.node); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	f.room.Lock()
	defer f.room.Unlock()
	f.unwait(k)
	if s == nil {
		return nil
	}
	f.mu.Lock()
	delete(f.nodes, s.node)
	f.mu.Unlock()
	delete(f.slots, k.uid)
	s.give()
	if s.node != "" {
		f.count--
		f.opts.Account.give(s.cpu)
	}
	f.wake()
	return nil
}

// stop lets the containers of a Terminating pod end, and then the pod.
func (f *Fleet) stop(k podKey, s *slot, pod *corev1.Pod) error {
	if s == nil {
		s = &slot{}
		f.keepSlot(k, s)
	}
	grace := time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second
	at := f.api.Clock().Add(min(f.opts.Stop, grace))
	if s.stopAt.IsZero() || at.Before(s.stopAt) {
		s.stopAt = at
	}
	if !f.soon(k, s.stopAt) {
		return nil
	}
	return f.api.Remove(pod)
}
