package elbv2_test

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/smithy-go"
	"go.uber.org/goleak"

	"github.com/eksbg/eksbg/internal/sandbox/elbv2"
	"github.com/eksbg/eksbg/internal/sandbox/wire/wiretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// rig is a service with the load balancer "shop": port 443 with an OIDC login before
// a forward to blue, port 80 with a fixed answer and two rules. "other" is a second
// load balancer with a group of its own.
type rig struct {
	*elb.Client
	svc *elbv2.Service
	srv *wiretest.Server

	blue, green, foreign string
	shop, other          elbv2.LoadBalancer

	mu      sync.Mutex
	now     time.Time
	targets map[string][]elbv2.Target
}

func (r *rig) time() time.Time { r.mu.Lock(); defer r.mu.Unlock(); return r.now }

func (r *rig) step(d time.Duration) { r.mu.Lock(); defer r.mu.Unlock(); r.now = r.now.Add(d) }

func (r *rig) setTargets(arn string, targets ...elbv2.Target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.targets[arn] = targets
}

func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

var login = elbv2.Action{Type: "authenticate-oidc", Order: aws.Int32(1), AuthenticateOidcConfig: &elbv2.AuthenticateOidcConfig{
	Issuer: "https://id.test", AuthorizationEndpoint: "https://id.test/auth", TokenEndpoint: "https://id.test/token",
	UserInfoEndpoint: "https://id.test/user", ClientId: "shop", ClientSecret: aws.String("hush"),
	OnUnauthenticatedRequest: aws.String("authenticate"), SessionTimeout: aws.Int64(3600),
	AuthenticationRequestExtraParams: map[string]string{"prompt": "login"},
}}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{now: start, targets: map[string][]elbv2.Target{}}
	r.svc = elbv2.New(elbv2.Options{
		Region: "eu-west-1", Now: r.time, HealthDelay: 30 * time.Second, Draining: time.Minute,
		Targets: func(arn string) []elbv2.Target { r.mu.Lock(); defer r.mu.Unlock(); return slices.Clone(r.targets[arn]) },
	})
	arn := must[string](t)
	r.blue = arn(r.svc.AddTargetGroup(elbv2.TargetGroup{Name: "shop-blue", Port: 8080, HealthPath: "/healthz", Tags: map[string]string{"side": "blue"}}))
	r.green = arn(r.svc.AddTargetGroup(elbv2.TargetGroup{Name: "shop-green", Port: 8080}))
	r.foreign = arn(r.svc.AddTargetGroup(elbv2.TargetGroup{Name: "foreign"}))
	lb := must[elbv2.LoadBalancer](t)
	r.shop = lb(r.svc.AddLoadBalancer(elbv2.LoadBalancer{
		Name: "shop", Zones: []elbv2.Zone{{Name: "eu-west-1a", Subnet: "subnet-1"}}, SecurityGroups: []string{"sg-1"},
		Tags: map[string]string{"team": "shop", "env": "test"},
		Listeners: []elbv2.Listener{
			{Port: 443, Protocol: "HTTPS", Certificates: []string{"arn:aws:acm:eu-west-1:111122223333:certificate/1"},
				DefaultActions: []elbv2.Action{login, {Type: "forward", Order: aws.Int32(2), TargetGroupArn: r.blue}}},
			{Port: 80, DefaultActions: []elbv2.Action{{Type: "fixed-response", FixedResponseConfig: &elbv2.FixedResponseConfig{
				StatusCode: "404", ContentType: aws.String("text/plain"), MessageBody: aws.String("<nothing> & here")}}},
				Rules: []elbv2.Rule{
					{Priority: 20, Conditions: []elbv2.Condition{{Field: "path-pattern", Values: []string{"/old/*"}}},
						Actions: []elbv2.Action{{Type: "redirect", RedirectConfig: &elbv2.RedirectConfig{StatusCode: "HTTP_301", Path: aws.String("/new")}}}},
					{Priority: 10, Tags: map[string]string{"rule": "ten"},
						Conditions: []elbv2.Condition{{Field: "host-header", Values: []string{"shop.example.test"}}, {Field: "http-header", HeaderName: "X-Side", Values: []string{"a*"}}},
						Transforms: []elbv2.Transform{{Type: "url-rewrite", UrlRewriteConfig: &elbv2.RewriteConfig{Rewrites: []elbv2.Rewrite{{Regex: "^/a", Replace: "/b"}}}}},
						Actions: []elbv2.Action{{Type: "forward", ForwardConfig: &elbv2.ForwardConfig{
							TargetGroups:                []elbv2.TargetGroupTuple{{TargetGroupArn: r.blue, Weight: aws.Int32(100)}, {TargetGroupArn: r.green, Weight: aws.Int32(0)}},
							TargetGroupStickinessConfig: &elbv2.StickinessConfig{Enabled: aws.Bool(true), DurationSeconds: aws.Int32(300)},
						}}}},
				}},
		},
	}))
	r.other = lb(r.svc.AddLoadBalancer(elbv2.LoadBalancer{Name: "other", Listeners: []elbv2.Listener{
		{Port: 80, DefaultActions: []elbv2.Action{{Type: "forward", TargetGroupArn: r.foreign}}},
	}}))
	r.srv = wiretest.Serve(t, r.svc)
	r.Client = elb.NewFromConfig(r.srv.Config())
	return r
}

// http, https are the listeners of shop; ten is the rule of priority 10.
func (r *rig) http() elbv2.Listener  { return r.shop.Listeners[0] }
func (r *rig) https() elbv2.Listener { return r.shop.Listeners[1] }
func (r *rig) ten() string           { return r.shop.Listeners[0].Rules[0].ARN }

func (r *rig) rules(t *testing.T) []types.Rule {
	t.Helper()
	return must[*elb.DescribeRulesOutput](t)(r.DescribeRules(t.Context(), &elb.DescribeRulesInput{ListenerArn: aws.String(r.http().ARN)})).Rules
}

func (r *rig) listener(t *testing.T, arn string) types.Listener {
	t.Helper()
	return must[*elb.DescribeListenersOutput](t)(r.DescribeListeners(t.Context(), &elb.DescribeListenersInput{ListenerArns: []string{arn}})).Listeners[0]
}

// health is the state of each target of a group, as the API has it.
func (r *rig) health(t *testing.T, arn string) map[string]string {
	t.Helper()
	out := must[*elb.DescribeTargetHealthOutput](t)(r.DescribeTargetHealth(t.Context(), &elb.DescribeTargetHealthInput{TargetGroupArn: &arn}))
	states := map[string]string{}
	for _, d := range out.TargetHealthDescriptions {
		states[*d.Target.Id] = string(d.TargetHealth.State)
	}
	return states
}

func same(got map[string]string, want ...string) bool {
	m := map[string]string{}
	for i := 0; i < len(want); i += 2 {
		m[want[i]] = want[i+1]
	}
	return maps.Equal(got, m)
}

// forward is a forward action to groups with weights: arn, weight, arn, weight ...
func forward(list ...any) types.Action {
	config := &types.ForwardActionConfig{}
	for i := 0; i < len(list); i += 2 {
		config.TargetGroups = append(config.TargetGroups, types.TargetGroupTuple{
			TargetGroupArn: aws.String(list[i].(string)), Weight: aws.Int32(int32(list[i+1].(int))),
		})
	}
	return types.Action{Type: types.ActionTypeEnumForward, ForwardConfig: config}
}

func message(err error) string {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return e.ErrorMessage()
	}
	return ""
}
