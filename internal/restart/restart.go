// Package restart gives the pods of a cluster new kubelets: what package survey says
// about the owner of every pod whose node lags behind the control plane is done here, by
// one state machine for each method, a bounded number of owners at a time.
//
// It believes neither the answer to a change nor a controller's own status alone: an
// owner is done when every unfinished pod of it sits on a node at the wanted minor, and
// the step when a fresh list shows that of all pods (semantics 10 and 11).
//
// Everything that is changed is in the journal first, with what recognises it later, so
// a process that was killed is resumed without restarting anything twice. What is changed
// for the time of the restart only (replicas, deletion costs, suspended CronJobs) is
// marked on the object and put back however an Act ends, and by the next one after a
// crash.
//
// One list and one watch of each resource serve the whole restart; an event makes only
// the owner that it concerns be looked at.
package restart

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/fargate"
	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

// The defaults of Deps.
const (
	DefaultTimeout    = 15 * time.Minute
	DefaultGrace      = 30 * time.Second
	DefaultHeartbeat  = 15 * time.Second
	DefaultJobTimeout = time.Hour
	DefaultPending    = 5 * time.Minute
)

// Deps is what the step works with.
type Deps struct {
	// Kubernetes is watched and patched.
	Kubernetes kubernetes.Interface
	// Inventory reads the whole cluster anew; what it gives is believed over the watches.
	Inventory func(context.Context) (*cluster.Inventory, error)
	// Recent gives what was last read of the cluster, by whomever, where that is not long
	// ago and nothing was changed since, and nil otherwise; may be nil. The step begins with
	// such a look where there is one; that it is done it tells from a list of its own alone.
	Recent  func() *cluster.Inventory
	Clock   clock.Clock
	History state.History
	// MaxParallel bounds how many workloads roll at once; less than 1 counts as 1.
	MaxParallel int
	// Order are the namespaces to begin with, after CoreDNS.
	Order []string
	// Timeout bounds one rollout; 0 is DefaultTimeout.
	Timeout time.Duration
	// Skips are the owners that the plan file leaves lagging for now, Allow what it lets
	// be done to owners that no rollout moves.
	Skips []planfile.Skip
	Allow []planfile.Allow
	// Live is true where the cluster gets traffic: outages need a consent by name then.
	Live bool
	// Dynamic reaches custom resources (Argo Rollouts); nil: they count as unreachable.
	Dynamic dynamic.Interface
	// Dial opens a connection to a port of a pod; each new CoreDNS pod is asked for
	// Resolve through it. Resolve "" or "off", or no Dial, asks none.
	Dial    func(ctx context.Context, namespace, pod string, port int) (net.Conn, error)
	Resolve string
	// CronJobs is what is done to CronJobs meanwhile: "suspend" holds them and puts them
	// back; everything else leaves them alone.
	CronJobs string
	// JobTimeout bounds the wait for running Jobs; 0 is DefaultJobTimeout.
	JobTimeout time.Duration
	// Pending is how long a pod may wait for the Fargate scheduler before it is made
	// anew, at most three times for one owner; 0 is DefaultPending.
	Pending time.Duration
	// Room reads what the cluster's Fargate profiles have room for; nil bounds nothing. It
	// is called beside the step's other work, once at a time.
	Room func(context.Context, Use) (fargate.Room, error)
	// Grace is how long a container may fail to start (image pull, first crashes)
	// before the run stops; 0 is DefaultGrace.
	Grace time.Duration
	// Heartbeat is how often progress is said when nothing changes; 0 is DefaultHeartbeat.
	Heartbeat time.Duration
}

// Use is what a restart tells of the vCPU quota of Fargate when it asks for room.
type Use struct {
	// MilliCPU is what the cluster's pods take of it now, without what the restart itself
	// has started for the time of a rollout and counts as its own.
	MilliCPU int
	// Short is true where, as last read, it leaves too little for something that waits.
	Short bool
}

// Restart is the step that rolls every workload with a lagging pod.
type Restart struct {
	spec state.StepSpec
	Deps
	// own is what the step itself has listed last; a wave lets go of it.
	own *cluster.Inventory
}

// New makes the step. spec.To is the minor that the kubelets must have, the control
// plane's at that point of the plan; empty means the control plane's at the time.
func New(spec state.StepSpec, d Deps) *Restart {
	d.MaxParallel = max(1, d.MaxParallel)
	if d.Timeout <= 0 {
		d.Timeout = DefaultTimeout
	}
	if d.Grace <= 0 {
		d.Grace = DefaultGrace
	}
	if d.JobTimeout <= 0 {
		d.JobTimeout = DefaultJobTimeout
	}
	if d.Pending <= 0 {
		d.Pending = DefaultPending
	}
	if d.Heartbeat <= 0 {
		d.Heartbeat = DefaultHeartbeat
	}
	if d.Recent == nil {
		d.Recent = func() *cluster.Inventory { return nil }
	}
	return &Restart{spec: spec, Deps: d}
}

// Spec is the step as data.
func (r *Restart) Spec() state.StepSpec { return r.spec }

// Observe looks at the cluster. It is Done when a list of the step's own shows that no
// unfinished pod lags that the plan file does not skip, and every workload that the step
// has restarted is whole again; Blocked when only owners remain that no rollout restart
// reaches.
func (r *Restart) Observe(ctx context.Context) (state.Observation, error) {
	inv, err := r.glance(ctx)
	if err != nil {
		return state.Observation{}, err
	}
	obs := r.observe(inv)
	if obs.Status != state.Done || inv == r.own {
		return obs, nil
	}
	if inv, err = r.inventory(ctx); err != nil {
		return state.Observation{}, err
	}
	return r.observe(inv), nil
}

func (r *Restart) observe(inv *cluster.Inventory) state.Observation {
	l := r.look(inv, readLedger(r.History.Records(r.spec.ID), nil), nil)
	if stop := l.behind(); stop != nil {
		return state.Observation{Status: state.Blocked, Reason: stop.Why, Cure: stop.Cure}
	}
	switch {
	case l.busy(), l.owed > 0:
		return state.Observation{Status: state.Ready, Reason: l.todo()}
	case len(l.stuck) > 0:
		stop := l.blocked()
		return state.Observation{Status: state.Blocked, Reason: flat.Replace(stop.Why), Cure: stop.Cure}
	}
	return state.Observation{Status: state.Done, Reason: l.done()}
}

// flat makes a list one line.
var flat = strings.NewReplacer(":\n  ", ": ", "\n  ", "; ")

// inventory lists the cluster.
func (r *Restart) inventory(ctx context.Context) (*cluster.Inventory, error) {
	r.own = nil
	inv, err := r.Inventory(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the pods of %s: %w", r.spec.Side, err)
	}
	r.own = inv
	return inv, nil
}

// glance gives a recent look of anybody's, or lists the cluster.
func (r *Restart) glance(ctx context.Context) (*cluster.Inventory, error) {
	if inv := r.Recent(); inv != nil {
		return inv, nil
	}
	return r.inventory(ctx)
}
