package plan

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/eksbg/eksbg/internal/cutover"
	"github.com/eksbg/eksbg/internal/run"
	"github.com/eksbg/eksbg/internal/state"
)

// entrance is a traffic target whose weights somebody sets.
type entrance struct {
	share state.Share
	err   error
	reads int
}

func (*entrance) ID() string { return "alb/shop" }
func (e *entrance) Read(context.Context) (state.Share, error) {
	e.reads++
	return e.share, e.err
}

// pages is a journal of one step.
type pages struct {
	records []state.Record
	intents int
	guarded []string
}

func (p *pages) Records(string) []state.Record { return p.records }
func (p *pages) Intent(string, string, any, any) (int64, error) {
	p.intents++
	return int64(p.intents), nil
}
func (*pages) Outcome(int64, state.Result, string, any) error { return nil }
func (p *pages) Record(r state.Record) error {
	p.records = append(p.records, r)
	return nil
}
func (*pages) Waiting(string) {}
func (p *pages) Guard(change string) error {
	p.guarded = append(p.guarded, change)
	return nil
}

// restarts is the step behind the check: it does what do says.
type restarts struct {
	live bool
	do   func(state.Recorder, bool) error
}

func (*restarts) Spec() state.StepSpec { return state.StepSpec{} }
func (*restarts) Observe(context.Context) (state.Observation, error) {
	return state.Observation{Status: state.Ready}, nil
}
func (r *restarts) Act(_ context.Context, rec state.Recorder) error { return r.do(rec, r.live) }

func shareOf(blue, green int) state.Share {
	return state.Share{Target: "alb/shop", Blue: blue, Green: green}
}

// planned is a restart of green, planned while blue had all of the traffic.
func planned(e *entrance, p *pages, do func(state.Recorder, bool) error) (*standbyRestart, *clocktesting.FakeClock) {
	clk := clocktesting.NewFakeClock(time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC))
	b := &Builder{Plan: &state.Plan{Traffic: []state.Share{shareOf(100, 0)}}, History: p,
		Sources: Sources{Clock: clk, Traffic: []cutover.Traffic{e}}}
	return &standbyRestart{spec: state.StepSpec{ID: "green/restart/1", Side: state.Green}, b: b,
		build: func(live bool) run.Step { return &restarts{live, do} }}, clk
}

func wantStop(t *testing.T, err error, code state.Exit, says ...string) {
	t.Helper()
	var stop *state.Stop
	if !errors.As(err, &stop) || stop.Code != code {
		t.Fatalf("got %v, want exit %d", err, code)
	}
	for _, part := range says {
		if !strings.Contains(stop.Why+stop.Cure, part) {
			t.Errorf("the stop does not say %q: %s; %s", part, stop.Why, stop.Cure)
		}
	}
}

func TestARestartOfTheStandbyGoesOn(t *testing.T) {
	p := &pages{}
	s, _ := planned(&entrance{share: shareOf(100, 0)}, p, func(rec state.Recorder, live bool) error {
		if live {
			t.Error("live without traffic")
		}
		_, err := rec.Intent("k8s:patch deployments", "shop/Deployment/web", nil, nil)
		return errors.Join(err, state.Guard(rec, "k8s:patch deployments"))
	})
	if err := s.Act(t.Context(), p); err != nil || p.intents != 1 || len(p.guarded) != 1 || len(p.records) != 0 {
		t.Errorf("%v, %+v", err, p)
	}
}

// The side has come to get traffic since the plan: nothing is begun, and what is said
// are the weights as they are.
func TestARestartPlannedForAStandbyNeedsApprovalOnceItServes(t *testing.T) {
	for _, now := range []state.Share{shareOf(0, 100), shareOf(99, 1), shareOf(0, 0)} {
		p := &pages{}
		ran := false
		s, _ := planned(&entrance{share: now}, p, func(rec state.Recorder, live bool) error {
			if ran = true; !live {
				t.Error("not held to what a live side is held to")
			}
			if err := state.Guard(rec, "k8s:create pods/eviction"); err == nil {
				t.Error("an open intent would be sent again")
			}
			_, err := rec.Intent("k8s:patch deployments", "shop/Deployment/web", nil, nil)
			return err
		})
		err := s.Act(t.Context(), p)
		wantStop(t, err, state.ExitResumable, "green gets traffic now", weights([]state.Share{now}), "--approve restart-live")
		if !ran || p.intents != 0 { // it ran to put back what was changed for a while
			t.Errorf("ran %v, %d intents", ran, p.intents)
		}
		if last, ok := state.LastOf(p.records, state.RecordTraffic); !ok || last.Traffic[0] != now {
			t.Errorf("recorded %+v", p.records)
		}
		who := &state.Who{User: "ops"}
		s.b.Approve = func(_ context.Context, a run.Ask) (*state.Who, error) {
			if a.Phase != state.PhaseRestartLive {
				t.Errorf("asks for %s", a.Phase)
			}
			return who, nil
		}
		s.build = func(live bool) run.Step {
			return &restarts{live, func(rec state.Recorder, live bool) error {
				_, err := rec.Intent("k8s:patch deployments", "shop/Deployment/web", nil, nil)
				if !live {
					t.Error("approved, but not live")
				}
				return err
			}}
		}
		if err := s.Act(t.Context(), p); err != nil || p.intents != 1 {
			t.Errorf("approved: %v, %d intents", err, p.intents)
		}
		if a, ok := state.LastOf(p.records, state.RecordApproval); !ok || a.Phase != state.PhaseRestartLive || a.Who != who {
			t.Errorf("the approval is not recorded: %+v", p.records)
		}
	}
}

// The traffic comes while pods are restarted: nothing more is begun, or sent again.
func TestTrafficThatComesDuringARestartStopsIt(t *testing.T) {
	for what, change := range map[string]func(state.Recorder) error{
		"begin": func(rec state.Recorder) error {
			_, err := rec.Intent("k8s:patch deployments", "shop/Deployment/web", nil, nil)
			return err
		},
		"send again": func(rec state.Recorder) error { return state.Guard(rec, "k8s:patch deployments") },
	} {
		p, e := &pages{}, &entrance{share: shareOf(100, 0)}
		var s *standbyRestart
		var clk *clocktesting.FakeClock
		s, clk = planned(e, p, func(rec state.Recorder, _ bool) error {
			if err := change(rec); err != nil || e.reads != 1 {
				t.Errorf("%s: %v after %d reads", what, err, e.reads)
			}
			clk.Step(lookEvery)
			if err := change(rec); err != nil || e.reads != 2 {
				t.Errorf("%s: %v after %d reads", what, err, e.reads)
			}
			e.share = shareOf(0, 100)
			clk.Step(lookEvery)
			return change(rec)
		})
		err := s.Act(t.Context(), p)
		var withheld *state.Withheld
		if !errors.As(err, &withheld) {
			t.Errorf("%s: %v", what, err)
		}
		wantStop(t, err, state.ExitResumable, "green gets traffic now", "alb/shop: blue 0, green 100")
	}
}

// Weights that cannot be read are no zero.
func TestUnknownTrafficIsNoPass(t *testing.T) {
	p := &pages{}
	s, _ := planned(&entrance{err: errors.New("AccessDenied")}, p, func(state.Recorder, bool) error {
		t.Error("restarts")
		return nil
	})
	wantStop(t, s.Act(t.Context(), p), state.ExitBlocked, "is not known", "let eksbg read the entrances")
}
