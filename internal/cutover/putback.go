package cutover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	eksaws "github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/state"
)

// backDeadline bounds a put-back as a whole; it is not ended by an interrupt.
const backDeadline = 20 * time.Minute

// retreat is a put-back that has been decided.
type retreat struct {
	why string
	// code is the exit code once the traffic is back.
	code state.Exit
	// known is true when the journal holds already that the put-back is due.
	known bool
	// failed are the gates that decided it.
	failed []asked
}

// conclude turns the end of a stage that did not pass into what happens to the
// traffic. Deliberate stops leave it where it is.
func (s *Stage) conclude(ctx context.Context, rec state.Recorder, err error) error {
	var stop *state.Stop
	if errors.As(err, &stop) {
		return s.stopped(ctx, rec, stop)
	}
	wctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backDeadline)
	defer cancel()
	sc, scErr := s.scene(wctx)
	if scErr != nil {
		return errors.Join(err, scErr)
	}
	moved := sc.ledger.shifted(sc.start)
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
		return &state.Stop{Code: state.ExitResumable, Why: err.Error() + "\n" + s.lastKnown(wctx, sc),
			Cure: "look at `aws route53 get-change --id " + sync.handle + "`, then run the same command again"}
	case !moved:
		return s.unmoved(wctx, rec, err)
	case errors.As(err, &journal) && s.whole(wctx, sc):
		return &state.Stop{Code: state.ExitResumable, Cause: err, Why: "the journal cannot be written, and the traffic stays where it is: " + s.lastKnown(wctx, sc),
			Cure: "free space or mend the folder's permissions, then run the same command again"}
	case errors.As(err, &gate):
		text := gate.Error()
		e := s.tolerant(rec).Record(state.Record{Kind: state.RecordGate, Text: text, Gate: &state.GateResult{
			Gate: stageGate, Target: s.spec.ID, Percent: s.spec.Percent, Verdict: state.GateFail, Text: text},
			Detail: detail(s.noted(gate.failures()))})
		return s.goBack(ctx, rec, &retreat{why: text, code: state.ExitPutBack, known: e == nil, failed: gate.failures()})
	}
	return s.goBack(ctx, rec, &retreat{why: eksaws.Message(err), code: state.ExitPutBack})
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
// groups off again that were attached for it.
func (s *Stage) stopped(ctx context.Context, rec state.Recorder, stop *state.Stop) error {
	wctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backDeadline)
	defer cancel()
	if sc, err := s.scene(wctx); err == nil && !sc.ledger.shifted(sc.start) {
		s.detach(wctx, rec)
	}
	return stop
}

// detach takes target groups off again that this run has attached at weight 0. What it
// cannot take off stays, does no harm by itself, and is said.
func (s *Stage) detach(ctx context.Context, rec state.Recorder) {
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
	wctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backDeadline)
	defer cancel()
	if !moved {
		s.detach(wctx, rec)
		return &state.Stop{Code: state.ExitInterrupted, Why: "interrupted before any traffic has moved: " + s.lastKnown(wctx, sc),
			Cure: "run the same command again to go on", Cause: nil}
	}
	if s.d.OnInterrupt == nil || s.d.OnInterrupt() {
		return s.goBack(ctx, rec, &retreat{why: "interrupted", code: state.ExitInterrupted})
	}
	return &state.Stop{Code: state.ExitInterrupted, Why: "interrupted, and the traffic stays where it is\n" + s.lastKnown(wctx, sc),
		Cure: "run the same command again: it holds and asks the gates again"}
}

// lastKnown says where the traffic is: as read now, or as last recorded.
func (s *Stage) lastKnown(ctx context.Context, sc *scene) string {
	if r, err := s.look(ctx, sc); err == nil {
		return s.unwatched(r.shares)
	}
	return "the weights cannot be read; last recorded: " + s.recorded(sc)
}

// recorded says where the traffic is by the journal alone.
func (s *Stage) recorded(sc *scene) string {
	var shares []state.Share
	for _, t := range s.d.Traffic {
		shares = append(shares, sc.ledger.expected(sc.start[t.ID()]))
	}
	return s.unwatched(shares)
}

// goBack puts every target back to its weights from before the run, in reverse order.
// It needs no journal and is not ended by an interrupt (semantics 14). The stop that it
// returns says what is true then: exit 5 only when the traffic is back (semantics 15).
func (s *Stage) goBack(ctx context.Context, rec state.Recorder, why *retreat) error {
	bctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backDeadline)
	defer cancel()
	quiet := s.tolerant(rec)
	if !why.known {
		_ = quiet.Record(state.Record{Kind: state.RecordWarning, Text: "the traffic goes back: " + why.why,
			Detail: detail(backDetail{PutBack: "due", Why: why.why})}) // a tolerant recorder has no errors
	}
	sc, err := s.scene(bctx)
	if err != nil {
		return &state.Stop{Code: state.ExitDisplaced, Why: why.why + "; and the traffic cannot be put back", Cause: err,
			Cure: "set the weights from before the run by hand, then run the same command again"}
	}
	if ill := s.originIll(bctx, why.failed); ill != "" {
		return s.bothIll(bctx, sc, why, ill)
	}
	return s.report(bctx, quiet, sc, why, s.backAll(bctx, quiet, sc))
}

// bothIll holds and asks: going back would lead from one unhealthy side to the other
// (semantics 14).
func (s *Stage) bothIll(ctx context.Context, sc *scene, why *retreat, ill string) error {
	code := state.ExitResumable
	if why.code == state.ExitInterrupted {
		code = state.ExitInterrupted
	}
	stop := &state.Stop{Code: code,
		Why: fmt.Sprintf("%s: %s\n%s is no better: %s\nso the traffic was not put back; now %s", s.d.Destination, why.why, s.d.Origin, ill, s.lastKnown(ctx, sc)),
	}
	stop.Cure = fmt.Sprintf("mend %s, then run the same command again: it puts the traffic back first; or put it back by hand all the same:\n%s",
		s.d.Origin, strings.Join(s.backCommands(ctx, sc), "\n"))
	return stop
}

// backAll puts back every mover, in reverse order, and then waits for all of them. It
// gives what went wrong, by mover.
func (s *Stage) backAll(ctx context.Context, rec state.Recorder, sc *scene) map[mover]error {
	failed := map[mover]error{}
	var taken []*sent
	for _, m := range slices.Backward(sc.movers) {
		x, err := s.backOne(ctx, rec, sc, m)
		if err != nil {
			failed[m] = err
			continue
		}
		if x != nil {
			taken = append(taken, x)
		}
	}
	for _, x := range taken {
		if err := s.finish(ctx, rec, x); err != nil {
			failed[x.mover] = err
		}
	}
	return failed
}

// backOne puts one mover back. What a change of this run did that nobody has seen yet
// is waited for first, so that it is not taken for being back already.
func (s *Stage) backOne(ctx context.Context, rec state.Recorder, sc *scene, m mover) (*sent, error) {
	if e := sc.ledger.last(m.targets()); e != nil && !e.moot && (e.uncertain() || e.result == state.Accepted) {
		at, _, err := s.settle(ctx, m, &e.change)
		if err != nil {
			return nil, err
		}
		if e.open() {
			result, text := state.Rejected, "it never arrived"
			switch at {
			case asAfter:
				result, text = state.Found, ""
			case elsewhere:
				result, text = state.Unknown, "somebody else changed it meanwhile"
			}
			if err := rec.Outcome(e.seq, result, text, nil); err != nil {
				return nil, err
			}
		}
	}
	v, err := m.read(ctx)
	if err != nil {
		return nil, err
	}
	for _, now := range v.shares {
		start := sc.start[now.Target]
		if !sc.ledger.explains(now, start) && !sameProportion(now, start) {
			return nil, fmt.Errorf("somebody else changed the weights of %s to blue %d, green %d", now.Target, now.Blue, now.Green)
		}
	}
	return s.begin(ctx, rec, m, s.wantBack(sc))
}

func (s *Stage) wantBack(sc *scene) want {
	return want{purpose: putBack, dest: s.d.Destination, before: func(target string) (*change, state.Share) {
		return sc.ledger.before(target), sc.start[target]
	}}
}

// report reads once more where the traffic is and says so.
func (s *Stage) report(ctx context.Context, rec state.Recorder, sc *scene, why *retreat, failed map[mover]error) error {
	r, err := s.look(ctx, sc)
	if err == nil && len(failed) == 0 {
		back := true
		for _, now := range r.shares {
			back = back && sameProportion(now, sc.start[now.Target])
		}
		if back {
			return s.isBack(rec, r, why)
		}
	}
	var facts []string
	for _, m := range sc.movers {
		if e := failed[m]; e != nil {
			facts = append(facts, m.object()+": "+eksaws.Message(e))
		}
	}
	if err != nil {
		facts = append(facts, "the weights cannot be read: "+eksaws.Message(err))
	}
	return &state.Stop{Code: state.ExitDisplaced,
		Why: fmt.Sprintf("%s; and the traffic could not be put back: %s\nnow %s", why.why, strings.Join(facts, "; "), s.lastKnown(ctx, sc)),
		Cure: "to put it back by hand:\n" + strings.Join(s.backCommands(ctx, sc), "\n") +
			"\nthen run the same command again: it makes sure of it"}
}

func (s *Stage) isBack(rec state.Recorder, r *reading, why *retreat) error {
	_ = rec.Record(state.Record{Kind: state.RecordTraffic, Text: s.weights(r.shares), Traffic: r.shares}) // a tolerant recorder has no errors
	_ = rec.Record(state.Record{Kind: state.RecordPutBack, Text: "put back: " + s.weights(r.shares), Traffic: r.shares, Detail: detail(backDetail{Why: why.why})})
	stop := &state.Stop{Code: why.code, Why: fmt.Sprintf("%s\nthe traffic is where it was before the run: %s", why.why, s.weights(r.shares))}
	if why.code == state.ExitInterrupted {
		stop.Why += ". Nobody watches these weights"
	}
	stop.Cure = "find out what was wrong with " + string(s.d.Destination) + ", then run the same command again with --approve cutover"
	return stop
}

// backCommands are the commands that put back what is not back.
func (s *Stage) backCommands(ctx context.Context, sc *scene) []string {
	var out []string
	for _, m := range slices.Backward(sc.movers) {
		now, err := m.read(ctx)
		if err != nil {
			now = nil
		}
		from := now
		if from == nil {
			from = sc.ledger.remembered(m)
		}
		if from == nil {
			continue
		}
		if c, needed, err := m.propose(from, s.wantBack(sc)); err == nil && needed {
			out = append(out, m.commands(now, c)...)
		}
	}
	return out
}

// tolerant gives a recorder that never fails: what the journal does not take goes to
// the stage's Stderr (semantics 14).
func (s *Stage) tolerant(rec state.Recorder) state.Recorder {
	if t, ok := rec.(*tolerantRecorder); ok {
		return t
	}
	return &tolerantRecorder{rec: rec, step: s.spec.ID, clock: s.d.Clock, say: s.d.Stderr}
}

type tolerantRecorder struct {
	rec   state.Recorder
	step  string
	clock clock.PassiveClock
	say   func(string)
}

func (t *tolerantRecorder) Intent(call, object string, detail, undo any) (int64, error) {
	seq, err := t.rec.Intent(call, object, detail, undo)
	if err != nil {
		t.tell(state.Record{Kind: state.RecordIntent, Change: &state.Change{Call: call, Object: object, Detail: raw(detail), Undo: raw(undo)}}, err)
		return -1, nil
	}
	return seq, nil
}

func (t *tolerantRecorder) Outcome(intent int64, result state.Result, text string, detail any) error {
	err := errors.New("its intent is not in the journal")
	if intent >= 0 {
		err = t.rec.Outcome(intent, result, text, detail)
	}
	if err != nil {
		t.tell(state.Record{Kind: state.RecordOutcome, Intent: intent, Result: result, Text: text, Detail: raw(detail)}, err)
	}
	return nil
}

func (t *tolerantRecorder) Record(r state.Record) error {
	if err := t.rec.Record(r); err != nil {
		t.tell(r, err)
	}
	return nil
}

func (t *tolerantRecorder) Waiting(text string) { t.rec.Waiting(text) }

func (t *tolerantRecorder) tell(r state.Record, err error) {
	if t.say == nil {
		return
	}
	r.Step, r.Time = t.step, t.clock.Now()
	line, mErr := json.Marshal(r)
	if mErr != nil {
		line = []byte(r.Text)
	}
	t.say(fmt.Sprintf("not in the journal (%s): %s", state.Clean(err.Error()), line))
}

// raw marshals a detail for a record; what cannot be marshalled is left out.
func raw(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	out, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return out
}
