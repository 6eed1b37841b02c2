// Package route53 is the sandbox's Route 53: hosted zones and resource record sets
// over restXml, with changes that take a while to be in sync.
package route53

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

const xmlns = "https://route53.amazonaws.com/doc/2013-04-01/"

// Options says what the service stands on.
type Options struct {
	Keys *wire.Keys
	// Propagation is how long a change is PENDING before it is INSYNC.
	Propagation time.Duration
	// Now is the clock, time.Now when nil.
	Now func() time.Time
}

// Zone is one hosted zone to seed.
type Zone struct {
	// ID without /hostedzone/ ("Z0EXAMPLE"), Name with or without the last dot.
	ID, Name string
	Private  bool
	Comment  string
	Records  []RecordSet
}

// RecordSet is one resource record set, by the API's own names.
// See https://docs.aws.amazon.com/Route53/latest/APIReference/API_ResourceRecordSet.html.
type RecordSet struct {
	// Name is fully qualified, with its last dot when read back.
	Name, Type    string
	SetIdentifier string
	// Weight is nil unless the record is weighted; Region, Failover and MultiValue
	// are the other routing policies that are kept, though Lookup's callers need not
	// honour them.
	Weight           *int64
	Region, Failover string
	MultiValue       *bool
	// TTL in seconds, nil for an alias.
	TTL           *int64
	Values        []string
	Alias         *Alias
	HealthCheckID string
}

// Alias is the target of an alias record.
type Alias struct {
	ZoneID, DNSName      string
	EvaluateTargetHealth bool
}

// Service is the API; it is safe for concurrent use.
type Service struct {
	opts Options

	mu      sync.Mutex
	zones   map[string]*zone
	changes map[string]*change
}

// zone is a hosted zone: what was written, and what its servers answer already.
type zone struct {
	Zone
	// records is what the API shows, PENDING changes included; synced what the
	// servers answer; pending what is on its way, in the order of its arrival.
	records, synced map[key]RecordSet
	pending         []*change
}

// change is one accepted batch.
type change struct {
	id, comment   string
	submitted, at time.Time
	// after is the zone as this change leaves it.
	after map[key]RecordSet
}

// New makes a service without zones.
func New(o Options) *Service {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Keys == nil {
		o.Keys = wire.NewKeys()
	}
	return &Service{opts: o, zones: map[string]*zone{}, changes: map[string]*change{}}
}

var _ wire.Service = (*Service)(nil)

// AddZone seeds a zone with its records, in sync at once; NS and SOA are added. It
// holds records to the rules that ChangeResourceRecordSets has.
func (s *Service) AddZone(seed Zone) error {
	seed.Name = canonical(seed.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if seed.ID == "" || strings.Contains(seed.ID, "/") || s.zones[seed.ID] != nil {
		return fmt.Errorf("add zone %s: the id %q is empty, has a slash or is taken", seed.Name, seed.ID)
	}
	z := &zone{Zone: seed, records: map[key]RecordSet{}}
	z.Records = nil
	long, short := int64(172800), int64(900)
	changes := []edit{
		{"CREATE", RecordSet{Name: seed.Name, Type: "NS", TTL: &long, Values: nameServers()}},
		{"CREATE", RecordSet{Name: seed.Name, Type: "SOA", TTL: &short, Values: []string{
			nameServers()[0] + " awsdns-hostmaster.amazon.com. 1 7200 900 1209600 86400",
		}}},
	}
	for _, r := range seed.Records {
		changes = append(changes, edit{"CREATE", r})
	}
	after, messages, invalid := z.apply(changes)
	if invalid != nil {
		messages = append(messages, invalid.Message)
	}
	if len(messages) > 0 {
		return fmt.Errorf("add zone %s: %s", seed.Name, strings.Join(messages, "; "))
	}
	z.records, z.synced = after, maps.Clone(after)
	s.zones[seed.ID] = z
	return nil
}

func nameServers() []string {
	return []string{"ns-1.awsdns-01.com.", "ns-2.awsdns-02.net.", "ns-3.awsdns-03.org.", "ns-4.awsdns-04.co.uk."}
}

// Zones are the names of all zones, each with its last dot, sorted.
func (s *Service) Zones() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, z := range s.zones {
		names = append(names, z.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// sync moves what is due from pending to synced. mu is held.
func (z *zone) sync(now time.Time) {
	for len(z.pending) > 0 && !now.Before(z.pending[0].at) {
		z.synced = z.pending[0].after
		z.pending = z.pending[1:]
	}
}

// Lookup answers what the authoritative servers serve for a name and type now: all
// members of the record set (more than one when weighted), and only what is in
// sync: until a change is INSYNC, the state from before it. Empty when there is
// none. The name may lack its last dot; case does not matter; a wildcard answers
// for names that are not there.
func (s *Service) Lookup(name, typ string) []RecordSet {
	var out []RecordSet
	for _, r := range s.find(name) {
		if r.Type == typ {
			out = append(out, r)
		}
	}
	return out
}

// Exists reports whether the name has in-sync records of any type: an answer
// without records (NODATA) rather than NXDOMAIN.
func (s *Service) Exists(name string) bool { return len(s.find(name)) > 0 }

// find answers the in-sync records of a name from the public or private zone that
// is nearest to it, or those of the wildcard above it.
func (s *Service) find(name string) []RecordSet {
	name = canonical(name)
	now := s.opts.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	var best *zone
	for _, id := range slices.Sorted(maps.Keys(s.zones)) {
		if z := s.zones[id]; inZone(name, z.Name) && (best == nil || len(z.Name) > len(best.Name)) {
			best = z
		}
	}
	if best == nil {
		return nil
	}
	best.sync(now)
	for at := name; inZone(at, best.Name); at = wildcard(at) {
		var out []RecordSet
		for _, k := range sorted(best.synced) {
			if k.name == at {
				out = append(out, best.synced[k])
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	return nil
}

// Snapshot is the canonical state, made for JSON: zones by name with their records
// as the API shows them, without change ids or times.
func (s *Service) Snapshot() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string][]RecordSet{}
	for _, z := range s.zones {
		name := z.Name
		if z.Private {
			name += " (private)"
		}
		for _, k := range sorted(z.records) {
			out[name] = append(out[name], z.records[k])
		}
	}
	return out
}
