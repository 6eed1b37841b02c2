package cutover

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	eksaws "github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/state"
)

// maxGroups is how many target groups one forward action takes (ELB user guide,
// "Quotas for your Application Load Balancers").
const maxGroups = 5

// balancer is the default action of an ALB listener, or one of its rules.
type balancer struct {
	id  string
	api ELBv2API
	// listener is the listener's ARN, also for a rule; rule is empty for the default action.
	listener, rule string
	// lb is the load balancer's ARN, name its name.
	lb, name string
	group    map[state.Side]string
}

// arnParts are what the ARNs of listeners and rules hold:
// …:listener/app/NAME/LB/LISTENER and …:listener-rule/app/NAME/LB/LISTENER/RULE.
type arnParts struct {
	prefix, name, lb, listener, rule string
}

// parseListenerARN takes the ARN of an ALB's listener or rule apart.
func parseListenerARN(arn string) (arnParts, error) {
	fields := strings.SplitN(arn, ":", 6)
	if len(fields) != 6 || fields[0] != "arn" || fields[2] != "elasticloadbalancing" {
		return arnParts{}, fmt.Errorf("%q is not the ARN of a listener or rule", arn)
	}
	path := strings.Split(fields[5], "/")
	p := arnParts{prefix: strings.Join(fields[:5], ":")}
	kind := path[0]
	switch {
	case kind == "listener" && len(path) == 5:
		p.listener = path[4]
	case kind == "listener-rule" && len(path) == 6:
		p.listener, p.rule = path[4], path[5]
	default:
		return arnParts{}, fmt.Errorf("%q is not the ARN of a listener or rule", arn)
	}
	if path[1] != "app" {
		return arnParts{}, fmt.Errorf("%q belongs to a load balancer of kind %q: only an application load balancer (app) divides traffic by weights", arn, path[1])
	}
	p.name, p.lb = path[2], path[3]
	return p, nil
}

func (p arnParts) balancerARN() string {
	return fmt.Sprintf("%s:loadbalancer/app/%s/%s", p.prefix, p.name, p.lb)
}

func (p arnParts) listenerARN() string {
	return fmt.Sprintf("%s:listener/app/%s/%s/%s", p.prefix, p.name, p.lb, p.listener)
}

// groupName is the name in the ARN of a target group: …:targetgroup/NAME/ID.
func groupName(arn string) string {
	_, rest, ok := strings.Cut(arn, ":targetgroup/")
	if !ok {
		return arn
	}
	name, _, _ := strings.Cut(rest, "/")
	return name
}

func (b *balancer) ID() string { return b.id }

func (b *balancer) Read(ctx context.Context) (state.Share, error) {
	v, err := b.read(ctx)
	if err != nil {
		return state.Share{}, err
	}
	return v.shares[0], nil
}

// object names the listener or rule, for people.
func (b *balancer) object() string {
	if b.rule != "" {
		return "rule " + b.rule[strings.LastIndexByte(b.rule, '/')+1:] + " of load balancer " + b.name
	}
	return "listener " + b.listener[strings.LastIndexByte(b.listener, '/')+1:] + " of load balancer " + b.name
}

// read reads the action list and the pair's weights in it.
func (b *balancer) read(ctx context.Context) (*view, error) {
	actions, err := b.describe(ctx)
	if err != nil {
		return nil, err
	}
	return b.viewOf(actions)
}

func (b *balancer) viewOf(actions []elbtypes.Action) (*view, error) {
	groups, err := forwardGroups(actions)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.object(), err)
	}
	share := state.Share{Target: b.id}
	members, all := 0, 0
	for _, g := range groups {
		all += weightOf(g)
	}
	for _, side := range state.Sides {
		g, ok := findGroup(groups, b.group[side])
		if !ok {
			continue
		}
		members++
		if side == state.Blue {
			share.Blue = weightOf(g)
		} else {
			share.Green = weightOf(g)
		}
	}
	if members == 0 {
		return nil, fmt.Errorf("%s forwards to %s, neither to %s (blue) nor to %s (green): correct traffic.alb, or forward to the active cluster's group first",
			b.object(), groupNames(groups), groupName(b.group[state.Blue]), groupName(b.group[state.Green]))
	}
	others := len(groups) > members
	return &view{
		actions: actions,
		shares:  []state.Share{share},
		pairs: []pairView{{target: b.id, others: all - share.Sum(), pair: func(dest state.Side) pair {
			p := pairOf(share, dest)
			p.others, p.limit = others, maxGroupWeight
			return p
		}}},
	}, nil
}

// describe reads the action list of the listener or rule.
func (b *balancer) describe(ctx context.Context) ([]elbtypes.Action, error) {
	if b.rule != "" {
		out, err := b.api.DescribeRules(ctx, &elb.DescribeRulesInput{RuleArns: []string{b.rule}})
		if eksaws.IsNotFound(err) || err == nil && len(out.Rules) == 0 {
			return nil, fmt.Errorf("there is no rule %s: set traffic.alb.rule to one that `aws elbv2 describe-rules` shows", b.rule)
		}
		if err != nil {
			return nil, fmt.Errorf("read rule %s: %w", b.rule, err)
		}
		if aws.ToBool(out.Rules[0].IsDefault) {
			return nil, fmt.Errorf("rule %s is the default rule of its listener, which can only be changed through the listener: "+
				"set traffic.alb.listener to %s instead of rule", b.rule, b.listener)
		}
		return out.Rules[0].Actions, nil
	}
	out, err := b.api.DescribeListeners(ctx, &elb.DescribeListenersInput{ListenerArns: []string{b.listener}})
	if eksaws.IsNotFound(err) || err == nil && len(out.Listeners) == 0 {
		return nil, fmt.Errorf("there is no listener %s: set traffic.alb.listener to one that `aws elbv2 describe-listeners` shows", b.listener)
	}
	if err != nil {
		return nil, fmt.Errorf("read listener %s: %w", b.listener, err)
	}
	return out.Listeners[0].DefaultActions, nil
}

func groupNames(groups []elbtypes.TargetGroupTuple) string {
	var names []string
	for _, g := range groups {
		names = append(names, groupName(aws.ToString(g.TargetGroupArn)))
	}
	return strings.Join(names, ", ")
}
