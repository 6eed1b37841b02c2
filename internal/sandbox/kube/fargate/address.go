package fargate

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
)

// pool hands out the addresses of the subnets.
type pool struct {
	subnets []*subnet
	turn    int
}

type subnet struct {
	Subnet
	first, last, next netip.Addr
	free              atomic.Int64 // others than the pool's owner read it
	used              map[netip.Addr]bool
}

// place is an address in a subnet.
type place struct {
	ip     netip.Addr
	subnet *subnet
}

func newPool(subnets []Subnet) (*pool, error) {
	if len(subnets) == 0 {
		subnets = []Subnet{{ID: "subnet-0a1b2c3d4e5f60718", CIDR: "10.0.0.0/16", Zone: "a"}}
	}
	p := &pool{}
	for _, s := range subnets {
		prefix, err := netip.ParsePrefix(s.CIDR)
		if err != nil || !prefix.Addr().Is4() {
			return nil, fmt.Errorf("subnet %s: %q is no IPv4 range such as 10.0.1.0/24", s.ID, s.CIDR)
		}
		if prefix.Bits() < 16 || prefix.Bits() > 28 {
			return nil, fmt.Errorf("subnet %s: %s must be between /16 and /28, as in a VPC", s.ID, s.CIDR)
		}
		a := prefix.Masked().Addr()
		for range 4 {
			a = a.Next()
		}
		size := 1 << (32 - prefix.Bits())
		sn := &subnet{Subnet: s, first: a, next: a, used: map[netip.Addr]bool{}}
		sn.free.Store(int64(size - 5))
		sn.last = addr(a, size-6)
		p.subnets = append(p.subnets, sn)
	}
	return p, nil
}

func addr(a netip.Addr, plus int) netip.Addr {
	b := a.As4()
	n := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	n += uint32(plus)
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// take hands out a free address of the named subnets (all when there is no name), from
// one after the other, and does not hand the same one out again soon.
func (p *pool) take(ids ...string) (place, bool) {
	for range p.subnets {
		s := p.subnets[p.turn%len(p.subnets)]
		p.turn++
		if s.free.Load() == 0 || len(ids) > 0 && !slices.Contains(ids, s.ID) {
			continue
		}
		for s.used[s.next] {
			s.step()
		}
		got := place{s.next, s}
		s.used[s.next] = true
		s.free.Add(-1)
		s.step()
		return got, true
	}
	return place{}, false
}

func (s *subnet) step() {
	if s.next == s.last {
		s.next = s.first
		return
	}
	s.next = s.next.Next()
}

// give takes an address back.
func (pl place) give() {
	if pl.subnet != nil && pl.subnet.used[pl.ip] {
		delete(pl.subnet.used, pl.ip)
		pl.subnet.free.Add(1)
	}
}

// free is how many addresses each subnet has left, by its id.
func (p *pool) free() map[string]int {
	left := make(map[string]int, len(p.subnets))
	for _, s := range p.subnets {
		left[s.ID] = int(s.free.Load())
	}
	return left
}
