package cutover

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

// calm are the changes of a run in which nothing goes wrong: the standby's group is
// attached, then each stage moves the zone and the listener.
var calm = []string{
	"elasticloadbalancing:ModifyListener",
	"route53:ChangeResourceRecordSets", "elasticloadbalancing:ModifyListener",
	"route53:ChangeResourceRecordSets", "elasticloadbalancing:ModifyListener",
	"route53:ChangeResourceRecordSets", "elasticloadbalancing:ModifyListener",
}

func TestStagesMoveEverything(t *testing.T) {
	w := newWorld(t)
	if err := w.walk(context.Background()); err != nil {
		t.Fatalf("walk: %v", err)
	}
	w.wantWhere(atEnd)
	if !slices.Equal(w.changes, calm) {
		t.Errorf("changes %q, want %q", w.changes, calm)
	}
	if got := w.r53.weight(zoneShop, "apj.shop.example.com", r53types.RRTypeA, "blue"); got != 7 {
		t.Errorf("a record that is not of the pair has weight %d, want 7", got)
	}
	var levels []int
	for _, r := range w.journal.of(state.RecordTraffic) {
		levels = append(levels, r.Traffic[0].Percent(state.Green))
	}
	if !slices.Equal(levels, []int{10, 50, 100}) {
		t.Errorf("recorded weights %v", levels)
	}
	for i, r := range w.journal.of(state.RecordIntent) {
		out, ok := state.OutcomeOf(w.journal.records, r.Seq)
		if !ok || out.Result != state.Succeeded {
			t.Errorf("intent %d (%s) has outcome %q", i, r.Change.Call, out.Result)
		}
		if len(r.Change.Undo) == 0 {
			t.Errorf("intent %d (%s) has no undo", i, r.Change.Call)
		}
	}
	// Walked again it is done and changes nothing.
	if err := w.walk(context.Background()); err != nil || len(w.changes) != len(calm) {
		t.Errorf("walked again: %v, %d changes", err, len(w.changes))
	}
}

func TestIntentHoldsOldAndNewWhole(t *testing.T) {
	w := newWorld(t)
	if err := w.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
	var c change
	for _, r := range w.journal.of(state.RecordIntent) {
		if strings.HasPrefix(r.Change.Call, "route53:") {
			if err := json.Unmarshal(r.Change.Detail, &c); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	if len(c.OldSets) != 4 || len(c.NewSets) != 4 {
		t.Fatalf("old %d, new %d record sets, want the two members of two types each", len(c.OldSets), len(c.NewSets))
	}
	for i, s := range c.OldSets {
		if aws.ToInt64(s.TTL) != 60 || len(s.ResourceRecords) != 1 || aws.ToInt64(s.Weight)+aws.ToInt64(c.NewSets[i].Weight) == 0 {
			t.Errorf("set %d is not whole: %+v", i, s)
		}
	}
}

func TestGroupGetsWeightOnlyWhenHealthy(t *testing.T) {
	w := newWorld(t)
	var atFirst string
	w.fail = func(call string) error {
		if call == "ChangeResourceRecordSets" && atFirst == "" {
			atFirst = w.lb.weights(shopHTTP)
			g := w.lb.groups[tgGreen]
			if w.clock.Since(g.since) < g.warmup {
				t.Errorf("traffic was moved before the group was healthy")
			}
		}
		return nil
	}
	if err := w.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
	if atFirst != "shop-blue=1 shop-green=0" {
		t.Errorf("before the first shift the listener forwards to %s", atFirst)
	}
}

func TestGroupThatNeverGetsHealthyIsTakenOffAgain(t *testing.T) {
	w := newWorld(t)
	w.lb.groups[tgGreen].healthy, w.lb.groups[tgGreen].unhealthy = 3, 1
	err := w.walk(context.Background())
	wantStop(t, err, state.ExitResumable, "no traffic was given to green", "3 of 4 targets of shop-green healthy")
	w.wantWhere(atStart)
	w.lb.groups[tgGreen].healthy, w.lb.groups[tgGreen].unhealthy = 4, 0
	if err := w.walk(context.Background()); err != nil {
		t.Fatalf("healthy again: %v", err)
	}
	w.wantWhere(atEnd)
}

func TestEmptyGroupIsNeverAttached(t *testing.T) {
	w := newWorld(t)
	w.lb.groups[tgGreen].healthy = 0
	wantStop(t, w.walk(context.Background()), state.ExitBlocked, "shop-green", "no targets")
	if len(w.changes) != 0 {
		t.Errorf("changes %q", w.changes)
	}
}

// Semantics 12.
func TestDoneNeedsAVerdictNewerThanTheWeights(t *testing.T) {
	w := newWorld(t)
	w.stages = []int{10}
	if err := w.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.journal.records = slices.DeleteFunc(w.journal.records, func(r state.Record) bool { return r.Gate != nil && r.Gate.Gate == stageGate })
	obs, err := w.stage(10).Observe(context.Background())
	if err != nil || obs.Status != state.Ready {
		t.Fatalf("without a verdict: %+v, %v", obs, err)
	}
	begun, changes := w.clock.Now(), len(w.changes)
	if err := w.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(w.changes) != changes {
		t.Errorf("weights in place were set again: %q", w.changes[changes:])
	}
	if held := w.clock.Since(begun); held < 5*time.Minute {
		t.Errorf("held %s, want the whole hold again", held)
	}
}

func TestNoJournalHoldsAndGatesAtThePresentWeight(t *testing.T) {
	w := newWorld(t)
	w.r53.edit(zoneShop, api, r53types.RRTypeA, "blue", weigh(90))
	w.r53.edit(zoneShop, api, r53types.RRTypeA, "green", weigh(10))
	w.r53.edit(zoneShop, api, r53types.RRTypeAaaa, "blue", weigh(90))
	w.r53.edit(zoneShop, api, r53types.RRTypeAaaa, "green", weigh(10))
	w.lb.groups[tgGreen].warmup = 0
	w.lb.listener(shopHTTP, split(tgBlue, 90, tgGreen, 10))
	w.start = []state.Share{{Target: "route53/" + api, Blue: 90, Green: 10}, {Target: "alb/shop", Blue: 90, Green: 10}}
	w.stages = []int{10}
	if err := w.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(w.changes) != 0 {
		t.Errorf("changes %q", w.changes)
	}
	if len(w.prober.probes) == 0 {
		t.Error("no gate was asked")
	}
}

func weigh(n int64) func(*r53types.ResourceRecordSet) {
	return func(s *r53types.ResourceRecordSet) { s.Weight = aws.Int64(n) }
}

func TestSomebodyElsesChange(t *testing.T) {
	tests := []struct {
		name  string
		do    func(w *world)
		texts []string
	}{
		{"listener", func(w *world) { w.lb.listener(shopHTTP, split(tgBlue, 70, tgGreen, 30)) },
			[]string{"alb/shop has blue 70, green 30", "blue 90, green 10", "traffic/10", "aws elbv2 modify-listener --region eu-central-1 --listener-arn " + shopHTTP}},
		{"listener back to where it was before the run", func(w *world) { w.lb.listener(shopHTTP, single(tgBlue)) },
			[]string{"alb/shop has blue 1, green 0"}},
		{"record", func(w *world) {
			for _, rt := range []r53types.RRType{r53types.RRTypeA, r53types.RRTypeAaaa} {
				w.r53.edit(zoneShop, api, rt, "green", weigh(0))
			}
		}, []string{"route53/" + api, "aws route53 change-resource-record-sets --hosted-zone-id " + zoneShop}},
		{"one type of a record", func(w *world) { w.r53.edit(zoneShop, api, r53types.RRTypeAaaa, "green", weigh(50)) },
			[]string{"types of record " + api + " disagree"}},
	}
	for _, tt := range tests {
		t.Run(tt.name+" between stages", func(t *testing.T) {
			w := newWorld(t)
			w.stages = []int{10}
			if err := w.walk(context.Background()); err != nil {
				t.Fatal(err)
			}
			tt.do(w)
			before, changes := w.where(), len(w.changes)
			w.stages = []int{10, 50, 100}
			wantStop(t, w.walk(context.Background()), state.ExitBlocked, tt.texts...)
			w.wantWhere(before)
			if len(w.changes) != changes {
				t.Errorf("changed all the same: %q", w.changes[changes:])
			}
		})
		t.Run(tt.name+" during the hold", func(t *testing.T) {
			w := newWorld(t)
			w.stages = []int{10}
			var before string
			w.clock.after(4*time.Minute, func() { tt.do(w); before = w.where() })
			wantStop(t, w.walk(context.Background()), state.ExitBlocked)
			w.wantWhere(before)
		})
	}
}

func TestTargetThatThePlanDoesNotKnow(t *testing.T) {
	w := newWorld(t)
	w.start = w.start[:1]
	wantStop(t, w.walk(context.Background()), state.ExitBlocked, "alb/shop")
}

func TestStageWithoutGatesHoldsOnly(t *testing.T) {
	w := newWorld(t)
	w.gates = nil
	begun := w.clock.Now()
	if err := w.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.wantWhere(atEnd)
	if held := w.clock.Since(begun); held < 15*time.Minute {
		t.Errorf("three stages in %s", held)
	}
}

// The rest of an action list stays (semantics 9): authentication before the forward,
// stickiness, a third group, and the client secret that is never shown.
func TestEverythingElseInTheActionsStays(t *testing.T) {
	w := newWorld(t)
	w.targets = []planfile.Target{{ALB: &planfile.ALB{Rule: shopRule, Blue: planfile.Group{TargetGroup: tgBlue}, Green: planfile.Group{TargetGroup: tgGreen}}}}
	w.start = []state.Share{{Target: "alb/shop/rule-00000000000000c1", Blue: 60}}
	w.gates = w.gates[:1]
	oidc := &elbtypes.AuthenticateOidcActionConfig{Issuer: aws.String("https://id.example.com"), ClientId: aws.String("shop"),
		AuthorizationEndpoint: aws.String("https://id.example.com/a"), TokenEndpoint: aws.String("https://id.example.com/t"), UserInfoEndpoint: aws.String("https://id.example.com/u"),
		SessionTimeout: aws.Int64(604800), AuthenticationRequestExtraParams: map[string]string{"display": "page"}}
	forward := split(tgBlue, 60, tgOther, 40)[0]
	forward.ForwardConfig.TargetGroupStickinessConfig = &elbtypes.TargetGroupStickinessConfig{Enabled: aws.Bool(true), DurationSeconds: aws.Int32(600)}
	forward.Order = aws.Int32(2)
	w.lb.listener(shopRule, []elbtypes.Action{{Type: elbtypes.ActionTypeEnumAuthenticateOidc, Order: aws.Int32(1), AuthenticateOidcConfig: oidc}, forward})

	if err := w.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
	got := w.lb.actions[shopRule]
	if len(got) != 2 || !equalActions(got[:1], []elbtypes.Action{{Type: elbtypes.ActionTypeEnumAuthenticateOidc, AuthenticateOidcConfig: oidc}}) {
		t.Errorf("authentication changed: %+v", got[0])
	}
	if aws.ToInt32(got[0].Order) != 1 || aws.ToInt32(got[1].Order) != 2 {
		t.Errorf("order changed: %d, %d", aws.ToInt32(got[0].Order), aws.ToInt32(got[1].Order))
	}
	if st := got[1].ForwardConfig.TargetGroupStickinessConfig; !aws.ToBool(st.Enabled) || aws.ToInt32(st.DurationSeconds) != 600 {
		t.Errorf("stickiness changed: %+v", st)
	}
	if got := w.lb.weights(shopRule); got != "shop-blue=0 shop-canary=40 shop-green=60" {
		t.Errorf("weights %s", got)
	}
	if !slices.Contains(w.changes, "elasticloadbalancing:ModifyRule") {
		t.Errorf("changes %q", w.changes)
	}
}

// Weights that were set again make the verdict before them void (semantics 12).
func TestVerdictOlderThanTheWeightsIsVoid(t *testing.T) {
	w := newWorld(t)
	w.stages = []int{10}
	if err := w.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
	var again state.Record
	for _, r := range w.journal.of(state.RecordIntent) {
		var c change
		if err := json.Unmarshal(r.Change.Detail, &c); err != nil {
			t.Fatal(err)
		}
		if c.Purpose == shift {
			again = r
		}
	}
	rec := w.journal.recorder("traffic/10")
	seq, err := rec.Intent(again.Change.Call, again.Change.Object, again.Change.Detail, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := rec.Outcome(seq, state.Succeeded, "", nil); err != nil {
		t.Fatal(err)
	}
	obs, err := w.stage(10).Observe(context.Background())
	if err != nil || obs.Status != state.Ready {
		t.Errorf("%+v, %v; want Ready: the verdict is older than the weights", obs, err)
	}
}
