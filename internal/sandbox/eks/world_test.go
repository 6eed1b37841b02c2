package eks_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eksbg/eksbg/internal/sandbox/eks"
)

// world notes what it is asked for. Its subnets are "subnet-ZONE" of "vpc-1", and
// "other-ZONE" of "vpc-2".
type world struct {
	mu    sync.Mutex
	heard []string
	ails  []eks.Issue
	// nodes answers what SetNodes could not do; start fails StartCluster.
	nodes func(context.Context, eks.NodegroupWork) []eks.UpdateError
	start error
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = append(w.heard, fmt.Sprintf(format, args...))
}

// told is what the world was asked for since the last time.
func (w *world) told() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.heard
	w.heard = nil
	return out
}

func (w *world) Subnet(id string) (string, string, bool) {
	of, zone, ok := strings.Cut(id, "-")
	return map[string]string{"subnet": "vpc-1", "other": "vpc-2"}[of], zone, ok && (of == "subnet" || of == "other")
}

func (w *world) StartCluster(_ context.Context, c eks.Cluster, selfManaged bool) (string, []byte, error) {
	w.note("start %s %s self-managed=%t", c.Name, c.Version, selfManaged)
	return "https://127.0.0.1:1", []byte("PEM"), w.start
}

func (w *world) StopCluster(cluster string) { w.note("stop %s", cluster) }

func (w *world) SetProfiles(cluster string, ps []eks.FargateProfile) {
	var names []string
	for _, p := range ps {
		names = append(names, p.Name)
	}
	w.note("profiles of %s: %v", cluster, names)
}

func (w *world) DropPods(cluster, profile string) { w.note("drop pods of %s/%s", cluster, profile) }

func (w *world) InstallAddon(cluster, addon, version string) {
	w.note("install %s/%s %s", cluster, addon, version)
}

func (w *world) RemoveAddon(cluster, addon string) { w.note("remove %s/%s", cluster, addon) }

func (w *world) AddonIssues(string, string) []eks.Issue {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ails
}

func (w *world) SetNodes(ctx context.Context, work eks.NodegroupWork) []eks.UpdateError {
	g := work.Nodegroup
	labels := slices.Sorted(maps.Keys(g.Labels))
	w.note("nodes of %s/%s: %d at %s %v %v replace=%t force=%t", work.Cluster, g.Name, g.Desired, g.Version, labels, g.Taints, work.Replace, work.Force)
	if w.nodes == nil {
		return nil
	}
	return w.nodes(ctx, work)
}

// newWorld is a rig whose blue cluster has subnets of the world and node groups.
func newWorld(t *testing.T, edit func(*eks.Options), groups ...eks.Nodegroup) (*rig, *world) {
	t.Helper()
	w := &world{}
	r := newRig(t, func(o *eks.Options) {
		o.World = w
		o.Create, o.Delete, o.Profile = 9*time.Minute, 3*time.Minute, time.Minute
		o.Nodegroup, o.NodegroupConfig, o.AutoNodes = 6*time.Minute, 20*time.Second, 30*time.Minute
		if edit != nil {
			edit(o)
		}
	})
	err := r.svc.AddCluster(eks.Cluster{
		Name: "green", Version: "1.32", UpgradedAt: start.Add(-24 * time.Hour), VPC: "vpc-1", Subnets: []string{"subnet-a", "subnet-b"}, Nodegroups: groups,
		Addons: []eks.Addon{{Name: "coredns"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

// eventually polls until it holds: what the world does is done beside the service.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for {
		if holds() {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: never", what)
		case <-poll.C:
		}
	}
}

var errStart = errors.New("no port is free")
