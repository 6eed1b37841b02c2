package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/eksbg/eksbg/internal/sandbox/kube"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// cluster is the Kubernetes half of one side.
type cluster struct {
	side, name, url, token string
	kube                   Kubernetes
}

// startClusters brings up both Kubernetes clusters with what runs in them.
func (s *Sandbox) startClusters(ctx context.Context) error {
	for i, side := range []string{Blue, Green} {
		if err := s.startCluster(ctx, side, int64(i)); err != nil {
			return fmt.Errorf("cluster %s: %w", s.scenario.Side(side).Name, err)
		}
	}
	for _, side := range []string{Blue, Green} {
		if err := s.clusters[side].kube.Settle(ctx); err != nil {
			return fmt.Errorf("settle cluster %s: %w", s.clusters[side].name, err)
		}
		if err := s.afterwards(ctx, s.clusters[side]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sandbox) startCluster(ctx context.Context, side string, nth int64) error {
	def := s.scenario.Side(side)
	secret := make([]byte, 16)
	if _, err := rand.Read(secret); err != nil {
		return fmt.Errorf("make a token: %w", err)
	}
	c := &cluster{side: side, name: def.Name, token: "sandbox-" + side + "-" + hex.EncodeToString(secret)}
	d := s.scenario.Durations
	fargate := kube.FargateOptions{Startup: d.FargateStartup, Jitter: d.Jitter, Stop: d.PodStop, MaxNodes: def.MaxNodes, Account: s.fargate}
	for _, n := range def.Subnets {
		fargate.Subnets = append(fargate.Subnets, kube.Subnet{ID: n.ID, CIDR: n.CIDR, Zone: n.Zone})
	}
	for _, p := range def.Profiles {
		profile := kube.Profile{Name: p.Name, Subnets: p.Subnets}
		for _, sel := range p.Selectors {
			profile.Selectors = append(profile.Selectors, kube.Selector{Namespace: sel.Namespace, Labels: sel.Labels})
		}
		fargate.Profiles = append(fargate.Profiles, profile)
	}
	var err error
	c.kube, err = s.kubernetes(ctx, kube.Options{
		Name: def.Name, Region: s.scenario.Region, Fargate: fargate, Seed: s.scenario.Seed + nth,
		Version:      func() string { return s.eks.Version(def.Name) },
		Authenticate: func(bearer string) (string, []string, error) { return s.authenticate(c, bearer) },
		Authorize:    def.authorize(),
	})
	if err != nil {
		return err
	}
	s.onClose(c.kube.Close)
	// Close ends the cluster, not a context: it has to outlive the one of Start.
	if err := c.kube.Start(context.Background()); err != nil {
		return err
	}
	listener, err := loopback()
	if err != nil {
		return err
	}
	s.serveKube(c, listener)
	c.url = "https://" + listener.Addr().String()
	if err := s.eks.SetEndpoint(c.name, c.url, c.kube.CA()); err != nil {
		return err
	}
	if err := s.seedCluster(ctx, c); err != nil {
		return err
	}
	s.mu.Lock()
	s.clusters[side] = c
	s.mu.Unlock()
	c.kube.OnChange(func() {
		// Health checks notice a pod when it changes, not when somebody asks.
		s.elbv2.Observe()
		s.changed()
	})
	return nil
}

// serveKube answers for a cluster behind the log and the faults until it is closed.
func (s *Sandbox) serveKube(c *cluster, l net.Listener) {
	done := make(chan error, 1)
	go func() { done <- c.kube.Serve(l, wire.New(c.kube, s.log, s.faults)) }()
	s.onClose(func() error { return errors.Join(c.kube.Close(), <-done) })
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
	return arn, s.scenario.Side(c.side).groups(), nil
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
