package cutover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	eksaws "github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/state"
)

const (
	// backAllowance is what credentials must outlast beside hold and gates: reading the
	// weights back and a put-back that waits for Route 53.
	backAllowance = 5 * time.Minute
	// attachPatience is how long a target group that was just put on its listener may
	// take to get healthy, where the plan file's patience is shorter.
	attachPatience = 10 * time.Minute
	// pollPause is the longest pause between two looks at health or weights.
	pollPause = 15 * time.Second
)

// gateFailed is the verdict against a stage.
type gateFailed struct{ evaluation }

func (e *gateFailed) Error() string { return e.text(state.GateFail) }

// moveError says which object could not be moved.
type moveError struct {
	object  string
	percent int
	err     error
}

func (e *moveError) Error() string {
	return fmt.Sprintf("%s could not be moved to %d %%: %s", e.object, e.percent, eksaws.Message(e.err))
}

func (e *moveError) Unwrap() error { return e.err }

// Act brings the destination to its share and watches it there. It returns nil when
// every gate has passed after the hold, and otherwise a *state.Stop that says where
// the traffic is: 3 somebody else changed the weights, 4 a gate without an answer, 5
// put back, 9 not where it should be, 130 interrupted.
func (s *Stage) Act(ctx context.Context, rec state.Recorder) error {
	sc, err := s.scene(ctx)
	if err != nil {
		return err
	}
	if sc.ledger.due != "" {
		return s.goBack(ctx, rec, &retreat{why: sc.ledger.due, code: state.ExitPutBack, known: true, failed: s.recalled(sc.ledger.notes)})
	}
	if err := s.advance(ctx, rec, sc); err != nil {
		return s.conclude(ctx, rec, err)
	}
	return nil
}

func (s *Stage) advance(ctx context.Context, rec state.Recorder, sc *scene) error {
	if err := s.resume(ctx, rec, sc); err != nil {
		return err
	}
	sc, r, err := s.undisturbed(ctx, rec)
	if err != nil {
		return err
	}
	if err := s.credentials(ctx, rec, r); err != nil {
		return err
	}
	if !r.reached(s.d.Destination, s.spec.Percent) {
		if err := s.prepare(ctx, rec, sc, r); err != nil {
			return err
		}
		if err := s.askBefore(ctx, rec, r); err != nil {
			return err
		}
		// Getting healthy and asking gates took their time: the credentials may not last
		// any more (semantics 13), and somebody may have changed the weights meanwhile.
		if sc, r, err = s.undisturbed(ctx, rec); err != nil {
			return err
		}
		if _, _, err := s.outlasting(ctx, r); err != nil {
			return err
		}
		if err := s.shift(ctx, rec, sc); err != nil {
			return err
		}
	}
	sc, r, err = s.recordWeights(ctx, rec)
	if err != nil {
		return err
	}
	if err := s.hold(ctx, rec, sc, r); err != nil {
		return err
	}
	return s.verdict(ctx, rec, sc, r)
}

// undisturbed reads journal and weights anew and stops when the weights are not what
// this run made of them.
func (s *Stage) undisturbed(ctx context.Context, rec state.Recorder) (*scene, *reading, error) {
	sc, err := s.scene(ctx)
	if err != nil {
		return nil, nil, err
	}
	r, who, err := s.lookTwice(ctx, sc)
	switch {
	case err != nil:
		return nil, nil, err
	case who != "" && s.backAlready(sc, r):
		// A stop all the same, and one that asks for a new approval (semantics 16).
		return nil, nil, s.isBack(s.tolerant(rec), r, &retreat{why: backByOthers, code: state.ExitPutBack})
	case who != "":
		return nil, nil, &state.Stop{Code: state.ExitBlocked, Why: "somebody else changed the weights: " + who, Cure: s.foreignCure(sc, r)}
	}
	return sc, r, nil
}

// resume finds out what came of changes that a process before this one began, and
// finishes those that were taken.
func (s *Stage) resume(ctx context.Context, rec state.Recorder, sc *scene) error {
	for _, m := range sc.movers {
		e := sc.ledger.last(m.targets())
		if e == nil || e.moot {
			continue
		}
		x := &sent{mover: m, seq: e.seq, change: &e.change, handle: e.handle}
		switch {
		case e.result == state.Accepted:
		case e.open():
			found, err := s.lookUp(ctx, rec, x)
			if err != nil || !found {
				if err != nil {
					return err
				}
				continue
			}
		default:
			continue
		}
		err := s.finish(ctx, rec, x)
		var foreign *foreignError
		if errors.As(err, &foreign) {
			return s.foreignStop(m, foreign.now, x.change)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lookUp holds an open intent against the world (semantics 8). One that never arrived
// is closed; what it was for is done anew, with everything that comes before it.
func (s *Stage) lookUp(ctx context.Context, rec state.Recorder, x *sent) (found bool, err error) {
	rec.Waiting("looking up what came of " + x.mover.call() + " " + x.mover.object())
	at, now, err := s.settle(ctx, x.mover, x.change)
	if err != nil {
		return false, fmt.Errorf("look up what came of the change of %s: %w", x.mover.object(), err)
	}
	switch at {
	case asAfter:
		x.found = true
		return true, nil
	case asBefore:
		return false, s.outcome(rec, x.seq, state.Rejected, "it never arrived: everything is as it was before it", nil)
	}
	if err := s.outcome(rec, x.seq, state.Unknown, "somebody else changed it meanwhile", nil); err != nil {
		return false, err
	}
	return false, s.foreignStop(x.mover, now, x.change)
}

// foreignStop asks what to do about a change of somebody else.
func (s *Stage) foreignStop(m mover, now *view, c *change) *state.Stop {
	stop := &state.Stop{Code: state.ExitBlocked, Why: (&foreignError{object: m.object()}).Error()}
	if now != nil {
		stop.Why += "; now " + s.weights(now.shares)
	}
	stop.Cure = "look who changed it (AWS CloudTrail has it); to have it as this run set it:\n"
	for _, line := range m.commands(now, c) {
		stop.Cure += "  " + line + "\n"
	}
	stop.Cure += "then run the same command again"
	return stop
}

// shift moves all targets, each with a record of its own, and then waits until all of
// the moves have taken effect.
func (s *Stage) shift(ctx context.Context, rec state.Recorder, sc *scene) error {
	w := want{purpose: shift, dest: s.d.Destination, percent: s.spec.Percent}
	var taken []*sent
	for _, m := range sc.movers {
		x, err := s.begin(ctx, rec, m, w)
		if err != nil {
			return &moveError{object: m.object(), percent: s.spec.Percent, err: err}
		}
		if x != nil {
			taken = append(taken, x)
		}
	}
	for _, x := range taken {
		if err := s.finish(ctx, rec, x); err != nil {
			return &moveError{object: x.mover.object(), percent: s.spec.Percent, err: err}
		}
	}
	return nil
}

// unwatched says where the traffic is, and that nobody looks after it.
func (s *Stage) unwatched(shares []state.Share) string {
	return s.weights(shares) + ". Nobody watches these weights"
}

// record appends a record and marks the error of a journal that could not take it.
func (s *Stage) record(rec state.Recorder, r state.Record) error {
	if err := rec.Record(r); err != nil {
		return &journalError{err}
	}
	return nil
}

func detail(v any) json.RawMessage {
	out, err := json.Marshal(v)
	if err != nil {
		// Only this package's own structs of strings come here.
		panic(fmt.Sprintf("marshal a detail: %v", err))
	}
	return out
}

// final tells whether an error of a read ends the stage, rather than being asked again:
// an interrupt, credentials that are over, a deliberate stop.
func (s *Stage) final(ctx context.Context, err error) bool {
	var stop *state.Stop
	return ctx.Err() != nil || eksaws.IsExpired(err) || errors.As(err, &stop)
}

// isInterrupt tells whether an error comes from the cancelled context itself.
func isInterrupt(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Cause(ctx)))
}
