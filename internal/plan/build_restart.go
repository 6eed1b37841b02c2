package plan

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/fargate"
	"github.com/eksbg/eksbg/internal/preflight"
	"github.com/eksbg/eksbg/internal/restart"
	"github.com/eksbg/eksbg/internal/run"
	"github.com/eksbg/eksbg/internal/state"
)

// Cluster is a side's API server as a restart needs it.
type Cluster interface {
	Kubernetes() kubernetes.Interface
	// Dynamic reaches custom resources.
	Dynamic() dynamic.Interface
	// DialPod opens a connection to a port of a pod through the API server.
	DialPod(ctx context.Context, namespace, pod string, port int) (net.Conn, error)
}

func (b *Builder) restartStep(ctx context.Context, spec state.StepSpec) (run.Step, error) {
	c, err := b.Open(ctx, spec.Side)
	if err != nil {
		return nil, err
	}
	r := b.File.Restart
	d := restart.Deps{
		Kubernetes: c.Kubernetes(), Dynamic: c.Dynamic(), Dial: c.DialPod, Inventory: b.inventory(spec.Side), Clock: b.Clock, History: b.History,
		MaxParallel: r.MaxParallel, Order: r.Order, Timeout: r.Timeout.D(), Skips: r.Skip, Allow: r.Allow,
		Live:    spec.Phase == state.PhaseRestartLive,
		Resolve: r.Resolve, CronJobs: r.CronJobs, JobTimeout: r.JobTimeout.D(), Pending: r.Pending.D(),
	}
	if b.Sources.Room != nil {
		d.Room = func(ctx context.Context) (fargate.Room, error) { return b.roomOf(ctx, spec.Side) }
	}
	if d.Live {
		return restart.New(spec, d), nil
	}
	return &standbyRestart{spec: spec, b: b, build: func(live bool) run.Step {
		d.Live = live
		return restart.New(spec, d)
	}}, nil
}

func (b *Builder) jobsStep(ctx context.Context, spec state.StepSpec) (run.Step, error) {
	c, err := b.Open(ctx, spec.Side)
	if err != nil {
		return nil, err
	}
	r := b.File.Restart
	return restart.NewJobs(spec, restart.JobsDeps{
		Kubernetes: c.Kubernetes(), Inventory: b.inventory(spec.Side), Clock: b.Clock, History: b.History,
		Age: r.FinishedAge.D(), Timeout: r.Timeout.D(), Polling: b.File.Upgrade.Polling.D(),
	}), nil
}

// usage remembers what the pods of each side take of Fargate, as last listed, so that
// reading its room lists nothing once more.
type usage struct {
	mu   sync.Mutex
	side map[state.Side]taken
}

type taken struct {
	milliCPU int
	fargate  bool
}

func (u *usage) set(side state.Side, inv *cluster.Inventory) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.side == nil {
		u.side = map[state.Side]taken{}
	}
	u.side[side] = taken{MilliCPU(inv), UsesFargate(inv)}
}

// takenBy is what a side takes; it is listed where it never was.
func (b *Builder) takenBy(ctx context.Context, side state.Side) (taken, error) {
	b.usage.mu.Lock()
	t, ok := b.usage.side[side]
	b.usage.mu.Unlock()
	if ok {
		return t, nil
	}
	inv, err := b.inventory(side)(ctx)
	if err != nil {
		return taken{}, fmt.Errorf("count the pods of %s against the vCPU quota: %w", side, err)
	}
	return taken{MilliCPU(inv), UsesFargate(inv)}, nil
}

// inventory reads a side and remembers what it uses.
func (b *Builder) inventory(side state.Side) preflight.Inventory {
	return func(ctx context.Context) (*cluster.Inventory, error) {
		inv, err := b.Inventories[side](ctx)
		if err == nil {
			b.usage.set(side, inv)
		}
		return inv, err
	}
}

// inventories are those of both sides, remembered.
func (b *Builder) inventories() map[state.Side]preflight.Inventory {
	return map[state.Side]preflight.Inventory{state.Blue: b.inventory(state.Blue), state.Green: b.inventory(state.Green)}
}

// roomOf reads what Fargate has left for a side. Both sides count against the quota; one
// that lies in another account makes the room look smaller than it is, which delays and
// breaks nothing.
func (b *Builder) roomOf(ctx context.Context, side state.Side) (fargate.Room, error) {
	used := 0
	for _, other := range state.Sides {
		t, err := b.takenBy(ctx, other)
		if err != nil {
			return fargate.Room{}, err
		}
		used += t.milliCPU
	}
	return b.Sources.Room(ctx, side, used)
}

// roomChecks look, before the first change, whether Fargate's room can be read for the
// sides that have a restart.
func (b *Builder) roomChecks() []preflight.Check {
	if b.Sources.Room == nil {
		return nil
	}
	var out []preflight.Check
	for _, side := range state.Sides {
		if slices.ContainsFunc(b.Plan.Steps, func(s state.StepSpec) bool { return s.Kind == state.KindRestart && s.Side == side }) {
			out = append(out, preflight.Check{Name: "room on Fargate in " + string(side), Run: func(ctx context.Context) ([]state.Finding, error) {
				return b.checkRoom(ctx, side)
			}})
		}
	}
	return out
}

func (b *Builder) checkRoom(ctx context.Context, side state.Side) ([]state.Finding, error) {
	if t, err := b.takenBy(ctx, side); err != nil || !t.fargate {
		return nil, err
	}
	room, err := b.roomOf(ctx, side)
	if err != nil {
		return nil, err
	}
	if f, ok := RoomFinding(room, side); ok {
		return []state.Finding{f}, nil
	}
	return nil, nil
}
