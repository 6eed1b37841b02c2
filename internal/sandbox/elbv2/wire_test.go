package elbv2_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/eksbg/eksbg/internal/sandbox/elbv2"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
	"github.com/eksbg/eksbg/internal/sandbox/wire/wiretest"
)

const module = "elasticloadbalancingv2"

// Each answer has only elements that AWS's own has.
func TestWireFormOfAnswers(t *testing.T) {
	r := newRig(t)
	r.setTargets(r.blue, unready("10.0.0.1"))
	for operation, call := range map[string]func() error{
		"DescribeLoadBalancers": func() error { _, err := r.DescribeLoadBalancers(t.Context(), nil); return err },
		"DescribeListeners": func() error {
			_, err := r.DescribeListeners(t.Context(), &elb.DescribeListenersInput{LoadBalancerArn: &r.shop.ARN})
			return err
		},
		"DescribeRules": func() error {
			_, err := r.DescribeRules(t.Context(), &elb.DescribeRulesInput{ListenerArn: aws.String(r.http().ARN)})
			return err
		},
		"DescribeTargetGroups": func() error { _, err := r.DescribeTargetGroups(t.Context(), nil); return err },
		"DescribeTargetHealth": func() error {
			_, err := r.DescribeTargetHealth(t.Context(), &elb.DescribeTargetHealthInput{TargetGroupArn: &r.blue})
			return err
		},
		"DescribeTags": func() error {
			_, err := r.DescribeTags(t.Context(), &elb.DescribeTagsInput{ResourceArns: []string{r.shop.ARN}})
			return err
		},
		"ModifyListener": func() error {
			_, err := r.ModifyListener(t.Context(), &elb.ModifyListenerInput{ListenerArn: aws.String(r.http().ARN), DefaultActions: []types.Action{forward(r.blue, 1)}})
			return err
		},
		"ModifyRule": func() error {
			_, err := r.ModifyRule(t.Context(), &elb.ModifyRuleInput{RuleArn: aws.String(r.ten()), Actions: []types.Action{forward(r.blue, 1, r.green, 2)}})
			return err
		},
	} {
		t.Run(operation, func(t *testing.T) {
			if err := call(); err != nil {
				t.Fatal(err)
			}
			got := r.srv.Last()
			_, want := wiretest.SnapshotBody(t, module, "response_snapshot/"+operation+".response.snap")
			wiretest.SameXML(t, got.Response, want)
			if ct := got.Header.Get("Content-Type"); ct != "text/xml" {
				t.Errorf("content type is %s", ct)
			}
			_, sent := wiretest.SnapshotBody(t, module, "request_snapshot/"+operation+".request.snap")
			req, err := http.NewRequest(http.MethodPost, "http://x/", nil)
			if err != nil {
				t.Fatal(err)
			}
			if c := r.svc.Classify(req, sent); c.Name != "elbv2:"+operation || c.Changing != strings.HasPrefix(operation, "Modify") || c.Object == "" {
				t.Errorf("AWS's request is taken for %+v", c)
			}
		})
	}
}

// Every member of an action that AWS's own request has is decoded, kept and shown: the
// names and values of the snapshot come back in the answer.
func TestEveryMemberOfAnActionSurvives(t *testing.T) {
	_, sent := wiretest.SnapshotBody(t, module, "request_snapshot/ModifyRule.request.snap")
	form, err := url.ParseQuery(string(sent))
	if err != nil {
		t.Fatal(err)
	}
	var in struct {
		Actions    []elbv2.Action
		Transforms []elbv2.Transform
	}
	if err := wire.DecodeQuery(form, &in); err != nil {
		t.Fatal(err)
	}
	if len(in.Actions) != 2 || len(in.Transforms) != 2 {
		t.Fatalf("decoded %d actions, %d transforms", len(in.Actions), len(in.Transforms))
	}
	w := &recorder{header: http.Header{}}
	wire.WriteQueryResult(w, "urn:x", "ModifyRule", struct {
		Rules []struct {
			Actions    []elbv2.Action
			Transforms []elbv2.Transform
		}
	}{[]struct {
		Actions    []elbv2.Action
		Transforms []elbv2.Transform
	}{{in.Actions, in.Transforms}}})
	_, want := wiretest.SnapshotBody(t, module, "response_snapshot/ModifyRule.response.snap")
	wiretest.SameXML(t, []byte(w.body.String()), want)
	for _, part := range []string{"Actions", "Transforms"} {
		have := between(t, w.body.String(), part)
		full := between(t, string(want), part)
		for _, name := range leaves(full) {
			if !strings.Contains(have, name) {
				t.Errorf("%s of %s is lost", name, part)
			}
		}
	}
}

type recorder struct {
	header http.Header
	body   strings.Builder
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(int)             {}
func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }

func between(t *testing.T, doc, name string) string {
	t.Helper()
	_, rest, ok := strings.Cut(doc, "<"+name+">")
	part, _, ok2 := strings.Cut(rest, "</"+name+">")
	if !ok || !ok2 {
		t.Fatalf("no %s", name)
	}
	return part
}

// leaves are the elements of a document that have a value, each with it.
func leaves(doc string) (out []string) {
	for _, part := range strings.Split(doc, "</") {
		if i := strings.LastIndex(part, "<"); i >= 0 && !strings.HasSuffix(part, ">") {
			name, value, _ := strings.Cut(part[i:], ">")
			out = append(out, name+">"+value)
		}
	}
	return out
}

// What was seeded comes out of the SDK with the same values.
func TestActionsReadBackAsSeeded(t *testing.T) {
	r := newRig(t)
	got := r.listener(t, r.https().ARN)
	want := []types.Action{
		{Type: "authenticate-oidc", Order: aws.Int32(1), AuthenticateOidcConfig: &types.AuthenticateOidcActionConfig{
			Issuer: aws.String("https://id.test"), AuthorizationEndpoint: aws.String("https://id.test/auth"), TokenEndpoint: aws.String("https://id.test/token"),
			UserInfoEndpoint: aws.String("https://id.test/user"), ClientId: aws.String("shop"), OnUnauthenticatedRequest: "authenticate",
			SessionTimeout: aws.Int64(3600), AuthenticationRequestExtraParams: map[string]string{"prompt": "login"},
		}},
		{Type: "forward", Order: aws.Int32(2), TargetGroupArn: &r.blue, ForwardConfig: &types.ForwardActionConfig{
			TargetGroups:                []types.TargetGroupTuple{{TargetGroupArn: &r.blue, Weight: aws.Int32(1)}},
			TargetGroupStickinessConfig: &types.TargetGroupStickinessConfig{Enabled: aws.Bool(false)},
		}},
	}
	ignore := cmpopts.IgnoreUnexported(types.Action{}, types.AuthenticateOidcActionConfig{}, types.ForwardActionConfig{},
		types.TargetGroupTuple{}, types.TargetGroupStickinessConfig{})
	if diff := cmp.Diff(want, got.DefaultActions, ignore); diff != "" {
		t.Error(diff)
	}
	if *got.SslPolicy == "" || *got.Certificates[0].CertificateArn == "" || *got.Port != 443 || got.Protocol != types.ProtocolEnumHttps {
		t.Errorf("the listener is %+v", got)
	}
}

func TestSeedsThatAreWrong(t *testing.T) {
	r := newRig(t)
	fixed := []elbv2.Action{{Type: "fixed-response", FixedResponseConfig: &elbv2.FixedResponseConfig{StatusCode: "200"}}}
	for name, lb := range map[string]elbv2.LoadBalancer{
		"twice":         {Name: "shop"},
		"no name":       {},
		"no action":     {Name: "x", Listeners: []elbv2.Listener{{Port: 80}}},
		"group in use":  {Name: "x", Listeners: []elbv2.Listener{{Port: 80, DefaultActions: []elbv2.Action{{Type: "forward", TargetGroupArn: r.blue}}}}},
		"no priority":   {Name: "x", Listeners: []elbv2.Listener{{Port: 80, DefaultActions: fixed, Rules: []elbv2.Rule{{Actions: fixed}}}}},
		"same priority": {Name: "x", Listeners: []elbv2.Listener{{Port: 80, DefaultActions: fixed, Rules: []elbv2.Rule{{Priority: 1, Actions: fixed}, {Priority: 1, Actions: fixed}}}}},
	} {
		if _, err := r.svc.AddLoadBalancer(lb); err == nil {
			t.Errorf("%s: was taken", name)
		}
	}
	if _, err := r.svc.AddTargetGroup(elbv2.TargetGroup{Name: "shop-blue"}); err == nil {
		t.Error("a target group was taken twice")
	}
}
