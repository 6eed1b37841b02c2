package cutover

import (
	"context"
	"slices"
	"strings"
	"testing"

	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

func TestOpenRefusesMalformedTargets(t *testing.T) {
	tests := []struct {
		name string
		do   func(w *world)
		text string
	}{
		{"neither", func(w *world) { w.targets[0] = planfile.Target{} }, "traffic[0]: give either route53 or alb"},
		{"both", func(w *world) { w.targets[0].ALB = w.targets[1].ALB }, "give either route53 or alb"},
		{"no zone", func(w *world) { w.targets[0].Route53.Zone = "" }, "zone or zoneID"},
		{"no record", func(w *world) { w.targets[0].Route53.Record = "" }, "route53.record"},
		{"same member", func(w *world) { w.targets[0].Route53.Green.SetIdentifier = "blue" }, "same setIdentifier"},
		{"no member", func(w *world) { w.targets[0].Route53.Green.SetIdentifier = "" }, "setIdentifier"},
		{"no types", func(w *world) { w.targets[0].Route53.Types = nil }, "needs types"},
		{"type", func(w *world) { w.targets[0].Route53.Types = []string{"MX"} }, `type "MX"`},
		{"type twice", func(w *world) { w.targets[0].Route53.Types = []string{"A", "a"} }, "lists type A twice"},
		{"record twice", func(w *world) { w.targets = append(w.targets, recordTarget()) }, "listed twice"},
		{"listener twice", func(w *world) { w.targets = append(w.targets, listenerTarget()) }, "listed twice"},
		{"listener and rule", func(w *world) { w.targets[1].ALB.Rule = shopRule }, "either listener or rule"},
		{"rule as a listener", func(w *world) { w.targets[1].ALB.Listener = shopRule }, "ARN of the other kind"},
		{"no ARN", func(w *world) { w.targets[1].ALB.Listener = "shop" }, "not the ARN of a listener or rule"},
		{"network", func(w *world) { w.targets[1].ALB.Listener = strings.Replace(shopHTTP, "/app/", "/net/", 1) }, "only an application load balancer"},
		{"no group", func(w *world) { w.targets[1].ALB.Green.TargetGroup = "shop-green" }, "alb.green.targetGroup"},
		{"same group", func(w *world) { w.targets[1].ALB.Green.TargetGroup = tgBlue }, "same target group"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.do(w)
			_, err := Open(context.Background(), w.targets, w.r53, w.lb, w.clock)
			if err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v, want %q", err, tt.text)
			}
			if len(w.calls) != 0 {
				t.Errorf("called %v", w.calls)
			}
		})
	}
}

func TestIDs(t *testing.T) {
	w := newWorld(t)
	second := listenerTarget()
	second.ALB.Listener = strings.Replace(shopHTTP, "b1", "b2", 1)
	rule := listenerTarget()
	rule.ALB.Listener, rule.ALB.Rule = "", shopRule
	other := recordTarget()
	other.Route53.Types = []string{"CNAME"}
	w.targets = append(w.targets, second, rule, other)
	var ids []string
	for _, tr := range w.open() {
		ids = append(ids, tr.ID())
	}
	want := []string{"route53/" + api, "alb/shop", "alb/shop/listener-00000000000000b2", "alb/shop/rule-00000000000000c1", "route53/" + api + "/CNAME@shop.example.com"}
	if !slices.Equal(ids, want) {
		t.Errorf("ids %q, want %q", ids, want)
	}
}

func TestReadOfAListener(t *testing.T) {
	for name, tt := range map[string]struct {
		actions     []elbtypes.Action
		blue, green int
	}{
		"single group":        {single(tgGreen), 0, 1},
		"weights":             {split(tgBlue, 80, tgGreen, 20), 80, 20},
		"others are not ours": {split(tgBlue, 5, tgOther, 20), 5, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.lb.listener(shopHTTP, tt.actions)
			got, err := w.open()[1].Read(context.Background())
			if err != nil || got != (state.Share{Target: "alb/shop", Blue: tt.blue, Green: tt.green}) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// Two records of one zone, named by name and by id, move in one batch; other members
// of the same name stay as they are.
func TestRecordsOfOneZoneMoveTogether(t *testing.T) {
	w := newWorld(t)
	const www = "www.shop.example.com"
	w.r53.sets[zoneShop] = append(w.r53.sets[zoneShop],
		weighted(www, r53types.RRTypeCname, "b", 100, "blue.example.net"), weighted(www, r53types.RRTypeCname, "g", 0, "green.example.net"),
		weighted(www, r53types.RRTypeCname, "canary", 25, "canary.example.net"))
	w.r53.sort(zoneShop)
	w.targets = []planfile.Target{recordTarget(), {Route53: &planfile.Route53{ZoneID: "/hostedzone/" + zoneShop, Record: www, Types: []string{"CNAME"},
		Blue: planfile.Member{SetIdentifier: "b"}, Green: planfile.Member{SetIdentifier: "g"}}}}
	w.start = []state.Share{{Target: "route53/" + api, Blue: 100}, {Target: "route53/" + www, Blue: 100}}
	w.gates = nil
	if err := w.walk(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(w.changes) != 3 {
		t.Errorf("%d batches for three stages", len(w.changes))
	}
	for set, want := range map[string]int{"b": 0, "g": 100, "canary": 25} {
		if got := w.r53.weight(zoneShop, www, r53types.RRTypeCname, set); got != want {
			t.Errorf("member %s has weight %d, want %d", set, got, want)
		}
	}
}
