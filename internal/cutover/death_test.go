package cutover

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"
	"pgregory.net/rapid"

	"github.com/eksbg/eksbg/internal/state"
)

// Every point where a process can die, in a run that goes well: the same command goes on
// to the same end, and no change is ever made twice.
func TestDeathAnywhere(t *testing.T) {
	whole := newWorld(t)
	whole.hold = time.Second
	if err := whole.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
	for k := 1; k <= whole.points; k++ {
		w := newWorld(t)
		w.hold, w.crashAt = time.Second, k
		died, err := w.dies(context.Background())
		if !died {
			t.Fatalf("point %d (%s): did not die: %v", k, whole.trace[k-1], err)
		}
		w.crashAt = 0
		if err := w.walk(context.Background()); err != nil {
			t.Errorf("died at %d (%s), resumed: %v", k, whole.trace[k-1], err)
			continue
		}
		w.wantWhere(atEnd)
		if !slices.Equal(w.changes, calm) {
			t.Errorf("died at %d (%s): changes %q", k, whole.trace[k-1], w.changes)
		}
	}
}

// The same in a run whose gate fails at 50 %: in the end everything is back.
func TestDeathAnywhereAroundAPutBack(t *testing.T) {
	failing := func() *world {
		w := newWorld(t)
		w.hold = time.Second
		w.prober.bad = map[state.Side]float64{}
		w.prober.hook = func(Probe) {
			w.prober.bad[state.Green] = map[bool]float64{true: 1, false: 0}[w.r53.weight(zoneShop, api, r53types.RRTypeA, "green") >= 50]
		}
		return w
	}
	whole := failing()
	wantStop(t, whole.walk(context.Background()), state.ExitPutBack)
	for k := 1; k <= whole.points; k++ {
		w := failing()
		w.crashAt = k
		if died, err := w.dies(context.Background()); !died {
			t.Fatalf("point %d: did not die: %v", k, err)
		}
		w.crashAt = 0
		wantStop(t, w.walk(context.Background()), state.ExitPutBack)
		if w.where() != atStart {
			t.Errorf("died at %d (%s): the world is at %s", k, whole.trace[k-1], w.where())
		}
	}
}

// An interrupt at every point, with either decision: the process ends with 130 and the
// same command goes on to the same end.
func TestInterruptAnywhere(t *testing.T) {
	whole := newWorld(t)
	whole.hold, whole.stages = time.Second, []int{10, 100}
	if err := whole.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, back := range []bool{true, false} {
		for k := 1; k <= whole.points; k++ {
			w := newWorld(t)
			w.hold, w.stages = time.Second, whole.stages
			w.deps = func(d *StageDeps) { d.OnInterrupt = func() bool { return back } }
			ctx, cancel := context.WithCancel(context.Background())
			w.journal.point = func(name string) {
				w.point(name)
				if w.points == k {
					cancel()
				}
			}
			err := w.walk(ctx)
			cancel()
			var stop *state.Stop
			if err != nil && errors.As(err, &stop) {
				if stop.Code != state.ExitInterrupted {
					t.Errorf("interrupted at %d (%s): %v", k, whole.trace[k-1], err)
				}
				if back && w.where() != atStart {
					t.Errorf("interrupted at %d (%s), back: the world is at %s", k, whole.trace[k-1], w.where())
				}
				if got := lastWeights(w); !back && got != w.where() && w.r53.weight(zoneShop, api, r53types.RRTypeA, "green") > 0 {
					t.Errorf("interrupted at %d (%s), held: the world is at %s, recorded %s", k, whole.trace[k-1], w.where(), got)
				}
			} else if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("interrupted at %d (%s): %v", k, whole.trace[k-1], err)
			}
			w.journal.point = w.point
			if err := w.walk(context.Background()); err != nil {
				t.Errorf("interrupted at %d (%s), back %t, resumed: %v", k, whole.trace[k-1], back, err)
			}
			if w.where() != atEnd {
				t.Errorf("interrupted at %d (%s), back %t: the world is at %s", k, whole.trace[k-1], back, w.where())
			}
		}
	}
}

// Any mix of deaths, lost calls, lost answers and stale reads, with or without a gate
// that fails at some stage: in the end the traffic is whole on the destination, or
// where it was before the run.
func TestWhateverHappensItEndsWhole(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		w.hold = time.Second
		failAt := rapid.SampledFrom([]int{0, 10, 50, 100}).Draw(rt, "gate fails at")
		if failAt > 0 {
			w.prober.bad = map[state.Side]float64{}
			w.prober.hook = func(Probe) {
				w.prober.bad[state.Green] = map[bool]float64{true: 1, false: 0}[w.r53.weight(zoneShop, api, r53types.RRTypeA, "green") >= failAt]
			}
		}
		w.r53.stale = time.Duration(rapid.IntRange(0, 20).Draw(rt, "route 53 stale")) * time.Second
		w.lb.stale = time.Duration(rapid.IntRange(0, 20).Draw(rt, "elbv2 stale")) * time.Second
		// Three in a row would be one change that cannot be made.
		lost := rapid.SliceOfN(rapid.IntRange(1, 12), 0, maxSends-1).Draw(rt, "lost calls")
		lostAfter := rapid.SliceOfN(rapid.IntRange(1, 12), 0, 3).Draw(rt, "lost answers")
		sent, answered := 0, 0
		w.fail = func(call string) error {
			if call == "ChangeResourceRecordSets" || call == "ModifyListener" {
				if sent++; slices.Contains(lost, sent) {
					return errReset
				}
			}
			return nil
		}
		w.lose = func(string) error {
			if answered++; slices.Contains(lostAfter, answered) {
				return errReset
			}
			return nil
		}
		for _, life := range rapid.SliceOfN(rapid.IntRange(1, 120), 0, 5).Draw(rt, "lives") {
			w.crashAt = w.points + life
			if died, err := w.dies(context.Background()); !died {
				if err != nil && failAt == 0 {
					rt.Fatalf("stopped without a reason: %v", err)
				}
			}
		}
		w.crashAt = 0
		err := w.walk(context.Background())
		switch {
		case failAt == 0 && (err != nil || w.where() != atEnd):
			rt.Fatalf("ends at %s with %v", w.where(), err)
		case failAt > 0 && w.where() != atStart:
			rt.Fatalf("ends at %s with %v", w.where(), err)
		}
		var stop *state.Stop
		if failAt > 0 && (!errors.As(err, &stop) || stop.Code != state.ExitPutBack) {
			rt.Fatalf("ends with %v", err)
		}
	})
}
