package cutover

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/eksbg/eksbg/internal/state"
)

// An alias pair moves like any other; everything but the weight stays.
func TestAliasesMove(t *testing.T) {
	w := newWorld(t)
	before := map[string]r53types.ResourceRecordSet{}
	for _, rt := range []r53types.RRType{r53types.RRTypeA, r53types.RRTypeAaaa} {
		for set, weight := range map[string]int{"blue": 1, "green": 0} {
			s := aliased(api, rt, set, weight, set+"-1.eu-central-1.elb.amazonaws.com", true)
			s.HealthCheckId = aws.String("hc-" + set)
			before[string(rt)+set] = s
			w.r53.edit(zoneShop, api, rt, set, func(have *r53types.ResourceRecordSet) { *have = s })
		}
	}
	w.start[0].Blue = 1
	w.gates = w.gates[:1]
	if err := w.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.wantWhere(atEnd)
	for _, s := range w.r53.sets[zoneShop] {
		if old, ok := before[string(s.Type)+aws.ToString(s.SetIdentifier)]; ok && sameName(aws.ToString(s.Name), api) {
			s.Weight = old.Weight
			if !equalSets(s, old) {
				t.Errorf("more than the weight changed: %s", canonicalSet(s))
			}
		}
	}
}

// The next upgrade goes the other way.
func TestGreenToBlue(t *testing.T) {
	w := newWorld(t)
	if err := w.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.journal.records = nil
	w.changes = nil
	w.start = []state.Share{{Target: "route53/" + api, Green: 100}, {Target: "alb/shop", Green: 100}}
	w.deps = func(d *StageDeps) { d.Origin, d.Destination = state.Green, state.Blue }
	if err := w.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.wantWhere("A 100/0, AAAA 100/0, shop-blue=100 shop-green=0")
	if len(w.changes) != 6 {
		t.Errorf("changes %q: nothing is to be attached, blue is on the listener", w.changes)
	}
}

// Members that are not of the pair keep their weight, and the pair its sum, there and back.
func TestOtherMembersKeepTheirPart(t *testing.T) {
	for _, failing := range []bool{false, true} {
		t.Run(fmt.Sprintf("gate fails %t", failing), func(t *testing.T) {
			w := newWorld(t)
			w.lb.listener(shopHTTP, split(tgBlue, 150, tgOther, 50))
			w.start[1].Blue = 150
			for _, rt := range []r53types.RRType{r53types.RRTypeA, r53types.RRTypeAaaa} {
				w.r53.edit(zoneShop, api, rt, "blue", weigh(15))
				w.r53.sets[zoneShop] = append(w.r53.sets[zoneShop], weighted(api, rt, "canary", 5, "192.0.2.30"))
			}
			w.r53.sort(zoneShop)
			w.start[0].Blue = 15
			if failing {
				w.failingAt(8, 1) // 50 % of 15, rounded
				wantStop(t, w.walk(context.Background()), state.ExitPutBack)
				w.wantWhere("A 15/0, AAAA 15/0, shop-blue=150 shop-canary=50")
			} else {
				if err := w.walk(context.Background()); err != nil {
					t.Fatal(err)
				}
				w.wantWhere("A 0/15, AAAA 0/15, shop-blue=0 shop-canary=50 shop-green=150")
			}
			if got := w.r53.weight(zoneShop, api, r53types.RRTypeA, "canary"); got != 5 {
				t.Errorf("the other member has weight %d", got)
			}
		})
	}
}

// Where nothing can be read any more, exit 9 says what was recorded last, and its
// commands need no reading.
func TestPutBackInTheDark(t *testing.T) {
	w := newWorld(t)
	w.failingAt(50, 1)
	w.fail = func(call string) error {
		if _, due := PutBackDue(w.journal); due && call != "DescribeTargetHealth" {
			return &net.OpError{Op: "dial", Net: "tcp", Err: errReset}
		}
		return nil
	}
	stop := wantStop(t, w.walk(context.Background()), state.ExitDisplaced,
		"the weights cannot be read; last recorded: route53/"+api+" blue 50 %, green 50 %",
		`"Action":"UPSERT"`, `"SetIdentifier":"blue","TTL":60,"Type":"A","Weight":100`,
		"aws elbv2 modify-listener", `"TargetGroupArn":"`+tgBlue+`","Weight":1`)
	if strings.Contains(stop.Cure, "null") {
		t.Errorf("the AWS CLI takes no nulls:\n%s", stop.Cure)
	}
	w.fail = nil
	wantStop(t, w.walk(context.Background()), state.ExitPutBack)
	w.wantWhere(atStart)
}

// Interrupted while the origin gives no good answer and the destination does: the
// traffic stays where it is served.
func TestInterruptedWithAnIllOrigin(t *testing.T) {
	w := newWorld(t)
	w.stages = []int{10}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w.clock.after(4*time.Minute, func() {
		w.prober.bad = map[state.Side]float64{state.Blue: 1}
		cancel()
	})
	wantStop(t, w.walk(ctx), state.ExitInterrupted, "blue is no better", "so the traffic was not put back")
	w.wantWhere(atTen)
	// Nothing can be reached from here: that says nothing about the origin.
	w.prober.bad = map[state.Side]float64{state.Blue: 2, state.Green: 2}
	wantStop(t, w.walk(context.Background()), state.ExitPutBack)
	w.wantWhere(atStart)
}

func TestReadErrorsDuringTheHold(t *testing.T) {
	for name, tt := range map[string]struct {
		mends time.Duration
		code  state.Exit
	}{"for a while": {time.Minute, 0}, "for good": {time.Hour, state.ExitResumable}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.stages = []int{10}
			denied := false
			w.clock.after(3*time.Minute, func() { denied = true })
			w.clock.after(3*time.Minute+tt.mends, func() { denied = false })
			w.fail = func(call string) error {
				if denied && call == "DescribeListeners" {
					return apiError("AccessDenied", "not authorized")
				}
				return nil
			}
			err := w.walk(context.Background())
			if tt.code == 0 && err != nil {
				t.Fatal(err)
			}
			if tt.code != 0 {
				wantStop(t, err, tt.code, "the weights cannot be read")
			}
			w.wantWhere(atTen)
		})
	}
}

// Exit 5 is said of what is read last, not of what was done (semantics 15).
func TestPutBackThatIsUndoneAtOnceIsNotBack(t *testing.T) {
	w := newWorld(t)
	w.failingAt(50, 1)
	w.fail = func(call string) error {
		if _, due := PutBackDue(w.journal); due && call == "GetChange" {
			w.lb.listener(shopHTTP, split(tgBlue, 50, tgGreen, 50))
		}
		return nil
	}
	wantStop(t, w.walk(context.Background()), state.ExitDisplaced, "alb/shop blue 50 %, green 50 %", "aws elbv2 modify-listener")
	if len(w.journal.of(state.RecordPutBack)) != 0 {
		t.Error("a put-back is recorded that is not there")
	}
}
