package state

import (
	"encoding/json"
	"fmt"
)

// Recorder returns the Recorder of one step.
func (j *Journal) Recorder(step string) Recorder { return &stepRecorder{j: j, step: step} }

type stepRecorder struct {
	j    *Journal
	step string
}

func (s *stepRecorder) Intent(call, object string, detail, undo any) (int64, error) {
	c := Change{Call: call, Object: object}
	var err error
	if c.Detail, err = raw(detail); err != nil {
		return 0, fmt.Errorf("record what %s on %s will change: %w", call, object, err)
	}
	if c.Undo, err = raw(undo); err != nil {
		return 0, fmt.Errorf("record how to undo %s on %s: %w", call, object, err)
	}
	r, err := s.j.Append(Record{Kind: RecordIntent, Step: s.step, Change: &c})
	return r.Seq, err
}

func (s *stepRecorder) Outcome(intent int64, result Result, text string, detail any) error {
	d, err := raw(detail)
	if err != nil {
		return fmt.Errorf("record what came of intent %d: %w", intent, err)
	}
	_, err = s.j.Append(Record{Kind: RecordOutcome, Step: s.step, Intent: intent, Result: result, Text: text, Detail: d})
	return err
}

func (s *stepRecorder) Record(r Record) error {
	r.Step = s.step
	_, err := s.j.Append(r)
	return err
}

func (s *stepRecorder) Waiting(text string) {
	_, _ = s.j.Append(Record{Kind: RecordWaiting, Step: s.step, Text: text}) // a broken journal shows at the next record that counts
}

// raw marshals v; nil, typed or not, gives nothing.
func raw(v any) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	b, err := json.Marshal(v)
	if err != nil || string(b) == "null" {
		return nil, err
	}
	return b, nil
}
