// Package eks is the sandbox's Amazon EKS API: clusters whose control planes are
// updated one minor at a time, managed add-ons, Fargate profiles and insights, over
// restJson1.
package eks

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// How UpdateClusterVersion looks at the kubelets of Fargate pods.
const (
	// SkewByVersion refuses an update that would leave a kubelet outside the skew
	// that Kubernetes allows: three minors, two for kubelets before 1.25.
	SkewByVersion = "skew"
	// SkewStrict refuses it while any kubelet is older than the control plane, as
	// seen in 2020 to 2022.
	SkewStrict = "strict"
)

// Options says what the service stands on and how long things take.
type Options struct {
	Region, Account string
	Keys            *wire.Keys
	// Clock drives updates and refreshes; the real one when nil.
	Clock clock.WithDelayedExecution
	// Update is how long a control-plane update takes, AddonUpdate one of an add-on,
	// Refresh a refresh of the insights.
	Update, AddonUpdate, Refresh time.Duration
	// Create and Delete are how long a cluster takes to come and to go, Profile how long
	// a Fargate profile takes for either. An add-on takes AddonUpdate.
	Create, Delete, Profile time.Duration
	// Nodegroup is how long an update of a node group's version takes at least, and
	// NodegroupConfig one of its configuration.
	Nodegroup, NodegroupConfig time.Duration
	// AutoNodes is how long the nodes of an Auto Mode cluster take to go back before its
	// control plane does.
	AutoNodes time.Duration
	// Speed divides the time-outs that clients ask for; 0 is 1.
	Speed float64
	// MaxClusters is how many clusters there can be (100 when 0), and MaxProfiles how
	// many Fargate profiles a cluster can have (10 when 0): AWS's default quotas
	// (https://docs.aws.amazon.com/eks/latest/userguide/service-quotas.html).
	MaxClusters, MaxProfiles int
	// Stale is how long a cluster still reads ACTIVE after an update was accepted;
	// at most half of Update.
	Stale time.Duration
	// Skew is SkewByVersion (default) or SkewStrict.
	Skew string
	// EnforceInsights refuses updates while an upgrade insight is in ERROR, unless
	// forced. EKS did so for a day in 2025 (containers-roadmap#2570).
	EnforceInsights bool
	// Versions is the catalogue; Catalogue() when nil.
	Versions []Version
	// Addons are the add-on versions on offer; AddonCatalogue() when nil.
	Addons []AddonVersion
	// Kubelets answers the versions of the kubelets of a cluster's nodes,
	// as minors or whole ("1.31", "v1.31.14-eks-6ae7ca2"). It may call
	// the methods of Service, but not its HTTP API. Nil makes the skew insight UNKNOWN.
	Kubelets func(cluster string) []string
	// OnVersion is called when a control plane has become another version, OnAddon
	// when an add-on has. Both are called without locks held.
	OnVersion func(cluster, minor string)
	OnAddon   func(cluster, addon, version string)
	// World is what the API's own objects stand for; nil makes them mere entries.
	World World
}

// Service is the API; it is safe for concurrent use.
type Service struct {
	opts Options

	// turn is held while time is caught up with, callbacks included; mu guards the
	// rest and is never held over a callback.
	turn sync.Mutex
	mu   sync.Mutex

	clusters map[string]*cluster
	failures []*Failure
	timers   map[clock.Timer]bool
	ticks    sync.WaitGroup
	closed   bool
	// ctx ends with Close, for the work that the World does.
	ctx  context.Context
	stop context.CancelFunc
}

// New makes a service without clusters.
func New(o Options) *Service {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Account == "" {
		o.Account = wire.Account
	}
	if o.Region == "" {
		o.Region = "us-east-1"
	}
	if o.Keys == nil {
		o.Keys = wire.NewKeys()
	}
	if o.Versions == nil {
		o.Versions = Catalogue()
	}
	if o.Addons == nil {
		o.Addons = AddonCatalogue()
	}
	o.Stale = min(o.Stale, o.Update/2)
	if o.World == nil {
		o.World = nowhere{}
	}
	o.Speed = cmp.Or(o.Speed, 1)
	o.MaxClusters, o.MaxProfiles = cmp.Or(o.MaxClusters, 100), cmp.Or(o.MaxProfiles, 10)
	s := &Service{opts: o, clusters: map[string]*cluster{}, timers: map[clock.Timer]bool{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

var _ wire.Service = (*Service)(nil)

// Clusters are the names of all clusters, sorted.
func (s *Service) Clusters() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.clusters))
}

// Version is the minor of a control plane at this moment, empty for an unknown
// cluster.
func (s *Service) Version(cluster string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.clusters[cluster]; c != nil {
		return c.Version
	}
	return ""
}

// FailUpdates makes updates end as Failed.
func (s *Service) FailUpdates(f Failure) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clusters[f.Cluster] == nil {
		return fmt.Errorf("make updates of cluster %q fail: there is no such cluster", f.Cluster)
	}
	if f.Times == 0 {
		f.Times = 1
	}
	s.failures = append(s.failures, &f)
	return nil
}

// Close stops the timers of what is under way and waits for callbacks that run.
func (s *Service) Close() {
	s.stop()
	s.mu.Lock()
	s.closed = true
	for t := range s.timers {
		t.Stop()
	}
	clear(s.timers)
	s.mu.Unlock()
	s.ticks.Wait()
}

// after has the service catch up with time once d has passed. mu is held.
func (s *Service) after(d time.Duration) {
	if s.closed {
		return
	}
	var t clock.Timer
	t = s.opts.Clock.AfterFunc(d, func() {
		// A goroutine of its own, because a fake clock calls this under its lock.
		go func() {
			s.mu.Lock()
			if s.closed {
				s.mu.Unlock()
				return
			}
			delete(s.timers, t)
			s.ticks.Add(1)
			s.mu.Unlock()
			defer s.ticks.Done()
			s.catchUp()
		}()
	})
	s.timers[t] = true
}

// work does something that takes time outside of the service, which catches up
// afterwards. mu is held.
func (s *Service) work(f func(ctx context.Context)) {
	if s.closed {
		return
	}
	s.ticks.Go(func() {
		f(s.ctx)
		s.catchUp()
	})
}

// catchUp lets everything happen that is due by now, and tells those who wait for it.
func (s *Service) catchUp() {
	s.turn.Lock()
	defer s.turn.Unlock()
	now := s.opts.Clock.Now()
	s.mu.Lock()
	var tell []func()
	for _, name := range slices.Sorted(maps.Keys(s.clusters)) {
		tell = append(tell, s.settle(s.clusters[name], now)...)
	}
	s.mu.Unlock()
	for _, fn := range tell {
		fn()
	}
	s.finishRefreshes(now)
}
