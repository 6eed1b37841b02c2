package cutover

import (
	"context"
	"fmt"
	"slices"
	"strings"

	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"
	"k8s.io/utils/clock"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

// Traffic is one entrance of the pair whose weights are moved.
type Traffic interface {
	// ID is the same in every run of a plan file: route53/api.shop.example.com,
	// alb/shop (a listener), alb/shop/rule-0123….
	ID() string
	// Read gives the weights as the API states them now. A thing that is not there,
	// or not of this pair, is an error that names it and the cure; record types that
	// disagree are a *state.Stop with ExitBlocked.
	Read(ctx context.Context) (state.Share, error)
}

// recordTypes are the types that a weighted pair may have here.
var recordTypes = []r53types.RRType{r53types.RRTypeA, r53types.RRTypeAaaa, r53types.RRTypeCname}

// Open makes the entrances of a plan file, in its order. It calls no API: zones are
// looked up at the first Read. Malformed targets are errors that name the field.
func Open(_ context.Context, targets []planfile.Target, r53 Route53API, lb ELBv2API, _ clock.WithTicker) ([]Traffic, error) {
	o := opener{r53: r53, lb: lb, zones: map[string]*zone{}, ids: map[string]int{}}
	for i, t := range targets {
		if (t.Route53 == nil) == (t.ALB == nil) {
			return nil, fmt.Errorf("traffic[%d]: give either route53 or alb", i)
		}
		var err error
		if t.Route53 != nil {
			err = o.record(*t.Route53)
		} else {
			err = o.balancer(*t.ALB)
		}
		if err != nil {
			return nil, fmt.Errorf("traffic[%d]: %w", i, err)
		}
	}
	return o.out, nil
}

type opener struct {
	r53   Route53API
	lb    ELBv2API
	zones map[string]*zone
	ids   map[string]int
	out   []Traffic
}

func (o *opener) record(t planfile.Route53) error {
	r := &record{
		lb:     o.lb,
		name:   canonicalName(t.Record),
		member: map[state.Side]string{state.Blue: t.Blue.SetIdentifier, state.Green: t.Green.SetIdentifier},
	}
	switch {
	case r.name == "":
		return fmt.Errorf("route53.record is missing")
	case t.Zone == "" && t.ZoneID == "":
		return fmt.Errorf("route53 of record %s needs zone or zoneID", r.name)
	case t.Blue.SetIdentifier == "" || t.Green.SetIdentifier == "":
		return fmt.Errorf("route53 of record %s needs blue.setIdentifier and green.setIdentifier", r.name)
	case t.Blue.SetIdentifier == t.Green.SetIdentifier:
		return fmt.Errorf("route53 of record %s names the same setIdentifier %q for blue and green", r.name, t.Blue.SetIdentifier)
	case len(t.Types) == 0:
		return fmt.Errorf("route53 of record %s needs types: A, AAAA or CNAME", r.name)
	}
	for _, s := range t.Types {
		rrtype := r53types.RRType(strings.ToUpper(s))
		if !slices.Contains(recordTypes, rrtype) {
			return fmt.Errorf("route53 of record %s: type %q cannot be moved: use A, AAAA or CNAME", r.name, s)
		}
		if slices.Contains(r.types, rrtype) {
			return fmt.Errorf("route53 of record %s lists type %s twice", r.name, rrtype)
		}
		r.types = append(r.types, rrtype)
	}
	r.zone = o.zone(t)
	for _, have := range o.out {
		if other, ok := have.(*record); ok && other.name == r.name && other.zone == r.zone && overlap(other.types, r.types) {
			return fmt.Errorf("record %s is listed twice with the same type: list it once", r.name)
		}
	}
	r.id = o.unique("route53/"+r.name, func() string {
		var types []string
		for _, t := range r.types {
			types = append(types, string(t))
		}
		return strings.Join(types, "+") + "@" + strings.TrimPrefix(r.zone.id+r.zone.name, "/hostedzone/")
	})
	o.out = append(o.out, r)
	return nil
}

func overlap(a, b []r53types.RRType) bool {
	return slices.ContainsFunc(a, func(t r53types.RRType) bool { return slices.Contains(b, t) })
}

// zone gives one zone for all records that name it alike.
func (o *opener) zone(t planfile.Route53) *zone {
	z := &zone{api: o.r53, name: canonicalName(t.Zone), id: strings.TrimPrefix(t.ZoneID, "/hostedzone/")}
	key := z.id + " " + z.name
	if have, ok := o.zones[key]; ok {
		return have
	}
	o.zones[key] = z
	return z
}

func (o *opener) balancer(t planfile.ALB) error {
	if (t.Listener == "") == (t.Rule == "") {
		return fmt.Errorf("alb: give either listener or rule")
	}
	arn, field := t.Listener, "listener"
	if t.Rule != "" {
		arn, field = t.Rule, "rule"
	}
	parts, err := parseListenerARN(arn)
	if err != nil {
		return fmt.Errorf("alb.%s: %w", field, err)
	}
	if (parts.rule != "") != (t.Rule != "") {
		return fmt.Errorf("alb.%s: %q is the ARN of the other kind: listener takes …:listener/app/…, rule …:listener-rule/app/…", field, arn)
	}
	b := &balancer{
		api: o.lb, listener: parts.listenerARN(), rule: t.Rule, lb: parts.balancerARN(), name: parts.name,
		group: map[state.Side]string{state.Blue: t.Blue.TargetGroup, state.Green: t.Green.TargetGroup},
	}
	for _, side := range state.Sides {
		if !strings.Contains(b.group[side], ":targetgroup/") {
			return fmt.Errorf("alb.%s.targetGroup: %q is not the ARN of a target group", side, b.group[side])
		}
	}
	if b.group[state.Blue] == b.group[state.Green] {
		return fmt.Errorf("alb names the same target group %s for blue and green", groupName(b.group[state.Blue]))
	}
	for _, have := range o.out {
		if other, ok := have.(*balancer); ok && other.listener == b.listener && other.rule == b.rule {
			return fmt.Errorf("%s is listed twice: list it once", b.object())
		}
	}
	base := "alb/" + parts.name
	if parts.rule != "" {
		base += "/rule-" + parts.rule
	}
	b.id = o.unique(base, func() string { return "listener-" + parts.listener })
	o.out = append(o.out, b)
	return nil
}

// unique gives an id that no other target has: the short one, or one with what tells
// them apart.
func (o *opener) unique(base string, apart func() string) string {
	o.ids[base]++
	if o.ids[base] == 1 {
		return base
	}
	return base + "/" + apart()
}

// moversOf groups the entrances into what one call changes: all records of a hosted
// zone, in the place of the first of them, and each action list for itself.
func moversOf(ctx context.Context, traffic []Traffic) ([]mover, error) {
	var out []mover
	zones := map[string]*zoneMover{}
	for _, t := range traffic {
		switch t := t.(type) {
		case *balancer:
			out = append(out, t)
		case *record:
			found, err := t.zone.resolve(ctx)
			if err != nil {
				return nil, err
			}
			m, ok := zones[found.id]
			if !ok {
				m = &zoneMover{id: found.id, name: found.name}
				zones[found.id] = m
				out = append(out, m)
			}
			m.records = append(m.records, t)
		default:
			return nil, fmt.Errorf("traffic target %s (%T) was not made by Open", t.ID(), t)
		}
	}
	return out, nil
}
