package restart

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/state"
)

// What a deed does. A rollout (and an Argo Rollout's restartAt) is not a deed: its
// intents hold a stamp (see stamped).
const (
	doEvict   = "evict"
	doSurge   = "surge"
	doMark    = "mark"
	doStash   = "stash"
	doCreate  = "create"
	doUnstash = "unstash"
	doSuspend = "suspend"
	doPending = "pending"
)

// deed is the detail of the intent of every change that is not a stamp: what
// recognises its effect later.
type deed struct {
	Do    string `json:"do"`
	Owner string `json:"owner"`
	// Object is the name of the object that is changed, UID its UID.
	Object string `json:"object"`
	UID    string `json:"uid,omitempty"`
	// OwnerUID and APIVersion are the owner's: a resume may come at a moment when no pod
	// leads to it.
	OwnerUID   string `json:"ownerUID,omitempty"`
	APIVersion string `json:"apiVersion,omitempty"`
	// Want is how many pods the owner had or wanted when it began.
	Want int `json:"want,omitempty"`
	// From and To are the replicas of a surge, Before the old value of what is marked,
	// Mark the value that shows on the object that the change has landed.
	From   int32  `json:"from,omitempty"`
	To     int32  `json:"to,omitempty"`
	Before string `json:"before,omitempty"`
	Mark   string `json:"mark,omitempty"`
}

// entry is a deed with what came of it.
type entry struct {
	deed
	Seq int64
	// Result is the newest outcome; "" while nobody has recorded one.
	Result state.Result
	// Generation is that of the object as the change left it.
	Generation int64
	// Early is true for a surge that was put back because the run ended.
	Early bool
}

// open tells whether nobody knows yet if the change has landed.
func (e *entry) open() bool { return e.Result == "" }

// standing tells whether the change has landed and what it leads to is still owed: the
// pod to stand again, the value to be put back.
func (e *entry) standing() bool { return e.Result == state.Accepted || e.Result == state.Found }

// owner is the owner as far as the deed tells.
func (e *entry) owner() cluster.Owner {
	o := itemNamed(e.Owner, e.OwnerUID).Owner
	o.APIVersion = cmp.Or(e.APIVersion, o.APIVersion)
	return o
}

// owing tells whether what the change leads to has not been seen yet, for better or worse.
func (e *entry) owing() bool { return e.open() || e.standing() || e.Result == state.Failed }

// ledger is what the journal holds of one step, kept up to date as it is written.
type ledger struct {
	rec state.Recorder
	// last is the newest restart of each owner by stamp, stamps the stamp of each attempt.
	last   map[string]attempt
	stamps map[int]string
	owner  map[int64]string
	before map[int64]attempt

	bySeq   map[int64]*entry
	byOwner map[string][]*entry
	all     []*entry
}

// readLedger folds the records of a step. rec may be nil where nothing is written.
func readLedger(records []state.Record, rec state.Recorder) *ledger {
	l := &ledger{rec: rec, last: map[string]attempt{}, stamps: map[int]string{}, owner: map[int64]string{}, before: map[int64]attempt{},
		bySeq: map[int64]*entry{}, byOwner: map[string][]*entry{}}
	for _, r := range records {
		switch {
		case r.Kind == state.RecordIntent && r.Change != nil:
			l.begun(r.Seq, r.Change.Detail)
		case r.Kind == state.RecordOutcome:
			l.came(r.Intent, r.Result, r.Detail)
		}
	}
	return l
}

func (l *ledger) begun(seq int64, detail json.RawMessage) {
	var d deed
	if json.Unmarshal(detail, &d) == nil && d.Do != "" && d.Owner != "" {
		e := &entry{deed: d, Seq: seq}
		l.bySeq[seq] = e
		l.byOwner[d.Owner] = append(l.byOwner[d.Owner], e)
		l.all = append(l.all, e)
		return
	}
	var s stamped
	if json.Unmarshal(detail, &s) != nil || s.Owner == "" || s.Stamp == "" {
		return
	}
	l.owner[seq], l.before[seq] = s.Owner, l.last[s.Owner]
	l.last[s.Owner] = attempt{Seq: seq, Number: s.Attempt, Stamp: s.Stamp, Open: true, landed: landed{UID: s.UID}}
	if was, ok := l.stamps[s.Attempt]; !ok || newer(was, s.Stamp) {
		l.stamps[s.Attempt] = s.Stamp
	}
}

func (l *ledger) came(intent int64, result state.Result, detail json.RawMessage) {
	if e := l.bySeq[intent]; e != nil {
		e.Result = result
		var at landed
		if json.Unmarshal(detail, &at) == nil {
			e.Generation, e.Early = cmp.Or(at.Generation, e.Generation), at.Early
		}
		return
	}
	if o := l.owner[intent]; o != "" {
		if a := l.last[o]; a.Seq == intent {
			l.last[o] = a.after(l.before[intent], result, detail)
		}
	}
}

// intend makes a change durable before it is sent, and takes it in.
func (l *ledger) intend(call, object string, detail, undo any) (int64, error) {
	seq, err := l.rec.Intent(call, state.Clean(object), detail, undo)
	if err != nil {
		return 0, fmt.Errorf("write to the journal what is about to be done to %s: %w", state.Clean(object), err)
	}
	raw, err := json.Marshal(detail)
	if err != nil {
		return 0, fmt.Errorf("record what is done to %s: %w", state.Clean(object), err)
	}
	l.begun(seq, raw)
	return seq, nil
}

// guard makes sure that the change of an intent may be sent now: one that is open may be
// of a process that has lost the lock since.
func (l *ledger) guard(call, object string) error {
	if err := state.Guard(l.rec, call+" on "+state.Clean(object)); err != nil {
		return fmt.Errorf("send again: %w", err)
	}
	return nil
}

// settle records what came of an intent, and takes it in.
func (l *ledger) settle(seq int64, result state.Result, text string, at landed) error {
	var detail any
	if at != (landed{}) {
		detail = at
	}
	if err := l.rec.Outcome(seq, result, state.Clean(text), detail); err != nil {
		return fmt.Errorf("record what came of a change: %w", err)
	}
	raw, err := json.Marshal(detail)
	if err != nil {
		return fmt.Errorf("record what came of a change: %w", err)
	}
	l.came(seq, result, raw)
	return nil
}

// deeds are the entries of an owner that do a thing, in order.
func (l *ledger) deeds(owner, do string) []*entry {
	var out []*entry
	for _, e := range l.byOwner[owner] {
		if e.Do == do {
			out = append(out, e)
		}
	}
	return out
}

// newest is the newest entry of an owner that does a thing; nil for none.
func (l *ledger) newest(owner, do string) *entry {
	all := l.byOwner[owner]
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Do == do {
			return all[i]
		}
	}
	return nil
}

// took tells whether the step may have evicted the pod of an owner.
func (l *ledger) took(owner, uid string) bool {
	for _, e := range l.deeds(owner, doEvict) {
		if e.UID == uid && e.Result != state.Rejected {
			return true
		}
	}
	return false
}

// between tells whether a bare pod is, or may be, between two lives: it was evicted, and
// has not been seen to stand again.
func (l *ledger) between(owner string) bool {
	stash := l.newest(owner, doStash)
	return stash != nil && stash.owing() && l.took(owner, stash.UID)
}

// away are the manifests of the bare pods between two lives that nobody has made again yet.
func (l *ledger) away() []*entry {
	var out []*entry
	for _, e := range l.all {
		if e.Do != doStash || e != l.newest(e.Owner, doStash) || !l.between(e.Owner) {
			continue
		}
		if made := l.newest(e.Owner, doCreate); made == nil || made.Seq < e.Seq || !made.standing() {
			out = append(out, e)
		}
	}
	return out
}

// owed are the entries of which something has to be put back: replicas, suspensions,
// deletion costs.
func (l *ledger) owed() []*entry {
	var out []*entry
	for _, e := range l.all {
		if (e.Do == doSurge || e.Do == doSuspend || e.Do == doMark) && (e.open() || e.standing()) {
			out = append(out, e)
		}
	}
	return out
}

// unfinished gives, by owner, the deed that is still under way: a pod that was taken
// and has not been seen standing again, a surge, a bare pod between two lives.
func (l *ledger) unfinished() map[string]*entry {
	out := map[string]*entry{}
	for owner, all := range l.byOwner {
		for _, e := range all {
			switch {
			case e.Do == doSuspend || e.Do == doPending || e.Do == doMark:
			case e.Result == state.Succeeded:
				delete(out, owner)
			case e.owing():
				out[owner] = e
			}
		}
	}
	return out
}
