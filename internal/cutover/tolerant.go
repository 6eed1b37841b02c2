package cutover

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/utils/clock"

	"github.com/eksbg/eksbg/internal/state"
)

// tolerant gives a recorder that a journal never fails: what it does not take goes to
// the stage's Stderr (semantics 14). Intents that the lock withholds stay withheld.
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
	var withheld *state.Withheld
	if errors.As(err, &withheld) { // not the journal: the lock does not allow the change
		return 0, err
	}
	if err != nil {
		t.tell(state.Record{Kind: state.RecordIntent, Change: &state.Change{Call: call, Object: object, Detail: raw(detail), Undo: raw(undo)}}, err)
		return -1, nil
	}
	return seq, nil
}

// Guard is that of the recorder behind it; see state.Guard.
func (t *tolerantRecorder) Guard(change string) error { return state.Guard(t.rec, change) }

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
