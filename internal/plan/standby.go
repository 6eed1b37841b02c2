package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/run"
	"github.com/eksbg/eksbg/internal/state"
)

// lookEvery is for how long the weights as read hold while pods are restarted.
const lookEvery = 30 * time.Second

// standbyRestart is the restart of a side that got no traffic when it was planned. The
// weights are read again before it begins and while it goes on: restarting the pods of
// the side that serves is approved by name, whenever it has come to serve (semantics 22).
type standbyRestart struct {
	spec state.StepSpec
	b    *Builder
	// build makes the step itself; live holds it to what the serving side is held to.
	build func(live bool) run.Step
}

// Spec is the step as data.
func (s *standbyRestart) Spec() state.StepSpec { return s.spec }

// Observe looks at the pods.
func (s *standbyRestart) Observe(ctx context.Context) (state.Observation, error) {
	return s.build(false).Observe(ctx)
}

// Act restarts. Without the approval that a side with traffic needs it begins nothing,
// and only puts back what an earlier process changed for the time of the restart.
func (s *standbyRestart) Act(ctx context.Context, rec state.Recorder) error {
	shares, err := s.read(ctx)
	if err != nil {
		return err
	}
	if err := s.record(rec, shares); err != nil {
		return err
	}
	if !gets(shares, s.spec.Side) {
		return s.build(false).Act(ctx, &whileStandby{Recorder: rec, ctx: ctx, s: s, at: s.b.Clock.Now()})
	}
	who, err := s.approval(ctx)
	if err != nil {
		return fmt.Errorf("ask for the approval of %s: %w", state.PhaseRestartLive, err)
	}
	if who == nil {
		stop := s.serves(shares)
		if err := s.build(true).Act(ctx, &beginsNothing{rec, stop}); err != nil {
			return err
		}
		return nil // all that was left had been begun before
	}
	if err := rec.Record(state.Record{Kind: state.RecordApproval, Phase: state.PhaseRestartLive, Who: who,
		Text: fmt.Sprintf("phase %s approved, since %s gets traffic now", state.PhaseRestartLive, s.spec.Side)}); err != nil {
		return fmt.Errorf("record the approval of %s: %w", state.PhaseRestartLive, err)
	}
	return s.build(true).Act(ctx, rec)
}

func (s *standbyRestart) approval(ctx context.Context) (*state.Who, error) {
	if s.b.Approve == nil {
		return nil, nil
	}
	return s.b.Approve(ctx, run.Ask{Phase: state.PhaseRestartLive, Step: s.spec,
		Why: fmt.Sprintf("%s has come to get traffic since this was planned, and it restarts its pods", s.spec.Side)})
}

// read gives the weights of every target. What cannot be read is no zero.
func (s *standbyRestart) read(ctx context.Context) ([]state.Share, error) {
	var out []state.Share
	for _, t := range s.b.Traffic {
		share, err := t.Read(ctx)
		var stop *state.Stop
		switch {
		case err == nil:
			out = append(out, share)
		case ctx.Err() != nil, aws.IsExpired(err), aws.IsUnavailable(err), errors.As(err, &stop):
			return nil, fmt.Errorf("read whether %s gets traffic: %w", s.spec.Side, err)
		default:
			return nil, &state.Stop{Code: state.ExitBlocked, Cause: err,
				Why:  fmt.Sprintf("whether %s gets traffic is not known, and its pods are not restarted before it is", s.spec.Side),
				Cure: "let eksbg read the entrances (docs/permissions.md), then run the same command again"}
		}
	}
	return out, nil
}

// record writes the weights down where they are not those that were seen last.
func (s *standbyRestart) record(rec state.Recorder, shares []state.Share) error {
	last := s.b.Plan.Traffic
	if r, ok := state.LastOf(s.b.History.Records(""), state.RecordTraffic); ok {
		last = r.Traffic
	}
	if slices.Equal(last, shares) {
		return nil
	}
	if err := rec.Record(state.Record{Kind: state.RecordTraffic, Text: "weights as read", Traffic: shares}); err != nil {
		return fmt.Errorf("record the weights: %w", err)
	}
	return nil
}

// serves is the stop of a restart that nobody has approved.
func (s *standbyRestart) serves(shares []state.Share) *state.Stop {
	return &state.Stop{Code: state.ExitResumable, Approve: state.PhaseRestartLive,
		Why: fmt.Sprintf("%s was planned for a side without traffic, and %s gets traffic now\n%s\nnothing more is restarted there without an approval of phase %s",
			s.spec.ID, s.spec.Side, weights(shares), state.PhaseRestartLive),
		Cure: fmt.Sprintf("give the traffic back to %s and run the same command again, or run it with --approve %s", s.spec.Side.Other(), state.PhaseRestartLive)}
}

// whileStandby withholds changes from the moment at which the side is seen to get traffic.
type whileStandby struct {
	state.Recorder
	ctx context.Context
	s   *standbyRestart
	// at is when the weights were read.
	at time.Time
}

// Intent looks at the weights, and writes the intent.
func (w *whileStandby) Intent(call, object string, detail, undo any) (int64, error) {
	if err := w.look(call + " on " + object); err != nil {
		return 0, err
	}
	return w.Recorder.Intent(call, object, detail, undo)
}

// Guard looks at the weights before a change is sent again; see state.Guard.
func (w *whileStandby) Guard(change string) error {
	if err := w.look(change); err != nil {
		return err
	}
	return state.Guard(w.Recorder, change)
}

// Unguarded is the recorder without any guard; see state.Unguarded.
func (w *whileStandby) Unguarded() state.Recorder { return state.Unguarded(w.Recorder) }

func (w *whileStandby) look(change string) error {
	if w.s.b.Clock.Since(w.at) < lookEvery {
		return nil
	}
	shares, err := w.s.read(w.ctx)
	if err != nil {
		return &state.Withheld{Change: change, Err: err}
	}
	if err := w.s.record(w.Recorder, shares); err != nil {
		return err
	}
	if gets(shares, w.s.spec.Side) {
		return &state.Withheld{Change: change, Err: w.s.serves(shares)}
	}
	w.at = w.s.b.Clock.Now()
	return nil
}

// beginsNothing withholds every change but putting back.
type beginsNothing struct {
	state.Recorder
	why *state.Stop
}

// Intent refuses.
func (b *beginsNothing) Intent(call, object string, _, _ any) (int64, error) {
	return 0, b.Guard(call + " on " + object)
}

// Unguarded is the recorder itself: what is put back goes past this one.
func (b *beginsNothing) Unguarded() state.Recorder { return state.Unguarded(b.Recorder) }

// Guard refuses.
func (b *beginsNothing) Guard(change string) error {
	return &state.Withheld{Change: change, Err: b.why}
}
