package cutover

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/eksbg/eksbg/internal/state"
)

// record is a weighted pair of record sets of one name, for one or more types.
type record struct {
	id   string
	zone *zone
	// lb finds the load balancers that alias members point to.
	lb ELBv2API
	// name is canonical.
	name  string
	types []r53types.RRType
	// member holds the SetIdentifier of each side.
	member map[state.Side]string
}

// recordView is a record as read: the pair's sets of one type.
type recordView struct {
	target string
	rrtype r53types.RRType
	sets   map[state.Side]r53types.ResourceRecordSet
	// others counts the members of the same name and type that are not of the pair.
	others int
	// weightOfOthers is their weight in all.
	weightOfOthers int
}

func (v recordView) weight(side state.Side) int { return int(aws.ToInt64(v.sets[side].Weight)) }

func (v recordView) share() state.Share {
	return state.Share{Target: v.target, Blue: v.weight(state.Blue), Green: v.weight(state.Green)}
}

func (v recordView) pair(dest state.Side) pair {
	p := pairOf(v.share(), dest)
	p.others, p.limit = v.others > 0, maxRecordWeight
	return p
}

func (r *record) ID() string { return r.id }

func (r *record) Read(ctx context.Context) (state.Share, error) {
	views, err := r.read(ctx)
	if err != nil {
		return state.Share{}, err
	}
	return agreed(r, views)
}

// agreed gives the share that all types of a record have. Types that divide the
// traffic differently cannot be told apart by anyone who resolves the name.
func agreed(r *record, views []recordView) (state.Share, error) {
	first := views[0].share()
	for _, v := range views[1:] {
		s := v.share()
		if sameProportion(first, s) || first.Percent(state.Green) == s.Percent(state.Green) {
			continue
		}
		return state.Share{}, &state.Stop{Code: state.ExitBlocked,
			Why: fmt.Sprintf("the types of record %s disagree: %s blue %d, green %d, but %s blue %d, green %d",
				r.name, views[0].rrtype, first.Blue, first.Green, v.rrtype, s.Blue, s.Green),
			Cure: "give all types of the record the same weights, or list only those that belong together under traffic.route53.types"}
	}
	return first, nil
}

// read reads the pair's sets of every type, in the order of the plan file.
func (r *record) read(ctx context.Context) ([]recordView, error) {
	found, err := r.zone.resolve(ctx)
	if err != nil {
		return nil, err
	}
	if !within(r.name, found.name) {
		return nil, fmt.Errorf("record %s does not lie in zone %s (%s): make record and zone under traffic.route53 agree", r.name, found.name, found.id)
	}
	byType := map[r53types.RRType][]r53types.ResourceRecordSet{}
	err = r.zone.each(ctx, r.name, func(set r53types.ResourceRecordSet) bool {
		if !sameName(aws.ToString(set.Name), r.name) {
			return false
		}
		byType[set.Type] = append(byType[set.Type], set)
		return true
	})
	if err != nil {
		return nil, err
	}
	var views []recordView
	for _, t := range r.types {
		v, err := r.pick(t, byType[t], found)
		if err != nil {
			return nil, err
		}
		views = append(views, v)
	}
	return views, nil
}

// pick finds the pair among the sets of one type.
func (r *record) pick(t r53types.RRType, sets []r53types.ResourceRecordSet, in foundZone) (recordView, error) {
	where := fmt.Sprintf("record %s %s in zone %s (%s)", r.name, t, in.name, in.id)
	if len(sets) == 0 {
		return recordView{}, fmt.Errorf("there is no %s: correct record or types under traffic.route53, or create the weighted pair", where)
	}
	v := recordView{target: r.id, rrtype: t, sets: map[state.Side]r53types.ResourceRecordSet{}}
	var have []string
	for _, set := range sets {
		id := aws.ToString(set.SetIdentifier)
		if id == "" {
			return recordView{}, fmt.Errorf("%s is a simple record, not a weighted one: "+
				"replace it by two weighted records in one change batch, with set identifiers %q and %q",
				where, r.member[state.Blue], r.member[state.Green])
		}
		have = append(have, state.Clean(id))
		side, ours := r.side(id)
		if !ours {
			v.others++
			v.weightOfOthers += int(aws.ToInt64(set.Weight))
			continue
		}
		if set.Weight == nil {
			return recordView{}, fmt.Errorf("member %q of %s has another routing policy than weighted: make it a weighted record", id, where)
		}
		if set.TrafficPolicyInstanceId != nil {
			return recordView{}, fmt.Errorf("member %q of %s belongs to traffic policy instance %s: weights can only be changed there; "+
				"use a record of its own", id, where, aws.ToString(set.TrafficPolicyInstanceId))
		}
		v.sets[side] = set
	}
	for _, side := range state.Sides {
		if _, ok := v.sets[side]; !ok {
			slices.Sort(have)
			return recordView{}, fmt.Errorf("%s has no member %q for %s (it has %s): correct traffic.route53.%s.setIdentifier, or create the member",
				where, r.member[side], side, strings.Join(have, ", "), side)
		}
	}
	return v, nil
}

func (r *record) side(setIdentifier string) (state.Side, bool) {
	for _, side := range state.Sides {
		if r.member[side] == setIdentifier {
			return side, true
		}
	}
	return "", false
}

// dials are what a side's members of the record point to: addresses and names, for
// connections that go past the weights.
func (r *record) dials(ctx context.Context, side state.Side) ([]string, error) {
	views, err := r.read(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	add := func(s string) {
		if s != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	for _, v := range views {
		set := v.sets[side]
		if set.AliasTarget != nil {
			add(canonicalName(strings.TrimSpace(aws.ToString(set.AliasTarget.DNSName))))
		}
		for _, value := range set.ResourceRecords {
			add(strings.TrimSuffix(strings.TrimSpace(aws.ToString(value.Value)), "."))
		}
	}
	return out, nil
}
