package cutover

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/eksbg/eksbg/internal/state"
)

func TestFailedGatePutsEverythingBack(t *testing.T) {
	w := newWorld(t)
	w.failingAt(50, 0.03)
	stop := wantStop(t, w.walk(context.Background()), state.ExitPutBack, "http 97.00 % of 200 samples", "6 x 502", "green (192.0.2.20", "where it was before the run")
	if strings.Contains(stop.Why, "Nobody watches") {
		t.Errorf("whole on one side needs no watching: %s", stop.Why)
	}
	w.wantWhere(atStart)
	// In reverse order: the listener before the zone.
	if n := len(w.changes); !slices.Equal(w.changes[n-2:], []string{"elasticloadbalancing:ModifyListener", "route53:ChangeResourceRecordSets"}) {
		t.Errorf("put back in the order %q", w.changes[n-2:])
	}
	back := w.journal.of(state.RecordPutBack)
	if len(back) != 1 || back[0].Traffic[0].Blue != 100 {
		t.Fatalf("put-back records %+v", back)
	}
	if _, due := PutBackDue(w.journal); due {
		t.Error("a put-back is still due")
	}
	// Once mended it goes all the way, from the first stage on.
	w.prober.hook, w.prober.bad = nil, nil
	if err := w.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.wantWhere(atEnd)
}

func TestFailedGateEndsEarlyInTheHold(t *testing.T) {
	w := newWorld(t)
	w.stages = []int{10}
	w.clock.after(2*time.Minute, func() { w.lb.groups[tgGreen].healthy, w.lb.groups[tgGreen].unhealthy = 1, 3 })
	begun := w.clock.Now()
	wantStop(t, w.walk(context.Background()), state.ExitPutBack, "targets: 1 of 4 targets of shop-green healthy, want 100 %")
	w.wantWhere(atStart)
	if took := w.clock.Since(begun); took > 4*time.Minute {
		t.Errorf("put back after %s, the hold of 5m was waited for", took)
	}
}

func TestGateThatFailsBeforeTheFirstShift(t *testing.T) {
	w := newWorld(t)
	w.failingAt(0, 1)
	wantStop(t, w.walk(context.Background()), state.ExitBlocked, "a gate fails before any traffic has moved")
	w.wantWhere(atStart)
	if len(w.journal.of(state.RecordPutBack)) != 0 {
		t.Error("nothing was put back, and a put-back is recorded")
	}
}

func TestGateThatFailsBeforeALaterShift(t *testing.T) {
	w := newWorld(t)
	w.stages = []int{10}
	if err := w.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.stages = []int{10, 50}
	w.failingAt(10, 1)
	wantStop(t, w.walk(context.Background()), state.ExitPutBack)
	w.wantWhere(atStart)
}

// Semantics 16.
func TestGateWithoutAnAnswer(t *testing.T) {
	w := newWorld(t)
	w.stages = []int{10}
	silent := map[state.Side]float64{state.Blue: 2, state.Green: 2}
	two := 2.0
	w.clock.after(4*time.Minute, func() { w.prober.bad, w.prober.badName = silent, &two })
	begun := w.clock.Now()
	wantStop(t, w.walk(context.Background()), state.ExitResumable, "no verdict after 10m0s", "blue does not answer either", "Nobody watches these weights")
	w.wantWhere(atTen)
	if took := w.clock.Since(begun); took < 15*time.Minute {
		t.Errorf("gave up after %s, want the hold of 5m and the patience of 10m", took)
	}
	// With answers again it holds and asks again.
	w.prober.bad, w.prober.badName = nil, nil
	changes := len(w.changes)
	if err := w.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(w.changes) != changes {
		t.Errorf("weights in place were set again")
	}
}

func TestSilentDestinationFailsWhenTheOriginAnswers(t *testing.T) {
	w := newWorld(t)
	w.failingAt(10, 2)
	wantStop(t, w.walk(context.Background()), state.ExitPutBack, "no answer to any of 200 samples at green", "blue answers")
	w.wantWhere(atStart)
}

func TestAnswerThatComesWithinThePatience(t *testing.T) {
	w := newWorld(t)
	w.stages = []int{10}
	two := 2.0
	w.clock.after(4*time.Minute, func() {
		w.prober.bad, w.prober.badName = map[state.Side]float64{state.Blue: 2, state.Green: 2}, &two
	})
	w.clock.after(12*time.Minute, func() { w.prober.bad, w.prober.badName = nil, nil })
	if err := w.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.wantWhere(atTen)
}

// Semantics 14.
func TestPutBackLooksAtTheOriginFirst(t *testing.T) {
	tests := []struct {
		name string
		ill  func(w *world)
		text string
	}{
		{"http", func(w *world) { w.prober.bad = map[state.Side]float64{state.Green: 0.5, state.Blue: 0.6} }, "http 40.00 % of 20 samples at blue"},
		{"targets", func(w *world) {
			w.prober.bad = map[state.Side]float64{state.Green: 0.5}
			w.lb.groups[tgBlue].healthy, w.lb.groups[tgBlue].unhealthy = 0, 4
		}, "0 of 4 targets of shop-blue healthy"},
		{"the name fails, the destination does not", func(w *world) {
			bad := 0.3
			w.prober.badName = &bad
			w.prober.bad = map[state.Side]float64{state.Blue: 0.4}
		}, "at blue"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.stages = []int{10}
			w.clock.after(4*time.Minute, func() { tt.ill(w) })
			wantStop(t, w.walk(context.Background()), state.ExitResumable, tt.text, "so the traffic was not put back", "Nobody watches", "aws elbv2 modify-listener", "aws route53 change-resource-record-sets")
			w.wantWhere(atTen)
			if _, due := PutBackDue(w.journal); !due {
				t.Error("the put-back is no longer due")
			}
			// Still ill: the same again, and nothing moves.
			wantStop(t, w.walk(context.Background()), state.ExitResumable)
			w.wantWhere(atTen)
			// The origin is well again: back first, whatever the destination does now.
			w.prober.bad, w.prober.badName = nil, nil
			w.lb.groups[tgBlue].healthy, w.lb.groups[tgBlue].unhealthy = 4, 0
			wantStop(t, w.walk(context.Background()), state.ExitPutBack)
			w.wantWhere(atStart)
		})
	}
}

func TestOriginThatIsBetterGetsTheTrafficBack(t *testing.T) {
	w := newWorld(t)
	w.stages = []int{10}
	w.clock.after(4*time.Minute, func() {
		w.prober.bad = map[state.Side]float64{state.Green: 0.5, state.Blue: 0.1}
		w.lb.groups[tgBlue].healthy, w.lb.groups[tgBlue].unhealthy = 3, 1
	})
	wantStop(t, w.walk(context.Background()), state.ExitPutBack)
	w.wantWhere(atStart)
}

// Semantics 14: a journal that cannot be written stops no put-back.
func TestPutBackWithoutAJournal(t *testing.T) {
	w := newWorld(t)
	w.failingAt(50, 1)
	w.prober.hook = func(p Probe) {
		if len(p.Dial) > 0 && w.r53.weight(zoneShop, api, r53types.RRTypeA, "green") >= 50 {
			w.prober.bad = map[state.Side]float64{state.Green: map[bool]float64{true: 1, false: 0}[p.Dial[0] == greenIP]}
		}
	}
	full := false
	w.journal.refuse = func(r state.Record) bool {
		if r.Gate != nil && r.Gate.Gate == stageGate && r.Gate.Verdict == state.GateFail {
			full = true
		}
		return full
	}
	wantStop(t, w.walk(context.Background()), state.ExitPutBack, "where it was before the run")
	w.wantWhere(atStart)
	said := strings.Join(w.stderr, "\n")
	for _, want := range []string{"not in the journal (no space left on device)", `"kind":"intent"`, "route53:ChangeResourceRecordSets", `"kind":"put-back"`} {
		if !strings.Contains(said, want) {
			t.Errorf("stderr does not have %q:\n%s", want, said)
		}
	}
	// The journal takes records again: the put-back is made sure of, nothing moves.
	w.journal.refuse = nil
	w.prober.hook, w.prober.bad = nil, nil
	changes := len(w.changes)
	wantStop(t, w.walk(context.Background()), state.ExitPutBack)
	if len(w.changes) != changes {
		t.Errorf("put back twice: %q", w.changes[changes:])
	}
	w.wantWhere(atStart)
}

func TestJournalThatCannotBeWrittenBeforeTheFirstChange(t *testing.T) {
	w := newWorld(t)
	w.journal.refuse = func(r state.Record) bool { return r.Kind == state.RecordIntent }
	err := w.walk(context.Background())
	var stop *state.Stop
	if err == nil || errors.As(err, &stop) || !errors.Is(err, errDiskFull) {
		t.Fatalf("got %v, want the journal's error", err)
	}
	w.wantWhere(atStart)
	if len(w.changes) != 0 {
		t.Errorf("changes %q", w.changes)
	}
}

func TestJournalThatFillsUp(t *testing.T) {
	t.Run("between the targets of a stage", func(t *testing.T) {
		w := newWorld(t)
		n := 0
		w.journal.refuse = func(r state.Record) bool {
			if r.Kind == state.RecordIntent {
				n++
			}
			return n >= 5 // attach, two of 10 %, the zone of 50 %, then the listener of 50 %
		}
		wantStop(t, w.walk(context.Background()), state.ExitPutBack, "no space left")
		w.wantWhere(atStart)
	})
	t.Run("during the hold", func(t *testing.T) {
		w := newWorld(t)
		w.stages = []int{10}
		w.journal.refuse = func(r state.Record) bool { return r.Gate != nil && r.Gate.Gate == stageGate }
		wantStop(t, w.walk(context.Background()), state.ExitResumable, "journal cannot be written", "Nobody watches")
		w.wantWhere(atTen)
	})
}

// Semantics 15.
func TestPutBackThatFails(t *testing.T) {
	tests := []struct {
		name  string
		fails string
		where string
		cmds  []string
		never []string
	}{
		{"listener", "ModifyListener", "A 100/0, AAAA 100/0, shop-blue=50 shop-green=50",
			[]string{"aws elbv2 modify-listener --region eu-central-1 --listener-arn " + shopHTTP, `"TargetGroupArn":"` + tgBlue + `","Weight":1`}, []string{"aws route53 change"}},
		{"zone", "ChangeResourceRecordSets", "A 50/50, AAAA 50/50, shop-blue=1",
			[]string{"aws route53 change-resource-record-sets --hosted-zone-id " + zoneShop, `"Action":"DELETE"`, `"Weight":100`}, []string{"aws elbv2 modify"}},
		{"both", "", atFifty, []string{"aws elbv2 modify-listener", "aws route53 change-resource-record-sets"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.failingAt(50, 1)
			w.fail = func(call string) error {
				if _, due := PutBackDue(w.journal); due && (call == tt.fails || tt.fails == "" && (call == "ModifyListener" || call == "ChangeResourceRecordSets")) {
					return apiError("AccessDenied", "User is not authorized")
				}
				return nil
			}
			stop := wantStop(t, w.walk(context.Background()), state.ExitDisplaced, append(tt.cmds, "could not be put back", "User is not authorized", "Nobody watches")...)
			for _, never := range tt.never {
				if strings.Contains(stop.Cure, never) {
					t.Errorf("the cure has %q for what is back already:\n%s", never, stop.Cure)
				}
			}
			w.wantWhere(tt.where)
			if len(w.journal.of(state.RecordPutBack)) != 0 {
				t.Error("a put-back is recorded that was not done")
			}
			// The permission is there again: back first.
			w.fail = nil
			wantStop(t, w.walk(context.Background()), state.ExitPutBack)
			w.wantWhere(atStart)
		})
	}
}

func TestPutBackDoneByHandIsMadeSureOf(t *testing.T) {
	w := newWorld(t)
	w.failingAt(50, 1)
	w.fail = func(call string) error {
		if _, due := PutBackDue(w.journal); due && call == "ModifyListener" {
			return apiError("AccessDenied", "no")
		}
		return nil
	}
	wantStop(t, w.walk(context.Background()), state.ExitDisplaced)
	w.fail = nil
	w.lb.listener(shopHTTP, single(tgBlue))
	changes := len(w.changes)
	wantStop(t, w.walk(context.Background()), state.ExitPutBack)
	if len(w.changes) != changes {
		t.Errorf("changed %q", w.changes[changes:])
	}
}

// A person who puts everything back in an emergency is not overruled: the run records
// it, stops, and needs a new approval.
func TestEverythingPutBackByHand(t *testing.T) {
	w := newWorld(t)
	w.stages = []int{10}
	if err := w.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, rt := range []r53types.RRType{r53types.RRTypeA, r53types.RRTypeAaaa} {
		w.r53.edit(zoneShop, api, rt, "blue", weigh(255))
		w.r53.edit(zoneShop, api, rt, "green", weigh(0))
	}
	w.lb.listener(shopHTTP, single(tgBlue))
	changes := len(w.changes)
	w.stages = []int{10, 50, 100}
	wantStop(t, w.walk(context.Background()), state.ExitPutBack, "does not hold by whom")
	if len(w.changes) != changes {
		t.Errorf("changed %q", w.changes[changes:])
	}
	if len(w.journal.of(state.RecordPutBack)) != 1 {
		t.Error("the put-back is not recorded")
	}
}

func TestPutBackLeavesSomebodyElsesChangeAlone(t *testing.T) {
	w := newWorld(t)
	w.failingAt(50, 1)
	w.fail = func(call string) error {
		if _, due := PutBackDue(w.journal); due && w.lb.weights(shopHTTP) == "shop-blue=50 shop-green=50" {
			w.lb.listener(shopHTTP, split(tgBlue, 30, tgGreen, 70))
		}
		return nil
	}
	wantStop(t, w.walk(context.Background()), state.ExitDisplaced, "somebody else changed the weights of alb/shop to blue 30, green 70")
	w.wantWhere("A 100/0, AAAA 100/0, shop-blue=30 shop-green=70")
}

// Semantics 18: when one target fails, all go back.
func TestOneTargetFailsToMove(t *testing.T) {
	for _, failing := range []string{"ModifyListener", "ChangeResourceRecordSets"} {
		t.Run(failing+" at 50 %", func(t *testing.T) {
			w := newWorld(t)
			w.fail = func(call string) error {
				if call == failing && w.r53.weight(zoneShop, api, r53types.RRTypeA, "green") >= 10 && len(w.journal.of(state.RecordTraffic)) > 0 {
					if _, due := PutBackDue(w.journal); !due {
						return apiError("AccessDenied", "not any more")
					}
				}
				return nil
			}
			wantStop(t, w.walk(context.Background()), state.ExitPutBack, "not any more")
			w.wantWhere(atStart)
		})
	}
	t.Run("the first one of all", func(t *testing.T) {
		w := newWorld(t)
		w.fail = func(call string) error {
			if call == "ChangeResourceRecordSets" {
				return apiError("AccessDenied", "never")
			}
			return nil
		}
		err := w.walk(context.Background())
		var stop *state.Stop
		if err == nil || errors.As(err, &stop) {
			t.Fatalf("got %v, want a plain failure: nothing has moved", err)
		}
		w.wantWhere(atStart)
	})
}

// The put-back keeps what somebody else changed beside the weights.
func TestPutBackKeepsOtherEdits(t *testing.T) {
	w := newWorld(t)
	w.failingAt(50, 1)
	w.clock.after(4*time.Minute, func() {
		w.r53.edit(zoneShop, api, r53types.RRTypeA, "blue", func(s *r53types.ResourceRecordSet) {
			s.ResourceRecords = []r53types.ResourceRecord{{Value: aws.String("192.0.2.11")}}
		})
	})
	wantStop(t, w.walk(context.Background()), state.ExitPutBack)
	w.wantWhere(atStart)
	for _, s := range w.r53.sets[zoneShop] {
		if s.Type == r53types.RRTypeA && aws.ToString(s.SetIdentifier) == "blue" && sameName(aws.ToString(s.Name), api) {
			if v := aws.ToString(s.ResourceRecords[0].Value); v != "192.0.2.11" {
				t.Errorf("the value was put back too: %s", v)
			}
		}
	}
}
