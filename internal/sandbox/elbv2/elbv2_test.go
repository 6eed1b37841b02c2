package elbv2_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/eksbg/eksbg/internal/sandbox/elbv2"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
	"github.com/eksbg/eksbg/internal/sandbox/wire/wiretest"
)

func TestDescribeLoadBalancers(t *testing.T) {
	r := newRig(t)
	var names []string
	pages := elb.NewDescribeLoadBalancersPaginator(r, &elb.DescribeLoadBalancersInput{PageSize: aws.Int32(1)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range page.LoadBalancers {
			names = append(names, *b.LoadBalancerName)
		}
	}
	if !slices.Equal(names, []string{"other", "shop"}) {
		t.Errorf("got %v", names)
	}
	out, err := r.DescribeLoadBalancers(t.Context(), &elb.DescribeLoadBalancersInput{Names: []string{"shop"}})
	if err != nil {
		t.Fatal(err)
	}
	b := out.LoadBalancers[0]
	if *b.LoadBalancerArn != r.shop.ARN || *b.DNSName != r.shop.DNSName || !strings.HasSuffix(*b.DNSName, ".eu-west-1.elb.amazonaws.com") ||
		*b.CanonicalHostedZoneId != "Z32O12XQLNTSW2" || b.State.Code != types.LoadBalancerStateEnumActive ||
		b.Type != types.LoadBalancerTypeEnumApplication || *b.AvailabilityZones[0].ZoneName != "eu-west-1a" ||
		!b.CreatedTime.Equal(start.AddDate(-1, 0, 0)) {
		t.Errorf("it is %+v", b)
	}
	_, err = r.DescribeLoadBalancers(t.Context(), &elb.DescribeLoadBalancersInput{Names: []string{"none"}})
	if wiretest.Code(err) != "LoadBalancerNotFound" || message(err) != "Load balancers '[none]' not found" {
		t.Errorf("by an unknown name: %v", err)
	}
}

func TestRulesAreByPriorityWithTheDefaultLast(t *testing.T) {
	r := newRig(t)
	rules := r.rules(t)
	var order []string
	for _, rule := range rules {
		order = append(order, *rule.Priority)
	}
	if !slices.Equal(order, []string{"10", "20", "default"}) || !*rules[2].IsDefault || *rules[0].IsDefault {
		t.Fatalf("order is %v", order)
	}
	c := rules[0].Conditions
	if *c[0].Field != "host-header" || c[0].HostHeaderConfig.Values[0] != "shop.example.test" || c[0].Values[0] != "shop.example.test" ||
		*c[1].HttpHeaderConfig.HttpHeaderName != "X-Side" || c[1].HttpHeaderConfig.Values[0] != "a*" {
		t.Errorf("conditions are %+v", c)
	}
	if *rules[2].Actions[0].FixedResponseConfig.MessageBody != "<nothing> & here" {
		t.Errorf("the default is %+v", rules[2].Actions[0].FixedResponseConfig)
	}
	same, err := r.DescribeRules(t.Context(), &elb.DescribeRulesInput{RuleArns: []string{*rules[2].RuleArn, *rules[0].RuleArn}})
	if err != nil || len(same.Rules) != 2 || !*same.Rules[0].IsDefault {
		t.Errorf("by ARN: %v %v", same, err)
	}
}

// AWS echoes the ARN of a single group beside its ForwardConfig, and none for more.
func TestForwardsAreEchoedAsAWSDoes(t *testing.T) {
	r := newRig(t)
	single := r.listener(t, r.https().ARN).DefaultActions[1]
	if aws.ToString(single.TargetGroupArn) != r.blue || len(single.ForwardConfig.TargetGroups) != 1 ||
		*single.ForwardConfig.TargetGroups[0].Weight != 1 || *single.ForwardConfig.TargetGroupStickinessConfig.Enabled {
		t.Errorf("one group: %+v", single)
	}
	pair := r.rules(t)[0].Actions[0]
	if pair.TargetGroupArn != nil || *pair.ForwardConfig.TargetGroups[1].Weight != 0 || *pair.ForwardConfig.TargetGroupStickinessConfig.DurationSeconds != 300 {
		t.Errorf("two groups: %+v", pair)
	}
}

func TestModifyRuleReplacesActionsAndKeepsTheRest(t *testing.T) {
	r := newRig(t)
	out, err := r.ModifyRule(t.Context(), &elb.ModifyRuleInput{RuleArn: aws.String(r.ten()), Actions: []types.Action{forward(r.blue, 90, r.green, 10)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range []types.Rule{out.Rules[0], r.rules(t)[0]} {
		f := rule.Actions[0].ForwardConfig
		if *f.TargetGroups[0].Weight != 90 || *f.TargetGroups[1].Weight != 10 {
			t.Errorf("weights are %+v", f.TargetGroups)
		}
		if *f.TargetGroupStickinessConfig.Enabled {
			t.Error("stickiness that was not sent is still there: lists are replaced whole")
		}
		if len(rule.Conditions) != 2 || *rule.Priority != "10" || len(rule.Transforms) != 1 || *rule.Transforms[0].UrlRewriteConfig.Rewrites[0].Regex != "^/a" {
			t.Errorf("the rest is %+v", rule)
		}
	}
	if _, err = r.ModifyRule(t.Context(), &elb.ModifyRuleInput{RuleArn: aws.String(r.ten()), ResetTransforms: aws.Bool(true),
		Conditions: []types.RuleCondition{{Field: aws.String("path-pattern"), PathPatternConfig: &types.PathPatternConditionConfig{Values: []string{"/x"}}}},
	}); err != nil {
		t.Fatal(err)
	}
	if rule := r.rules(t)[0]; len(rule.Transforms) != 0 || len(rule.Conditions) != 1 || *rule.Actions[0].ForwardConfig.TargetGroups[0].Weight != 90 {
		t.Errorf("after another change it is %+v", rule)
	}
}

// A described list of actions goes back as it is, once the echoed ARN is dropped and
// the secret, which is never shown, is said to stay.
func TestADescribedListCanBeSentBack(t *testing.T) {
	r := newRig(t)
	before, _ := json.Marshal(r.svc.Snapshot())
	actions := r.listener(t, r.https().ARN).DefaultActions
	if actions[0].AuthenticateOidcConfig.ClientSecret != nil {
		t.Error("the client secret is shown")
	}
	send := func() error {
		_, err := r.ModifyListener(t.Context(), &elb.ModifyListenerInput{ListenerArn: aws.String(r.https().ARN), DefaultActions: actions})
		return err
	}
	if err := send(); wiretest.Code(err) != "InvalidLoadBalancerAction" {
		t.Errorf("without the secret: %v", err)
	}
	actions[0].AuthenticateOidcConfig.UseExistingClientSecret = aws.Bool(true)
	if err := send(); err != nil {
		t.Fatal(err)
	}
	after, _ := json.Marshal(r.svc.Snapshot())
	if string(before) != string(after) {
		t.Errorf("the listener has changed:\n%s\n%s", before, after)
	}
	// With a second group the echo is in the way.
	actions[1].ForwardConfig.TargetGroups = append(actions[1].ForwardConfig.TargetGroups, types.TargetGroupTuple{TargetGroupArn: &r.green})
	if err := send(); !strings.HasPrefix(message(err), "You cannot specify both a target group list and a top-level target group ARN") {
		t.Errorf("with the echoed ARN: %v", err)
	}
	actions[1].TargetGroupArn = nil
	if err := send(); err != nil {
		t.Error(err)
	}
}

func TestActionsThatAreRefused(t *testing.T) {
	r := newRig(t)
	before, _ := json.Marshal(r.svc.Snapshot())
	fixed := types.Action{Type: "fixed-response", FixedResponseConfig: &types.FixedResponseActionConfig{StatusCode: aws.String("200")}}
	ordered := func(n int32, a types.Action) types.Action { a.Order = &n; return a }
	for name, tt := range map[string]struct {
		actions []types.Action
		code    string
		message string
	}{
		"weight above 999":  {[]types.Action{forward(r.blue, 1000)}, "ValidationError", "The weight for each target group must be between 0 and 999, inclusive"},
		"weight below 0":    {[]types.Action{forward(r.blue, -1)}, "ValidationError", "between 0 and 999"},
		"unknown group":     {[]types.Action{forward(r.blue+"0", 1)}, "TargetGroupNotFound", "One or more target groups not found"},
		"group of another":  {[]types.Action{forward(r.blue, 1, r.foreign, 1)}, "TargetGroupAssociationLimit", "TargetGroup cannot be associated with more than one load balancer"},
		"the same twice":    {[]types.Action{forward(r.blue, 1, r.blue, 2)}, "ValidationError", "more than once"},
		"six groups":        {[]types.Action{forward(r.blue, 1, r.green, 1, "a", 1, "b", 1, "c", 1, "d", 1)}, "TooManyTargetGroups", "at most 5"},
		"no group":          {[]types.Action{{Type: "forward"}}, "ValidationError", "target group ARN must be specified"},
		"another ARN":       {[]types.Action{{Type: "forward", TargetGroupArn: &r.green, ForwardConfig: forward(r.blue, 1).ForwardConfig}}, "ValidationError", "cannot specify both"},
		"two terminal ones": {[]types.Action{ordered(1, fixed), ordered(2, forward(r.blue, 1))}, "InvalidLoadBalancerAction", "last action"},
		"no order":          {[]types.Action{fixed, forward(r.blue, 1)}, "InvalidLoadBalancerAction", "order"},
		"the same order":    {[]types.Action{ordered(1, fixed), ordered(1, forward(r.blue, 1))}, "InvalidLoadBalancerAction", "order"},
		"login over HTTP": {[]types.Action{ordered(1, types.Action{Type: "authenticate-cognito", AuthenticateCognitoConfig: &types.AuthenticateCognitoActionConfig{
			UserPoolArn: aws.String("a"), UserPoolClientId: aws.String("b"), UserPoolDomain: aws.String("c")}}), ordered(2, fixed)},
			"InvalidLoadBalancerAction", "supported only on HTTPS"},
		"login alone":  {[]types.Action{{Type: "authenticate-oidc"}}, "InvalidLoadBalancerAction", "must have its configuration"},
		"unknown type": {[]types.Action{{Type: "teapot"}}, "ValidationError", "enum value set"},
		"two types":    {[]types.Action{{Type: "forward", TargetGroupArn: &r.blue, FixedResponseConfig: fixed.FixedResponseConfig}}, "InvalidLoadBalancerAction", "cannot have the configuration"},
		"sticky too long": {[]types.Action{{Type: "forward", ForwardConfig: &types.ForwardActionConfig{
			TargetGroups: forward(r.blue, 1).ForwardConfig.TargetGroups, TargetGroupStickinessConfig: &types.TargetGroupStickinessConfig{
				Enabled: aws.Bool(true), DurationSeconds: aws.Int32(604801)}}}}, "ValidationError", "between 1 and 604800"},
	} {
		t.Run(name, func(t *testing.T) {
			_, rule := r.ModifyRule(t.Context(), &elb.ModifyRuleInput{RuleArn: aws.String(r.ten()), Actions: tt.actions})
			_, listener := r.ModifyListener(t.Context(), &elb.ModifyListenerInput{ListenerArn: aws.String(r.http().ARN), DefaultActions: tt.actions})
			for _, err := range []error{rule, listener} {
				if wiretest.Code(err) != tt.code || !strings.Contains(message(err), tt.message) {
					t.Errorf("got %v", err)
				}
			}
			if r.srv.Last().Status != http.StatusBadRequest {
				t.Errorf("status %d", r.srv.Last().Status)
			}
		})
	}
	after, _ := json.Marshal(r.svc.Snapshot())
	if string(before) != string(after) {
		t.Errorf("something has changed:\n%s\n%s", before, after)
	}
}

func TestNetworkLoadBalancersHaveNoWeights(t *testing.T) {
	r := newRig(t)
	group, err := r.svc.AddTargetGroup(elbv2.TargetGroup{Name: "tcp", Protocol: "TCP"})
	if err != nil {
		t.Fatal(err)
	}
	lb, err := r.svc.AddLoadBalancer(elbv2.LoadBalancer{Name: "net", Type: "network", Listeners: []elbv2.Listener{
		{Port: 80, Protocol: "TCP", DefaultActions: []elbv2.Action{{Type: "forward", TargetGroupArn: group}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.ModifyListener(t.Context(), &elb.ModifyListenerInput{ListenerArn: &lb.Listeners[0].ARN, DefaultActions: []types.Action{forward(group, 1)}})
	if message(err) != "You cannot specify a target group weight on load balancers of type 'network'" {
		t.Errorf("got %v", err)
	}
}

func TestWhatIsNotThere(t *testing.T) {
	r := newRig(t)
	none := aws.String(r.shop.ARN + "0")
	_, balancers := r.DescribeLoadBalancers(t.Context(), &elb.DescribeLoadBalancersInput{LoadBalancerArns: []string{*none}})
	_, listeners := r.DescribeListeners(t.Context(), &elb.DescribeListenersInput{ListenerArns: []string{*none}})
	_, ofNone := r.DescribeListeners(t.Context(), &elb.DescribeListenersInput{LoadBalancerArn: none})
	_, neither := r.DescribeListeners(t.Context(), &elb.DescribeListenersInput{})
	_, rules := r.DescribeRules(t.Context(), &elb.DescribeRulesInput{RuleArns: []string{*none}})
	_, groups := r.DescribeTargetGroups(t.Context(), &elb.DescribeTargetGroupsInput{TargetGroupArns: []string{*none}})
	_, names := r.DescribeTargetGroups(t.Context(), &elb.DescribeTargetGroupsInput{Names: []string{"none"}})
	_, health := r.DescribeTargetHealth(t.Context(), &elb.DescribeTargetHealthInput{TargetGroupArn: none})
	_, tags := r.DescribeTags(t.Context(), &elb.DescribeTagsInput{ResourceArns: []string{*none}})
	_, noARN := r.DescribeTags(t.Context(), &elb.DescribeTagsInput{ResourceArns: []string{"x"}})
	_, listener := r.ModifyListener(t.Context(), &elb.ModifyListenerInput{ListenerArn: none, Port: aws.Int32(1)})
	_, rule := r.ModifyRule(t.Context(), &elb.ModifyRuleInput{RuleArn: none})
	_, isDefault := r.ModifyRule(t.Context(), &elb.ModifyRuleInput{RuleArn: r.rules(t)[2].RuleArn, Actions: []types.Action{forward(r.blue, 1)}})
	_, port := r.ModifyListener(t.Context(), &elb.ModifyListenerInput{ListenerArn: aws.String(r.http().ARN), Port: aws.Int32(443)})
	_, other := r.DeleteListener(t.Context(), &elb.DeleteListenerInput{ListenerArn: aws.String(r.http().ARN)})
	for _, tt := range []struct {
		err  error
		want string
	}{
		{balancers, "LoadBalancerNotFound"}, {listeners, "ListenerNotFound"}, {ofNone, "LoadBalancerNotFound"}, {neither, "ValidationError"},
		{rules, "RuleNotFound"}, {groups, "TargetGroupNotFound"}, {names, "TargetGroupNotFound"}, {health, "TargetGroupNotFound"},
		{tags, "LoadBalancerNotFound"}, {noARN, "ValidationError"}, {listener, "ListenerNotFound"}, {rule, "RuleNotFound"},
		{isDefault, "OperationNotPermitted"}, {port, "DuplicateListener"}, {other, "InvalidAction"},
	} {
		if wiretest.Code(tt.err) != tt.want {
			t.Errorf("got %v, want %s", tt.err, tt.want)
		}
	}
}

func TestDescribeTags(t *testing.T) {
	r := newRig(t)
	out, err := r.DescribeTags(t.Context(), &elb.DescribeTagsInput{ResourceArns: []string{r.shop.ARN, r.ten(), r.blue, r.http().ARN}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range out.TagDescriptions {
		line := ""
		for _, tag := range d.Tags {
			line += *tag.Key + "=" + *tag.Value + " "
		}
		got = append(got, line)
	}
	if !slices.Equal(got, []string{"env=test team=shop ", "rule=ten ", "side=blue ", ""}) {
		t.Errorf("got %q", got)
	}
}

func TestDescribeTargetGroupsOfALoadBalancer(t *testing.T) {
	r := newRig(t)
	out, err := r.DescribeTargetGroups(t.Context(), &elb.DescribeTargetGroupsInput{LoadBalancerArn: &r.shop.ARN})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.TargetGroups) != 2 || *out.TargetGroups[0].TargetGroupName != "shop-blue" || !slices.Equal(out.TargetGroups[0].LoadBalancerArns, []string{r.shop.ARN}) ||
		out.TargetGroups[0].TargetType != types.TargetTypeEnumIp || *out.TargetGroups[0].HealthCheckPath != "/healthz" {
		t.Errorf("got %+v", out.TargetGroups)
	}
}

func TestFaultsAndCredentials(t *testing.T) {
	r := newRig(t)
	if err := r.srv.Faults.Add(wire.Fault{Call: "elbv2:ModifyRule", Object: r.ten(), Error: "Throttling"}); err != nil {
		t.Fatal(err)
	}
	_, err := r.ModifyRule(t.Context(), &elb.ModifyRuleInput{RuleArn: aws.String(r.ten()), Actions: []types.Action{forward(r.blue, 1)}})
	if wiretest.Code(err) != "Throttling" || message(err) != "Rate exceeded" {
		t.Errorf("got %v", err)
	}
	_, want := wiretest.SnapshotBody(t, "elasticloadbalancingv2", "response_snapshot/TargetGroupAssociationLimitException.error.snap")
	wiretest.SameXML(t, []byte(strings.Replace(string(r.srv.Last().Response), "<Type>Sender</Type>", "", 1)), want)
	cfg := r.srv.Config()
	cfg.Credentials = credentials.NewStaticCredentialsProvider("AKIDNOBODY", "x", "")
	_, err = elb.NewFromConfig(cfg).DescribeLoadBalancers(t.Context(), nil)
	if wiretest.Code(err) != "InvalidClientTokenId" || r.srv.Last().Status != http.StatusForbidden {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(r.srv.Log.String(), `"call":"elbv2:ModifyRule","object":"`+r.ten()+`","changing":true,"accepted":false`) {
		t.Errorf("log is %s", r.srv.Log)
	}
}

func TestRouteTakesTheFirstRuleThatMatches(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		host, path, side, want string
	}{
		{"shop.example.test", "/", "abc", "forward"},
		{"SHOP.example.test:80", "/", "abc", "forward"},
		{"shop.example.test", "/", "b", "fixed-response"},
		{"other.test", "/", "abc", "fixed-response"},
		{"other.test", "/old/a/b", "", "redirect"},
		{"other.test", "/older", "", "fixed-response"},
	} {
		req := httptest.NewRequest(http.MethodGet, tt.path, nil)
		req.Host = tt.host
		req.Header.Set("X-Side", tt.side)
		actions, ok := r.svc.Route(r.http().ARN, req)
		if !ok || actions[0].Type != tt.want {
			t.Errorf("%+v: %v %t", tt, actions, ok)
		}
	}
	if _, ok := r.svc.Route("none", httptest.NewRequest(http.MethodGet, "/", nil)); ok {
		t.Error("an unknown listener routes")
	}
}
