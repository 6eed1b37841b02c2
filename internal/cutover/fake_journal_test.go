package cutover

import (
	"encoding/json"
	"errors"

	"github.com/eksbg/eksbg/internal/state"
)

// journal is a journal in memory: it takes records, counts them, and can refuse them.
type journal struct {
	clock   *steppingClock
	records []state.Record
	// refuse decides which records it does not take.
	refuse func(state.Record) bool
	waits  []string
	point  func(string)
	// lock says why a change may not be sent again.
	lock error
}

var errDiskFull = errors.New("no space left on device")

func (j *journal) Records(step string) []state.Record {
	var out []state.Record
	for _, r := range j.records {
		if step == "" || r.Step == step {
			out = append(out, r)
		}
	}
	return out
}

func (j *journal) append(r state.Record) (int64, error) {
	if j.refuse != nil && j.refuse(r) {
		return 0, errDiskFull
	}
	j.point("journal before " + string(r.Kind))
	r.Seq, r.Time = int64(len(j.records)+1), j.clock.Now()
	// Through JSON, as a journal on disk does it.
	raw, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	var back state.Record
	if err := json.Unmarshal(raw, &back); err != nil {
		return 0, err
	}
	j.records = append(j.records, back)
	j.point("journal after " + string(r.Kind))
	return r.Seq, nil
}

func (j *journal) of(kind state.RecordKind) []state.Record { return state.OfKind(j.records, kind) }

func (j *journal) recorder(step string) state.Recorder { return &recorder{j: j, step: step} }

type recorder struct {
	j    *journal
	step string
}

func (r *recorder) Intent(call, object string, detail, undo any) (int64, error) {
	return r.j.append(state.Record{Kind: state.RecordIntent, Step: r.step,
		Change: &state.Change{Call: call, Object: object, Detail: raw(detail), Undo: raw(undo)}})
}

func (r *recorder) Outcome(intent int64, result state.Result, text string, detail any) error {
	_, err := r.j.append(state.Record{Kind: state.RecordOutcome, Step: r.step, Intent: intent, Result: result, Text: text, Detail: raw(detail)})
	return err
}

func (r *recorder) Record(rec state.Record) error {
	rec.Step = r.step
	_, err := r.j.append(rec)
	return err
}

func (r *recorder) Guard(string) error { return r.j.lock }

func (r *recorder) Waiting(text string) { r.j.waits = append(r.j.waits, text) }
