package plan

import (
	"context"
	"fmt"
	"net"
	"slices"

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
		Kubernetes: c.Kubernetes(), Dynamic: c.Dynamic(), Dial: c.DialPod, Clock: b.Clock, History: b.History,
		Inventory: b.looks().Anew(spec.Side), Recent: b.looks().Recent(spec.Side),
		MaxParallel: r.MaxParallel, Order: r.Order, Timeout: r.Timeout.D(), Skips: r.Skip, Allow: r.Allow,
		Live:    spec.Phase == state.PhaseRestartLive,
		Resolve: r.Resolve, CronJobs: r.CronJobs, JobTimeout: r.JobTimeout.D(), Pending: r.Pending.D(),
	}
	if b.Sources.Room != nil {
		d.Room = func(ctx context.Context, use restart.Use) (fargate.Room, error) { return b.roomOf(ctx, spec.Side, use) }
	}
	if d.Live {
		return restart.New(spec, d), nil
	}
	standby := restart.New(spec, d)
	return &standbyRestart{spec: spec, b: b, build: func(live bool) run.Step {
		if !live {
			return standby
		}
		d.Live = true
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
		Kubernetes: c.Kubernetes(), Inventory: b.looks().Anew(spec.Side), Recent: b.looks().Recent(spec.Side), Clock: b.Clock, History: b.History,
		Age: r.FinishedAge.D(), Timeout: r.Timeout.D(), Polling: b.File.Upgrade.Polling.D(),
	}), nil
}

// looks are what the clusters are read with; without those of the process the steps of a
// run share some of their own.
func (b *Builder) looks() *Looks {
	b.own.Do(func() {
		if b.Looks == nil {
			b.Looks = NewLooks(b.Clock, b.Inventories)
		}
	})
	return b.Looks
}

// identities read of each side what tells whether it is the plan's cluster: from a recent
// look where there is one, otherwise from EKS alone.
func (b *Builder) identities() map[state.Side]preflight.Inventory {
	out := map[state.Side]preflight.Inventory{}
	for _, side := range state.Sides {
		out[side] = func(ctx context.Context) (*cluster.Inventory, error) {
			described := b.Described[side]
			if described == nil || b.looks().Recent(side)() != nil {
				return b.looks().Glance(side)(ctx)
			}
			return described(ctx)
		}
	}
	return out
}

// takenBy is what a side takes of Fargate, as read says.
func takenBy(ctx context.Context, side state.Side, read func(context.Context, state.Side) (taken, error)) (taken, error) {
	t, err := read(ctx, side)
	if err != nil {
		return taken{}, fmt.Errorf("count the pods of %s against the vCPU quota: %w", side, err)
	}
	return t, nil
}

// roomOf reads what Fargate has left for a side. Both sides count against the quota; one
// that lies in another account makes the room look smaller than it is, which delays and
// breaks nothing. The side itself says what it uses; the other one is counted again, not
// often, while the quota is short.
func (b *Builder) roomOf(ctx context.Context, side state.Side, use restart.Use) (fargate.Room, error) {
	used, read := use.MilliCPU, b.looks().used
	if use.Short {
		read = b.looks().counted
	}
	for _, other := range state.Sides {
		if other == side {
			continue
		}
		t, err := takenBy(ctx, other, read)
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
	t, err := takenBy(ctx, side, b.looks().used)
	if err != nil || !t.fargate {
		return nil, err
	}
	room, err := b.roomOf(ctx, side, restart.Use{MilliCPU: t.milliCPU})
	if err != nil {
		return nil, err
	}
	if f, ok := RoomFinding(room, side); ok {
		return []state.Finding{f}, nil
	}
	return nil, nil
}
