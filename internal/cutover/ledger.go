package cutover

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/eksbg/eksbg/internal/state"
)

// stageGate is the name of the gate record that holds the verdict of a whole stage:
// the hold is over and every gate has passed, or one has failed. It is one record, so
// that a stage killed between two gates has no verdict.
const stageGate = "stage"

// stepPrefix is what the ids of traffic steps begin with.
const stepPrefix = "traffic/"

// entry is one journaled change of traffic.
type entry struct {
	seq int64
	// time is that of the last record about it: reads from shortly after may be stale.
	time time.Time
	step string
	change
	// result is empty while the intent is open.
	result state.Result
	handle string
	// moot is true once a later put-back has made sure of the weights.
	moot bool
}

// receipt is the detail of an outcome.
type receipt struct {
	// Change is the id that Route 53 gave the change.
	Change string `json:"change,omitempty"`
	// InSync is "verified", or says why nobody could verify it.
	InSync string `json:"inSync,omitempty"`
}

// backDetail marks records around a put-back.
type backDetail struct {
	// PutBack is "due" in the warning that announces it.
	PutBack string `json:"putBack,omitempty"`
	Why     string `json:"why,omitempty"`
}

// ledger is what the journal says about the traffic of this run.
type ledger struct {
	entries []*entry
	// known holds the weights of each target as last set or read by this run.
	known map[string]state.Share
	// setBy says, for people, which record known comes from.
	setBy map[string]string
	// passed holds the per cents of stages that passed and were not undone since.
	passed map[int]bool
	// due says why a put-back is due; empty when none is.
	due string
	// notes are the failed gates that made it due.
	notes failureNotes
	// backs counts the put-backs that were done.
	backs int
	// read is the seq of the last record that holds weights as read.
	read int64
}

// readLedger folds the records of all traffic steps.
func readLedger(h state.History) (*ledger, error) {
	l := &ledger{known: map[string]state.Share{}, setBy: map[string]string{}, passed: map[int]bool{}}
	bySeq := map[int64]*entry{}
	for _, r := range h.Records("") {
		if !strings.HasPrefix(r.Step, stepPrefix) {
			continue
		}
		if err := l.fold(r, bySeq); err != nil {
			return nil, fmt.Errorf("record %d of the journal: %w", r.Seq, err)
		}
	}
	return l, nil
}

func (l *ledger) fold(r state.Record, bySeq map[int64]*entry) error {
	switch r.Kind {
	case state.RecordIntent:
		if r.Change == nil {
			return fmt.Errorf("an intent without its change")
		}
		e := &entry{seq: r.Seq, time: r.Time, step: r.Step}
		if err := json.Unmarshal(r.Change.Detail, &e.change); err != nil {
			return fmt.Errorf("read the change of an intent: %w", err)
		}
		bySeq[r.Seq] = e
		l.entries = append(l.entries, e)
	case state.RecordOutcome:
		e, ok := bySeq[r.Intent]
		if !ok {
			return fmt.Errorf("an outcome of intent %d, which is not there", r.Intent)
		}
		return l.settle(e, r)
	case state.RecordTraffic:
		l.learn(r)
	case state.RecordPutBack:
		l.learn(r)
		l.passed, l.due, l.notes = map[int]bool{}, "", failureNotes{}
		l.backs++
		for _, e := range l.entries {
			e.moot = true
		}
	case state.RecordGate:
		if r.Gate == nil || r.Gate.Gate != stageGate {
			return nil
		}
		switch r.Gate.Verdict {
		case state.GatePass:
			l.passed[r.Gate.Percent] = true
		case state.GateFail:
			l.due, l.notes = r.Gate.Text, failureNotes{}
			if len(r.Detail) > 0 {
				if err := json.Unmarshal(r.Detail, &l.notes); err != nil {
					return fmt.Errorf("read the failed gates of a stage: %w", err)
				}
			}
		}
	case state.RecordWarning:
		var d backDetail
		if len(r.Detail) > 0 && json.Unmarshal(r.Detail, &d) == nil && d.PutBack == "due" {
			l.due, l.notes = d.Why, failureNotes{}
		}
	}
	return nil
}

// settle takes the outcome of a change in.
func (l *ledger) settle(e *entry, r state.Record) error {
	e.result, e.time = r.Result, r.Time
	if len(r.Detail) > 0 {
		var got receipt
		if err := json.Unmarshal(r.Detail, &got); err != nil {
			return fmt.Errorf("read the outcome of intent %d: %w", e.seq, err)
		}
		if got.Change != "" {
			e.handle = got.Change
		}
	}
	if !e.tookEffect() {
		return nil
	}
	for _, m := range e.Moves {
		l.know(m.New, r)
	}
	if e.Purpose == shift {
		// A verdict on weights that were set again is void (semantics 12).
		for p := range l.passed {
			if p >= e.Percent {
				delete(l.passed, p)
			}
		}
	}
	return nil
}

func (l *ledger) learn(r state.Record) {
	l.read = r.Seq
	for _, s := range r.Traffic {
		l.know(s, r)
	}
}

func (l *ledger) know(s state.Share, r state.Record) {
	l.known[s.Target] = s
	l.setBy[s.Target] = fmt.Sprintf("%s at %s", r.Step, r.Time.UTC().Format(time.RFC3339))
}

// tookEffect tells whether the world was changed by it.
func (e *entry) tookEffect() bool {
	return e.result == state.Accepted || e.result == state.Succeeded || e.result == state.Found
}

// open tells whether the journal holds no outcome.
func (e *entry) open() bool { return e.result == "" && !e.moot }

// uncertain tells whether the world may be as before or as after it.
func (e *entry) uncertain() bool {
	return !e.moot && (e.result == "" || e.result == state.Unknown || e.result == state.Failed)
}

// last gives the last change of any of the targets.
func (l *ledger) last(targets []string) *entry {
	for i := len(l.entries) - 1; i >= 0; i-- {
		if l.entries[i].touches(targets) {
			return l.entries[i]
		}
	}
	return nil
}

func (e *entry) touches(targets []string) bool {
	for _, t := range targets {
		if _, ok := e.move(t); ok {
			return true
		}
	}
	return false
}

// before gives the earliest change of a target in this run: its old state is the one
// from before the run. A change that was rejected saw that state just as well.
func (l *ledger) before(target string) *change {
	for _, e := range l.entries {
		if m, ok := e.move(target); ok && e.Purpose != putBack {
			c := e.change
			c.Moves = []move{m}
			return &c
		}
	}
	return nil
}

// explains tells whether a target's weights are what this run last knew, or what one of
// its changes that nobody knows the outcome of would have made of them.
func (l *ledger) explains(now, start state.Share) bool {
	if sameProportion(now, l.expected(start)) {
		return true
	}
	for _, e := range l.entries {
		if m, ok := e.move(now.Target); ok && e.uncertain() && (sameProportion(now, m.Old) || sameProportion(now, m.New)) {
			return true
		}
	}
	return false
}

// expected gives what this run last knew of a target.
func (l *ledger) expected(start state.Share) state.Share {
	if k, ok := l.known[start.Target]; ok {
		return k
	}
	return start
}

// shifted tells whether this run has moved traffic that was not put back since, as far
// as anyone knows.
func (l *ledger) shifted(starts map[string]state.Share) bool {
	for _, start := range starts {
		if !sameProportion(l.expected(start), start) {
			return true
		}
	}
	for _, e := range l.entries {
		if e.uncertain() && e.Purpose != attach {
			return true
		}
	}
	return false
}

// passedAt tells whether a stage of at least this per cent has passed.
func (l *ledger) passedAt(percent int) bool {
	for p := range l.passed {
		if p >= percent {
			return true
		}
	}
	return false
}

// PutBackDue tells whether the journal asks for a put-back that is not recorded as
// done, and why: the walk should come to the traffic steps before anything else that
// could stop it (semantics 12). A journal that cannot be read is not due; the step
// itself says what is wrong with it.
func PutBackDue(h state.History) (why string, due bool) {
	l, err := readLedger(h)
	if err != nil || l.due == "" {
		return "", false
	}
	return l.due, true
}

// attached tells whether this run has put a target's group on, as far as anyone knows,
// and not taken it off since.
func (l *ledger) attached(target string) bool {
	on := false
	for _, e := range l.entries {
		if _, ok := e.move(target); !ok || e.result == state.Rejected {
			continue
		}
		switch e.Purpose {
		case attach:
			on = true
		case putBack:
			on = false
		}
	}
	return on
}

// remembered gives a mover's part of the world as its last change left it, where the
// world itself cannot be read; nil when nothing was changed.
func (l *ledger) remembered(m mover) *view {
	e := l.last(m.targets())
	if e == nil {
		return nil
	}
	return m.imagine(&e.change)
}

// lastChange is when the journal last heard of a change of this run; the zero time when
// it holds none. Reads from shortly after may be stale.
func (l *ledger) lastChange() time.Time {
	var last time.Time
	for _, e := range l.entries {
		if e.time.After(last) {
			last = e.time
		}
	}
	return last
}

// unread tells whether weights were sent, as far as anyone knows, that no record holds as
// read.
func (l *ledger) unread() bool {
	for _, e := range l.entries {
		if e.seq > l.read && e.Purpose != attach && e.result != state.Rejected {
			return true
		}
	}
	return false
}

// intended tells whether a target's weights are, to the number, what the changes of this
// run say: those known last, or those before or after a change that nobody knows the
// outcome of.
func (l *ledger) intended(now, start state.Share) bool {
	if now == l.expected(start) {
		return true
	}
	for _, e := range l.entries {
		if m, ok := e.move(now.Target); ok && e.uncertain() && (now == m.Old || now == m.New) {
			return true
		}
	}
	return false
}

// begun tells whether a step has shifted anything that was not put back since, as far
// as anyone knows; movedIn whether it did so for certain.
func (l *ledger) begun(step string) bool   { return l.shiftOf(step, true) }
func (l *ledger) movedIn(step string) bool { return l.shiftOf(step, false) }

func (l *ledger) shiftOf(step string, uncertain bool) bool {
	for _, e := range l.entries {
		if e.step == step && e.Purpose == shift && !e.moot && (e.tookEffect() || uncertain && e.uncertain()) {
			return true
		}
	}
	return false
}
