package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eksbg/eksbg/internal/sandbox/eks"
	"github.com/eksbg/eksbg/internal/sandbox/kube"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// cluster is the Kubernetes half of one side, or of a cluster that is on none.
type cluster struct {
	side, name, url, token string
	// in is the cluster of the scenario whose VPC it is in; as a rule the cluster itself.
	in   *Cluster
	kube Kubernetes
	// stop ends it; it may be called more than once.
	stop     func() error
	machines machines
}

// startClusters brings up the Kubernetes clusters that are there, with what runs in them.
func (s *Sandbox) startClusters(ctx context.Context) error {
	for i, side := range s.scenario.Sides() {
		if s.scenario.Side(side).Absent {
			continue
		}
		if err := s.startCluster(ctx, side, int64(i)); err != nil {
			return fmt.Errorf("cluster %s: %w", s.scenario.Side(side).Name, err)
		}
	}
	for _, side := range s.scenario.Sides() {
		c := s.cluster(side)
		if c == nil {
			continue
		}
		if err := c.kube.Settle(ctx); err != nil {
			return fmt.Errorf("settle cluster %s: %w", c.name, err)
		}
		if err := s.afterwards(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sandbox) startCluster(ctx context.Context, side string, nth int64) error {
	def := s.scenario.Side(side)
	var profiles []eks.FargateProfile
	for _, p := range def.Profiles {
		profiles = append(profiles, p.seed())
	}
	c, err := s.bringUp(ctx, side, def, def.Name, nth, profiles)
	if err != nil {
		return err
	}
	if err := s.eks.SetEndpoint(c.name, c.url, c.kube.CA()); err != nil {
		return err
	}
	if err := s.seedCluster(ctx, c); err != nil {
		return err
	}
	s.register(c)
	return nil
}

// bringUp serves a cluster without anything in it.
func (s *Sandbox) bringUp(ctx context.Context, side string, in *Cluster, name string, nth int64, profiles []eks.FargateProfile) (*cluster, error) {
	secret := make([]byte, 16)
	if _, err := rand.Read(secret); err != nil {
		return nil, fmt.Errorf("make a token: %w", err)
	}
	c := &cluster{side: side, name: name, token: "sandbox-" + side + "-" + hex.EncodeToString(secret), in: in}
	d := s.scenario.Durations
	fargate := kube.FargateOptions{
		Startup: d.FargateStartup, Jitter: d.Jitter, Stop: d.PodStop, MaxNodes: in.MaxNodes, Account: s.fargate, Profiles: kubeProfiles(profiles),
	}
	for _, n := range in.Subnets {
		fargate.Subnets = append(fargate.Subnets, kube.Subnet{ID: n.ID, CIDR: n.CIDR, Zone: n.Zone})
	}
	var err error
	c.kube, err = s.kubernetes(ctx, kube.Options{
		Name: name, Region: s.scenario.Region, Fargate: fargate, Seed: s.scenario.Seed + nth, Version: s.versionOf(name),
		Authenticate: func(bearer string) (string, []string, error) { return s.authenticate(c, bearer) },
		Authorize:    in.authorize(),
	})
	if err != nil {
		return nil, err
	}
	s.onClose(c.kube.Close)
	// Close ends the cluster, not a context: it has to outlive the one of Start.
	if err := c.kube.Start(context.Background()); err != nil {
		return nil, err
	}
	listener, err := loopback()
	if err != nil {
		return nil, err
	}
	s.serveKube(c, listener)
	c.url = "https://" + listener.Addr().String()
	return c, nil
}

// versionOf tells the minor of a control plane; of one that is deleted, its last one.
func (s *Sandbox) versionOf(name string) func() string {
	var last atomic.Value
	return func() string {
		if v := s.eks.Version(name); v != "" {
			last.Store(v)
			return v
		}
		v, _ := last.Load().(string)
		return v
	}
}

// register makes a cluster one of the world's.
func (s *Sandbox) register(c *cluster) {
	s.mu.Lock()
	s.clusters[c.side] = c
	s.mu.Unlock()
	c.kube.OnChange(func() {
		// Health checks notice a pod when it changes, not when somebody asks.
		s.elbv2.Observe()
		s.changed()
	})
}

// running are the clusters that there are, by side or name.
func (s *Sandbox) running() map[string]*cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.clusters)
}

// serveKube answers for a cluster behind the log and the faults until it is stopped.
func (s *Sandbox) serveKube(c *cluster, l net.Listener) {
	done := make(chan error, 1)
	go func() { done <- c.kube.Serve(l, wire.New(c.kube, s.log, s.faults)) }()
	c.stop = sync.OnceValue(func() error { return errors.Join(c.kube.Close(), <-done) })
	s.onClose(c.stop)
}

// authenticate lets in the static token of the kubeconfig, and whoever has an EKS
// token for this cluster: an administrator too, unless the scenario denies something.
func (s *Sandbox) authenticate(c *cluster, bearer string) (string, []string, error) {
	if bearer == c.token {
		return "kubernetes-admin", []string{administrators, authenticated}, nil
	}
	arn, name, err := s.sts.Verify(bearer, time.Now())
	if err != nil {
		return "", nil, err
	}
	if name != c.name {
		return "", nil, fmt.Errorf("the token is for cluster %s, this is %s", name, c.name)
	}
	return arn, c.in.groups(), nil
}

// cluster finds one by its side or its name.
func (s *Sandbox) cluster(name string) *cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clusters {
		if c.side == name || c.name == name {
			return c
		}
	}
	return nil
}

func (s *Sandbox) kubelets(name string) []string {
	c := s.cluster(name)
	if c == nil {
		return nil
	}
	var versions []string
	for _, n := range c.kube.Nodes() {
		versions = append(versions, n.Kubelet)
	}
	return versions
}
