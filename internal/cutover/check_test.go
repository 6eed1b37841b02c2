package cutover

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

func (w *world) check() ([]state.Finding, error) {
	return Check(context.Background(), w.open(), w.stages...)
}

func TestCheckOfAGoodPair(t *testing.T) {
	w := newWorld(t)
	findings, err := w.check()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		if f.Severity != state.SeverityInfo {
			t.Errorf("%+v", f)
		}
	}
	if len(findings) != 1 || findings[0].Check != "traffic/ttl" || !strings.Contains(findings[0].Text, "60 s") {
		t.Errorf("findings %+v", findings)
	}
	if len(w.changes) != 0 {
		t.Errorf("a check changed %q", w.changes)
	}
}

// Things that are not there, or not of this pair: an error that names the thing and the
// cure.
func TestCheckNamesWhatIsMissing(t *testing.T) {
	route := func(do func(*planfile.Route53)) func(*world) {
		return func(w *world) { do(w.targets[0].Route53) }
	}
	alb := func(do func(*planfile.ALB)) func(*world) {
		return func(w *world) { do(w.targets[1].ALB) }
	}
	tests := []struct {
		name  string
		do    func(w *world)
		texts []string
	}{
		{"zone", route(func(r *planfile.Route53) { r.Zone, r.Record = "shop.example.net", "api.shop.example.net" }), []string{"no hosted zone shop.example.net", "list-hosted-zones"}},
		{"zone that only begins alike", func(w *world) {
			w.r53.zone("ZLONGER", "longer.example.org", false)
			w.targets[0].Route53.Zone = "longe.example.org"
		}, []string{"no hosted zone longe.example.org"}},
		{"zone id", route(func(r *planfile.Route53) { r.ZoneID = "ZGONE" }), []string{"no hosted zone ZGONE"}},
		{"zone and id disagree", func(w *world) {
			w.r53.zone("ZOTHER", "other.example.com", false)
			w.targets[0].Route53.ZoneID = "ZOTHER"
		}, []string{"ZOTHER is other.example.com, not shop.example.com"}},
		{"public and private", func(w *world) { w.r53.zone("ZPRIVATE", "shop.example.com", true) },
			[]string{"2 hosted zones are named shop.example.com", zoneShop + " (public)", "ZPRIVATE (private)", "set zoneID"}},
		{"record outside of the zone", route(func(r *planfile.Route53) { r.Record = "api.example.com" }), []string{"api.example.com does not lie in zone shop.example.com"}},
		{"record", route(func(r *planfile.Route53) { r.Record = "gone.shop.example.com" }), []string{"no record gone.shop.example.com A in zone shop.example.com (" + zoneShop + ")", "traffic.route53"}},
		{"type", route(func(r *planfile.Route53) { r.Types = []string{"CNAME"} }), []string{"no record " + api + " CNAME"}},
		{"member", route(func(r *planfile.Route53) { r.Green.SetIdentifier = "grün" }), []string{`no member "grün" for green (it has blue, green)`, "traffic.route53.green.setIdentifier"}},
		{"simple record", func(w *world) {
			w.r53.zone(zoneShop, "x.example.com", false, r53types.ResourceRecordSet{Name: aws.String("plain.shop.example.com."), Type: r53types.RRTypeA, TTL: aws.Int64(60)})
			w.r53.zones = w.r53.zones[:1]
			w.targets[0].Route53.Record, w.targets[0].Route53.Types = "plain.shop.example.com", []string{"A"}
		}, []string{"is a simple record, not a weighted one"}},
		{"another routing policy", func(w *world) {
			w.r53.edit(zoneShop, api, r53types.RRTypeA, "green", func(s *r53types.ResourceRecordSet) { s.Weight, s.Region = nil, "eu-west-1" })
		}, []string{"another routing policy than weighted"}},
		{"listener", alb(func(a *planfile.ALB) { a.Listener = strings.Replace(shopHTTP, "b1", "ff", 1) }), []string{"no listener", "describe-listeners"}},
		{"load balancer", alb(func(a *planfile.ALB) { a.Listener = strings.Replace(shopHTTP, "app/shop", "app/gone", 1) }), []string{"no load balancer", "gone"}},
		{"rule", alb(func(a *planfile.ALB) { a.Listener, a.Rule = "", shopRule }), []string{"no rule " + shopRule, "describe-rules"}},
		{"default rule", func(w *world) {
			w.lb.listener(shopRule, single(tgBlue))
			w.lb.isDef[shopRule] = true
			w.targets[1].ALB.Listener, w.targets[1].ALB.Rule = "", shopRule
		}, []string{"is the default rule", "set traffic.alb.listener to " + shopHTTP}},
		{"target group", alb(func(a *planfile.ALB) { a.Green.TargetGroup = strings.Replace(tgGreen, "d2", "ff", 1) }), []string{"no target group", "traffic.alb.green.targetGroup"}},
		{"target group of another load balancer", func(w *world) { w.lb.groups[tgGreen].foreign = []string{strings.Replace(shopALB, "shop", "web", 1)} },
			[]string{"shop-green (green) belongs to load balancer", "not to shop"}},
		{"listener of another pair", func(w *world) { w.lb.listener(shopHTTP, single(tgOther)) }, []string{"forwards to shop-canary, neither to shop-blue (blue) nor to shop-green (green)"}},
		{"no forward action", func(w *world) { w.lb.listener(shopHTTP, []elbtypes.Action{{Type: elbtypes.ActionTypeEnumRedirect}}) }, []string{"no forward action", "redirect"}},
		{"network load balancer", func(w *world) {
			lb := w.lb.balancers[shopALB]
			lb.Type = elbtypes.LoadBalancerTypeEnumNetwork
			w.lb.balancers[shopALB] = lb
		}, []string{"is of type network"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.do(w)
			_, err := w.check()
			if err == nil {
				t.Fatal("no error")
			}
			for _, text := range tt.texts {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("the error does not say %q: %v", text, err)
				}
			}
		})
	}
}

func TestCheckFindings(t *testing.T) {
	txt := func(name, set, value string) func(*world) {
		return func(w *world) {
			s := r53types.ResourceRecordSet{Name: aws.String(name + "."), Type: r53types.RRTypeTxt, TTL: aws.Int64(300), ResourceRecords: []r53types.ResourceRecord{{Value: aws.String(value)}}}
			if set != "" {
				s.SetIdentifier, s.Weight = aws.String(set), aws.Int64(0)
			}
			w.r53.sets[zoneShop] = append(w.r53.sets[zoneShop], s)
			w.r53.sort(zoneShop)
		}
	}
	const registry = `"heritage=external-dns,external-dns/owner=shop-blue,external-dns/resource=ingress/shop/web"`
	tag := func(arn, key string) func(*world) {
		return func(w *world) { w.lb.tags[arn] = map[string]string{key: "shop-blue", "team": "shop"} }
	}
	tests := []struct {
		name     string
		do       func(w *world)
		check    string
		severity state.Severity
		texts    []string
	}{
		{"tag on the load balancer", tag(shopALB, "elbv2.k8s.aws/cluster"), "traffic/owner", state.SeverityError, []string{"load balancer shop", "elbv2.k8s.aws/cluster=shop-blue"}},
		{"tag on the listener", tag(shopHTTP, "ingress.k8s.aws/stack"), "traffic/owner", state.SeverityError, []string{"listener 00000000000000b1", "ingress.k8s.aws/stack=shop-blue"}},
		{"tag on a target group", tag(tgGreen, "service.k8s.aws/stack"), "traffic/owner", state.SeverityError, []string{"target group shop-green", "service.k8s.aws/stack"}},
		{"tag of another kind", tag(tgGreen, "kubernetes.io/cluster/shop"), "", "", nil},
		{"tags that may not be read", func(w *world) {
			w.fail = func(call string) error {
				if call == "DescribeTags" {
					return apiError("AccessDenied", "not authorized")
				}
				return nil
			}
		}, "traffic/owner", state.SeverityUnknown, []string{"could not be read", "not authorized"}},
		{"external-dns, same name", txt(api, "", registry), "traffic/external-dns", state.SeverityError, []string{`owner id "shop-blue"`, "ingress/shop/web", "TXT " + api}},
		{"external-dns, type in front", txt("cname-"+api, "", registry), "traffic/external-dns", state.SeverityError, []string{"TXT cname-" + api}},
		{"external-dns, prefix with a dot", txt("extdns."+api, "", registry), "traffic/external-dns", state.SeverityError, nil},
		{"external-dns, a member of the pair", txt("a-"+api, "green", registry), "traffic/external-dns", state.SeverityError, []string{`member "green"`}},
		{"external-dns, another member", txt("a-"+api, "canary", registry), "traffic/external-dns", state.SeverityWarn, []string{`member "canary"`}},
		{"external-dns, another record", txt("a-apj.shop.example.com", "", registry), "", "", nil},
		{"another TXT", txt(api, "", `"v=spf1 -all"`), "", "", nil},
		{"series", func(w *world) {
			w.r53.edit(zoneShop, api, r53types.RRTypeA, "green", func(s *r53types.ResourceRecordSet) {
				s.ResourceRecords, s.TTL = nil, nil
				s.AliasTarget = &r53types.AliasTarget{DNSName: aws.String("dualstack.SHOP-1.eu-central-1.elb.amazonaws.com."), HostedZoneId: aws.String("Z1")}
			})
		}, "traffic/series", state.SeverityError, []string{"green points to", "alb/shop"}},
		{"sum of a record", func(w *world) {
			w.r53.edit(zoneShop, api, r53types.RRTypeA, "blue", weigh(0))
			w.r53.edit(zoneShop, api, r53types.RRTypeAaaa, "blue", weigh(0))
		},
			"traffic/sum", state.SeverityError, []string{"both weights are 0"}},
		{"sum of a listener", func(w *world) { w.lb.listener(shopHTTP, split(tgBlue, 0, tgGreen, 0, tgOther, 1)) }, "traffic/sum", state.SeverityError, []string{"listener"}},
		{"types disagree", func(w *world) { w.r53.edit(zoneShop, api, r53types.RRTypeAaaa, "green", weigh(100)) }, "traffic/types", state.SeverityError, []string{"disagree"}},
		{"stage that cannot be expressed", func(w *world) { w.lb.listener(shopHTTP, split(tgBlue, 1, tgOther, 9)) }, "traffic/weights", state.SeverityError, []string{"stage 10 %"}},
		{"types that rounding would part", func(w *world) {
			for _, set := range []string{"blue", "green"} {
				w.r53.edit(zoneShop, api, r53types.RRTypeA, set, weigh(map[string]int64{"blue": 3}[set]))
			}
			w.r53.sets[zoneShop] = append(w.r53.sets[zoneShop], weighted(api, r53types.RRTypeA, "other", 3, "192.0.2.30"))
			w.r53.sort(zoneShop)
			w.stages = []int{50}
		}, "traffic/weights", state.SeverityError, []string{"would divide the traffic differently"}},
		{"five groups", func(w *world) {
			var groups []any
			for i := range 5 {
				arn := tgBlue
				if i > 0 {
					arn = fmt.Sprintf("%stargetgroup/x%d/0000000000000e%d", arnBase, i, i)
				}
				groups = append(groups, arn, 100)
			}
			w.lb.listener(shopHTTP, split(groups...))
		}, "traffic/groups", state.SeverityError, []string{"5 target groups already", "shop-green"}},
		{"sticky", func(w *world) {
			a := split(tgBlue, 100)
			a[0].ForwardConfig.TargetGroupStickinessConfig = &elbtypes.TargetGroupStickinessConfig{Enabled: aws.Bool(true), DurationSeconds: aws.Int32(3600)}
			w.lb.listener(shopHTTP, a)
		}, "traffic/sticky", state.SeverityWarn, []string{"3600 s", "do not move"}},
		{"health check", func(w *world) {
			w.r53.edit(zoneShop, api, r53types.RRTypeA, "blue", func(s *r53types.ResourceRecordSet) { s.HealthCheckId = aws.String("hc-1") })
		}, "traffic/health-check", state.SeverityWarn, []string{"weight 0 is not off"}},
		{"evaluated alias", func(w *world) {
			w.r53.edit(zoneShop, api, r53types.RRTypeA, "blue", func(s *r53types.ResourceRecordSet) {
				*s = aliased(api, r53types.RRTypeA, "blue", 100, "blue-1.eu-central-1.elb.amazonaws.com", true)
			})
		}, "traffic/evaluate-target-health", state.SeverityWarn, []string{"weight 0 is not off"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.do(w)
			findings, err := w.check()
			if err != nil {
				t.Fatal(err)
			}
			var got []state.Finding
			for _, f := range findings {
				if f.Severity != state.SeverityInfo {
					got = append(got, f)
				}
			}
			if tt.check == "" {
				if len(got) > 0 {
					t.Errorf("findings %+v", got)
				}
				return
			}
			var found *state.Finding
			for i := range got {
				if found == nil && got[i].Check == tt.check && got[i].Severity == tt.severity {
					found = &got[i]
				}
			}
			if found == nil {
				t.Fatalf("no %s %s in %+v", tt.severity, tt.check, got)
			}
			for _, text := range tt.texts {
				if !strings.Contains(found.Text, text) {
					t.Errorf("the finding does not say %q: %s", text, found.Text)
				}
			}
		})
	}
}

// A wildcard is stated as \052 by Route 53 and written as * in plan files.
func TestWildcardRecord(t *testing.T) {
	w := newWorld(t)
	wild := func(set string, weight int, ip string) r53types.ResourceRecordSet {
		return weighted(`\052.shop.example.com`, r53types.RRTypeA, set, weight, ip)
	}
	w.r53.sets[zoneShop] = append(w.r53.sets[zoneShop], wild("blue", 1, blueIP), wild("green", 0, greenIP))
	w.r53.sort(zoneShop)
	w.targets[0].Route53.Record, w.targets[0].Route53.Types = "*.Shop.Example.com.", []string{"A"}
	share, err := w.open()[0].Read(context.Background())
	if err != nil || share.Blue != 1 || share.Green != 0 || share.Target != "route53/*.shop.example.com" {
		t.Errorf("%+v, %v", share, err)
	}
}

// Reading ends where the name ends, however long the zone is.
func TestReadStopsAfterTheName(t *testing.T) {
	w := newWorld(t)
	for i := range 100 {
		w.r53.sets[zoneShop] = append(w.r53.sets[zoneShop], weighted(fmt.Sprintf("z%03d.shop.example.com", i), r53types.RRTypeA, "blue", 1, blueIP))
	}
	w.r53.sort(zoneShop)
	if _, err := w.open()[0].Read(context.Background()); err != nil {
		t.Fatal(err)
	}
	if w.r53.lists != 2 {
		t.Errorf("read %d pages, want 2: four sets of the name, three a page", w.r53.lists)
	}
}
