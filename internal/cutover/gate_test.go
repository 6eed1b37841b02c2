package cutover

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

// onlyALB is a pair without a record.
func onlyALB(t *testing.T, h planfile.HTTP) *world {
	w := newWorld(t)
	w.targets, w.start = w.targets[1:], w.start[1:]
	w.gates = []planfile.Gate{{HTTP: &h}}
	w.stages = []int{10}
	return w
}

// Semantics 17: by name, the destination at 10 % is met by a tenth of the samples.
func TestEnoughSamplesToMeetTheDestination(t *testing.T) {
	tests := []struct {
		name    string
		h       planfile.HTTP
		samples int
		code    state.Exit
	}{
		{"more than asked for", planfile.HTTP{URL: "https://shop.example.com/", Samples: 100, AtLeast: 50}, 500, 0},
		{"as many as asked for", planfile.HTTP{URL: "https://shop.example.com/", Samples: 2000, AtLeast: 50}, 2000, 0},
		{"too many", planfile.HTTP{URL: "https://shop.example.com/", Samples: 100, AtLeast: 6000}, maxSamples, state.ExitResumable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := onlyALB(t, tt.h)
			err := w.walk(context.Background())
			if tt.code != 0 {
				wantStop(t, err, tt.code, "green is expected to have answered 5000 of them, want 6000")
			} else if err != nil {
				t.Fatal(err)
			}
			for _, p := range w.prober.probes {
				if p.Samples != tt.samples || len(p.Dial) != 0 {
					t.Errorf("probe of %d samples, dials %v; want %d by name", p.Samples, p.Dial, tt.samples)
				}
			}
			if len(w.prober.probes) == 0 {
				t.Error("nothing was probed")
			}
		})
	}
}

// Groups that are not of the pair answer their part of the samples.
func TestOthersTakeTheirPartOfTheSamples(t *testing.T) {
	w := onlyALB(t, planfile.HTTP{URL: "https://shop.example.com/", Samples: 1, AtLeast: 10})
	w.lb.listener(shopHTTP, split(tgBlue, 100, tgOther, 100))
	w.start[0].Blue = 100
	if err := w.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := w.prober.probes[len(w.prober.probes)-1].Samples; n != 200 {
		t.Errorf("%d samples to meet 5 %% of the traffic ten times, want 200", n)
	}
}

func TestNothingIsProbedByNameAtWeightZero(t *testing.T) {
	w := onlyALB(t, planfile.HTTP{URL: "https://shop.example.com/", Samples: 100, AtLeast: 10})
	w.prober.hook = func(Probe) {
		if w.lb.weights(shopHTTP) != "shop-blue=90 shop-green=10" {
			t.Errorf("probed at %s", w.lb.weights(shopHTTP))
		}
	}
	if err := w.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestFailingByNameGoesBack(t *testing.T) {
	w := onlyALB(t, planfile.HTTP{URL: "https://shop.example.com/", Samples: 2000, Success: 99.9, AtLeast: 10})
	bad := 0.0285
	w.prober.badName = &bad
	wantStop(t, w.walk(context.Background()), state.ExitPutBack, "http 97.15 % of 2000 samples: 57 x 502")
}

func TestSilentByNameIsNoVerdict(t *testing.T) {
	w := onlyALB(t, planfile.HTTP{URL: "https://shop.example.com/", Samples: 100, AtLeast: 10})
	two := 2.0
	w.prober.badName = &two
	wantStop(t, w.walk(context.Background()), state.ExitResumable, "no answer to any of 100 samples")
	if got := w.lb.weights(shopHTTP); got != "shop-blue=90 shop-green=10" {
		t.Errorf("weights %s", got)
	}
}

// A record's gate dials the destination's own values before the shift, and those and
// the name after it.
func TestSeriesOfARecord(t *testing.T) {
	w := newWorld(t)
	w.stages = []int{10}
	var before, after []string
	w.prober.hook = func(p Probe) {
		list := &after
		if w.r53.weight(zoneShop, api, r53types.RRTypeA, "green") == 0 {
			list = &before
		}
		*list = append(*list, strings.Join(p.Dial, ","))
	}
	if err := w.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
	direct := greenIP + "," + greenIP6
	if len(before) != 1 || before[0] != direct {
		t.Errorf("before the shift %q", before)
	}
	count := map[string]int{}
	for _, d := range after {
		count[d]++
	}
	if len(after) != 4 || count[direct] != 2 || count[""] != 2 {
		t.Errorf("after the shift %q, want the values and the name, early in the hold and after it", after)
	}
	for _, r := range w.journal.of(state.RecordGate) {
		if r.Gate.Gate == "http" && !strings.Contains(r.Gate.Text, "http 100 % of 200 samples") {
			t.Errorf("text %q", r.Gate.Text)
		}
	}
}

// A wildcard record answers for the URL's host as well.
func TestHostOfAWildcardRecord(t *testing.T) {
	s := NewStage(state.StepSpec{}, StageDeps{Traffic: []Traffic{
		&record{id: "wild", name: "*.example.com"}, &record{id: "exact", name: "a.example.com"}, &record{id: "near", name: "*.b.example.com"}}})
	for host, want := range map[string]string{"a.example.com": "exact", "x.example.com": "wild", "x.b.example.com": "near"} {
		if got := s.recordOf(host); got == nil || got.id != want {
			t.Errorf("%s: %+v, want %s", host, got, want)
		}
	}
	if got := s.recordOf("example.org"); got != nil {
		t.Errorf("%+v", got)
	}
}

// The health behind an alias is that of the load balancer it points to.
func TestHealthBehindAnAlias(t *testing.T) {
	w := newWorld(t)
	greenLB := arnBase + "loadbalancer/app/green/00000000000000a2"
	w.lb.balancers[greenLB] = elbtypes.LoadBalancer{LoadBalancerArn: aws.String(greenLB), DNSName: aws.String("Green-2.eu-central-1.elb.amazonaws.com")}
	w.lb.groups[arnBase+"targetgroup/web/00000000000000d7"] = &fakeGroup{foreign: []string{greenLB}, healthy: 2, unhealthy: 1}
	for _, rt := range []r53types.RRType{r53types.RRTypeA, r53types.RRTypeAaaa} {
		w.r53.edit(zoneShop, api, rt, "green", func(s *r53types.ResourceRecordSet) {
			*s = aliased(api, rt, "green", 0, "dualstack.green-2.eu-central-1.elb.amazonaws.com", false)
		})
	}
	w.targets, w.start, w.gates = w.targets[:1], w.start[:1], w.gates[:1]
	wantStop(t, w.walk(context.Background()), state.ExitBlocked, "2 of 3 targets of web healthy, want 100 %")
	dials, err := w.open()[0].(*record).dials(context.Background(), state.Green)
	if err != nil || len(dials) != 1 || dials[0] != "dualstack.green-2.eu-central-1.elb.amazonaws.com" {
		t.Errorf("dials %q, %v", dials, err)
	}
}

func TestHealthThatNobodyCanRead(t *testing.T) {
	w := newWorld(t)
	w.targets, w.start, w.gates, w.stages = w.targets[:1], w.start[:1], w.gates[:1], []int{10}
	wantStop(t, w.walk(context.Background()), state.ExitResumable, "take the gate targetHealth out")
	if len(w.changes) != 0 {
		t.Errorf("changes %q", w.changes)
	}
}

func TestHealthThatMayNotBeRead(t *testing.T) {
	w := newWorld(t)
	w.stages = []int{10}
	denied := false
	w.clock.after(4*time.Minute, func() { denied = true })
	w.fail = func(call string) error {
		if denied && call == "DescribeTargetHealth" {
			return apiError("AccessDenied", "not authorized")
		}
		return nil
	}
	wantStop(t, w.walk(context.Background()), state.ExitResumable, "targets: not authorized")
	w.wantWhere(atTen)
}

func TestHealthCounts(t *testing.T) {
	tests := []struct {
		h    health
		want float64
	}{
		{health{healthy: 4}, 100},
		{health{healthy: 3, unhealthy: 1}, 75},
		{health{healthy: 4, initial: 4}, 100},
		{health{initial: 4}, 0},
		{health{unused: 4}, 0},
		{health{}, 0},
	}
	for _, tt := range tests {
		if got := tt.h.percent(); got != tt.want {
			t.Errorf("%+v: %v %%, want %v %%", tt.h, got, tt.want)
		}
	}
	var h health
	for _, st := range []elbtypes.TargetHealthStateEnum{"healthy", "unhealthy", "initial", "draining", "unhealthy.draining", "unused", "unavailable", "something new"} {
		h.add(elbtypes.TargetHealthDescription{TargetHealth: &elbtypes.TargetHealth{State: st}})
	}
	if h != (health{healthy: 1, unhealthy: 2, initial: 1, unused: 1, unchecked: 1}) {
		t.Errorf("%+v", h)
	}
}

func TestTexts(t *testing.T) {
	if got := goodText(ProbeResult{Samples: 200000, Good: 199999}); got != "99.99 %" {
		t.Errorf("%s: one bad sample is not 100 %%", got)
	}
	if got := kindsText(map[string]int{"timeout": 3, "502": 57, "503": 3}); got != "57 x 502, 3 x 503, 3 x timeout" {
		t.Error(got)
	}
	if got := percentText(99.9); got != "99.9 %" {
		t.Error(got)
	}
	if got := percentText(100); got != "100 %" {
		t.Error(got)
	}
}
