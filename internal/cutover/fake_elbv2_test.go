package cutover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/smithy-go"
)

const (
	arnBase  = "arn:aws:elasticloadbalancing:eu-central-1:111122223333:"
	shopALB  = arnBase + "loadbalancer/app/shop/00000000000000a1"
	shopHTTP = arnBase + "listener/app/shop/00000000000000a1/00000000000000b1"
	shopRule = arnBase + "listener-rule/app/shop/00000000000000a1/00000000000000b1/00000000000000c1"
	tgBlue   = arnBase + "targetgroup/shop-blue/00000000000000d1"
	tgGreen  = arnBase + "targetgroup/shop-green/00000000000000d2"
	tgOther  = arnBase + "targetgroup/shop-canary/00000000000000d3"
)

// fakeELBv2 keeps ELBv2's rules: whole action lists, weights between 0 and 999, at most
// five groups, one load balancer for each group, no health without a listener, the
// TargetGroupArn echo, secrets that are never shown.
type fakeELBv2 struct {
	w         *world
	balancers map[string]elbtypes.LoadBalancer
	// actions holds the action list of each listener and rule.
	actions map[string][]elbtypes.Action
	groups  map[string]*fakeGroup
	tags    map[string]map[string]string
	stale   time.Duration
	old     map[string][]elbtypes.Action
	oldTill time.Time
	isDef   map[string]bool
}

type fakeGroup struct {
	lb string
	// healthy, unhealthy are registered targets once they are judged.
	healthy, unhealthy int
	// warmup is how long they take after the group is attached.
	warmup  time.Duration
	since   time.Time
	used    bool
	foreign []string
}

func newELBv2(w *world) *fakeELBv2 {
	return &fakeELBv2{w: w, balancers: map[string]elbtypes.LoadBalancer{}, actions: map[string][]elbtypes.Action{}, groups: map[string]*fakeGroup{},
		tags: map[string]map[string]string{}, isDef: map[string]bool{}}
}

func apiError(code, msg string) error {
	return &smithy.GenericAPIError{Code: code, Message: msg, Fault: smithy.FaultClient}
}

func single(group string) []elbtypes.Action {
	return []elbtypes.Action{{Type: elbtypes.ActionTypeEnumForward, TargetGroupArn: aws.String(group)}}
}

func split(weights ...any) []elbtypes.Action {
	var groups []elbtypes.TargetGroupTuple
	for i := 0; i < len(weights); i += 2 {
		groups = append(groups, elbtypes.TargetGroupTuple{TargetGroupArn: aws.String(weights[i].(string)), Weight: aws.Int32(int32(weights[i+1].(int)))})
	}
	return []elbtypes.Action{{Type: elbtypes.ActionTypeEnumForward, ForwardConfig: &elbtypes.ForwardActionConfig{TargetGroups: groups}}}
}

// described gives the list as the API states it: the echo beside a single group.
func described(actions []elbtypes.Action) []elbtypes.Action {
	out := slices.Clone(actions)
	for i := range out {
		a := &out[i]
		if len(out) > 1 && a.Order == nil {
			a.Order = aws.Int32(int32(i + 1))
		}
		if a.Type != elbtypes.ActionTypeEnumForward {
			continue
		}
		if a.ForwardConfig == nil {
			a.ForwardConfig = &elbtypes.ForwardActionConfig{TargetGroups: []elbtypes.TargetGroupTuple{{TargetGroupArn: a.TargetGroupArn, Weight: aws.Int32(1)}}}
		}
		config := *a.ForwardConfig
		if config.TargetGroupStickinessConfig == nil {
			config.TargetGroupStickinessConfig = &elbtypes.TargetGroupStickinessConfig{Enabled: aws.Bool(false)}
		}
		a.ForwardConfig = &config
		if len(config.TargetGroups) == 1 {
			a.TargetGroupArn = config.TargetGroups[0].TargetGroupArn
		}
	}
	return out
}

func (f *fakeELBv2) listener(arn string, actions []elbtypes.Action) {
	f.actions[arn] = actions
	f.touch()
}

// touch brings the groups' use up to date.
func (f *fakeELBv2) touch() {
	for arn, g := range f.groups {
		used := false
		for _, actions := range f.actions {
			if groups, err := forwardGroups(actions); err == nil {
				if _, ok := findGroup(groups, arn); ok {
					used = true
				}
			}
		}
		if used && !g.used {
			g.since = f.w.clock.Now()
		}
		g.used = used
	}
}

func (f *fakeELBv2) current(arn string) ([]elbtypes.Action, bool) {
	if f.w.clock.Now().Before(f.oldTill) {
		if a, ok := f.old[arn]; ok {
			return described(a), true
		}
	}
	a, ok := f.actions[arn]
	return described(a), ok
}

func (f *fakeELBv2) DescribeListeners(ctx context.Context, in *elb.DescribeListenersInput, _ ...func(*elb.Options)) (*elb.DescribeListenersOutput, error) {
	if err := f.w.enter(ctx, "DescribeListeners", false); err != nil {
		return nil, err
	}
	a, ok := f.current(in.ListenerArns[0])
	if !ok {
		return nil, &elbtypes.ListenerNotFoundException{Message: aws.String("One or more listeners not found")}
	}
	return &elb.DescribeListenersOutput{Listeners: []elbtypes.Listener{{ListenerArn: aws.String(in.ListenerArns[0]), DefaultActions: a}}}, nil
}

func (f *fakeELBv2) DescribeRules(ctx context.Context, in *elb.DescribeRulesInput, _ ...func(*elb.Options)) (*elb.DescribeRulesOutput, error) {
	if err := f.w.enter(ctx, "DescribeRules", false); err != nil {
		return nil, err
	}
	a, ok := f.current(in.RuleArns[0])
	if !ok {
		return nil, &elbtypes.RuleNotFoundException{Message: aws.String("One or more rules not found")}
	}
	return &elb.DescribeRulesOutput{Rules: []elbtypes.Rule{{RuleArn: aws.String(in.RuleArns[0]), Actions: a, IsDefault: aws.Bool(f.isDef[in.RuleArns[0]])}}}, nil
}

func (f *fakeELBv2) DescribeLoadBalancers(ctx context.Context, in *elb.DescribeLoadBalancersInput, _ ...func(*elb.Options)) (*elb.DescribeLoadBalancersOutput, error) {
	if err := f.w.enter(ctx, "DescribeLoadBalancers", false); err != nil {
		return nil, err
	}
	out := &elb.DescribeLoadBalancersOutput{}
	for arn, lb := range f.balancers {
		if len(in.LoadBalancerArns) == 0 || slices.Contains(in.LoadBalancerArns, arn) {
			out.LoadBalancers = append(out.LoadBalancers, lb)
		}
	}
	if len(in.LoadBalancerArns) > len(out.LoadBalancers) {
		return nil, &elbtypes.LoadBalancerNotFoundException{Message: aws.String("not found")}
	}
	return out, nil
}

func (f *fakeELBv2) DescribeTargetGroups(ctx context.Context, in *elb.DescribeTargetGroupsInput, _ ...func(*elb.Options)) (*elb.DescribeTargetGroupsOutput, error) {
	if err := f.w.enter(ctx, "DescribeTargetGroups", false); err != nil {
		return nil, err
	}
	out := &elb.DescribeTargetGroupsOutput{}
	for arn, g := range f.groups {
		lbs := slices.Clone(g.foreign)
		if g.used && g.lb != "" {
			lbs = append(lbs, g.lb)
		}
		if slices.Contains(in.TargetGroupArns, arn) || in.LoadBalancerArn != nil && slices.Contains(lbs, *in.LoadBalancerArn) {
			out.TargetGroups = append(out.TargetGroups, elbtypes.TargetGroup{TargetGroupArn: aws.String(arn), LoadBalancerArns: lbs})
		}
	}
	if len(in.TargetGroupArns) > len(out.TargetGroups) {
		return nil, &elbtypes.TargetGroupNotFoundException{Message: aws.String("One or more target groups not found")}
	}
	return out, nil
}

func (f *fakeELBv2) DescribeTargetHealth(ctx context.Context, in *elb.DescribeTargetHealthInput, _ ...func(*elb.Options)) (*elb.DescribeTargetHealthOutput, error) {
	if err := f.w.enter(ctx, "DescribeTargetHealth", false); err != nil {
		return nil, err
	}
	g, ok := f.groups[aws.ToString(in.TargetGroupArn)]
	if !ok {
		return nil, &elbtypes.TargetGroupNotFoundException{Message: aws.String("One or more target groups not found")}
	}
	out := &elb.DescribeTargetHealthOutput{}
	add := func(n int, state elbtypes.TargetHealthStateEnum) {
		for range n {
			out.TargetHealthDescriptions = append(out.TargetHealthDescriptions, elbtypes.TargetHealthDescription{
				Target: &elbtypes.TargetDescription{Id: aws.String("10.0.0.1")}, TargetHealth: &elbtypes.TargetHealth{State: state}})
		}
	}
	switch {
	case !g.used && len(g.foreign) == 0:
		add(g.healthy+g.unhealthy, elbtypes.TargetHealthStateEnumUnused)
	case f.w.clock.Since(g.since) < g.warmup:
		add(g.healthy+g.unhealthy, elbtypes.TargetHealthStateEnumInitial)
	default:
		add(g.healthy, elbtypes.TargetHealthStateEnumHealthy)
		add(g.unhealthy, elbtypes.TargetHealthStateEnumUnhealthy)
	}
	return out, nil
}

func (f *fakeELBv2) DescribeTags(ctx context.Context, in *elb.DescribeTagsInput, _ ...func(*elb.Options)) (*elb.DescribeTagsOutput, error) {
	if err := f.w.enter(ctx, "DescribeTags", false); err != nil {
		return nil, err
	}
	out := &elb.DescribeTagsOutput{}
	for _, arn := range in.ResourceArns {
		d := elbtypes.TagDescription{ResourceArn: aws.String(arn)}
		for k, v := range f.tags[arn] {
			d.Tags = append(d.Tags, elbtypes.Tag{Key: aws.String(k), Value: aws.String(v)})
		}
		out.TagDescriptions = append(out.TagDescriptions, d)
	}
	return out, nil
}

// modify replaces a whole action list, or says why not.
func (f *fakeELBv2) modify(ctx context.Context, op, arn string, actions []elbtypes.Action) error {
	if err := f.w.enter(ctx, op, true); err != nil {
		return err
	}
	if _, ok := f.actions[arn]; !ok {
		return &elbtypes.ListenerNotFoundException{Message: aws.String("not found")}
	}
	for _, a := range actions {
		if oidc := a.AuthenticateOidcConfig; oidc != nil && oidc.ClientSecret == nil && !aws.ToBool(oidc.UseExistingClientSecret) {
			return apiError("ValidationError", "Client secret is required")
		}
		if a.Type != elbtypes.ActionTypeEnumForward || a.ForwardConfig == nil {
			continue
		}
		if a.TargetGroupArn != nil && (len(a.ForwardConfig.TargetGroups) != 1 || aws.ToString(a.ForwardConfig.TargetGroups[0].TargetGroupArn) != *a.TargetGroupArn) {
			return apiError("ValidationError", "You can specify both TargetGroupArn and ForwardConfig only for a single target group")
		}
		if len(a.ForwardConfig.TargetGroups) > maxGroups {
			return &elbtypes.TooManyTargetGroupsException{Message: aws.String("too many")}
		}
		for _, g := range a.ForwardConfig.TargetGroups {
			if w := aws.ToInt32(g.Weight); w < 0 || w > 999 {
				return apiError("ValidationError", "The weight for each target group must be between 0 and 999, inclusive")
			}
			have, ok := f.groups[aws.ToString(g.TargetGroupArn)]
			if !ok {
				return &elbtypes.TargetGroupNotFoundException{Message: aws.String("not found")}
			}
			if len(have.foreign) > 0 {
				return &elbtypes.TargetGroupAssociationLimitException{Message: aws.String("TargetGroup cannot be associated with more than one load balancer")}
			}
		}
	}
	stored := slices.Clone(actions)
	for i := range stored {
		if oidc := stored[i].AuthenticateOidcConfig; oidc != nil {
			kept := *oidc
			kept.ClientSecret, kept.UseExistingClientSecret = nil, nil
			stored[i].AuthenticateOidcConfig = &kept
		}
	}
	if f.stale > 0 {
		f.old, f.oldTill = map[string][]elbtypes.Action{arn: f.actions[arn]}, f.w.clock.Now().Add(f.stale)
	}
	f.w.accepted("elasticloadbalancing:"+op, func(c *change) bool { return equalActions(c.NewActions, stored) })
	f.actions[arn] = stored
	f.touch()
	return f.w.leave(op)
}

func (f *fakeELBv2) ModifyListener(ctx context.Context, in *elb.ModifyListenerInput, _ ...func(*elb.Options)) (*elb.ModifyListenerOutput, error) {
	if err := f.modify(ctx, "ModifyListener", aws.ToString(in.ListenerArn), in.DefaultActions); err != nil {
		return nil, err
	}
	return &elb.ModifyListenerOutput{}, nil
}

func (f *fakeELBv2) ModifyRule(ctx context.Context, in *elb.ModifyRuleInput, _ ...func(*elb.Options)) (*elb.ModifyRuleOutput, error) {
	if err := f.modify(ctx, "ModifyRule", aws.ToString(in.RuleArn), in.Actions); err != nil {
		return nil, err
	}
	return &elb.ModifyRuleOutput{}, nil
}

// weights gives the weights in the world as "shop-blue=90 shop-green=10".
func (f *fakeELBv2) weights(arn string) string {
	groups, err := forwardGroups(f.actions[arn])
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, g := range groups {
		out = append(out, fmt.Sprintf("%s=%d", groupName(aws.ToString(g.TargetGroupArn)), weightOf(g)))
	}
	return strings.Join(out, " ")
}
