package cutover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/route53/types"

	eksaws "github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/state"
)

// How often one change is sent before it is believed to be impossible, and how long
// Route 53 is waited for.
const (
	maxSends = 3
	// inSyncPause is the longest pause between two GetChange calls.
	inSyncPause = 5 * time.Second
	// inSyncLimit is far beyond the minute that AWS names for a change to be in sync.
	inSyncLimit = 5 * time.Minute
	// inSyncBlind is how long a change without an id is waited for (semantics 8).
	inSyncBlind = 60 * time.Second
)

// journalError says that a record could not be made durable.
type journalError struct{ err error }

func (e *journalError) Error() string { return "write the journal: " + e.err.Error() }
func (e *journalError) Unwrap() error { return e.err }

// foreignError says that a mover's object is neither as before nor as after a change.
type foreignError struct {
	object string
	now    *view
}

func (e *foreignError) Error() string {
	return fmt.Sprintf("%s is neither as it was before the change nor as it should be after it: somebody else changed it", e.object)
}

// notInSync says that Route 53 has the weights and does not say that it serves them.
type notInSync struct{ object, handle string }

func (e *notInSync) Error() string {
	return fmt.Sprintf("%s: Route 53 took the weights %s ago and still does not say that all its servers have them (change %s)", e.object, inSyncLimit, e.handle)
}

// sent is a change that the API has taken.
type sent struct {
	mover  mover
	seq    int64
	change *change
	handle string
	// found is true when the answer was lost and the world shows the change.
	found bool
}

// begin journals a change and carries it out. Nothing to change gives nil.
func (s *Stage) begin(ctx context.Context, rec state.Recorder, m mover, w want) (*sent, error) {
	v, err := m.read(ctx)
	if err != nil {
		return nil, err
	}
	c, needed, err := m.propose(v, w)
	if err != nil || !needed {
		return nil, err
	}
	seq, err := rec.Intent(m.call(), m.object(), c, c.undo())
	var withheld *state.Withheld
	if errors.As(err, &withheld) {
		return nil, err
	}
	if err != nil {
		return nil, &journalError{err}
	}
	return s.carry(ctx, rec, m, seq, c)
}

// carry sends a journaled change until the world shows it (semantics 8). A lost
// answer, a refused batch and a world that changed under the call are all looked up:
// as after is done, as before is sent again, anything else is somebody else's.
func (s *Stage) carry(ctx context.Context, rec state.Recorder, m mover, seq int64, c *change) (*sent, error) {
	for sends := 1; ; sends++ {
		if sends > 1 {
			if err := state.Guard(rec, m.call()+" on "+m.object()); err != nil {
				return nil, err // the intent stays open
			}
		}
		handle, err := m.send(ctx, c)
		if err == nil {
			if err := rec.Outcome(seq, state.Accepted, "", receipt{Change: handle}); err != nil {
				return nil, &journalError{err}
			}
			return &sent{mover: m, seq: seq, change: c, handle: handle}, nil
		}
		if s.refused(err) {
			return nil, errors.Join(err, s.outcome(rec, seq, state.Rejected, eksaws.Message(err), nil))
		}
		at, now, lookErr := s.settle(ctx, m, c)
		if lookErr != nil {
			// The intent stays open: whoever comes next looks it up.
			return nil, fmt.Errorf("%w; and it could not be looked up whether the change was made: %w", err, lookErr)
		}
		switch {
		case at == asAfter:
			return &sent{mover: m, seq: seq, change: c, found: true}, nil
		case at == elsewhere:
			return nil, errors.Join(&foreignError{object: m.object(), now: now},
				s.outcome(rec, seq, unmade(err), "somebody else changed it: "+eksaws.Message(err), nil))
		case sends == maxSends:
			return nil, errors.Join(err, s.outcome(rec, seq, unmade(err), eksaws.Message(err), nil))
		}
	}
}

// unmade is the result of a change that the world does not show: rejected where the API
// or the comparison before the call said so, otherwise nobody knows.
func unmade(err error) state.Result {
	if eksaws.IsRejected(err) || errors.Is(err, errForeign) {
		return state.Rejected
	}
	return state.Unknown
}

// refused tells whether the API said that it will not do this, whatever the world looks
// like: nothing has changed then. An InvalidChangeBatch is no such answer, it may as
// well mean that the change is there already.
func (s *Stage) refused(err error) bool {
	var batch *types.InvalidChangeBatch
	if errors.As(err, &batch) {
		return false
	}
	return eksaws.IsRejected(err) || eksaws.IsExpired(err)
}

// outcome records what came of an intent.
func (s *Stage) outcome(rec state.Recorder, seq int64, result state.Result, text string, detail any) error {
	if err := rec.Outcome(seq, result, text, detail); err != nil {
		return &journalError{err}
	}
	return nil
}

// settle reads until the world is as after a change, for as long as a read may be
// stale; what is read last counts.
func (s *Stage) settle(ctx context.Context, m mover, c *change) (standing, *view, error) {
	deadline := s.d.Clock.Now().Add(s.d.ReadBack)
	for pause := firstPause; ; pause = longer(pause, readBackPause) {
		v, err := m.read(ctx)
		if err != nil {
			return elsewhere, nil, err
		}
		at := m.compare(v, c)
		if at == asAfter || !s.d.Clock.Now().Before(deadline) {
			return at, v, nil
		}
		if err := s.sleep(ctx, pause); err != nil {
			return elsewhere, nil, err
		}
	}
}

// finish reads a change back, waits until it has taken effect everywhere, and records
// its outcome.
func (s *Stage) finish(ctx context.Context, rec state.Recorder, x *sent) error {
	if !x.found {
		at, now, err := s.settle(ctx, x.mover, x.change)
		if err != nil {
			return fmt.Errorf("read back %s: %w", x.mover.object(), err)
		}
		if at != asAfter {
			err := error(&foreignError{object: x.mover.object(), now: now})
			if at == asBefore {
				err = fmt.Errorf("%s: the change was taken, and %s later it is still not there", x.mover.object(), s.d.ReadBack)
			}
			return errors.Join(err, s.outcome(rec, x.seq, state.Failed, "not found by reading back", nil))
		}
	}
	got := receipt{Change: x.handle}
	if x.mover.confirms() {
		var err error
		if got.InSync, err = s.inSync(ctx, rec, x); err != nil {
			return err
		}
	}
	result := state.Succeeded
	if x.found {
		result = state.Found
	}
	text := ""
	if got.InSync != "" && got.InSync != verified {
		text = "INSYNC is unverified: " + got.InSync
	}
	return s.outcome(rec, x.seq, result, text, got)
}

const verified = "verified"

// inSync waits until Route 53 says that all its servers answer with the change, or for
// a minute where it cannot be asked (semantics 8).
func (s *Stage) inSync(ctx context.Context, rec state.Recorder, x *sent) (string, error) {
	begun := s.d.Clock.Now()
	if x.handle == "" {
		rec.Waiting("Route 53: the id of the change is lost, waiting " + s.d.Blind.String())
		return "the id of the change is lost", s.sleep(ctx, s.d.Blind)
	}
	for pause := firstPause; ; pause = longer(pause, inSyncPause) {
		pending, err := x.mover.pending(ctx, x.handle)
		switch {
		case err != nil && unknowable(err):
			rec.Waiting("Route 53 does not tell about change " + x.handle + ", waiting " + s.d.Blind.String())
			return eksaws.Message(err), s.sleep(ctx, s.d.Blind)
		case err != nil:
			return "", err
		case !pending:
			return verified, nil
		}
		waited := s.d.Clock.Since(begun)
		if waited >= inSyncLimit {
			return "", &notInSync{object: x.mover.object(), handle: x.handle}
		}
		rec.Waiting(fmt.Sprintf("Route 53 in sync, %s of about a minute", waited.Round(time.Second)))
		if err := s.sleep(ctx, pause); err != nil {
			return "", err
		}
	}
}
