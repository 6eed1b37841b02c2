package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/eksbg/eksbg/e2e/cluster"
	"github.com/eksbg/eksbg/internal/sandbox"
	"github.com/eksbg/eksbg/internal/sandbox/kube"
)

// What the control planes are, and what the kubelets of all pods are before a restart.
const (
	present = "1.32"
	behind  = "1.31"
)

// world is a pair of real clusters, of which green gets the pods.
type world struct {
	box   *sandbox.Sandbox
	green *cluster.Cluster
	// admin goes to green's API server directly.
	admin  kubernetes.Interface
	passed *passed
	// kubelets is the minor that Fargate gives new nodes of green.
	kubelets atomic.Pointer[string]
}

// quiet is a cluster of which the sandbox keeps no picture: to draw one of thousands of
// pods after every change would be most of what is measured.
type quiet struct{ *cluster.Cluster }

func (quiet) Snapshot() any   { return nil }
func (quiet) OnChange(func()) {}

// start brings the pair up, with next to nothing in it. Close closes it.
func start(ctx context.Context, dir string, r *result) (*world, error) {
	sc, err := sandbox.Load("hot")
	if err != nil {
		return nil, err
	}
	w := &world{}
	w.age(behind)
	for _, side := range []*sandbox.Cluster{&sc.Clusters.Blue, &sc.Clusters.Green} {
		side.Version, side.Workloads = present, nil
		side.Profiles = append(side.Profiles, sandbox.Profile{Name: "bench", Selectors: []sandbox.ProfileSelector{{Namespace: "bench-*"}}})
	}
	// Nothing but maxParallel is to bound the restart.
	sc.Quotas = sandbox.Quotas{VCPU: 100000, Burst: 100000}
	sc.Plan.MaxParallel = r.Parallel
	sc.Plan.Timeout = 2 * time.Hour
	sc.Durations.FargateStartup, sc.Durations.Jitter, sc.Durations.PodStop = r.Startup, 0, r.Stop
	w.box, err = sandbox.Start(ctx, sandbox.Options{
		Scenario: sc, Dir: filepath.Join(dir, "world"), Speed: 1,
		Kubernetes: func(ctx context.Context, k kube.Options) (sandbox.Kubernetes, error) {
			k.Fargate.Account = nil
			isGreen := k.Name == sc.Clusters.Green.Name
			if isGreen {
				k.Version = func() string { return *w.kubelets.Load() }
			}
			c, err := cluster.New(ctx, filepath.Join(dir, k.Name), k)
			if err != nil {
				return nil, err
			}
			if isGreen {
				w.green = c
			}
			return quiet{c}, nil
		},
	})
	if err != nil {
		return nil, err
	}
	if w.admin, err = kubernetes.NewForConfig(w.green.Plane().Config()); err != nil {
		return nil, errors.Join(err, w.close())
	}
	w.passed = watchPassed(w.box.Log())
	return w, nil
}

// age sets the minor of new kubelets of green, and what its API server says it is.
func (w *world) age(minor string) { w.kubelets.Store(&minor) }

func (w *world) close() error {
	if err := w.box.Close(); err != nil {
		return fmt.Errorf("end the clusters: %w", err)
	}
	return nil
}
