package cutover

import (
	"context"
	"fmt"
	"slices"
	"time"

	eksaws "github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/state"
)

// recordWeights reads the weights that were just set, or found in place, and journals
// them.
func (s *Stage) recordWeights(ctx context.Context, rec state.Recorder) (*scene, *reading, error) {
	// Anew, so that it knows when the last change was.
	sc, err := s.scene(ctx)
	if err != nil {
		return nil, nil, err
	}
	r, err := s.lookUntil(ctx, sc, func(r *reading) bool { return r.reached(s.d.Destination, s.spec.Percent) })
	if err != nil {
		return nil, nil, err
	}
	if !r.reached(s.d.Destination, s.spec.Percent) {
		return nil, nil, &state.Stop{Code: state.ExitBlocked,
			Why:  "somebody else changed the weights right after they were set: now " + s.unwatched(r.shares),
			Cure: s.foreignCure(sc, r)}
	}
	return sc, r, s.record(rec, state.Record{Kind: state.RecordTraffic, Text: s.weights(r.shares), Traffic: r.shares})
}

// hold watches the weights and the gates for the time of the hold.
func (s *Stage) hold(ctx context.Context, rec state.Recorder, sc *scene, set *reading) error {
	begun := s.d.Clock.Now()
	told := map[string]string{}
	var blind time.Time
	for first := true; ; first = false {
		changed, err := s.changed(ctx, sc, set)
		switch {
		case err == nil:
			blind = time.Time{}
		case s.final(ctx, err):
			return err
		default:
			if blind.IsZero() {
				blind = s.d.Clock.Now()
			}
			if s.d.Clock.Since(blind) >= s.d.Patience {
				return s.noAnswer("the weights cannot be read: "+eksaws.Message(err), set)
			}
		}
		if changed != nil {
			return changed
		}
		e, err := s.evaluate(ctx, duringHold, set, first && s.earlyProbe())
		if err != nil {
			return err
		}
		if err := s.recordNews(rec, e, told); err != nil {
			return err
		}
		if e.verdict() == state.GateFail {
			return &gateFailed{e}
		}
		left := s.d.Hold - s.d.Clock.Since(begun)
		if left <= 0 {
			return nil
		}
		rec.Waiting(fmt.Sprintf("holding %d %%, %s of %s", s.spec.Percent, (s.d.Hold - left).Round(time.Second), s.d.Hold))
		if err := s.sleep(ctx, min(left, s.holdPause())); err != nil {
			return err
		}
	}
}

func (s *Stage) holdPause() time.Duration {
	return min(max(s.d.Hold/20, firstPause), pollPause)
}

// changed compares the weights with those that were set, and asks when somebody else
// has changed them.
func (s *Stage) changed(ctx context.Context, sc *scene, set *reading) (*state.Stop, error) {
	r, err := s.lookUntil(ctx, sc, func(r *reading) bool { return slices.Equal(r.shares, set.shares) })
	if err != nil {
		return nil, err
	}
	for i := range r.shares {
		if r.shares[i] != set.shares[i] {
			return &state.Stop{Code: state.ExitBlocked,
				Why: fmt.Sprintf("somebody else changed the weights during the hold: %s has blue %d, green %d instead of blue %d, green %d; now %s",
					r.shares[i].Target, r.shares[i].Blue, r.shares[i].Green, set.shares[i].Blue, set.shares[i].Green, s.unwatched(r.shares)),
				Cure: s.foreignCure(sc, r)}, nil
		}
	}
	return nil, nil
}

// verdict asks all gates after the hold until they have an answer, for as long as the
// plan file has patience (semantics 16), and journals the stage's verdict.
func (s *Stage) verdict(ctx context.Context, rec state.Recorder, sc *scene, set *reading) error {
	begun := s.d.Clock.Now()
	for pause := firstPause; ; pause = longer(pause, pollPause) {
		e, err := s.evaluate(ctx, afterHold, set, true)
		if err != nil {
			return err
		}
		if err := s.recordGates(rec, e); err != nil {
			return err
		}
		changed, lookErr := s.changed(ctx, sc, set)
		if changed != nil {
			return changed
		}
		verdict := e.verdict()
		if verdict == state.GateFail {
			return &gateFailed{e}
		}
		if verdict == state.GatePass && lookErr == nil {
			return s.record(rec, state.Record{Kind: state.RecordGate, Text: s.passText(), Gate: &state.GateResult{
				Gate: stageGate, Target: s.spec.ID, Percent: s.spec.Percent, Verdict: state.GatePass, Text: s.passText()}})
		}
		why := e.text(state.GateUnknown)
		if lookErr != nil {
			if s.final(ctx, lookErr) {
				return lookErr
			}
			why = "the weights cannot be read: " + eksaws.Message(lookErr)
		}
		left := s.d.Patience - s.d.Clock.Since(begun)
		if left <= 0 {
			return s.noAnswer(why, set)
		}
		rec.Waiting("no verdict yet: " + why)
		if err := s.sleep(ctx, min(left, pause)); err != nil {
			return err
		}
	}
}

func (s *Stage) passText() string {
	if len(s.d.Gates) == 0 {
		return fmt.Sprintf("%d %% held for %s, no gates", s.spec.Percent, s.d.Hold)
	}
	return fmt.Sprintf("%d %% held for %s, all gates pass", s.spec.Percent, s.d.Hold)
}

// noAnswer is the stop of a gate without a verdict: the weights stay (semantics 16).
func (s *Stage) noAnswer(why string, set *reading) *state.Stop {
	return &state.Stop{Code: state.ExitResumable,
		Why:  fmt.Sprintf("no verdict after %s: %s\n%s", s.d.Patience, why, s.unwatched(set.shares)),
		Cure: "find out why there is no answer, then run the same command again: it holds and asks the gates again"}
}
