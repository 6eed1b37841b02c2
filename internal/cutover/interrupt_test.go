package cutover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

	eksaws "github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/state"
)

// Semantics 20.
func TestInterrupted(t *testing.T) {
	decide := func(back bool) func(*StageDeps) {
		return func(d *StageDeps) { d.OnInterrupt = func() bool { return back } }
	}
	tests := []struct {
		name  string
		at    time.Duration
		deps  func(*StageDeps)
		where string
		texts []string
	}{
		{"before the first shift", 20 * time.Second, decide(false), atStart, []string{"before any traffic has moved"}},
		{"in the hold, back", 4 * time.Minute, decide(true), atStart, []string{"where it was before the run", "blue 100 %, green 0 %", "Nobody watches these weights", "run the same command again with --approve cutover to move the traffic again"}},
		{"in the hold, default", 4 * time.Minute, nil, atStart, []string{"where it was before the run"}},
		{"in the hold, hold", 4 * time.Minute, decide(false), atTen, []string{"the traffic stays where it is", "blue 90 %, green 10 %", "Nobody watches these weights"}},
		{"between Route 53 and its sync, back", 50 * time.Second, decide(true), atStart, []string{"where it was before the run"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.deps = tt.deps
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			w.clock.after(tt.at, func() { cancel(errors.New("signal: interrupt")) })
			stop := wantStop(t, w.walk(ctx), state.ExitInterrupted, tt.texts...)
			if strings.Contains(stop.Cure, "what was wrong with") {
				t.Errorf("nothing was wrong: %s", stop.Cure)
			}
			w.wantWhere(tt.where)
			if err := w.walk(context.Background()); err != nil {
				t.Fatalf("resumed: %v", err)
			}
			w.wantWhere(atEnd)
		})
	}
}

func TestInterruptedPutBackThatFails(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w.clock.after(4*time.Minute, cancel)
	w.fail = func(call string) error {
		if _, due := PutBackDue(w.journal); due && call == "ModifyListener" {
			return apiError("AccessDenied", "no")
		}
		return nil
	}
	wantStop(t, w.walk(ctx), state.ExitDisplaced, "aws elbv2 modify-listener")
	// Finished by the next process, and still nothing was wrong with green.
	w.fail = nil
	wantStop(t, w.walk(context.Background()), state.ExitPutBack, "run the same command again with --approve cutover to move the traffic again")
	w.wantWhere(atStart)
}

func TestCredentialsThatEndDuringTheHold(t *testing.T) {
	w := newWorld(t)
	w.stages = []int{10}
	over := false
	w.clock.after(4*time.Minute, func() { over = true })
	w.fail = func(string) error {
		if over {
			return apiError("ExpiredToken", "The security token included in the request is expired")
		}
		return nil
	}
	err := w.walk(context.Background())
	var stop *state.Stop
	if err == nil || errors.As(err, &stop) {
		t.Fatalf("got %v, want the plain error that the run makes an exit 4 of", err)
	}
	if !strings.Contains(err.Error(), "green 10 %") || !strings.Contains(err.Error(), "Nobody watches") {
		t.Errorf("the error does not say where the traffic is: %v", err)
	}
	w.fail = nil
	if err := w.walk(context.Background()); err != nil {
		t.Fatal(fmt.Errorf("logged in again: %w", err))
	}
	w.wantWhere(atTen)
}

// Between two stages the run hands a cancelled context to the next one: it decides about
// the traffic all the same.
func TestInterruptedBetweenStages(t *testing.T) {
	for _, back := range []bool{true, false} {
		w := newWorld(t)
		w.stages = []int{10}
		w.deps = func(d *StageDeps) { d.OnInterrupt = func() bool { return back } }
		if err := w.walk(context.Background()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		w.stages = []int{10, 50}
		wantStop(t, w.walk(ctx), state.ExitInterrupted, "Nobody watches these weights")
		w.wantWhere(map[bool]string{true: atStart, false: atTen}[back])
	}
}

// An endpoint that is away for a while keeps neither the other target nor, in the end,
// its own from going back.
func TestPutBackWithAnEndpointThatIsAway(t *testing.T) {
	w := newWorld(t)
	w.failingAt(50, 1)
	away := 0
	w.fail = func(call string) error {
		if _, due := PutBackDue(w.journal); due && call == "DescribeListeners" && len(w.changes) == 5 {
			away++
			return &net.OpError{Op: "dial", Net: "tcp", Err: errReset}
		}
		return nil
	}
	wantStop(t, w.walk(context.Background()), state.ExitPutBack)
	w.wantWhere(atStart)
	if away == 0 {
		t.Error("the endpoint was never away")
	}
	if n := len(w.changes); w.changes[n-1] != "elasticloadbalancing:ModifyListener" {
		t.Errorf("changes %q: the listener should have been the last", w.changes)
	}
}

// The endpoint is away while the first target of all is moved: nothing is known to be
// wrong, and the run makes an exit 4 of it.
func TestEndpointThatIsAwayDuringAShift(t *testing.T) {
	w := newWorld(t)
	away := false
	w.fail = func(call string) error {
		if call == "ChangeResourceRecordSets" {
			away = true
		}
		if away {
			return &net.OpError{Op: "dial", Net: "tcp", Err: errReset}
		}
		return nil
	}
	err := w.walk(context.Background())
	var stop *state.Stop
	if err == nil || errors.As(err, &stop) || !eksaws.IsUnavailable(err) {
		t.Fatalf("got %v, want the plain error", err)
	}
	w.fail = nil
	if err := w.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.wantWhere(atEnd)
}

// Semantics 18: the endpoint of the second target stays away once the first one has
// moved. The first one goes back all the same.
func TestSecondTargetsEndpointStaysAway(t *testing.T) {
	isRoute53 := func(call string) bool {
		return strings.Contains(call, "ResourceRecordSets") || strings.Contains(call, "HostedZone") || call == "GetChange"
	}
	tests := []struct {
		name string
		away func(call string, due bool) bool
		code state.Exit
	}{
		{"for changes", func(call string, due bool) bool { return !due && call == "ModifyListener" }, state.ExitPutBack},
		{"for everything", func(call string, due bool) bool { return !due && !isRoute53(call) }, state.ExitPutBack},
		// Nobody can tell then whether the second one is where it was.
		{"for ever", func(call string, _ bool) bool { return !isRoute53(call) }, state.ExitDisplaced},
	}
	for _, tt := range tests {
		for _, percent := range []int{10, 50} {
			t.Run(fmt.Sprintf("%s, at %d %%", tt.name, percent), func(t *testing.T) {
				w := newWorld(t)
				if percent > 10 {
					w.stages = []int{10}
					if err := w.walk(context.Background()); err != nil {
						t.Fatal(err)
					}
				}
				w.stages = []int{10, 50, 100}
				moved := false
				w.fail = func(call string) error {
					_, due := PutBackDue(w.journal)
					moved = moved || w.r53.weight(zoneShop, api, r53types.RRTypeA, "green") >= percent
					if moved && tt.away(call, due) {
						return &net.OpError{Op: "dial", Net: "tcp", Err: errReset}
					}
					return nil
				}
				wantStop(t, w.walk(context.Background()), tt.code, "listener 00000000000000b1 of load balancer shop could not be moved")
				want := atStart
				if tt.code == state.ExitDisplaced {
					want = "A 100/0, AAAA 100/0, " + w.lb.weights(shopHTTP) // as far as it can be reached
				}
				w.wantWhere(want)
			})
		}
	}
}

// lastWeights is the last record of weights, in the words of where.
func lastWeights(w *world) string {
	r, ok := state.LastOf(w.journal.records, state.RecordTraffic)
	if !ok {
		return "none"
	}
	dns, lb := r.Traffic[0], r.Traffic[1]
	return fmt.Sprintf("A %d/%d, AAAA %d/%d, shop-blue=%d shop-green=%d", dns.Blue, dns.Green, dns.Blue, dns.Green, lb.Blue, lb.Green)
}

// An interrupt that holds between a change and its reading back leaves the weights in
// the journal, unless they are not this run's own.
func TestWeightsThatAreLeftUnreadAreRecorded(t *testing.T) {
	const zoneOnly = "A 90/10, AAAA 90/10, shop-blue=1 shop-green=0"
	tests := []struct {
		name     string
		at       string // the point of the interrupt
		nth      int
		foreign  []elbtypes.Action
		lost     bool
		where    string
		recorded string
	}{
		{"the zone is sent", "journal after outcome", 3, nil, false, zoneOnly, zoneOnly},
		{"the answer is lost too", "after ChangeResourceRecordSets", 1, nil, true, zoneOnly, zoneOnly},
		{"both are sent", "journal after outcome", 4, nil, false, atTen, atTen},
		{"both are read back one by one", "journal after outcome", 6, nil, false, atTen, atTen},
		{"somebody else was there", "journal after outcome", 4, split(tgBlue, 30, tgGreen, 70), false, "A 90/10, AAAA 90/10, shop-blue=30 shop-green=70", "none"},
		{"somebody else was there, with the same share", "journal after outcome", 4, split(tgBlue, 9, tgGreen, 1), false, "A 90/10, AAAA 90/10, shop-blue=9 shop-green=1", "none"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.deps = func(d *StageDeps) { d.OnInterrupt = func() bool { return false } }
			at := pointOf(t, w, tt.at, tt.nth)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			w.journal.point = func(name string) {
				w.point(name)
				if w.points == at {
					interruptAt(w, tt.foreign, cancel)
				}
			}
			w.lose = func(string) error {
				if w.points == at && tt.lost {
					interruptAt(w, tt.foreign, cancel)
					return errReset
				}
				return nil
			}
			wantStop(t, w.walk(ctx), state.ExitInterrupted, "the traffic stays where it is", "Nobody watches these weights")
			w.wantWhere(tt.where)
			if got := lastWeights(w); got != tt.recorded {
				t.Errorf("recorded %s, want %s", got, tt.recorded)
			}
			w.journal.point = w.point
			err := w.walk(context.Background())
			if tt.foreign != nil {
				wantStop(t, err, state.ExitBlocked, "somebody else changed")
				w.wantWhere(tt.where)
				return
			}
			if err != nil {
				t.Fatalf("resumed: %v", err)
			}
			w.wantWhere(atEnd)
		})
	}
}

func interruptAt(w *world, foreign []elbtypes.Action, cancel func()) {
	if foreign != nil {
		w.lb.listener(shopHTTP, foreign)
	}
	cancel()
}

// What was recorded when the traffic was left does not hide what somebody else does to
// it afterwards.
func TestForeignChangeAfterAnInterruptIsNoticed(t *testing.T) {
	w := newWorld(t)
	w.deps = func(d *StageDeps) { d.OnInterrupt = func() bool { return false } }
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w.clock.after(50*time.Second, cancel)
	wantStop(t, w.walk(ctx), state.ExitInterrupted)
	w.clock.Step(time.Hour)
	w.lb.listener(shopHTTP, split(tgBlue, 30, tgGreen, 70))
	wantStop(t, w.walk(context.Background()), state.ExitBlocked, "somebody else changed")
	w.wantWhere("A 90/10, AAAA 90/10, shop-blue=30 shop-green=70")
}
