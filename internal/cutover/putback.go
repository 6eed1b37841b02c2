package cutover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	eksaws "github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/state"
)

// backDeadline bounds a put-back as a whole; it is not ended by an interrupt.
const (
	backDeadline = 20 * time.Minute
	// backTurn bounds one target's first turn in it, so that an endpoint that is away
	// does not keep the others from going back.
	backTurn = 2 * time.Minute
	// originPatience bounds the look at the origin: what does not answer by then speaks
	// for nobody.
	originPatience = 30 * time.Second
)

// whyInterrupted is the reason of a put-back for an interrupt, also in the journal: one
// that a later process finishes has nothing wrong with the destination either.
const whyInterrupted = "interrupted"

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

// outlive gives the context of what a stage does at its end, which no interrupt ends.
// Values stay on it: a patience that was cut short for the time before the first change
// has to be undone for a put-back (semantics 24).
func outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), backDeadline)
}

// lastKnown says where the traffic is: as read now, or as last recorded.
func (s *Stage) lastKnown(ctx context.Context, sc *scene) string {
	if r, err := s.look(ctx, sc); err == nil {
		return s.unwatched(r.shares)
	}
	return "the weights cannot be read; last recorded: " + s.recorded(sc)
}

// leave says where the traffic stays, as lastKnown does, and journals the weights that it
// read when this run has sent them and nobody has read them yet. Weights that are not
// to the number what this run's intents say are left out: a record of them would make
// somebody else's change this run's own.
func (s *Stage) leave(ctx context.Context, rec state.Recorder, sc *scene) string {
	r, err := s.look(ctx, sc)
	if err != nil {
		return "the weights cannot be read; last recorded: " + s.recorded(sc)
	}
	if sc, err := s.scene(ctx); err == nil && sc.ledger.unread() && s.allIntended(sc, r) {
		_ = s.tolerant(rec).Record(state.Record{Kind: state.RecordTraffic, Text: s.weights(r.shares), Traffic: r.shares}) // a tolerant recorder has no errors
	}
	return s.unwatched(r.shares)
}

func (s *Stage) allIntended(sc *scene, r *reading) bool {
	for _, now := range r.shares {
		if !sc.ledger.intended(now, sc.start[now.Target]) {
			return false
		}
	}
	return true
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
// It needs no journal and no lock, is not ended by an interrupt (semantics 14), and
// waits for an endpoint that is away however short the patience before it was. The stop
// that it returns says what is true then: exit 5 only when the traffic is back
// (semantics 15).
func (s *Stage) goBack(ctx context.Context, rec state.Recorder, why *retreat) error {
	bctx, cancel := outlive(eksaws.Unguarded(eksaws.FullPatience(ctx)))
	defer cancel()
	quiet := s.tolerant(state.Unguarded(rec)) // no lock either
	if !why.known {
		_ = quiet.Record(state.Record{Kind: state.RecordWarning, Text: "the traffic goes back: " + why.why,
			Detail: detail(backDetail{PutBack: "due", Why: why.why})}) // a tolerant recorder has no errors
	}
	sc, err := s.scene(bctx)
	if err != nil {
		return &state.Stop{Code: state.ExitDisplaced, Why: why.why + "; and the traffic cannot be put back", Cause: err,
			Cure: "set the weights from before the run by hand, then run the same command again"}
	}
	octx, done := context.WithTimeout(bctx, originPatience)
	ill := s.originIll(octx, why.failed)
	done()
	if ill != "" {
		return s.bothIll(bctx, quiet, sc, why, ill)
	}
	return s.report(bctx, quiet, sc, why, s.backAll(bctx, quiet, sc))
}

// bothIll holds and asks: going back would lead from one unhealthy side to the other
// (semantics 14).
func (s *Stage) bothIll(ctx context.Context, rec state.Recorder, sc *scene, why *retreat, ill string) error {
	code := state.ExitResumable
	if why.code == state.ExitInterrupted {
		code = state.ExitInterrupted
	}
	stop := &state.Stop{Code: code,
		Why: fmt.Sprintf("%s: %s\n%s is no better: %s\nso the traffic was not put back; now %s", s.d.Destination, why.why, s.d.Origin, ill, s.leave(ctx, rec, sc)),
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
	turn := func(ctx context.Context, m mover) error {
		x, err := s.backOne(ctx, rec, sc, m)
		if x != nil {
			taken = append(taken, x)
		}
		return err
	}
	for _, m := range slices.Backward(sc.movers) {
		mctx, cancel := context.WithTimeout(ctx, backTurn)
		if err := turn(mctx, m); err != nil {
			failed[m] = err
		}
		cancel()
	}
	for _, m := range slices.Backward(sc.movers) {
		if err := failed[m]; eksaws.IsUnavailable(err) || errors.Is(err, context.DeadlineExceeded) {
			delete(failed, m)
			if fresh, err := s.scene(ctx); err == nil {
				sc = fresh // it knows the intents of the first turn
			}
			if err := turn(ctx, m); err != nil {
				failed[m] = err
			}
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
		if s.backAlready(sc, r) {
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
		Why: fmt.Sprintf("%s; and the traffic could not be put back: %s\nnow %s", why.why, strings.Join(facts, "; "), s.leave(ctx, rec, sc)),
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
	if why.why == whyInterrupted {
		stop.Cure = "run the same command again with --approve cutover to move the traffic again"
	}
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
