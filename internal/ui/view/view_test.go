package view_test

import (
	"testing"
	"time"

	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/ui/view"
)

var at = time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)

func run(records ...state.Record) *view.Model {
	all := append([]state.Record{{Kind: state.RecordPlan, Plan: &state.Plan{
		Clusters: map[state.Side]state.ClusterView{state.Green: {Version: "1.31"}},
		Traffic:  []state.Share{{Target: "alb/shop", Blue: 100}},
		Steps:    []state.StepSpec{{ID: "hop", Kind: state.KindControlPlane}, {ID: "traffic/100", Kind: state.KindTraffic}},
	}}}, records...)
	for i := range all {
		all[i].Seq, all[i].Time = int64(i+1), at.Add(time.Duration(i)*time.Minute)
	}
	return view.Fold(all)
}

func states(m *view.Model) string {
	out := ""
	for _, s := range m.Steps {
		out += s.Spec.ID + "=" + string(s.State) + " "
	}
	return out
}

func TestStepsFollowTheRecords(t *testing.T) {
	started := state.Record{Kind: state.RecordStarted, Step: "hop"}
	tests := map[string]struct {
		records []state.Record
		want    string
	}{
		"nothing yet":          {nil, "hop=pending traffic/100=pending "},
		"at work":              {[]state.Record{started}, "hop=running traffic/100=pending "},
		"failed":               {[]state.Record{started, {Kind: state.RecordFailed, Step: "hop"}}, "hop=failed traffic/100=pending "},
		"failed, with an exit": {[]state.Record{started, {Kind: state.RecordFailed, Step: "hop", Exit: new(1)}}, "hop=failed traffic/100=pending "},
		"blocked":              {[]state.Record{started, {Kind: state.RecordFailed, Step: "hop", Exit: new(3)}}, "hop=failed traffic/100=pending "},
		"put back":             {[]state.Record{started, {Kind: state.RecordFailed, Step: "hop", Exit: new(5)}}, "hop=failed traffic/100=pending "},
		"interrupted":          {[]state.Record{started, {Kind: state.RecordFailed, Step: "hop", Exit: new(130)}}, "hop=stopped traffic/100=pending "},
		"to be gone on with":   {[]state.Record{started, {Kind: state.RecordFailed, Step: "hop", Exit: new(4)}}, "hop=stopped traffic/100=pending "},
		"lock lost":            {[]state.Record{started, {Kind: state.RecordFailed, Step: "hop", Exit: new(6)}}, "hop=stopped traffic/100=pending "},
		"failed, then resumed": {[]state.Record{started, {Kind: state.RecordFailed, Step: "hop"}, {Kind: state.RecordResumed}, started}, "hop=running traffic/100=pending "},
		"done without acting":  {[]state.Record{{Kind: state.RecordDone, Step: "hop"}}, "hop=done traffic/100=pending "},
		"one put in front":     {[]state.Record{started, {Kind: state.RecordInserted, Step: "hop", Spec: &state.StepSpec{ID: "restart"}}}, "restart=pending hop=pending traffic/100=pending "},
		"an unknown step":      {[]state.Record{{Kind: state.RecordDone, Step: "elsewhere"}}, "hop=pending traffic/100=pending "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := states(run(tt.records...)); got != tt.want {
				t.Errorf("steps %s, want %s", got, tt.want)
			}
		})
	}
}

// The view's order of steps is the walk's.
func TestStepsAreTheWalks(t *testing.T) {
	records := []state.Record{
		{Kind: state.RecordPlan, Plan: &state.Plan{Steps: []state.StepSpec{{ID: "a"}, {ID: "b"}, {ID: "c"}}}},
		{Kind: state.RecordInserted, Step: "c", Spec: &state.StepSpec{ID: "x"}},
		{Kind: state.RecordInserted, Step: "b", Spec: &state.StepSpec{ID: "y"}},
		{Kind: state.RecordInserted, Step: "b", Spec: &state.StepSpec{ID: "y"}},
	}
	walk := state.Steps(records)
	m := view.Fold(records)
	if len(walk) != len(m.Steps) {
		t.Fatalf("the walk has %d steps, the view %d", len(walk), len(m.Steps))
	}
	for i := range walk {
		if walk[i].ID != m.Steps[i].Spec.ID {
			t.Errorf("step %d is %s in the walk and %s in the view", i, walk[i].ID, m.Steps[i].Spec.ID)
		}
	}
}

func TestTrafficIsStaleUntilItIsReadBack(t *testing.T) {
	intent := state.Record{Kind: state.RecordIntent, Step: "traffic/100", Change: &state.Change{Call: "elbv2:ModifyListener"}}
	moved := state.Record{Kind: state.RecordTraffic, Step: "traffic/100", Traffic: []state.Share{{Target: "alb/shop", Green: 100}}}
	if m := run(state.Record{Kind: state.RecordIntent, Step: "hop", Change: &state.Change{}}); m.TrafficStale {
		t.Error("a hop's intent makes the traffic stale")
	}
	if m := run(intent); !m.TrafficStale || m.Traffic[0].Blue != 100 {
		t.Errorf("after an intent: stale %v, %v", m.TrafficStale, m.Traffic)
	}
	m := run(intent, moved)
	if m.TrafficStale || m.Traffic[0].Green != 100 {
		t.Errorf("after the read-back: stale %v, %v", m.TrafficStale, m.Traffic)
	}
	if low, high := m.Percent(state.Green); low != 100 || high != 100 {
		t.Errorf("green has %d to %d", low, high)
	}
}

func TestStopsAndPutBacks(t *testing.T) {
	exit := 5
	back := []state.Record{{Kind: state.RecordPutBack, Step: "traffic/100", Text: "put back"}, {Kind: state.RecordStopped, Exit: &exit}}
	if m := run(back...); !m.PutBack || m.Stopped == nil || *m.Stopped.Exit != 5 {
		t.Errorf("put back %v, stopped %+v", m.PutBack, m.Stopped)
	}
	m := run(append(back, state.Record{Kind: state.RecordResumed}, state.Record{Kind: state.RecordStarted, Step: "traffic/100"})...)
	if m.PutBack || m.Stopped != nil || m.Resumed != 1 {
		t.Errorf("after a resume: put back %v, stopped %+v, resumed %d", m.PutBack, m.Stopped, m.Resumed)
	}
	if m := run(state.Record{Kind: state.RecordClosed}); !m.Closed {
		t.Error("not closed")
	}
}

// What was put back is to be done again.
func TestAPutBackUndoesTheStages(t *testing.T) {
	m := run(state.Record{Kind: state.RecordDone, Step: "hop"}, state.Record{Kind: state.RecordDone, Step: "traffic/100"},
		state.Record{Kind: state.RecordPutBack, Step: "traffic/100"})
	if got, want := states(m), "hop=done traffic/100=pending "; got != want {
		t.Errorf("steps %s, want %s", got, want)
	}
}

func TestGatesKeepTheNewestResult(t *testing.T) {
	gate := func(v state.GateVerdict) state.Record {
		return state.Record{Kind: state.RecordGate, Step: "traffic/100", Gate: &state.GateResult{Gate: "http", Target: "x", Verdict: v, Text: string(v)}}
	}
	m := run(gate(state.GateUnknown), gate(state.GatePass))
	if len(m.Gates) != 1 || m.Gates[0].Verdict != state.GatePass {
		t.Errorf("gates %+v", m.Gates)
	}
}
