package cutover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

const (
	zoneShop = "Z00000000000SHOP"
	api      = "api.shop.example.com"
	blueIP   = "192.0.2.10"
	greenIP  = "192.0.2.20"
	blueIP6  = "2001:db8::10"
	greenIP6 = "2001:db8::20"
)

// world is a pair with a weighted record of two types and an ALB listener, and
// everything that can go wrong with it.
type world struct {
	t       testing.TB
	clock   *steppingClock
	r53     *fakeRoute53
	lb      *fakeELBv2
	journal *journal
	prober  *fakeProber
	targets []planfile.Target
	gates   []planfile.Gate
	start   []state.Share
	stages  []int
	hold    time.Duration
	deps    func(*StageDeps)
	stderr  []string

	// fail gives the error of a call before it does anything; lose the error after it
	// has done it.
	fail func(call string) error
	lose func(call string) error
	// see is shown the context of every call.
	see func(ctx context.Context, call string)
	// calls counts every call by name; changes lists the accepted changing ones.
	calls   map[string]int
	changes []string
	// points counts the points where the process may die; it dies at crashAt.
	points  int
	crashAt int
	trace   []string
}

var worldMu sync.Mutex

func (w *world) mu() *sync.Mutex { return &worldMu }

type crash struct{ at string }

func newWorld(t testing.TB) *world {
	w := &world{t: t, clock: newClock(), calls: map[string]int{}, stages: []int{10, 50, 100}, hold: 5 * time.Minute}
	w.r53, w.lb = newRoute53(w), newELBv2(w)
	w.journal = &journal{clock: w.clock, point: w.point}
	w.prober = &fakeProber{w: w}
	w.r53.zone(zoneShop, "shop.example.com", false,
		weighted(api, r53types.RRTypeA, "blue", 100, blueIP), weighted(api, r53types.RRTypeA, "green", 0, greenIP),
		weighted(api, r53types.RRTypeAaaa, "blue", 100, blueIP6), weighted(api, r53types.RRTypeAaaa, "green", 0, greenIP6),
		weighted("apj.shop.example.com", r53types.RRTypeA, "blue", 7, blueIP),
		r53types.ResourceRecordSet{Name: aws.String("shop.example.com."), Type: r53types.RRTypeNs, TTL: aws.Int64(172800),
			ResourceRecords: []r53types.ResourceRecord{{Value: aws.String("ns-1.example.net.")}}})
	w.lb.balancers[shopALB] = elbtypes.LoadBalancer{LoadBalancerArn: aws.String(shopALB), Type: elbtypes.LoadBalancerTypeEnumApplication,
		DNSName: aws.String("shop-1.eu-central-1.elb.amazonaws.com")}
	w.lb.groups[tgBlue] = &fakeGroup{lb: shopALB, healthy: 4}
	w.lb.groups[tgGreen] = &fakeGroup{lb: shopALB, healthy: 4, warmup: 40 * time.Second}
	w.lb.groups[tgOther] = &fakeGroup{lb: shopALB, healthy: 1}
	w.lb.listener(shopHTTP, single(tgBlue))
	w.targets = []planfile.Target{recordTarget(), listenerTarget()}
	w.gates = []planfile.Gate{
		{TargetHealth: &planfile.TargetHealth{AtLeast: 100}},
		{HTTP: &planfile.HTTP{URL: "https://" + api + "/healthz", Expect: 200, Success: 99, Samples: 200, Over: planfile.Duration(time.Minute), Timeout: planfile.Duration(time.Second), AtLeast: 20}},
	}
	w.start = []state.Share{{Target: "route53/" + api, Blue: 100}, {Target: "alb/shop", Blue: 1}}
	return w
}

func recordTarget() planfile.Target {
	return planfile.Target{Route53: &planfile.Route53{Zone: "shop.example.com", Record: api, Types: []string{"A", "AAAA"},
		Blue: planfile.Member{SetIdentifier: "blue"}, Green: planfile.Member{SetIdentifier: "green"}}}
}

func listenerTarget() planfile.Target {
	return planfile.Target{ALB: &planfile.ALB{Listener: shopHTTP, Blue: planfile.Group{TargetGroup: tgBlue}, Green: planfile.Group{TargetGroup: tgGreen}}}
}

// enter is the way into every call.
func (w *world) enter(ctx context.Context, call string, changing bool) error {
	if ctx.Err() != nil {
		return fmt.Errorf("operation error: %w", context.Cause(ctx))
	}
	w.calls[call]++
	if w.see != nil {
		w.see(ctx, call)
	}
	if changing {
		w.point("before " + call)
	}
	if w.fail != nil {
		return w.fail(call)
	}
	return nil
}

// accepted holds every changing call against the journal: no change without an intent
// that describes it and has no outcome yet.
func (w *world) accepted(call string, describes func(*change) bool) {
	w.t.Helper()
	for _, r := range state.OpenIntents(w.journal.records) {
		var c change
		if r.Change.Call == call && json.Unmarshal(r.Change.Detail, &c) == nil && describes(&c) {
			w.changes = append(w.changes, call)
			return
		}
	}
	if w.journal.refuse == nil {
		w.t.Errorf("%s was sent without an open intent that describes it", call)
	}
	w.changes = append(w.changes, call)
}

func (w *world) leave(call string) error {
	w.point("after " + call)
	if w.lose != nil {
		return w.lose(call)
	}
	return nil
}

func (w *world) point(name string) {
	w.points++
	w.trace = append(w.trace, name)
	if w.points == w.crashAt {
		panic(crash{name})
	}
}

// open makes the traffic anew, as a new process does.
func (w *world) open() []Traffic {
	w.t.Helper()
	traffic, err := Open(context.Background(), w.targets, w.r53, w.lb, w.clock)
	if err != nil {
		w.t.Fatalf("Open: %v", err)
	}
	return traffic
}

func (w *world) stage(percent int) *Stage {
	from := 0
	for _, s := range w.stages {
		if s < percent {
			from = s
		}
	}
	d := StageDeps{Traffic: w.open(), Start: w.start, Origin: state.Blue, Destination: state.Green, Gates: w.gates,
		Hold: w.hold, Patience: 10 * time.Minute, Clock: w.clock, History: w.journal, Prober: w.prober,
		Stderr: func(line string) { w.stderr = append(w.stderr, line) }}
	if w.deps != nil {
		w.deps(&d)
	}
	return NewStage(state.StepSpec{ID: fmt.Sprintf("traffic/%d", percent), Phase: state.PhaseCutover, Kind: state.KindTraffic,
		Side: state.Both, FromPercent: from, Percent: percent}, d)
}

// walk goes through the stages as a run does: observe, act, observe.
func (w *world) walk(ctx context.Context) (err error) {
	for _, p := range w.stages {
		for acts := 0; ; acts++ {
			s := w.stage(p)
			obs, err := s.Observe(ctx)
			if err != nil {
				return fmt.Errorf("observe %d: %w", p, err)
			}
			if obs.Status == state.Done {
				break
			}
			if obs.Status == state.Blocked {
				return &state.Stop{Code: state.ExitBlocked, Why: obs.Reason, Cure: obs.Cure}
			}
			if acts > 2 {
				return fmt.Errorf("stage %d acted %d times: %s", p, acts, obs.Reason)
			}
			if err := s.Act(ctx, w.journal.recorder(s.Spec().ID)); err != nil {
				return err
			}
		}
	}
	return nil
}

// dies walks until the process dies or ends; it tells which.
func (w *world) dies(ctx context.Context) (died bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(crash); !ok {
				panic(r)
			}
			died = true
		}
	}()
	return false, w.walk(ctx)
}

// where is the state of the world in one line.
func (w *world) where() string {
	var out []string
	for _, t := range []r53types.RRType{r53types.RRTypeA, r53types.RRTypeAaaa} {
		out = append(out, fmt.Sprintf("%s %d/%d", t, w.r53.weight(zoneShop, api, t, "blue"), w.r53.weight(zoneShop, api, t, "green")))
	}
	return strings.Join(out, ", ") + ", " + w.lb.weights(shopHTTP)
}

const (
	atStart = "A 100/0, AAAA 100/0, shop-blue=1"
	atTen   = "A 90/10, AAAA 90/10, shop-blue=90 shop-green=10"
	atFifty = "A 50/50, AAAA 50/50, shop-blue=50 shop-green=50"
	atEnd   = "A 0/100, AAAA 0/100, shop-blue=0 shop-green=100"
)

func (w *world) wantWhere(want string) {
	w.t.Helper()
	if got := w.where(); got != want {
		w.t.Errorf("the world is at %s, want %s", got, want)
	}
}

// wantStop checks the exit code and that the texts are in what is said.
func wantStop(t testing.TB, err error, code state.Exit, texts ...string) *state.Stop {
	t.Helper()
	var stop *state.Stop
	if !errors.As(err, &stop) {
		t.Fatalf("got %v, want a stop with code %d", err, code)
	}
	if stop.Code != code {
		t.Errorf("exit %d, want %d: %v", stop.Code, code, stop)
	}
	for _, text := range texts {
		if !strings.Contains(stop.Error()+"\n"+stop.Cure, text) {
			t.Errorf("the stop does not say %q:\n%v\ncure: %s", text, stop, stop.Cure)
		}
	}
	return stop
}

// fakeProber answers as the world would, by side.
type fakeProber struct {
	w *world
	// bad is the part of bad samples of a side between 0 and 1; 2 means no answer.
	bad map[state.Side]float64
	// badName is the same for samples by name, where it is set.
	badName *float64
	probes  []Probe
	hook    func(Probe)
}

var sideOfDial = map[string]state.Side{blueIP: state.Blue, blueIP6: state.Blue, greenIP: state.Green, greenIP6: state.Green}

func (f *fakeProber) Probe(ctx context.Context, p Probe) (ProbeResult, error) {
	if ctx.Err() != nil {
		return ProbeResult{}, context.Cause(ctx)
	}
	f.w.mu().Lock()
	defer f.w.mu().Unlock()
	f.probes = append(f.probes, p)
	if f.hook != nil {
		f.hook(p)
	}
	part := 0.0
	if len(p.Dial) > 0 {
		part = f.bad[sideOfDial[p.Dial[0]]]
	} else if f.badName != nil {
		part = *f.badName
	}
	if part > 1 {
		return ProbeResult{Samples: p.Samples, Kinds: map[string]int{"refused": p.Samples}}, nil
	}
	bad := int(part * float64(p.Samples))
	return ProbeResult{Samples: p.Samples, Good: p.Samples - bad, Answered: p.Samples, Kinds: map[string]int{"502": bad}}, nil
}

// failingAt makes the destination fail its HTTP gate from a share on.
func (w *world) failingAt(percent int, bad float64) {
	w.prober.bad = map[state.Side]float64{}
	w.prober.hook = func(Probe) {
		if w.r53.weight(zoneShop, api, r53types.RRTypeA, "green") >= percent {
			w.prober.bad[state.Green] = bad
		}
	}
}
