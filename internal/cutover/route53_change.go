package cutover

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

	eksaws "github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/state"
)

// zoneMover moves all records of one hosted zone in one batch, which Route 53 takes
// whole or not at all (ChangeResourceRecordSets).
type zoneMover struct {
	id, name string
	records  []*record
}

func (m *zoneMover) call() string   { return "route53:ChangeResourceRecordSets" }
func (m *zoneMover) confirms() bool { return true }

func (m *zoneMover) object() string {
	var names []string
	for _, r := range m.records {
		if !slices.Contains(names, r.name) {
			names = append(names, r.name)
		}
	}
	return fmt.Sprintf("zone %s: %s", m.name, strings.Join(names, ", "))
}

func (m *zoneMover) targets() []string {
	var ids []string
	for _, r := range m.records {
		ids = append(ids, r.id)
	}
	return ids
}

func (m *zoneMover) read(ctx context.Context) (*view, error) {
	v := &view{}
	for _, r := range m.records {
		views, err := r.read(ctx)
		if err != nil {
			return nil, err
		}
		share, err := agreed(r, views)
		if err != nil {
			return nil, err
		}
		v.shares = append(v.shares, share)
		v.records = append(v.records, views...)
		for _, rv := range views {
			v.pairs = append(v.pairs, pairView{target: r.id, pair: rv.pair, others: rv.weightOfOthers})
		}
	}
	return v, nil
}

func (m *zoneMover) propose(v *view, w want) (*change, bool, error) {
	c := &change{Purpose: w.purpose, Percent: w.percent, ZoneID: m.id}
	for _, rv := range v.records {
		p, err := m.wanted(rv, w)
		if err != nil {
			return nil, false, fmt.Errorf("weights of record %s %s: %w", canonicalName(aws.ToString(rv.sets[state.Blue].Name)), rv.rrtype, err)
		}
		now := rv.pair(w.dest)
		if _, listed := c.move(rv.target); !listed {
			c.Moves = append(c.Moves, move{Target: rv.target, Old: now.shareOf(rv.target, w.dest), New: p.shareOf(rv.target, w.dest)})
		}
		if p == now {
			continue
		}
		for _, side := range state.Sides {
			old := rv.sets[side]
			c.OldSets = append(c.OldSets, old)
			c.NewSets = append(c.NewSets, withWeight(old, p.of(side, w.dest)))
		}
	}
	return c, len(c.NewSets) > 0, nil
}

// wanted gives the weights of one type of one record.
func (m *zoneMover) wanted(rv recordView, w want) (pair, error) {
	now := rv.pair(w.dest)
	switch w.purpose {
	case shift:
		if now.reached(w.percent) {
			return now, nil
		}
		return now.at(w.percent)
	case putBack:
		before, start := w.before(rv.target)
		if before != nil {
			if p, ok := weightsIn(before.OldSets, rv, w.dest); ok {
				return now.like(p.origin, p.dest)
			}
		}
		p := pairOf(start, w.dest)
		return now.like(p.origin, p.dest)
	}
	return now, nil
}

// weightsIn finds a pair's weights in recorded sets.
func weightsIn(sets []r53types.ResourceRecordSet, rv recordView, dest state.Side) (pair, bool) {
	got := map[state.Side]int{}
	for _, set := range sets {
		for _, side := range state.Sides {
			if sameSet(set, rv.sets[side]) {
				got[side] = int(aws.ToInt64(set.Weight))
			}
		}
	}
	return pair{origin: got[dest.Other()], dest: got[dest]}, len(got) == len(state.Sides)
}

// sameSet tells whether two record sets are the same member: name, type, identifier.
func sameSet(a, b r53types.ResourceRecordSet) bool {
	return a.Type == b.Type && aws.ToString(a.SetIdentifier) == aws.ToString(b.SetIdentifier) &&
		sameName(aws.ToString(a.Name), aws.ToString(b.Name))
}

func withWeight(set r53types.ResourceRecordSet, weight int) r53types.ResourceRecordSet {
	set.Weight = aws.Int64(int64(weight))
	return set
}

// batch deletes the old sets exactly as they were and creates the new ones: Route 53
// refuses the whole batch when anybody has changed a set meanwhile.
func (c *change) batch() *r53types.ChangeBatch {
	b := &r53types.ChangeBatch{Comment: aws.String("eksbg " + string(c.Purpose))}
	for i := range c.OldSets {
		b.Changes = append(b.Changes, r53types.Change{Action: r53types.ChangeActionDelete, ResourceRecordSet: &c.OldSets[i]})
	}
	for i := range c.NewSets {
		b.Changes = append(b.Changes, r53types.Change{Action: r53types.ChangeActionCreate, ResourceRecordSet: &c.NewSets[i]})
	}
	return b
}

func (m *zoneMover) send(ctx context.Context, c *change) (string, error) {
	out, err := recordsAPI(m).ChangeResourceRecordSets(ctx, &route53.ChangeResourceRecordSetsInput{
		HostedZoneId: aws.String(c.ZoneID), ChangeBatch: c.batch(),
	})
	if err != nil {
		return "", fmt.Errorf("change record sets of zone %s: %w", m.name, err)
	}
	if out.ChangeInfo == nil {
		return "", nil
	}
	return strings.TrimPrefix(aws.ToString(out.ChangeInfo.Id), "/change/"), nil
}

func recordsAPI(m *zoneMover) Route53API { return m.records[0].zone.api }

// pending asks whether Route 53's servers all answer with the change. A change that
// Route 53 does not know (any more), or that may not be asked about, is an error.
func (m *zoneMover) pending(ctx context.Context, handle string) (bool, error) {
	out, err := recordsAPI(m).GetChange(ctx, &route53.GetChangeInput{Id: aws.String(handle)})
	if err != nil {
		return false, fmt.Errorf("ask whether change %s of zone %s is in sync: %w", handle, m.name, err)
	}
	return out.ChangeInfo == nil || out.ChangeInfo.Status != r53types.ChangeStatusInsync, nil
}

// unknowable tells whether the state of a change cannot be asked for at all, now or
// later; waiting is all that is left then.
func unknowable(err error) bool { return eksaws.IsNotFound(err) || eksaws.IsDenied(err) }

func (m *zoneMover) compare(v *view, c *change) standing {
	before, after := true, true
	for i, created := range c.NewSets {
		now, ok := m.find(v, created)
		if !ok {
			return elsewhere
		}
		after = after && equalSets(now, created)
		before = before && equalSets(now, c.OldSets[i])
	}
	switch {
	case after:
		return asAfter
	case before:
		return asBefore
	}
	return elsewhere
}

func (m *zoneMover) find(v *view, set r53types.ResourceRecordSet) (r53types.ResourceRecordSet, bool) {
	for _, rv := range v.records {
		for _, now := range rv.sets {
			if sameSet(now, set) {
				return now, true
			}
		}
	}
	return r53types.ResourceRecordSet{}, false
}

// equalSets compares two record sets whole.
func equalSets(a, b r53types.ResourceRecordSet) bool {
	return string(canonicalSet(a)) == string(canonicalSet(b))
}

func canonicalSet(s r53types.ResourceRecordSet) []byte {
	s.Name = aws.String(canonicalName(aws.ToString(s.Name)))
	if s.AliasTarget != nil {
		alias := *s.AliasTarget
		alias.DNSName = aws.String(canonicalName(aws.ToString(alias.DNSName)))
		s.AliasTarget = &alias
	}
	if len(s.ResourceRecords) == 0 {
		s.ResourceRecords = nil
	}
	out, err := json.Marshal(s)
	if err != nil {
		// A record set holds strings, numbers and booleans alone.
		panic(fmt.Sprintf("marshal a record set: %v", err))
	}
	return out
}

func (m *zoneMover) imagine(c *change) *view {
	v := &view{}
	for _, r := range m.records {
		for _, t := range r.types {
			rv := recordView{target: r.id, rrtype: t, sets: map[state.Side]r53types.ResourceRecordSet{}}
			for _, set := range c.NewSets {
				side, ours := r.side(aws.ToString(set.SetIdentifier))
				if ours && set.Type == t && sameName(aws.ToString(set.Name), r.name) {
					rv.sets[side] = set
				}
			}
			if len(rv.sets) == len(state.Sides) {
				v.records = append(v.records, rv)
			}
		}
	}
	return v
}
