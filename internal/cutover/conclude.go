package cutover

import (
	"context"
	"errors"
	"fmt"

	eksaws "github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/state"
)

// conclude turns the end of a stage that did not pass into what happens to the
// traffic. Deliberate stops leave it where it is.
func (s *Stage) conclude(ctx context.Context, rec state.Recorder, err error) error {
	var stop *state.Stop
	if errors.As(err, &stop) {
		return s.stopped(ctx, rec, stop)
	}
	wctx, cancel := outlive(ctx)
	defer cancel()
	sc, scErr := s.scene(wctx)
	if scErr != nil {
		return errors.Join(err, scErr)
	}
	moved := sc.ledger.shifted(sc.start)
	if moved {
		// What is read now decides about a put-back.
		wctx = eksaws.FullPatience(wctx)
	}
	var sync *notInSync
	var gate *gateFailed
	var journal *journalError
	switch {
	case isInterrupt(ctx, err):
		return s.interrupted(ctx, rec, sc, moved)
	case eksaws.IsExpired(err), eksaws.IsUnavailable(err) && !sc.ledger.movedIn(s.spec.ID):
		// Nothing can be done about the traffic now, and nothing is known to be wrong with it.
		return fmt.Errorf("%w; last recorded: %s", err, s.recorded(sc))
	case errors.As(err, &sync):
		return &state.Stop{Code: state.ExitResumable, Why: err.Error() + "\n" + s.leave(wctx, rec, sc),
			Cure: "look at `aws route53 get-change --id " + sync.handle + "`, then run the same command again"}
	case !moved:
		return s.unmoved(wctx, rec, err)
	case errors.As(err, &journal) && s.whole(wctx, sc):
		return &state.Stop{Code: state.ExitResumable, Cause: err, Why: "the journal cannot be written, and the traffic stays where it is: " + s.leave(wctx, rec, sc),
			Cure: "free space or mend the folder's permissions, then run the same command again"}
	case errors.As(err, &gate):
		text := gate.Error()
		e := s.tolerant(rec).Record(state.Record{Kind: state.RecordGate, Text: text, Gate: &state.GateResult{
			Gate: stageGate, Target: s.spec.ID, Percent: s.spec.Percent, Verdict: state.GateFail, Text: text},
			Detail: detail(s.noted(gate.failures()))})
		return s.goBack(ctx, rec, &retreat{why: text, code: state.ExitPutBack, known: e == nil, failed: gate.failures()})
	}
	why := eksaws.Message(err)
	var move *moveError
	if errors.As(err, &move) {
		why = move.Error()
	}
	return s.goBack(ctx, rec, &retreat{why: why, code: state.ExitPutBack})
}

func (e evaluation) failures() []asked {
	var out []asked
	for _, a := range e.answers {
		if a.result.Verdict == state.GateFail {
			out = append(out, a)
		}
	}
	return out
}

// whole tells whether no target is ahead of the others: all have this stage's share, or
// none was moved in this stage.
func (s *Stage) whole(ctx context.Context, sc *scene) bool {
	if !sc.ledger.begun(s.spec.ID) {
		return true
	}
	r, err := s.look(ctx, sc)
	return err == nil && r.reached(s.d.Destination, s.spec.Percent)
}

// failureNote keeps a failed gate in the journal, so that a put-back that is resumed
// holds the origin against the same numbers.
type failureNote struct {
	// Gate is the gate's place in the plan file.
	Gate   int     `json:"gate"`
	Target string  `json:"target"`
	Good   float64 `json:"good"`
}

type failureNotes struct {
	Failed []failureNote `json:"failed"`
}

func (s *Stage) noted(failed []asked) failureNotes {
	var out failureNotes
	for _, f := range failed {
		for i, g := range s.d.Gates {
			if g == f.gate {
				out.Failed = append(out.Failed, failureNote{Gate: i, Target: f.result.Target, Good: f.good})
			}
		}
	}
	return out
}

// recalled is the reverse of noted.
func (s *Stage) recalled(notes failureNotes) []asked {
	var out []asked
	for _, n := range notes.Failed {
		if n.Gate >= 0 && n.Gate < len(s.d.Gates) {
			out = append(out, asked{gate: s.d.Gates[n.Gate], good: n.Good, result: state.GateResult{Target: n.Target}})
		}
	}
	return out
}

// unmoved ends a stage before which no traffic has moved: nothing is to be put back but
// a target group that was attached for it.
func (s *Stage) unmoved(ctx context.Context, rec state.Recorder, err error) error {
	s.detach(ctx, rec)
	var gate *gateFailed
	var foreign *foreignError
	switch {
	case errors.As(err, &gate):
		return &state.Stop{Code: state.ExitBlocked, Why: "a gate fails before any traffic has moved: " + gate.Error(),
			Cure: "make " + string(s.d.Destination) + " ready, then run the same command again"}
	case errors.As(err, &foreign):
		return &state.Stop{Code: state.ExitBlocked, Why: err.Error(),
			Cure: "look who changed it (AWS CloudTrail has it), then run the same command again"}
	}
	return err
}

// stopped is a deliberate stop: one before any traffic has moved takes the target
// groups off again that were attached for it, a later one leaves the traffic.
func (s *Stage) stopped(ctx context.Context, rec state.Recorder, stop *state.Stop) error {
	wctx, cancel := outlive(ctx)
	defer cancel()
	sc, err := s.scene(wctx)
	switch {
	case err != nil:
	case !sc.ledger.shifted(sc.start):
		s.detach(wctx, rec)
	case sc.ledger.unread():
		s.leave(wctx, rec, sc)
	}
	return stop
}

// detach takes target groups off again that this run has attached at weight 0. What it
// cannot take off stays, does no harm by itself, and is said.
func (s *Stage) detach(ctx context.Context, rec state.Recorder) {
	ctx = eksaws.FullPatience(ctx) // calls are made only where something was changed
	sc, err := s.scene(ctx)
	if err != nil {
		return
	}
	quiet := s.tolerant(rec)
	for _, m := range sc.movers {
		b, ok := m.(*balancer)
		if !ok || !sc.ledger.attached(b.id) {
			continue
		}
		x, err := s.backOne(ctx, quiet, sc, b)
		if err == nil && x != nil {
			err = s.finish(ctx, quiet, x)
		}
		if err != nil {
			_ = quiet.Record(state.Record{Kind: state.RecordWarning, // a tolerant recorder has no errors
				Text: fmt.Sprintf("target group %s stays on %s at weight 0: %s", groupName(b.group[s.d.Destination]), b.object(), eksaws.Message(err))})
		}
	}
}

// interrupted ends a stage that a person or the system has ended (semantics 20).
func (s *Stage) interrupted(ctx context.Context, rec state.Recorder, sc *scene, moved bool) error {
	wctx, cancel := outlive(ctx)
	defer cancel()
	if !moved {
		s.detach(wctx, rec)
		return &state.Stop{Code: state.ExitInterrupted, Why: "interrupted before any traffic has moved: " + s.lastKnown(wctx, sc),
			Cure: "run the same command again to go on", Cause: nil}
	}
	if s.d.OnInterrupt == nil || s.d.OnInterrupt() {
		return s.goBack(ctx, rec, &retreat{why: whyInterrupted, code: state.ExitInterrupted})
	}
	return &state.Stop{Code: state.ExitInterrupted, Why: "interrupted, and the traffic stays where it is\n" + s.leave(wctx, rec, sc),
		Cure: "run the same command again: it holds and asks the gates again"}
}
