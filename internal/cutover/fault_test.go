package cutover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"
	"pgregory.net/rapid"

	"github.com/eksbg/eksbg/internal/state"
)

var errReset = errors.New("read tcp 192.0.2.1:443: connection reset by peer")

// nth gives a fault for the n-th call of a name (counted from 1).
func nth(call string, n int, err error) func(string) error {
	seen := 0
	return func(got string) error {
		if got != call {
			return nil
		}
		if seen++; seen == n {
			return err
		}
		return nil
	}
}

// Semantics 8 and 9: whatever becomes of a call or its answer, the world shows it.
func TestFaultsOfCalls(t *testing.T) {
	for _, call := range []string{"ChangeResourceRecordSets", "ModifyListener"} {
		for n := 1; n <= 4; n++ {
			t.Run(fmt.Sprintf("%s %d lost before", call, n), func(t *testing.T) {
				w := newWorld(t)
				w.fail = nth(call, n, errReset)
				if err := w.walk(context.Background()); err != nil {
					t.Fatal(err)
				}
				w.wantWhere(atEnd)
				if !slices.Equal(w.changes, calm) {
					t.Errorf("changes %q", w.changes)
				}
			})
			t.Run(fmt.Sprintf("%s %d lost after", call, n), func(t *testing.T) {
				w := newWorld(t)
				w.lose = nth(call, n, errReset)
				if err := w.walk(context.Background()); err != nil {
					t.Fatal(err)
				}
				w.wantWhere(atEnd)
				if !slices.Equal(w.changes, calm) {
					t.Errorf("changes %q", w.changes)
				}
				if call == "ChangeResourceRecordSets" && n <= 3 && !outcomeWith(w, "INSYNC is unverified") {
					t.Error("no outcome says that INSYNC is unverified")
				}
			})
		}
	}
}

func outcomeWith(w *world, text string) bool {
	return slices.ContainsFunc(w.journal.of(state.RecordOutcome), func(r state.Record) bool { return strings.Contains(r.Text, text) })
}

// A retry below the client sends a batch twice: the second one no longer matches.
func TestBatchThatWasAppliedAndIsRefused(t *testing.T) {
	w := newWorld(t)
	w.lose = nth("ChangeResourceRecordSets", 1, &r53types.InvalidChangeBatch{Messages: []string{"Tried to delete resource record set but the values provided do not match the current values"}})
	if err := w.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.wantWhere(atEnd)
	if !slices.Equal(w.changes, calm) {
		t.Errorf("changes %q", w.changes)
	}
}

func TestBatchThatIsAlwaysRefused(t *testing.T) {
	w := newWorld(t)
	w.fail = func(call string) error {
		if call == "ChangeResourceRecordSets" {
			return &r53types.InvalidChangeBatch{Messages: []string{"RRSet with DNS name api is not permitted"}}
		}
		return nil
	}
	err := w.walk(context.Background())
	if err == nil || !strings.Contains(fmt.Sprint(w.journal.of(state.RecordOutcome)), "not permitted") {
		t.Fatalf("got %v", err)
	}
	if w.calls["ChangeResourceRecordSets"] != maxSends {
		t.Errorf("sent %d times", w.calls["ChangeResourceRecordSets"])
	}
	w.wantWhere(atStart)
}

// Somebody changes a set between the read and the batch: Route 53 refuses it, and the
// world is neither old nor new.
func TestForeignChangeBetweenReadAndWrite(t *testing.T) {
	t.Run("record", func(t *testing.T) {
		w := newWorld(t)
		first := true
		w.fail = func(call string) error {
			if call == "ChangeResourceRecordSets" && first {
				first = false
				w.r53.edit(zoneShop, api, r53types.RRTypeA, "blue", weigh(80))
				w.r53.edit(zoneShop, api, r53types.RRTypeAaaa, "blue", weigh(80))
			}
			return nil
		}
		wantStop(t, w.walk(context.Background()), state.ExitBlocked, "somebody else changed it")
		w.wantWhere("A 80/0, AAAA 80/0, shop-blue=1")
	})
	t.Run("listener", func(t *testing.T) {
		w := newWorld(t)
		seen := 0
		w.fail = func(call string) error {
			// The read right before the attaching write.
			if call == "DescribeListeners" && len(state.OpenIntents(w.journal.records)) == 1 {
				if seen++; seen == 1 {
					w.lb.listener(shopHTTP, split(tgBlue, 1, tgOther, 1))
				}
			}
			return nil
		}
		wantStop(t, w.walk(context.Background()), state.ExitBlocked, "somebody else changed it")
		if len(w.changes) != 0 {
			t.Errorf("written over: %q", w.changes)
		}
	})
}

func TestForeignChangeFoundOnResume(t *testing.T) {
	w := newWorld(t)
	// Dies with the intent of the first batch in the journal, before it is sent.
	w.crashAt = pointOf(t, w, "before ChangeResourceRecordSets", 1)
	if died, err := w.dies(context.Background()); !died {
		t.Fatalf("did not die: %v", err)
	}
	w.crashAt = 0
	w.r53.edit(zoneShop, api, r53types.RRTypeA, "green", func(s *r53types.ResourceRecordSet) { s.TTL = aws.Int64(5) })
	wantStop(t, w.walk(context.Background()), state.ExitBlocked, "somebody else changed it", "aws route53 change-resource-record-sets",
		// What is to be deleted is what is there now, or Route 53 would refuse the command.
		`{"Action":"DELETE","ResourceRecordSet":{"Name":"api.shop.example.com.","ResourceRecords":[{"Value":"192.0.2.20"}],"SetIdentifier":"green","TTL":5,"Type":"A","Weight":0}}`)
	// Asked and answered by running it again: the weights are as expected, so it goes on.
	if err := w.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.wantWhere(atEnd)
}

// pointOf finds the n-th point of a name in an undisturbed run.
func pointOf(t *testing.T, like *world, name string, n int) int {
	t.Helper()
	w := newWorld(t)
	w.stages, w.deps = like.stages, like.deps
	_ = w.walk(context.Background())
	for i, got := range w.trace {
		if got == name {
			if n--; n == 0 {
				return i + 1
			}
		}
	}
	t.Fatalf("no point %q", name)
	return 0
}

func TestStaleReads(t *testing.T) {
	w := newWorld(t)
	w.r53.stale, w.lb.stale = 12*time.Second, 12*time.Second
	if err := w.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.wantWhere(atEnd)
	if !slices.Equal(w.changes, calm) {
		t.Errorf("changes %q", w.changes)
	}
}

// A change that was sent again long after its intent, then a death: what is read next
// may still be from before it, and is nobody else's change.
func TestStaleReadAfterALateChangeAndADeath(t *testing.T) {
	w := newWorld(t)
	w.lb.stale = 5 * time.Second
	w.fail = nth("ModifyListener", 2, errReset)
	w.journal.point = func(name string) {
		w.point(name)
		if last := w.journal.records; name == "journal after outcome" && last[len(last)-1].Result == state.Accepted && w.calls["ModifyListener"] == 3 && w.crashAt == 0 {
			w.crashAt = w.points + 1
		}
	}
	if died, err := w.dies(context.Background()); !died {
		t.Fatalf("did not die: %v", err)
	}
	w.journal.point = w.point
	if err := w.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.wantWhere(atEnd)
}

func TestStaleReadsAroundAPutBack(t *testing.T) {
	w := newWorld(t)
	w.r53.stale, w.lb.stale = 12*time.Second, 12*time.Second
	w.failingAt(50, 1)
	wantStop(t, w.walk(context.Background()), state.ExitPutBack)
	w.wantWhere(atStart)
}

func TestNeverInSync(t *testing.T) {
	w := newWorld(t)
	w.r53.syncs = -1
	wantStop(t, w.walk(context.Background()), state.ExitResumable, "still does not say", "aws route53 get-change --id C0001", "Nobody watches")
	w.wantWhere("A 90/10, AAAA 90/10, shop-blue=90 shop-green=10")
	w.r53.changes["C0001"] = w.clock.Now()
	w.r53.syncs = time.Second
	if err := w.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.wantWhere(atEnd)
	if !slices.Equal(w.changes, calm) {
		t.Errorf("changes %q", w.changes)
	}
}

func TestPutBackNeverInSyncIsNotBack(t *testing.T) {
	w := newWorld(t)
	w.failingAt(50, 1)
	w.clock.after(6*time.Minute, func() {})
	w.fail = func(call string) error {
		if _, due := PutBackDue(w.journal); due {
			w.r53.syncs = -1
		}
		return nil
	}
	wantStop(t, w.walk(context.Background()), state.ExitDisplaced, "still does not say")
	w.wantWhere(atStart)
}

func TestChangeThatMayNotBeAskedAbout(t *testing.T) {
	for name, err := range map[string]error{"denied": apiError("AccessDenied", "not authorized to perform: route53:GetChange"), "unknown": &r53types.NoSuchChange{}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.stages = []int{10}
			w.fail = func(call string) error {
				if call == "GetChange" {
					return err
				}
				return nil
			}
			begun := w.clock.Now()
			if err := w.walk(context.Background()); err != nil {
				t.Fatal(err)
			}
			if !outcomeWith(w, "INSYNC is unverified") {
				t.Error("no outcome says that INSYNC is unverified")
			}
			if took := w.clock.Since(begun); took < 6*time.Minute {
				t.Errorf("took %s, want 60 s of waiting beside hold and health", took)
			}
		})
	}
}

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
