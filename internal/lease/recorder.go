package lease

import (
	"context"

	"github.com/eksbg/eksbg/internal/state"
)

// Recorder gives rec with a guard in front of its intents: a change is only written
// down, and so only made, under the lock. An intent that the lock does not allow ends
// with *state.Withheld. ctx bounds the wait for an overdue renewal.
func (l *Lock) Recorder(ctx context.Context, rec state.Recorder) state.Recorder {
	return &guarded{Recorder: rec, ctx: ctx, lock: l}
}

type guarded struct {
	state.Recorder
	ctx  context.Context
	lock *Lock
}

// Intent waits for the lock and writes the intent.
func (g *guarded) Intent(call, object string, detail, undo any) (int64, error) {
	if err := g.Guard(call + " on " + object); err != nil {
		return 0, err
	}
	return g.Recorder.Intent(call, object, detail, undo)
}

// Guard waits for the lock before a change of an open intent is sent again; see
// state.Guard.
func (g *guarded) Guard(change string) error {
	if err := g.lock.Guard(g.ctx, g.Waiting); err != nil {
		return &state.Withheld{Change: change, Err: err}
	}
	return nil
}

// Unguarded is the recorder without the guard; see state.Unguarded.
func (g *guarded) Unguarded() state.Recorder { return g.Recorder }
