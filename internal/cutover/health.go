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

// health counts the targets of one side of one traffic target.
type health struct {
	// of names the target groups.
	of string
	// healthy and unhealthy targets are those that a load balancer has judged; initial
	// ones it has yet to. Targets that drain, or whose group is on no listener, are not
	// counted: they get no new requests.
	healthy, unhealthy, initial int
	// unchecked targets have no health checks.
	unchecked int
	unused    int
}

// registered counts all targets that should get requests, now or once attached.
func (h health) registered() int {
	return h.healthy + h.unhealthy + h.initial + h.unchecked + h.unused
}

// percent is the healthy part. Targets that are still being looked at for the first time
// do not count against those that are healthy already: pods come and go.
func (h health) percent() float64 {
	judged := h.healthy + h.unhealthy
	if h.healthy == 0 {
		judged += h.initial + h.unused
	}
	if judged == 0 {
		return 0
	}
	return 100 * float64(h.healthy) / float64(judged)
}

func (h health) String() string {
	s := fmt.Sprintf("%d of %d targets of %s healthy", h.healthy, h.registered(), h.of)
	if h.initial > 0 {
		s += fmt.Sprintf(" (%d initial)", h.initial)
	}
	return s
}

func (h *health) add(d elbtypes.TargetHealthDescription) {
	if d.TargetHealth == nil {
		return
	}
	switch d.TargetHealth.State {
	case elbtypes.TargetHealthStateEnumHealthy:
		h.healthy++
	case elbtypes.TargetHealthStateEnumInitial:
		h.initial++
	case elbtypes.TargetHealthStateEnumUnused:
		h.unused++
	case elbtypes.TargetHealthStateEnumUnavailable:
		h.unchecked++
	case elbtypes.TargetHealthStateEnumDraining, elbtypes.TargetHealthStateEnumUnhealthyDraining:
	default:
		h.unhealthy++
	}
}

// patient is implemented by traffic targets whose members have health that can be
// read; known is false where a member is a plain address.
type patient interface {
	health(ctx context.Context, side state.Side) (h health, known bool, err error)
}

func (b *balancer) health(ctx context.Context, side state.Side) (health, bool, error) {
	h, err := groupHealth(ctx, b.api, b.group[side])
	return h, err == nil, err
}

func groupHealth(ctx context.Context, api ELBv2API, group string) (health, error) {
	h := health{of: groupName(group)}
	out, err := api.DescribeTargetHealth(ctx, &elb.DescribeTargetHealthInput{TargetGroupArn: aws.String(group)})
	if eksaws.IsNotFound(err) {
		return h, fmt.Errorf("there is no target group %s: correct traffic.alb", group)
	}
	if err != nil {
		return h, fmt.Errorf("read target health of %s: %w", h.of, err)
	}
	for _, d := range out.TargetHealthDescriptions {
		h.add(d)
	}
	return h, nil
}

// health of a record is that of the load balancers that a side's alias members point
// to, where they are in this account and region.
func (r *record) health(ctx context.Context, side state.Side) (health, bool, error) {
	if r.lb == nil {
		return health{}, false, nil
	}
	views, err := r.read(ctx)
	if err != nil {
		return health{}, false, err
	}
	names := map[string]bool{}
	for _, v := range views {
		if alias := v.sets[side].AliasTarget; alias != nil {
			names[balancerName(aws.ToString(alias.DNSName))] = true
		}
	}
	if len(names) == 0 {
		return health{}, false, nil
	}
	var sum health
	known := false
	err = eachBalancer(ctx, r.lb, func(lb elbtypes.LoadBalancer) error {
		if !names[balancerName(aws.ToString(lb.DNSName))] {
			return nil
		}
		known = true
		return addBalancer(ctx, r.lb, aws.ToString(lb.LoadBalancerArn), &sum)
	})
	return sum, known && err == nil, err
}

// balancerName is the DNS name of a load balancer without the dualstack prefix that
// aliases use.
func balancerName(name string) string {
	return strings.TrimPrefix(canonicalName(strings.TrimSpace(name)), "dualstack.")
}

func eachBalancer(ctx context.Context, api ELBv2API, visit func(elbtypes.LoadBalancer) error) error {
	in := &elb.DescribeLoadBalancersInput{}
	for {
		out, err := api.DescribeLoadBalancers(ctx, in)
		if err != nil {
			return fmt.Errorf("read load balancers: %w", err)
		}
		for _, lb := range out.LoadBalancers {
			if err := visit(lb); err != nil {
				return err
			}
		}
		if aws.ToString(out.NextMarker) == "" {
			return nil
		}
		in.Marker = out.NextMarker
	}
}

// addBalancer adds the health of all target groups of a load balancer.
func addBalancer(ctx context.Context, api ELBv2API, arn string, sum *health) error {
	in := &elb.DescribeTargetGroupsInput{LoadBalancerArn: aws.String(arn)}
	for {
		out, err := api.DescribeTargetGroups(ctx, in)
		if err != nil {
			return fmt.Errorf("read target groups of %s: %w", arn, err)
		}
		for _, g := range out.TargetGroups {
			h, err := groupHealth(ctx, api, aws.ToString(g.TargetGroupArn))
			if err != nil {
				return err
			}
			if sum.of != "" {
				sum.of += ", "
			}
			sum.of += h.of
			sum.healthy += h.healthy
			sum.unhealthy += h.unhealthy
			sum.initial += h.initial
			sum.unchecked += h.unchecked
			sum.unused += h.unused
		}
		if aws.ToString(out.NextMarker) == "" {
			return nil
		}
		in.Marker = out.NextMarker
	}
}
