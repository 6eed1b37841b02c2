package run_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/eksbg/eksbg/internal/run"
	"github.com/eksbg/eksbg/internal/state"
)

// memory is a journal without a file.
type memory struct {
	records []state.Record
	broken  error
}

func newMemory(steps ...state.StepSpec) *memory {
	m := &memory{}
	m.records = []state.Record{{Seq: 1, Kind: state.RecordPlan, Plan: &state.Plan{Run: "r1", Steps: steps}}}
	return m
}

func (m *memory) Plan() *state.Plan { return m.records[0].Plan }

func (m *memory) Records(step string) []state.Record {
	var out []state.Record
	for _, r := range m.records {
		if step == "" || r.Step == step {
			out = append(out, r)
		}
	}
	return out
}

func (m *memory) Append(r state.Record) (state.Record, error) {
	if m.broken != nil {
		return r, m.broken
	}
	r.Seq, r.Time = int64(len(m.records)+1), time.Unix(int64(len(m.records)), 0)
	m.records = append(m.records, r)
	return r, nil
}

func (m *memory) Recorder(step string) state.Recorder { return recorder{m, step} }

type recorder struct {
	m    *memory
	step string
}

func (r recorder) Intent(call, object string, detail, _ any) (int64, error) {
	raw, _ := json.Marshal(detail)
	rec, err := r.m.Append(state.Record{Kind: state.RecordIntent, Step: r.step, Change: &state.Change{Call: call, Object: object, Detail: raw}})
	return rec.Seq, err
}

func (r recorder) Outcome(intent int64, result state.Result, text string, _ any) error {
	_, err := r.m.Append(state.Record{Kind: state.RecordOutcome, Step: r.step, Intent: intent, Result: result, Text: text})
	return err
}

func (r recorder) Record(rec state.Record) error {
	rec.Step = r.step
	_, err := r.m.Append(rec)
	return err
}

func (r recorder) Waiting(text string) {
	_, _ = r.m.Append(state.Record{Kind: state.RecordWaiting, Step: r.step, Text: text})
}

func kinds(m *memory) string {
	var out []string
	for _, r := range m.records[1:] {
		s := string(r.Kind)
		if r.Step != "" {
			s += ":" + r.Step
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

// scripted is a step that becomes done when it acted often enough.
type scripted struct {
	spec    state.StepSpec
	acts    *int
	wants   int
	blocked string
	err     error
	errs    []error
	change  bool
}

func (s *scripted) Spec() state.StepSpec { return s.spec }

func (s *scripted) Observe(context.Context) (state.Observation, error) {
	if s.blocked != "" {
		return state.Observation{Status: state.Blocked, Reason: s.blocked}, nil
	}
	if *s.acts >= s.wants {
		return state.Observation{Status: state.Done, Reason: "as it should be"}, nil
	}
	return state.Observation{Status: state.Ready}, nil
}

func (s *scripted) Act(_ context.Context, rec state.Recorder) error {
	if len(s.errs) > 0 {
		err := s.errs[0]
		s.errs = s.errs[1:]
		if err != nil {
			return err
		}
	}
	if s.change {
		n, err := rec.Intent("eks:Change", "cluster x", nil, nil)
		if err != nil {
			return err
		}
		if err := rec.Outcome(n, state.Succeeded, "", nil); err != nil {
			return err
		}
	}
	if s.err != nil {
		return s.err
	}
	*s.acts++
	return nil
}

type control struct {
	who   *state.Who
	asked []run.Ask
}

func (c *control) Approve(_ context.Context, a run.Ask) (*state.Who, error) {
	c.asked = append(c.asked, a)
	return c.who, nil
}

func spec(id string, phase state.Phase) state.StepSpec {
	return state.StepSpec{ID: id, Phase: phase, Title: id, Side: state.Green}
}

func walker(m *memory, c *control, steps ...*scripted) *run.Walker {
	by := map[string]*scripted{}
	for _, s := range steps {
		if s.acts == nil {
			s.acts = new(int)
		}
		by[s.spec.ID] = s
	}
	return &run.Walker{Journal: m, Control: c, Login: func(state.Side) string { return "aws sso login" },
		Build: func(_ context.Context, sp state.StepSpec) (run.Step, error) {
			if s, ok := by[sp.ID]; ok {
				return s, nil
			}
			return nil, errors.New("no such step: " + sp.ID)
		}}
}

func code(t *testing.T, err error) state.Exit {
	t.Helper()
	if err == nil {
		return state.ExitDone
	}
	var stop *state.Stop
	if !errors.As(err, &stop) {
		t.Fatalf("not a stop: %v", err)
	}
	return stop.Code
}
