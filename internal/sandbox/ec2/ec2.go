// Package ec2 is the sandbox's Amazon EC2, as far as Fargate needs it: the subnets that
// pods get their addresses from, over the EC2 query protocol of 2016-11-15.
package ec2

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// Options says what the service stands on.
type Options struct {
	Region, Account string
	Keys            *wire.Keys
	// Free answers how many addresses a subnet has left, false for one that it does not
	// know. Without an answer all are free that a VPC hands out: all but five.
	Free func(subnet string) (int, bool)
}

// Subnet is one subnet to seed.
type Subnet struct {
	// ID, VPC and CIDR are needed; Zone is the full name of its availability zone.
	ID, VPC, CIDR, Zone string
	Tags                map[string]string
}

// Service is the API; it is safe for concurrent use.
type Service struct {
	opts Options

	mu      sync.Mutex
	subnets map[string]Subnet
}

// New makes a service without subnets.
func New(o Options) *Service {
	if o.Keys == nil {
		o.Keys = wire.NewKeys()
	}
	if o.Account == "" {
		o.Account = wire.Account
	}
	if o.Region == "" {
		o.Region = "us-east-1"
	}
	if o.Free == nil {
		o.Free = func(string) (int, bool) { return 0, false }
	}
	return &Service{opts: o, subnets: map[string]Subnet{}}
}

var _ wire.Service = (*Service)(nil)

// AddSubnet puts a subnet into the world.
func (s *Service) AddSubnet(n Subnet) error {
	if !strings.HasPrefix(n.ID, "subnet-") {
		return fmt.Errorf("add subnet %q: ids of subnets begin with subnet-", n.ID)
	}
	prefix, err := netip.ParsePrefix(n.CIDR)
	if err != nil || !prefix.Addr().Is4() || prefix.Bits() < 16 || prefix.Bits() > 28 {
		return fmt.Errorf("add subnet %s: %q is no IPv4 range between /16 and /28, as in a VPC", n.ID, n.CIDR)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.subnets[n.ID]; ok {
		return fmt.Errorf("add subnet %s: it is there already", n.ID)
	}
	n.Tags = maps.Clone(n.Tags)
	s.subnets[n.ID] = n
	return nil
}

// all are the subnets by id.
func (s *Service) all() []Subnet {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.subnets), func(a, b Subnet) int { return strings.Compare(a.ID, b.ID) })
}

// free is how many addresses a subnet has left.
func (s *Service) free(n Subnet) int {
	if left, ok := s.opts.Free(n.ID); ok {
		return left
	}
	prefix, _ := netip.ParsePrefix(n.CIDR) // checked by AddSubnet
	return 1<<(32-prefix.Bits()) - 5
}

// directions are the words of region names as ids of availability zones shorten them.
var directions = strings.NewReplacer(
	"northeast", "ne", "northwest", "nw", "southeast", "se", "southwest", "sw",
	"north", "n", "south", "s", "east", "e", "west", "w", "central", "c", "-", "",
)

// zoneID is the id of a zone, the same in every account of the sandbox: ap-northeast-1a
// is apne1-az1.
func zoneID(zone string) string {
	if zone == "" {
		return ""
	}
	end := len(zone) - 1
	return fmt.Sprintf("%s-az%d", directions.Replace(zone[:end]), int(zone[end]-'a')+1)
}
