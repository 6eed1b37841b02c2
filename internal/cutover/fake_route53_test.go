package cutover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"
)

// fakeRoute53 keeps Route 53's rules: batches are taken whole or not at all, DELETE
// must match exactly, CREATE must be new, weights lie between 0 and 255, changes are
// in sync after a while, reads may be stale.
type fakeRoute53 struct {
	w     *world
	zones []r53types.HostedZone
	sets  map[string][]r53types.ResourceRecordSet
	// page is how many sets one page holds.
	page int
	// syncs is how long a change is PENDING; negative for ever.
	syncs time.Duration
	// stale is how long reads show the sets from before a change.
	stale   time.Duration
	changes map[string]time.Time
	old     map[string][]r53types.ResourceRecordSet
	oldTill time.Time
	lists   int
}

func newRoute53(w *world) *fakeRoute53 {
	return &fakeRoute53{w: w, sets: map[string][]r53types.ResourceRecordSet{}, page: 3, syncs: 20 * time.Second, changes: map[string]time.Time{}}
}

func (f *fakeRoute53) zone(id, name string, private bool, sets ...r53types.ResourceRecordSet) {
	f.zones = append(f.zones, r53types.HostedZone{Id: aws.String("/hostedzone/" + id), Name: aws.String(name + "."),
		Config: &r53types.HostedZoneConfig{PrivateZone: private}})
	f.sets[id] = append(f.sets[id], sets...)
	f.sort(id)
}

// reversed is the order of Route 53: labels from the last on, then type and identifier.
func reversed(s r53types.ResourceRecordSet) string {
	labels := strings.Split(strings.TrimSuffix(aws.ToString(s.Name), "."), ".")
	slices.Reverse(labels)
	return strings.Join(labels, "\x00") + "\x00\x01" + string(s.Type) + "\x01" + aws.ToString(s.SetIdentifier)
}

func (f *fakeRoute53) sort(id string) {
	slices.SortFunc(f.sets[id], func(a, b r53types.ResourceRecordSet) int { return strings.Compare(reversed(a), reversed(b)) })
}

func (f *fakeRoute53) GetHostedZone(ctx context.Context, in *route53.GetHostedZoneInput, _ ...func(*route53.Options)) (*route53.GetHostedZoneOutput, error) {
	if err := f.w.enter(ctx, "GetHostedZone", false); err != nil {
		return nil, err
	}
	for _, z := range f.zones {
		if zoneID(&z) == aws.ToString(in.Id) {
			return &route53.GetHostedZoneOutput{HostedZone: &z}, nil
		}
	}
	return nil, &r53types.NoSuchHostedZone{}
}

func (f *fakeRoute53) ListHostedZonesByName(ctx context.Context, in *route53.ListHostedZonesByNameInput, _ ...func(*route53.Options)) (*route53.ListHostedZonesByNameOutput, error) {
	if err := f.w.enter(ctx, "ListHostedZonesByName", false); err != nil {
		return nil, err
	}
	key := func(z r53types.HostedZone) string {
		return reversed(r53types.ResourceRecordSet{Name: z.Name}) + zoneID(&z)
	}
	zones := slices.Clone(f.zones)
	slices.SortFunc(zones, func(a, b r53types.HostedZone) int { return strings.Compare(key(a), key(b)) })
	from := reversed(r53types.ResourceRecordSet{Name: in.DNSName}) + aws.ToString(in.HostedZoneId)
	var rest []r53types.HostedZone
	for _, z := range zones {
		if key(z) >= from {
			rest = append(rest, z)
		}
	}
	// One zone a page, whatever is asked for.
	out := &route53.ListHostedZonesByNameOutput{HostedZones: rest[:min(1, len(rest))]}
	if len(rest) > 1 {
		out.IsTruncated, out.NextDNSName, out.NextHostedZoneId = true, rest[1].Name, aws.String(zoneID(&rest[1]))
	}
	return out, nil
}

func (f *fakeRoute53) current(id string) []r53types.ResourceRecordSet {
	if f.w.clock.Now().Before(f.oldTill) {
		return f.old[id]
	}
	return f.sets[id]
}

func (f *fakeRoute53) ListResourceRecordSets(ctx context.Context, in *route53.ListResourceRecordSetsInput, _ ...func(*route53.Options)) (*route53.ListResourceRecordSetsOutput, error) {
	if err := f.w.enter(ctx, "ListResourceRecordSets", false); err != nil {
		return nil, err
	}
	f.lists++
	from := reversed(r53types.ResourceRecordSet{Name: aws.String(strings.ReplaceAll(aws.ToString(in.StartRecordName), "*", `\052`)), Type: in.StartRecordType, SetIdentifier: in.StartRecordIdentifier})
	var rest []r53types.ResourceRecordSet
	for _, s := range f.current(aws.ToString(in.HostedZoneId)) {
		if reversed(s) >= from {
			rest = append(rest, s)
		}
	}
	n := min(f.page, len(rest))
	out := &route53.ListResourceRecordSetsOutput{ResourceRecordSets: slices.Clone(rest[:n])}
	if len(rest) > n {
		out.IsTruncated = true
		out.NextRecordName, out.NextRecordType, out.NextRecordIdentifier = rest[n].Name, rest[n].Type, rest[n].SetIdentifier
	}
	return out, nil
}

func (f *fakeRoute53) ChangeResourceRecordSets(ctx context.Context, in *route53.ChangeResourceRecordSetsInput, _ ...func(*route53.Options)) (*route53.ChangeResourceRecordSetsOutput, error) {
	if err := f.w.enter(ctx, "ChangeResourceRecordSets", true); err != nil {
		return nil, err
	}
	id := aws.ToString(in.HostedZoneId)
	next := slices.Clone(f.sets[id])
	var wrong []string
	for _, c := range in.ChangeBatch.Changes {
		if msg := apply(&next, c); msg != "" {
			wrong = append(wrong, msg)
		}
	}
	if len(wrong) > 0 {
		return nil, &r53types.InvalidChangeBatch{Messages: wrong}
	}
	if f.stale > 0 {
		f.old, f.oldTill = map[string][]r53types.ResourceRecordSet{id: f.sets[id]}, f.w.clock.Now().Add(f.stale)
	}
	var created []r53types.ResourceRecordSet
	for _, c := range in.ChangeBatch.Changes {
		if c.Action != r53types.ChangeActionDelete {
			created = append(created, *c.ResourceRecordSet)
		}
	}
	f.w.accepted("route53:ChangeResourceRecordSets", func(c *change) bool {
		return slices.EqualFunc(created, c.NewSets, equalSets)
	})
	f.sets[id] = next
	f.sort(id)
	handle := fmt.Sprintf("C%04d", len(f.changes)+1)
	f.changes[handle] = f.w.clock.Now().Add(f.syncs)
	if f.syncs < 0 {
		f.changes[handle] = f.w.clock.Now().Add(1000 * time.Hour)
	}
	if err := f.w.leave("ChangeResourceRecordSets"); err != nil {
		return nil, err
	}
	return &route53.ChangeResourceRecordSetsOutput{ChangeInfo: &r53types.ChangeInfo{Id: aws.String("/change/" + handle), Status: r53types.ChangeStatusPending}}, nil
}

// apply makes one change of a batch, or says what is wrong with it.
func apply(sets *[]r53types.ResourceRecordSet, c r53types.Change) string {
	want := *c.ResourceRecordSet
	at := slices.IndexFunc(*sets, func(s r53types.ResourceRecordSet) bool { return sameSet(s, want) })
	name := fmt.Sprintf("[name='%s', type='%s', set-identifier='%s']", aws.ToString(want.Name), want.Type, aws.ToString(want.SetIdentifier))
	if w := aws.ToInt64(want.Weight); w < 0 || w > 255 {
		return "Invalid weight"
	}
	switch c.Action {
	case r53types.ChangeActionDelete:
		if at < 0 {
			return "Tried to delete resource record set " + name + " but it was not found"
		}
		if string(canonicalSet((*sets)[at])) != string(canonicalSet(want)) {
			return "Tried to delete resource record set " + name + " but the values provided do not match the current values"
		}
		*sets = slices.Delete(slices.Clone(*sets), at, at+1)
	case r53types.ChangeActionCreate:
		if at >= 0 {
			return "Tried to create resource record set " + name + " but it already exists"
		}
		*sets = append(slices.Clone(*sets), want)
	default:
		return "eksbg never upserts"
	}
	return ""
}

func (f *fakeRoute53) GetChange(ctx context.Context, in *route53.GetChangeInput, _ ...func(*route53.Options)) (*route53.GetChangeOutput, error) {
	if err := f.w.enter(ctx, "GetChange", false); err != nil {
		return nil, err
	}
	at, ok := f.changes[aws.ToString(in.Id)]
	if !ok {
		return nil, &r53types.NoSuchChange{}
	}
	status := r53types.ChangeStatusPending
	if !f.w.clock.Now().Before(at) {
		status = r53types.ChangeStatusInsync
	}
	return &route53.GetChangeOutput{ChangeInfo: &r53types.ChangeInfo{Id: in.Id, Status: status}}, nil
}

// weight reads a member's weight in the world, past every staleness.
func (f *fakeRoute53) weight(zone, name string, t r53types.RRType, set string) int {
	for _, s := range f.sets[zone] {
		if sameName(aws.ToString(s.Name), name) && s.Type == t && aws.ToString(s.SetIdentifier) == set {
			return int(aws.ToInt64(s.Weight))
		}
	}
	return -1
}

// edit changes a member behind eksbg's back.
func (f *fakeRoute53) edit(zone, name string, t r53types.RRType, set string, do func(*r53types.ResourceRecordSet)) {
	sets := slices.Clone(f.sets[zone])
	for i := range sets {
		if sameName(aws.ToString(sets[i].Name), name) && sets[i].Type == t && aws.ToString(sets[i].SetIdentifier) == set {
			do(&sets[i])
		}
	}
	f.sets[zone] = sets
}

func weighted(name string, t r53types.RRType, set string, weight int, value string) r53types.ResourceRecordSet {
	return r53types.ResourceRecordSet{Name: aws.String(name + "."), Type: t, SetIdentifier: aws.String(set), Weight: aws.Int64(int64(weight)),
		TTL: aws.Int64(60), ResourceRecords: []r53types.ResourceRecord{{Value: aws.String(value)}}}
}

func aliased(name string, t r53types.RRType, set string, weight int, to string, evaluate bool) r53types.ResourceRecordSet {
	return r53types.ResourceRecordSet{Name: aws.String(name + "."), Type: t, SetIdentifier: aws.String(set), Weight: aws.Int64(int64(weight)),
		AliasTarget: &r53types.AliasTarget{DNSName: aws.String(to + "."), HostedZoneId: aws.String("Z14GRHDCWA56QT"), EvaluateTargetHealth: evaluate}}
}
