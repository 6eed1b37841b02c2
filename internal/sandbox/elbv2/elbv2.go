// Package elbv2 is the sandbox's Elastic Load Balancing v2: application load
// balancers with weighted target groups, over the query protocol of 2015-12-01.
package elbv2

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

const xmlns = "http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/"

// Options says what the service stands on.
type Options struct {
	Region, Account string
	Keys            *wire.Keys
	// Targets answers the targets registered with a group and whether each would
	// pass its health check. It is called without locks held.
	Targets func(targetGroupARN string) []Target
	// HealthDelay is how long a target is initial once its group is in use, and
	// how long it takes to notice that a target turned ready or unready.
	HealthDelay time.Duration
	// Draining is how long a target that left stays draining.
	Draining time.Duration
	// Now is the clock, time.Now when nil.
	Now func() time.Time
}

// Service is the API; it is safe for concurrent use.
type Service struct {
	opts Options

	// turn is held while targets are read and compared, so that looks at the world
	// are taken in over one after the other; mu guards the rest.
	turn sync.Mutex
	mu   sync.Mutex

	balancers map[string]*balancer
	listeners map[string]*listener
	rules     map[string]*rule
	groups    map[string]*group
}

type balancer struct {
	LoadBalancer
	// listeners are sorted by port.
	listeners []*listener
}

type listener struct {
	Listener
	balancer *balancer
	// rules are sorted by priority.
	rules []*rule
}

type rule struct {
	Rule
	listener *listener
}

// New makes a service without load balancers.
func New(o Options) *Service {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Keys == nil {
		o.Keys = wire.NewKeys()
	}
	if o.Account == "" {
		o.Account = wire.Account
	}
	if o.Region == "" {
		o.Region = "us-east-1"
	}
	if o.Targets == nil {
		o.Targets = func(string) []Target { return nil }
	}
	return &Service{
		opts: o, balancers: map[string]*balancer{}, listeners: map[string]*listener{},
		rules: map[string]*rule{}, groups: map[string]*group{},
	}
}

var _ wire.Service = (*Service)(nil)

// LoadBalancers are all load balancers as they are now, sorted by name.
func (s *Service) LoadBalancers() []LoadBalancer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []LoadBalancer
	for _, b := range s.sortedBalancers() {
		out = append(out, b.copy())
	}
	return out
}

func (s *Service) sortedBalancers() []*balancer {
	return slices.SortedFunc(maps.Values(s.balancers), func(a, b *balancer) int { return compareNames(a.Name, b.Name) })
}

func (b *balancer) copy() LoadBalancer {
	out := b.LoadBalancer
	out.Listeners = nil
	for _, l := range b.listeners {
		one := l.Listener
		one.DefaultActions, one.Rules = slices.Clone(l.DefaultActions), nil
		for _, r := range l.rules {
			one.Rules = append(one.Rules, r.Rule)
		}
		out.Listeners = append(out.Listeners, one)
	}
	return out
}

// TargetGroups are all target groups, sorted by name.
func (s *Service) TargetGroups() []TargetGroup {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []TargetGroup
	for _, g := range s.sortedGroups() {
		out = append(out, g.TargetGroup)
	}
	return out
}

func (s *Service) sortedGroups() []*group {
	return slices.SortedFunc(maps.Values(s.groups), func(a, b *group) int { return compareNames(a.Name, b.Name) })
}

// Snapshot is the canonical state, made for JSON: load balancers by name with
// listeners, rules, actions and weights; no times. ARNs follow from names.
func (s *Service) Snapshot() any {
	out := map[string][]Listener{}
	for _, b := range s.LoadBalancers() {
		out[b.Name] = b.Listeners
	}
	return out
}
