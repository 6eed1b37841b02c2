package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/eksbg/eksbg/internal/sandbox/ec2"
	"github.com/eksbg/eksbg/internal/sandbox/edge"
	"github.com/eksbg/eksbg/internal/sandbox/eks"
	"github.com/eksbg/eksbg/internal/sandbox/elbv2"
	"github.com/eksbg/eksbg/internal/sandbox/kube"
	"github.com/eksbg/eksbg/internal/sandbox/route53"
	"github.com/eksbg/eksbg/internal/sandbox/servicequotas"
	"github.com/eksbg/eksbg/internal/sandbox/sts"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// Options say which world to serve, where to leave its files, and how fast it goes.
type Options struct {
	Scenario *Scenario
	// Dir gets env, kubeconfig, plan.yaml, requests.ndjson and world.json; it is made
	// when it is not there.
	Dir string
	// Speed divides every duration of the world; 0 means 1. Timestamps stay wall clock.
	Speed float64
	// Kubernetes makes the Kubernetes half of each cluster, of which ctx bounds the start;
	// nil means the one that lives in this process.
	Kubernetes func(ctx context.Context, o kube.Options) (Kubernetes, error)
	// Hints gets a few lines for people once Serve is ready, stderr as a rule; nil
	// means none.
	Hints io.Writer
}

// Sandbox is a world that is being served.
type Sandbox struct {
	scenario *Scenario
	dir      string
	born     time.Time
	speed    float64

	kubernetes func(context.Context, kube.Options) (Kubernetes, error)

	keys    *wire.Keys
	log     *wire.Log
	faults  *wire.Faults
	eks     *eks.Service
	route53 *route53.Service
	elbv2   *elbv2.Service
	sts     *sts.Service
	ec2     *ec2.Service
	quotas  *servicequotas.Service
	fargate *kube.Account

	clusters  map[string]*cluster
	balancers []balancer
	groups    groups
	edge      *edge.Edge
	dns       *edge.DNS
	urls      map[string]string
	world     *worldFile
	// files is held while the kubeconfig is written.
	files sync.Mutex

	mu      sync.Mutex
	closers []func() error
	closed  bool
}

// Start serves a scenario on loopback until Close: everything is seeded, settled
// and healthy when it returns, and the files in Dir are written. ctx bounds the start
// alone. The caller closes what Start returned.
func Start(ctx context.Context, o Options) (*Sandbox, error) {
	s, err := begin(o)
	if err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start the sandbox: %w", err), s.Close())
	}
	return s, nil
}

func begin(o Options) (*Sandbox, error) {
	if o.Scenario == nil {
		return nil, errors.New("start the sandbox: no scenario is given")
	}
	if o.Speed < 0 {
		return nil, fmt.Errorf("start the sandbox: speed %v is negative", o.Speed)
	}
	def(&o.Speed, 1)
	if o.Kubernetes == nil {
		o.Kubernetes = inMemory
	}
	scenario, err := o.Scenario.clone()
	if err != nil {
		return nil, err
	}
	scenario.scale(o.Speed)
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("start the sandbox: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("start the sandbox: make its folder: %w", err)
	}
	// Whoever waits for it would find the ports of a sandbox that was here before.
	if err := os.Remove(filepath.Join(dir, "env")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("start the sandbox: %w", err)
	}
	return &Sandbox{
		scenario: scenario, dir: dir, born: time.Now(), speed: o.Speed, kubernetes: o.Kubernetes, keys: wire.NewKeys(),
		clusters: map[string]*cluster{}, urls: map[string]string{},
	}, nil
}

func (s *Sandbox) start(ctx context.Context) error {
	if err := s.openLog(); err != nil {
		return err
	}
	var err error
	if s.faults, err = wire.NewFaults(nil); err != nil {
		return err
	}
	s.makeServices()
	for _, step := range []func() error{
		s.makeAccount, s.seedEKS, s.seedALBs, s.seedZones, s.serveAWS,
		func() error { return s.startClusters(ctx) },
		func() error { s.elbv2.Settle(); return nil },
		s.startEdge, s.writeFiles, s.startWorld,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	// The scenario's disturbances count from the moment that it is ready.
	if d := s.scenario.CredentialsLast; d > 0 {
		s.keys.Expire(wire.AccessKey, time.Now().Add(d))
	}
	for _, f := range s.scenario.Faults {
		if err := s.faults.Add(f); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sandbox) makeServices() {
	d := s.scenario.Durations
	s.eks = eks.New(eks.Options{
		Region: s.scenario.Region, Account: s.scenario.Account, Keys: s.keys,
		Update: d.ControlPlane, AddonUpdate: d.Addon, Refresh: d.InsightsRefresh, Stale: d.ActiveLag,
		Skew: s.scenario.KubeletRule, Kubelets: s.kubelets,
		Create: d.ClusterCreate, Delete: d.ClusterDelete, Profile: d.FargateProfile,
		Nodegroup: d.Nodegroup, NodegroupConfig: d.NodegroupConfig, AutoNodes: d.AutoNodes, Speed: s.speed,
		World: behind{s}, OnVersion: func(string, string) { s.changed() },
		OnAddon: func(cluster, addon, version string) {
			behind{s}.InstallAddon(cluster, addon, version)
			s.changed()
		},
	})
	s.onClose(func() error { s.eks.Close(); return nil })
	s.route53 = route53.New(route53.Options{Keys: s.keys, Propagation: d.Insync})
	s.elbv2 = elbv2.New(elbv2.Options{
		Region: s.scenario.Region, Account: s.scenario.Account, Keys: s.keys,
		Targets: s.targets, HealthDelay: d.TargetHealthy, Draining: d.PodStop,
	})
}

// serveAWS opens a port for each service of AWS.
func (s *Sandbox) serveAWS() error {
	listener, err := loopback()
	if err != nil {
		return err
	}
	// The host is part of what a presigned token signs, so STS knows its own first.
	s.sts = sts.New(sts.Options{
		Keys: s.keys, Account: s.scenario.Account, Hosts: []string{listener.Addr().String()},
		Clusters: s.eks.Clusters,
	})
	s.serve("STS", s.sts, listener)
	for name, svc := range map[string]wire.Service{"EKS": s.eks, "ROUTE_53": s.route53, "ELASTIC_LOAD_BALANCING_V2": s.elbv2, "EC2": s.ec2, "SERVICE_QUOTAS": s.quotas} {
		listener, err := loopback()
		if err != nil {
			return err
		}
		s.serve(name, svc, listener)
	}
	return nil
}

func loopback() (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen on loopback: %w", err)
	}
	return l, nil
}

// serve answers for a service behind the log and the faults, and at Close waits for
// the calls under way.
func (s *Sandbox) serve(name string, svc wire.Service, l net.Listener) {
	var calls sync.WaitGroup
	front := wire.New(svc, s.log, s.faults)
	server := &http.Server{
		ReadHeaderTimeout: 30 * time.Second, ConnContext: wire.ConnContext,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			defer calls.Done()
			front.ServeHTTP(w, r)
		}),
	}
	s.urls[name] = "http://" + l.Addr().String()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // ends with ErrServerClosed
	}()
	s.onClose(func() error {
		err := server.Close()
		<-done
		calls.Wait()
		return err
	})
}

func (s *Sandbox) openLog() error {
	f, err := os.OpenFile(s.RequestsPath(), os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the request log: %w", err)
	}
	s.onClose(f.Close)
	s.log = wire.NewLog(f)
	s.onClose(s.log.Err)
	s.log.Watch(func(e wire.Entry) {
		if e.Changing && e.Accepted {
			s.changed()
		}
	})
	return nil
}

// onClose has f called by Close, or at once when that has begun.
func (s *Sandbox) onClose(f func() error) {
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.closers = append(s.closers, f)
	}
	s.mu.Unlock()
	if closed {
		_ = f() // Close has nobody left to tell
	}
}

// Close stops everything, waits for it, and leaves world.json as it was in the end.
// A second Close does nothing.
func (s *Sandbox) Close() error {
	s.mu.Lock()
	closers := s.closers
	if s.closed {
		closers = nil
	}
	s.closed = true
	s.mu.Unlock()
	if s.faults != nil {
		s.faults.Close()
	}
	var errs []error
	for _, f := range slices.Backward(closers) {
		errs = append(errs, f())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close the sandbox: %w", err)
	}
	return nil
}
