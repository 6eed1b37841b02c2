// Package route53 is the sandbox's Route 53: hosted zones and resource record sets
// over restXml, with changes that take a while to be in sync.
package route53

import (
	"net/http"
	"time"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

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
	// Weight is nil for a simple record.
	Weight *int64
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
}

// New makes a service without zones.
func New(o Options) *Service { return &Service{opts: o} }

var _ wire.Service = (*Service)(nil)

// AddZone seeds a zone with its records, in sync at once; NS and SOA are added. It
// holds records to the rules that ChangeResourceRecordSets has.
func (s *Service) AddZone(z Zone) error { return nil }

// Zones are the names of all zones, each with its last dot, sorted.
func (s *Service) Zones() []string { return nil }

// Lookup answers what the authoritative servers serve for a name and type now: all
// members of the record set (more than one when weighted), and only what is in
// sync: until a change is INSYNC, the state from before it. Empty when there is
// none. The name may lack its last dot; case does not matter.
func (s *Service) Lookup(name, typ string) []RecordSet { return nil }

// Exists reports whether the name has in-sync records of any type: an answer
// without records (NODATA) rather than NXDOMAIN.
func (s *Service) Exists(name string) bool { return false }

// Snapshot is the canonical state, made for JSON: zones by name with their records,
// without change ids or times.
func (s *Service) Snapshot() any { return nil }

// Classify implements wire.Service.
func (s *Service) Classify(r *http.Request, body []byte) wire.Call { return wire.Call{} }

// WriteFault implements wire.Service.
func (s *Service) WriteFault(w http.ResponseWriter, r *http.Request, f wire.Fault) {}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {}
