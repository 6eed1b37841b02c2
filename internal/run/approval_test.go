package run_test

import (
	"testing"

	"github.com/eksbg/eksbg/internal/run"
	"github.com/eksbg/eksbg/internal/state"
)

func TestApprovalBindsToRunPhaseAndWhatRemains(t *testing.T) {
	cut := spec("traffic/10", state.PhaseCutover)
	cut.Approval = true
	next := spec("traffic/50", state.PhaseCutover)
	m := newMemory(cut, next)
	c := &control{}
	first, second := &scripted{spec: cut, wants: 1}, &scripted{spec: next, wants: 1, errs: []error{&state.Stop{Code: state.ExitResumable, Why: "later"}}}
	w := walker(m, c, first, second)
	if got := code(t, w.Walk(t.Context())); got != state.ExitResumable {
		t.Fatalf("exit %d, want 4 without an approval", got)
	}
	c.who = &state.Who{ARN: "arn:aws:iam::111122223333:user/ops"}
	if got := code(t, w.Walk(t.Context())); got != state.ExitResumable || len(c.asked) != 2 {
		t.Fatalf("exit %d, asked %d times", got, len(c.asked))
	}
	// The phase stays approved for its other steps and over a resume.
	if err := w.Walk(t.Context()); err != nil || len(c.asked) != 2 {
		t.Fatalf("asked %d times, %v", len(c.asked), err)
	}
}

func TestApprovalLapsesAfterAPutBack(t *testing.T) {
	cut := spec("traffic/10", state.PhaseCutover)
	m := newMemory(cut)
	c := &control{}
	if _, err := m.Append(state.Record{Kind: state.RecordPutBack}); err != nil {
		t.Fatal(err)
	}
	w := walker(m, c, &scripted{spec: cut, wants: 1})
	// Semantics 16: asked whatever the plan file's approvals say.
	if got := code(t, w.Walk(t.Context())); got != state.ExitResumable {
		t.Errorf("exit %d, want 4 until the cutover is approved", got)
	}
	c.who = &state.Who{User: "ops"}
	if err := w.Walk(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAnEarlierApprovalDoesNotOutliveAPutBack(t *testing.T) {
	cut, all := spec("traffic/10", state.PhaseCutover), spec("traffic/100", state.PhaseCutover)
	cut.Approval = true
	m := newMemory(cut, all)
	c := &control{who: &state.Who{User: "ops"}}
	stopped := &state.Stop{Code: state.ExitPutBack, Why: "gate"}
	w := walker(m, c, &scripted{spec: cut, wants: 1, err: stopped}, &scripted{spec: all, wants: 1})
	if got := code(t, w.Walk(t.Context())); got != state.ExitPutBack || len(c.asked) != 1 {
		t.Fatalf("exit %d, asked %d times", got, len(c.asked))
	}
	if run.ApprovalLapsed(m.records, state.PhaseCutover) {
		t.Error("lapsed before anything was put back")
	}
	if _, err := m.Append(state.Record{Kind: state.RecordPutBack}); err != nil {
		t.Fatal(err)
	}
	if !run.ApprovalLapsed(m.records, state.PhaseCutover) {
		t.Error("not lapsed after a put-back")
	}
	w = walker(m, c, &scripted{spec: cut, wants: 1}, &scripted{spec: all, wants: 1})
	if err := w.Walk(t.Context()); err != nil || len(c.asked) != 2 {
		t.Errorf("asked %d times in all, want 2: %v", len(c.asked), err)
	}
}

func TestAnApprovalLapsesWhenWhatRemainsChanges(t *testing.T) {
	cut, all := spec("traffic/10", state.PhaseCutover), spec("traffic/100", state.PhaseCutover)
	cut.Approval = true
	later := &state.Stop{Code: state.ExitResumable, Why: "later"}
	for name, change := range map[string]func(*memory, *run.Walker){
		"nothing": nil,
		"a step is put in": func(m *memory, _ *run.Walker) {
			in := spec("traffic/50", state.PhaseCutover)
			_, _ = m.Append(state.Record{Kind: state.RecordInserted, Step: "traffic/100", Spec: &in})
		},
		"the plan file's gates change": func(_ *memory, w *run.Walker) { w.Terms = func(state.Phase) string { return "other gates" } },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory(cut, all)
			c := &control{who: &state.Who{User: "ops"}}
			first := &scripted{spec: cut, wants: 1, errs: []error{later}}
			w := walker(m, c, first, &scripted{spec: all, wants: 1}, &scripted{spec: spec("traffic/50", state.PhaseCutover), wants: 1})
			w.Terms = func(state.Phase) string { return "the gates" }
			if got := code(t, w.Walk(t.Context())); got != state.ExitResumable {
				t.Fatalf("exit %d", got)
			}
			want := 1
			if change != nil {
				change(m, w)
				want = 2
			}
			if err := w.Walk(t.Context()); err != nil || len(c.asked) != want {
				t.Errorf("asked %d times, want %d: %v", len(c.asked), want, err)
			}
		})
	}
}

func TestLiveRestartIsAlwaysApprovedByName(t *testing.T) {
	live := spec("blue/restart-live/1", state.PhaseRestartLive)
	c := &control{}
	if got := code(t, walker(newMemory(live), c, &scripted{spec: live, wants: 1}).Walk(t.Context())); got != state.ExitResumable {
		t.Errorf("exit %d, want 4", got)
	}
	if len(c.asked) != 1 || c.asked[0].Phase != state.PhaseRestartLive {
		t.Errorf("asked %+v", c.asked)
	}
}
