package cutover

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/eksbg/eksbg/internal/state"
)

// A balancer is its own mover: one action list is one call.

func (b *balancer) targets() []string { return []string{b.id} }
func (b *balancer) confirms() bool    { return false }

func (b *balancer) call() string {
	if b.rule != "" {
		return "elasticloadbalancing:ModifyRule"
	}
	return "elasticloadbalancing:ModifyListener"
}

func (b *balancer) propose(v *view, w want) (*change, bool, error) {
	groups, err := forwardGroups(v.actions)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", b.object(), err)
	}
	wanted, err := b.wanted(v, groups, w)
	if err != nil {
		return nil, false, fmt.Errorf("weights of %s: %w", b.object(), err)
	}
	if wanted == nil {
		return nil, false, nil
	}
	actions, err := withGroups(v.actions, setGroups(groups, b.group, wanted))
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", b.object(), err)
	}
	c := &change{
		Purpose: w.purpose, Percent: w.percent, OldActions: v.actions, NewActions: actions,
		Moves: []move{{Target: b.id, Old: v.shares[0], New: state.Share{Target: b.id, Blue: wanted[state.Blue], Green: wanted[state.Green]}}},
	}
	if b.rule != "" {
		c.Rule = b.rule
	} else {
		c.Listener = b.listener
	}
	return c, !equalActions(c.OldActions, c.NewActions), nil
}

// wanted gives the weight of each side, without those that should not be in the list
// at all; nil when nothing is to be changed.
func (b *balancer) wanted(v *view, groups []elbtypes.TargetGroupTuple, w want) (map[state.Side]int, error) {
	now := v.pairs[0].pair(w.dest)
	switch w.purpose {
	case attach:
		if _, there := findGroup(groups, b.group[w.dest]); there {
			return nil, nil
		}
		if len(groups) >= maxGroups {
			return nil, fmt.Errorf("its action forwards to %d target groups already, the most that it takes: "+
				"take one out to make room for %s", len(groups), groupName(b.group[w.dest]))
		}
		return now.weights(w.dest), nil
	case shift:
		if now.reached(w.percent) {
			return nil, nil
		}
		p, err := now.at(w.percent)
		return p.weights(w.dest), err
	case putBack:
		return b.recorded(now, w)
	}
	return nil, nil
}

// recorded gives the weights from before the run. A group that was attached during the
// run is taken off again: left behind without healthy targets it can make Route 53 take
// the whole load balancer for unhealthy (AliasTarget.EvaluateTargetHealth).
func (b *balancer) recorded(now pair, w want) (map[state.Side]int, error) {
	before, start := w.before(b.id)
	then := pairOf(start, w.dest)
	if before != nil {
		then = pairOf(before.Moves[0].Old, w.dest)
	}
	p, err := now.like(then.origin, then.dest)
	if err != nil {
		return nil, err
	}
	out := p.weights(w.dest)
	if before != nil {
		if groups, err := forwardGroups(before.OldActions); err == nil {
			for _, side := range state.Sides {
				if _, there := findGroup(groups, b.group[side]); !there && out[side] == 0 {
					delete(out, side)
				}
			}
		}
	}
	return out, nil
}

func (p pair) weights(dest state.Side) map[state.Side]int {
	return map[state.Side]int{dest: p.dest, dest.Other(): p.origin}
}

// send reads the action list once more and writes it only when it still is what the
// change expects: ELBv2 has no compare-and-swap, so this keeps the gap small.
func (b *balancer) send(ctx context.Context, c *change) (string, error) {
	now, err := b.describe(ctx)
	if err != nil {
		return "", err
	}
	if !equalActions(now, c.OldActions) {
		return "", fmt.Errorf("%s: %w", b.object(), errForeign)
	}
	actions := sendable(c.NewActions)
	if b.rule != "" {
		_, err = b.api.ModifyRule(ctx, &elb.ModifyRuleInput{RuleArn: aws.String(b.rule), Actions: actions})
	} else {
		_, err = b.api.ModifyListener(ctx, &elb.ModifyListenerInput{ListenerArn: aws.String(b.listener), DefaultActions: actions})
	}
	if err != nil {
		return "", fmt.Errorf("change %s: %w", b.object(), err)
	}
	return "", nil
}

func (b *balancer) pending(context.Context, string) (bool, error) { return false, nil }

func (b *balancer) compare(v *view, c *change) standing {
	switch {
	case equalActions(v.actions, c.NewActions):
		return asAfter
	case equalActions(v.actions, c.OldActions):
		return asBefore
	}
	return elsewhere
}

func (b *balancer) imagine(c *change) *view {
	v, err := b.viewOf(c.NewActions)
	if err != nil {
		return nil
	}
	return v
}
