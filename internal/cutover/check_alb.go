package cutover

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	eksaws "github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/state"
)

// balancer checks one listener or rule.
func (c *checker) balancer(ctx context.Context, b *balancer) error {
	lb, err := b.balancerItself(ctx)
	if err != nil {
		return err
	}
	c.names[balancerName(aws.ToString(lb.DNSName))] = b.id
	v, err := b.read(ctx)
	if err != nil {
		return err
	}
	if err := b.groupsExist(ctx); err != nil {
		return err
	}
	c.weights(b.object(), v.pairs[0].pair(state.Green))
	groups, err := forwardGroups(v.actions)
	if err != nil {
		return fmt.Errorf("%s: %w", b.object(), err)
	}
	c.groups(b, groups)
	c.sticky(b, v.actions)
	return c.owners(ctx, b)
}

func (b *balancer) balancerItself(ctx context.Context) (elbtypes.LoadBalancer, error) {
	out, err := b.api.DescribeLoadBalancers(ctx, &elb.DescribeLoadBalancersInput{LoadBalancerArns: []string{b.lb}})
	if eksaws.IsNotFound(err) || err == nil && len(out.LoadBalancers) == 0 {
		return elbtypes.LoadBalancer{}, fmt.Errorf("there is no load balancer %s, which %s would belong to: correct traffic.alb", b.lb, b.object())
	}
	if err != nil {
		return elbtypes.LoadBalancer{}, fmt.Errorf("read load balancer %s: %w", b.lb, err)
	}
	lb := out.LoadBalancers[0]
	if lb.Type != "" && lb.Type != elbtypes.LoadBalancerTypeEnumApplication {
		return lb, fmt.Errorf("load balancer %s is of type %s: only an application load balancer divides traffic by weights", b.name, lb.Type)
	}
	return lb, nil
}

// groupsExist checks that both target groups are there and serve no other load
// balancer: a group belongs to one alone.
func (b *balancer) groupsExist(ctx context.Context) error {
	for _, side := range state.Sides {
		arn := b.group[side]
		out, err := b.api.DescribeTargetGroups(ctx, &elb.DescribeTargetGroupsInput{TargetGroupArns: []string{arn}})
		if eksaws.IsNotFound(err) || err == nil && len(out.TargetGroups) == 0 {
			return fmt.Errorf("there is no target group %s: set traffic.alb.%s.targetGroup to one that `aws elbv2 describe-target-groups` shows", arn, side)
		}
		if err != nil {
			return fmt.Errorf("read target group %s: %w", arn, err)
		}
		if on := out.TargetGroups[0].LoadBalancerArns; len(on) > 0 && !slices.Contains(on, b.lb) {
			return fmt.Errorf("target group %s (%s) belongs to load balancer %s, not to %s, which %s is of: a target group serves one load balancer; "+
				"correct traffic.alb.%s.targetGroup, or create a group of its own for this one", groupName(arn), side, strings.Join(on, ", "), b.name, b.object(), side)
		}
	}
	return nil
}

func (c *checker) groups(b *balancer, groups []elbtypes.TargetGroupTuple) {
	for _, side := range state.Sides {
		if _, there := findGroup(groups, b.group[side]); !there && len(groups) >= maxGroups {
			c.find("traffic/groups", state.SeverityError,
				fmt.Sprintf("%s forwards to %d target groups already, the most that it takes, and %s of %s is not among them",
					b.object(), len(groups), groupName(b.group[side]), side),
				"take one of the groups out")
		}
	}
}

func (c *checker) sticky(b *balancer, actions []elbtypes.Action) {
	at, err := forwardAt(actions)
	if err != nil || actions[at].ForwardConfig == nil {
		return
	}
	st := actions[at].ForwardConfig.TargetGroupStickinessConfig
	if st == nil || !aws.ToBool(st.Enabled) {
		return
	}
	c.find("traffic/sticky", state.SeverityWarn,
		fmt.Sprintf("%s keeps clients on their target group for %d s: they do not move with the weights, nor come back with them, until their cookie ends",
			b.object(), aws.ToInt32(st.DurationSeconds)),
		"turn target group stickiness off before the cutover, or hold the stages for longer than it lasts")
}

// ownerTag tells whether a tag says that a controller in a cluster owns the resource
// (AWS Load Balancer Controller, docs/guide/ingress/annotations; EKS Auto Mode).
func ownerTag(key string) bool {
	return key == "elbv2.k8s.aws/cluster" ||
		strings.HasPrefix(key, "ingress.k8s.aws/") || strings.HasPrefix(key, "service.k8s.aws/") ||
		strings.HasPrefix(key, "ingress.eks.amazonaws.com/") || strings.HasPrefix(key, "service.eks.amazonaws.com/")
}

// owners refuses what a controller would write over (semantics 19).
func (c *checker) owners(ctx context.Context, b *balancer) error {
	arns := []string{b.lb, b.listener, b.group[state.Blue], b.group[state.Green]}
	if b.rule != "" {
		arns = append(arns, b.rule)
	}
	out, err := b.api.DescribeTags(ctx, &elb.DescribeTagsInput{ResourceArns: arns})
	if err != nil {
		return c.unread("traffic/owner", "the tags of "+b.object(), fmt.Errorf("read tags of %s: %w", b.object(), err))
	}
	for _, d := range out.TagDescriptions {
		var tags []string
		for _, tag := range d.Tags {
			if key := aws.ToString(tag.Key); ownerTag(key) {
				tags = append(tags, key+"="+aws.ToString(tag.Value))
			}
		}
		if len(tags) == 0 {
			continue
		}
		slices.Sort(tags)
		c.find("traffic/owner", state.SeverityError,
			fmt.Sprintf("%s is owned by a load balancer controller (%s), which would write over the weights", resourceName(aws.ToString(d.ResourceArn)), strings.Join(tags, ", ")),
			"set the weights through its Ingress (alb.ingress.kubernetes.io/actions.…), or use a load balancer that no controller reconciles")
	}
	return nil
}

// resourceName is what an ARN names, for people: "targetgroup shop-blue", "loadbalancer shop".
func resourceName(arn string) string {
	f := strings.SplitN(arn, ":", 6)
	if len(f) != 6 {
		return arn
	}
	path := strings.Split(f[5], "/")
	switch {
	case path[0] == "targetgroup" && len(path) > 1:
		return "target group " + path[1]
	case path[0] == "loadbalancer" && len(path) > 2:
		return "load balancer " + path[2]
	case path[0] == "listener" && len(path) > 4:
		return "listener " + path[4] + " of load balancer " + path[2]
	case path[0] == "listener-rule" && len(path) > 5:
		return "rule " + path[5] + " of load balancer " + path[2]
	}
	return arn
}
