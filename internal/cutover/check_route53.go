package cutover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/eksbg/eksbg/internal/state"
)

// aliasTTL is the TTL of an alias to an ELB load balancer (Route 53 Developer Guide,
// "Choosing between alias and non-alias records").
const aliasTTL = 60

// record checks one weighted record.
func (c *checker) record(ctx context.Context, r *record) error {
	views, err := r.read(ctx)
	if err != nil {
		return err
	}
	var stop *state.Stop
	if _, err := agreed(r, views); errors.As(err, &stop) {
		c.find("traffic/types", state.SeverityError, stop.Why, stop.Cure)
	}
	var ttl int64
	for _, v := range views {
		what := fmt.Sprintf("record %s %s", r.name, v.rrtype)
		c.weights(what, v.pair(state.Green))
		for _, side := range state.Sides {
			ttl = max(ttl, c.member(r, what, side, v.sets[side]))
		}
	}
	c.sameStages(r, views)
	c.find("traffic/ttl", state.SeverityInfo,
		fmt.Sprintf("clients of %s follow within the TTL of %d s after Route 53 is in sync; connections that are open stay where they are", r.name, ttl), "")
	return c.externalDNS(ctx, r)
}

// member checks one member and gives its TTL in seconds.
func (c *checker) member(r *record, what string, side state.Side, set r53types.ResourceRecordSet) int64 {
	if set.HealthCheckId != nil {
		c.find("traffic/health-check", state.SeverityWarn,
			fmt.Sprintf("%s: %s has health check %s: weight 0 is not off, Route 53 answers with a member of weight 0 when all others are unhealthy",
				what, side, aws.ToString(set.HealthCheckId)), "")
	}
	alias := set.AliasTarget
	if alias == nil {
		for _, v := range set.ResourceRecords {
			c.series(what, side, aws.ToString(v.Value))
		}
		return aws.ToInt64(set.TTL)
	}
	c.series(what, side, aws.ToString(alias.DNSName))
	if alias.EvaluateTargetHealth {
		c.find("traffic/evaluate-target-health", state.SeverityWarn,
			fmt.Sprintf("%s: the alias of %s evaluates target health: weight 0 is not off, Route 53 answers with it when all others are unhealthy, "+
				"and one target group without healthy targets takes its whole load balancer out", what, side), "")
	}
	return aliasTTL
}

// series refuses a record that leads to a load balancer that is listed itself: traffic
// that passes both would be divided twice (semantics 18).
func (c *checker) series(what string, side state.Side, name string) {
	if id, listed := c.names[balancerName(name)]; listed {
		c.find("traffic/series", state.SeverityError,
			fmt.Sprintf("%s: %s points to %s, the load balancer of %s, which is listed as well: they lie one behind the other, not beside each other",
				what, side, canonicalName(strings.TrimSpace(name)), id),
			"list only one of the two under traffic")
	}
}

// sameStages makes sure that all types get the same share at every stage: rounding to
// sums that others share could part them.
func (c *checker) sameStages(r *record, views []recordView) {
	for _, percent := range c.stages {
		var parts []int
		for _, v := range views {
			if p, err := v.pair(state.Green).at(percent); err == nil {
				parts = append(parts, p.shareOf(r.id, state.Green).Percent(state.Green))
			}
		}
		slices.Sort(parts)
		if len(slices.Compact(parts)) > 1 {
			c.find("traffic/weights", state.SeverityError,
				fmt.Sprintf("record %s: at stage %d %% its types would divide the traffic differently, since their weight sums, shared with other members, differ", r.name, percent),
				"give all types the same weights")
		}
	}
}

// externalDNS refuses a record that external-dns writes (semantics 19): its registry
// keeps the owner in TXT records beside it.
func (c *checker) externalDNS(ctx context.Context, r *record) error {
	_, parent := cutLabel(r.name)
	from := r.name
	found, err := r.zone.resolve(ctx)
	if err != nil {
		return err
	}
	if r.name != found.name && within(parent, found.name) {
		from = parent
	}
	var reg registry
	err = r.zone.each(ctx, from, func(set r53types.ResourceRecordSet) bool {
		name := canonicalName(aws.ToString(set.Name))
		if !within(name, from) {
			return false
		}
		reg.see(name, set)
		return true
	})
	if err != nil {
		return err
	}
	for _, o := range reg.owners(r.name) {
		severity, who := state.SeverityError, "this record"
		if o.set != "" {
			if _, ours := r.side(o.set); !ours {
				severity, who = state.SeverityWarn, fmt.Sprintf("member %q of this record, which is not of the pair", o.set)
			} else {
				who = fmt.Sprintf("member %q of this record", o.set)
			}
		}
		c.find("traffic/external-dns", severity,
			fmt.Sprintf("record %s: external-dns with owner id %q%s writes %s (TXT %s), and would write over the weights", r.name, o.owner, o.forWhat(), who, o.txt),
			"set the weight where external-dns takes it from (external-dns.alpha.kubernetes.io/aws-weight), or take the record out of its hands and remove its TXT record")
	}
	return nil
}
