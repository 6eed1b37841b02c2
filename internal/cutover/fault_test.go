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
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

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

// The answer is lost, and then the lock: the change is not sent a second time.
func TestALostAnswerAndALostLock(t *testing.T) {
	for _, call := range []string{"ChangeResourceRecordSets", "ModifyListener"} {
		w := newWorld(t)
		w.fail = nth(call, 1, errReset)
		withheld := &state.Withheld{Change: call, Err: &state.Stop{Code: state.ExitLocked, Why: "the lock was lost"}}
		w.journal.lock = withheld
		err := w.walk(context.Background())
		wantStop(t, err, state.ExitLocked, "the lock was lost")
		if w.calls[call] != 1 {
			t.Errorf("%s sent %d times", call, w.calls[call])
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

// One read that is stale again after others were not: the API's servers need not agree
// yet, and nobody else has changed anything.
func TestOneStaleReadAfterOthers(t *testing.T) {
	shifted := func(w *world) (bool, int) {
		ofShift := 0
		for _, r := range w.journal.of(state.RecordOutcome) {
			if r.Result == state.Succeeded {
				ofShift++
			}
		}
		return ofShift == len(calm[:3]), len(w.journal.of(state.RecordTraffic)) // the attaching, the zone, the listener
	}
	tests := []struct {
		name string
		// recorded is how many times the weights were journaled when the read is stale.
		recorded int
	}{{"right after the weights were set", 0}, {"in the hold", 1}}
	for _, tt := range tests {
		for _, call := range []string{"DescribeListeners", "ListResourceRecordSets"} {
			t.Run(tt.name+" "+call, func(t *testing.T) {
				w := newWorld(t)
				w.stages = []int{10}
				was := w.r53.sets[zoneShop]
				stale := 0
				w.fail = func(got string) error {
					if done, n := shifted(w); !done || n != tt.recorded || got != call || stale > 0 {
						return nil
					}
					stale++
					till := w.clock.Now().Add(time.Nanosecond)
					w.lb.old, w.r53.old = map[string][]elbtypes.Action{shopHTTP: split(tgBlue, 1, tgGreen, 0)}, map[string][]r53types.ResourceRecordSet{zoneShop: was}
					w.lb.oldTill, w.r53.oldTill = till, till
					return nil
				}
				if err := w.walk(context.Background()); err != nil {
					t.Fatal(err)
				}
				if stale != 1 {
					t.Fatal("no read was stale")
				}
				w.wantWhere(atTen)
				if !slices.Equal(w.changes, calm[:3]) {
					t.Errorf("changes %q", w.changes)
				}
			})
		}
	}
}

// What is still there when reads are no longer stale is somebody else's change, and the
// stop says where the traffic is.
func TestForeignChangeRightAfterTheWeightsWereSet(t *testing.T) {
	w := newWorld(t)
	w.stages = []int{10}
	var begun time.Time
	w.journal.point = func(name string) {
		w.point(name)
		if rs := w.journal.of(state.RecordOutcome); name == "journal after outcome" && len(rs) == 6 {
			w.lb.listener(shopHTTP, split(tgBlue, 95, tgGreen, 5))
			begun = w.clock.Now()
		}
	}
	wantStop(t, w.walk(context.Background()), state.ExitBlocked, "somebody else changed the weights", "blue 95 %, green 5 %. Nobody watches these weights")
	w.wantWhere("A 90/10, AAAA 90/10, shop-blue=95 shop-green=5")
	if took := w.clock.Since(begun); took < readBack {
		t.Errorf("believed after %s", took)
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
	w.wantWhere(atTen)
	if got := lastWeights(w); got != atTen {
		t.Errorf("recorded %s, want %s", got, atTen)
	}
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

// Getting the standby's group healthy takes minutes. What somebody changes meanwhile is
// seen before the shift, and not overwritten.
func TestForeignChangeBetweenTheAttachAndTheShift(t *testing.T) {
	w := newWorld(t)
	w.stages = []int{10}
	changed := false
	w.journal.point = func(name string) {
		w.point(name)
		if name == "journal after outcome" && len(w.journal.of(state.RecordOutcome)) == 2 && !changed {
			changed = true
			w.lb.listener(shopHTTP, split(tgBlue, 95, tgGreen, 5))
		}
	}
	wantStop(t, w.walk(context.Background()), state.ExitBlocked, "somebody else changed the weights")
	w.wantWhere("A 100/0, AAAA 100/0, shop-blue=95 shop-green=5")
}
