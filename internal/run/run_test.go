package run_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/run"
	"github.com/eksbg/eksbg/internal/state"
)

func TestWalkActsOnWhatIsNotDoneAndClosesTheRun(t *testing.T) {
	a, b := spec("a", state.PhaseUpgrade), spec("b", state.PhaseRestart)
	m := newMemory(a, b)
	w := walker(m, &control{}, &scripted{spec: a}, &scripted{spec: b, wants: 1})
	if err := w.Walk(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := kinds(m), "done:a started:b done:b closed"; got != want {
		t.Errorf("records %q, want %q", got, want)
	}
}

func TestWalkResumedRecordsNothingTwice(t *testing.T) {
	a := spec("a", state.PhaseUpgrade)
	m := newMemory(a)
	w := walker(m, &control{}, &scripted{spec: a, wants: 1})
	if err := w.Walk(t.Context()); err != nil {
		t.Fatal(err)
	}
	done := 1
	w = walker(m, &control{}, &scripted{spec: a, wants: 1, acts: &done})
	if err := w.Walk(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := kinds(m), "started:a done:a closed closed"; got != want {
		t.Errorf("records %q, want %q", got, want)
	}
}

func TestWalkPutsInWhatAStepNeedsFirst(t *testing.T) {
	hop, restart := spec("hop", state.PhaseUpgrade), spec("restart", state.PhaseRestart)
	restart.Cause = "kubelets lag"
	m := newMemory(hop)
	w := walker(m, &control{},
		&scripted{spec: hop, wants: 1, errs: []error{&state.NeedsFirst{Spec: restart}}},
		&scripted{spec: restart, wants: 1})
	if err := w.Walk(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := kinds(m), "started:hop inserted:hop started:restart done:restart started:hop done:hop closed"; got != want {
		t.Errorf("records %q, want %q", got, want)
	}
}

func TestWalkDoesNotPutTheSameStepInTwice(t *testing.T) {
	hop, restart := spec("hop", state.PhaseUpgrade), spec("restart", state.PhaseRestart)
	m := newMemory(hop)
	needs := &state.NeedsFirst{Spec: restart}
	w := walker(m, &control{},
		&scripted{spec: hop, wants: 1, errs: []error{needs, needs}}, &scripted{spec: restart, wants: 1})
	if got := code(t, w.Walk(t.Context())); got != state.ExitBlocked {
		t.Errorf("exit %d, want 3", got)
	}
}

func TestWalkStops(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	a := spec("a", state.PhaseUpgrade)
	tests := map[string]struct {
		ctx  context.Context
		step *scripted
		want state.Exit
		says string
	}{
		"a failure":             {t.Context(), &scripted{spec: a, wants: 1, err: errors.New("boom")}, state.ExitFailed, "boom"},
		"a block":               {t.Context(), &scripted{spec: a, blocked: "an insight"}, state.ExitBlocked, "nothing has been changed so far"},
		"a block after changes": {t.Context(), &scripted{spec: a, wants: 1, change: true, err: &state.Stop{Code: state.ExitBlocked, Why: "no"}}, state.ExitBlocked, "changed so far: eks:Change cluster x"},
		"an interrupt":          {cancelled, &scripted{spec: a, wants: 1}, state.ExitInterrupted, "interrupted"},
		"a world that resists":  {t.Context(), &scripted{spec: a, wants: 99}, state.ExitBlocked, "acted 3 times"},
		"a stop of the step":    {t.Context(), &scripted{spec: a, wants: 1, err: &state.Stop{Code: state.ExitPutBack, Why: "gate"}}, state.ExitPutBack, "gate"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMemory(a)
			err := walker(m, &control{}, tt.step).Walk(tt.ctx)
			if got := code(t, err); got != tt.want {
				t.Errorf("exit %d, want %d: %v", got, tt.want, err)
			}
			if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("says %q, want %q in it", err, tt.says)
			}
			last := m.records[len(m.records)-1]
			if last.Kind != state.RecordStopped || last.Exit == nil || *last.Exit != int(tt.want) {
				t.Errorf("the last record is %+v, want the stop with exit %d", last, tt.want)
			}
			// What has been changed is said once, where the run ends.
			if n := strings.Count(err.Error(), "changed so far"); n > 1 {
				t.Errorf("%d times what was changed: %v", n, err)
			}
			for _, r := range m.records {
				if r.Kind == state.RecordFailed && (r.Exit == nil || *r.Exit != int(tt.want) || strings.Contains(r.Text, "changed so far")) {
					t.Errorf("the step ended with %+v, want exit %d", r, tt.want)
				}
			}
		})
	}
}

// An approval given before a put-back is worth nothing after it.
// Semantics 4: an approval is of what was approved.
// Semantics 12: with the traffic on its way nothing that was done before it is looked
// at again, so that nothing keeps the stages from judging and putting back.
func TestDoneStepsDoNotStandInTheWayOfTrafficThatMoves(t *testing.T) {
	capacity, cut := spec("green/capacity", state.PhaseCapacity), spec("traffic/10", state.PhaseCutover)
	cut.Kind = state.KindTraffic
	m := newMemory(capacity, cut)
	m.records = append(m.records,
		state.Record{Seq: 2, Kind: state.RecordDone, Step: "green/capacity"},
		state.Record{Seq: 3, Kind: state.RecordIntent, Step: "traffic/10", Change: &state.Change{Call: "route53:ChangeResourceRecordSets"}})
	back := &state.Stop{Code: state.ExitPutBack, Why: "502 from green"}
	w := walker(m, &control{}, &scripted{spec: capacity, blocked: "green is short"}, &scripted{spec: cut, wants: 1, err: back})
	if err := w.Walk(t.Context()); code(t, err) != state.ExitPutBack {
		t.Errorf("the stage was not reached: %v", err)
	}
}

// Semantics 24: the short patience ends with the first intent, in the middle of a step
// as well.
func TestPatienceGrowsWithTheFirstChange(t *testing.T) {
	hop := spec("hop", state.PhaseUpgrade)
	m := newMemory(hop)
	var before, after, budgetBefore, budgetAfter time.Duration
	w := walker(m, &control{}, &scripted{spec: hop})
	w.Build = func(ctx context.Context, sp state.StepSpec) (run.Step, error) {
		return stepFunc{sp, func(ctx context.Context, rec state.Recorder) error {
			before, budgetBefore = aws.Patience(ctx, 10*time.Minute), aws.Budget(ctx, 10*time.Minute)
			if _, err := rec.Intent("eks:UpdateClusterVersion", "cluster x", nil, nil); err != nil {
				return err
			}
			after, budgetAfter = aws.Patience(ctx, 10*time.Minute), aws.Budget(ctx, 10*time.Minute)
			return errors.New("enough")
		}}, nil
	}
	_ = w.Walk(t.Context())
	if before != run.FirstContact || after != 10*time.Minute {
		t.Errorf("patience %s before the first change and %s after it", before, after)
	}
	// Likewise for an endpoint that answers nothing but errors.
	if budgetBefore > 30*time.Second || budgetAfter != 10*time.Minute {
		t.Errorf("calls are repeated for %s before the first change and for %s after it", budgetBefore, budgetAfter)
	}
}

// stepFunc is a step that is always ready and acts as the function says.
type stepFunc struct {
	spec state.StepSpec
	act  func(context.Context, state.Recorder) error
}

func (s stepFunc) Spec() state.StepSpec { return s.spec }

func (s stepFunc) Observe(context.Context) (state.Observation, error) {
	return state.Observation{Status: state.Ready}, nil
}

func (s stepFunc) Act(ctx context.Context, rec state.Recorder) error { return s.act(ctx, rec) }

func TestErrorsGetTheirExitCodes(t *testing.T) {
	hop := spec("hop", state.PhaseUpgrade)
	gone := &aws.GaveUpError{Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}}
	if !aws.IsUnavailable(gone) {
		t.Fatal("the error of this test is not an endpoint that is away")
	}
	for name, tt := range map[string]struct {
		err    error
		change bool
		want   state.Exit
		cure   string
	}{
		"an endpoint that is away before the first change": {gone, false, state.ExitFailed, "check the network"},
		"an endpoint that is away after it":                {gone, true, state.ExitResumable, "check the network"},
		"a token that the API server does not take":        {apierrors.NewUnauthorized("Unauthorized"), false, state.ExitResumable, "aws sso login"},
		"anything else": {errors.New("boom"), true, state.ExitFailed, "mend what the message says"},
	} {
		t.Run(name, func(t *testing.T) {
			w := walker(newMemory(hop), &control{}, &scripted{spec: hop, wants: 1, change: tt.change, err: tt.err})
			err := w.Walk(t.Context())
			var stop *state.Stop
			if got := code(t, err); got != tt.want || !errors.As(err, &stop) || !strings.HasPrefix(stop.Cure, tt.cure) {
				t.Errorf("exit %d, want %d and a cure that begins %q: %#v", got, tt.want, tt.cure, stop)
			}
		})
	}
}

func TestATimeoutIsResumableAndSaysSoInTheJournal(t *testing.T) {
	a := spec("a", state.PhaseUpgrade)
	m := newMemory(a)
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	if got := code(t, walker(m, &control{}, &scripted{spec: a, wants: 1}).Walk(ctx)); got != state.ExitResumable {
		t.Errorf("exit %d, want 4", got)
	}
	if last := m.records[len(m.records)-1]; *last.Exit != int(state.ExitResumable) {
		t.Errorf("the journal says exit %d", *last.Exit)
	}
}

// A journal that breaks on the way must not hide where the traffic is.
func TestABrokenJournalKeepsTheExitCodeOfAPutBack(t *testing.T) {
	cut := spec("traffic/10", state.PhaseCutover)
	for _, want := range []state.Exit{state.ExitPutBack, state.ExitDisplaced} {
		m := newMemory(cut)
		w := walker(m, &control{}, &scripted{spec: cut})
		w.Build = func(_ context.Context, sp state.StepSpec) (run.Step, error) {
			return stepFunc{sp, func(context.Context, state.Recorder) error {
				m.broken = errors.New("no space left on device")
				return &state.Stop{Code: want, Why: "where it is"}
			}}, nil
		}
		if got := code(t, w.Walk(t.Context())); got != want {
			t.Errorf("exit %d, want %d", got, want)
		}
	}
}

func TestUntilStopsAfterTheStep(t *testing.T) {
	a, b := spec("a", state.PhaseUpgrade), spec("b", state.PhaseRestart)
	m := newMemory(a, b)
	acts := 0
	w := walker(m, &control{}, &scripted{spec: a}, &scripted{spec: b, wants: 1, acts: &acts})
	w.Until = "a"
	if got := code(t, w.Walk(t.Context())); got != state.ExitResumable || acts != 0 {
		t.Errorf("exit %d, b acted %d times", got, acts)
	}
	w.Until = "nowhere"
	if got := code(t, w.Walk(t.Context())); got != state.ExitFailed {
		t.Errorf("exit %d for an unknown step", got)
	}
}

func TestAJournalThatCannotBeWrittenChangesNothing(t *testing.T) {
	a := spec("a", state.PhaseUpgrade)
	m := newMemory(a)
	m.broken = errors.New("no space left on device")
	acts := 0
	if got := code(t, walker(m, &control{}, &scripted{spec: a, wants: 1, acts: &acts}).Walk(t.Context())); got != state.ExitFailed || acts != 0 {
		t.Errorf("exit %d, acted %d times", got, acts)
	}
}

func TestWhatIsUrgentActsBeforeAnythingElseIsLookedAt(t *testing.T) {
	first, cut := spec("capacity", state.PhaseCapacity), spec("traffic/10", state.PhaseCutover)
	cut.Kind, cut.Approval = state.KindTraffic, true
	m := newMemory(first, cut)
	back := &state.Stop{Code: state.ExitPutBack, Why: "put back"}
	w := walker(m, &control{}, &scripted{spec: first, blocked: "short"}, &scripted{spec: cut, wants: 1, err: back})
	w.Urgent = func() string { return "traffic/10" }
	if got := code(t, w.Walk(t.Context())); got != state.ExitPutBack {
		t.Errorf("exit %d, want 5", got)
	}
	if got, want := kinds(m), "started:traffic/10 failed:traffic/10 stopped"; got != want {
		t.Errorf("records %q, want %q", got, want)
	}
}

// Semantics 20 holds between two stages as well: the stage decides, not the walk.
func TestAnInterruptBetweenTwoStagesIsTheStagesToDecide(t *testing.T) {
	ten, all := spec("traffic/10", state.PhaseCutover), spec("traffic/100", state.PhaseCutover)
	ten.Kind, all.Kind = state.KindTraffic, state.KindTraffic
	m := newMemory(ten, all)
	ctx, cancel := context.WithCancel(t.Context())
	held := &state.Stop{Code: state.ExitInterrupted, Why: "blue 90, green 10; nobody watches these weights"}
	acts := 0
	w := walker(m, &control{}, &scripted{spec: ten, wants: 1, acts: &acts, change: true}, &scripted{spec: all, wants: 1, err: held})
	build := w.Build
	w.Build = func(ctx context.Context, sp state.StepSpec) (run.Step, error) {
		if sp.ID == "traffic/100" {
			cancel()
		}
		return build(ctx, sp)
	}
	err := w.Walk(ctx)
	if code(t, err) != state.ExitInterrupted || !strings.Contains(err.Error(), "nobody watches") {
		t.Errorf("the stage was not asked: %v", err)
	}
}
