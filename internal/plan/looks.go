package plan

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/preflight"
	"github.com/eksbg/eksbg/internal/run"
	"github.com/eksbg/eksbg/internal/state"
)

// handedOn is for how long what was read of a cluster stands for reading it once more, as
// long as nothing was changed.
const handedOn = 30 * time.Second

// Looks reads the clusters of a pair for one process, and hands on what was read: the plan,
// the preflight, a step that begins and the summary at the end look at the same cluster one
// after the other, and a whole look is a dozen lists of thousands of objects. All methods
// are safe for concurrent use. Nobody may change an inventory that it gives.
type Looks struct {
	clock clock.PassiveClock
	read  map[state.Side]preflight.Inventory

	mu sync.Mutex
	// changes counts what was changed: a look that was begun before the newest change is
	// not handed on.
	changes int
	last    map[state.Side]look
	taken   map[state.Side]taken
}

// look is an inventory with the time at which it was begun.
type look struct {
	inv *cluster.Inventory
	at  time.Time
}

// taken is what the pods of a side take of Fargate.
type taken struct {
	milliCPU int
	fargate  bool
	// at is when it was last counted, or tried to.
	at time.Time
}

// NewLooks makes the looks of a process; read lists each side's cluster.
func NewLooks(clk clock.PassiveClock, read map[state.Side]preflight.Inventory) *Looks {
	return &Looks{clock: clk, read: read, last: map[state.Side]look{}, taken: map[state.Side]taken{}}
}

// Anew gives what lists a side's cluster afresh, every time.
func (l *Looks) Anew(side state.Side) preflight.Inventory {
	return func(ctx context.Context) (*cluster.Inventory, error) {
		l.mu.Lock()
		before, at := l.changes, l.clock.Now()
		delete(l.last, side)
		l.mu.Unlock()
		inv, err := l.read[side](ctx)
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.taken[side] = taken{MilliCPU(inv), UsesFargate(inv), at}
		if l.changes == before {
			l.last[side] = look{inv, at}
		}
		return inv, nil
	}
}

// Recent gives what hands on the newest list of a side's cluster where that was begun less
// than half a minute ago and nothing was changed since, and gives nil otherwise. It is not
// for whoever waits for something to happen in the cluster, or proves that it has.
func (l *Looks) Recent(side state.Side) func() *cluster.Inventory {
	return func() *cluster.Inventory {
		l.mu.Lock()
		defer l.mu.Unlock()
		last, ok := l.last[side]
		if age := l.clock.Since(last.at); !ok || age < 0 || age >= handedOn {
			return nil
		}
		return last.inv
	}
}

// Glance gives what hands on a recent list of a side's cluster, or lists it afresh.
func (l *Looks) Glance(side state.Side) preflight.Inventory {
	recent, anew := l.Recent(side), l.Anew(side)
	return func(ctx context.Context) (*cluster.Inventory, error) {
		if inv := recent(); inv != nil {
			return inv, nil
		}
		return anew(ctx)
	}
}

// First gives what is Glance the first time and Anew from then on: for a step that looks
// once and then waits for what it wants to see.
func (l *Looks) First(side state.Side) preflight.Inventory {
	glance, anew := l.Glance(side), l.Anew(side)
	var looked atomic.Bool
	return func(ctx context.Context) (*cluster.Inventory, error) {
		if looked.Swap(true) {
			return anew(ctx)
		}
		return glance(ctx)
	}
}

// used is what the pods of a side take of Fargate as last listed, whenever that was; it is
// listed where it never was.
func (l *Looks) used(ctx context.Context, side state.Side) (taken, error) {
	l.mu.Lock()
	t, ok := l.taken[side]
	l.mu.Unlock()
	if ok {
		return t, nil
	}
	at := l.clock.Now()
	inv, err := l.Anew(side)(ctx)
	if err != nil {
		return taken{}, err
	}
	return taken{MilliCPU(inv), UsesFargate(inv), at}, nil
}

const (
	// countedAnew is the shortest time between two counts of what a cluster takes, and
	// countLimit how long one may take.
	countedAnew = 10 * time.Minute
	countLimit  = time.Minute
)

// counted is used, but lists the side's cluster again where that was last done, or tried,
// ten minutes ago. Where that fails it gives what was counted last.
func (l *Looks) counted(ctx context.Context, side state.Side) (taken, error) {
	t, err := l.used(ctx, side)
	now := l.clock.Now()
	if err != nil || now.Sub(t.at) < countedAnew {
		return t, err
	}
	bounded, cancel := context.WithTimeout(ctx, countLimit)
	defer cancel()
	inv, err := l.read[side](bounded)
	switch {
	case ctx.Err() != nil:
		return taken{}, context.Cause(ctx)
	case aws.IsExpired(err):
		return taken{}, err
	case err == nil:
		t.milliCPU, t.fargate = MilliCPU(inv), UsesFargate(inv)
	}
	t.at = now
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken[side] = t
	return t, nil
}

// Changed says that something is changed now: nothing that was read before is handed on.
func (l *Looks) Changed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes++
	clear(l.last)
}

// changing is a step whose changes end the handing on of what was read before them.
type changing struct {
	run.Step
	looks *Looks
}

// Act lets the step act.
func (c *changing) Act(ctx context.Context, rec state.Recorder) error {
	return c.Step.Act(ctx, &changeRecorder{rec, c.looks})
}

// changeRecorder tells of each change when it begins and when it has ended.
type changeRecorder struct {
	state.Recorder
	looks *Looks
}

// Intent writes the intent of a change that is sent next.
func (r *changeRecorder) Intent(call, object string, detail, undo any) (int64, error) {
	r.looks.Changed()
	return r.Recorder.Intent(call, object, detail, undo)
}

// Outcome writes what came of a change.
func (r *changeRecorder) Outcome(intent int64, result state.Result, text string, detail any) error {
	r.looks.Changed()
	return r.Recorder.Outcome(intent, result, text, detail)
}

// Guard is asked before a change is sent again; see state.Guard.
func (r *changeRecorder) Guard(change string) error {
	r.looks.Changed()
	return state.Guard(r.Recorder, change)
}

// Unguarded is the recorder without any guard; see state.Unguarded.
func (r *changeRecorder) Unguarded() state.Recorder {
	return &changeRecorder{state.Unguarded(r.Recorder), r.looks}
}
