package elbv2

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// zones are the hosted zones of load balancers' names, by region
// (https://docs.aws.amazon.com/general/latest/gr/elb.html).
var zones = map[string]string{
	"us-east-1": "Z35SXDOTRQ7X7K", "us-east-2": "Z3AADJGX6KTTL2", "us-west-2": "Z1H1FL5HABSF5",
	"eu-west-1": "Z32O12XQLNTSW2", "eu-central-1": "Z215JYRZR1TBD5", "ap-northeast-1": "Z14GRHDCWA56QT",
}

// id is 16 hexadecimal digits that depend on the parts alone, so that two sandboxes
// of one scenario have the same ARNs.
func id(parts ...string) string {
	u := uuid.NewSHA1(uuid.NameSpaceURL, []byte(strings.Join(parts, "\x00")))
	return fmt.Sprintf("%x", u[:8])
}

func (s *Service) arn(rest string) string {
	return fmt.Sprintf("arn:aws:elasticloadbalancing:%s:%s:%s", s.opts.Region, s.opts.Account, rest)
}

func compareNames(a, b string) int { return cmp.Compare(a, b) }

// AddTargetGroup seeds a target group and answers its ARN.
func (s *Service) AddTargetGroup(g TargetGroup) (arn string, err error) {
	g.ARN = cmp.Or(g.ARN, s.arn("targetgroup/"+g.Name+"/"+id("targetgroup", g.Name)))
	g.Protocol, g.TargetType = cmp.Or(g.Protocol, "HTTP"), cmp.Or(g.TargetType, "ip")
	g.Port, g.HealthPath = cmp.Or(g.Port, 80), cmp.Or(g.HealthPath, "/")
	g.VPC = cmp.Or(g.VPC, "vpc-0"+id("vpc"))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.groups {
		if g.Name == "" || other.Name == g.Name || other.ARN == g.ARN {
			return "", fmt.Errorf("add target group %q: it has no name or is there already", g.Name)
		}
	}
	s.groups[g.ARN] = &group{TargetGroup: g, targets: map[string]*tracked{}}
	return g.ARN, nil
}

// AddLoadBalancer seeds a load balancer with listeners and rules, whose target
// groups must be there already, and answers it with every ARN and name filled in.
// It holds actions to the rules that ModifyListener has.
func (s *Service) AddLoadBalancer(lb LoadBalancer) (LoadBalancer, error) {
	now := s.opts.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fill(&lb)
	for _, other := range s.balancers {
		if lb.Name == "" || other.Name == lb.Name {
			return lb, fmt.Errorf("add load balancer %q: it has no name or is there already", lb.Name)
		}
	}
	b := &balancer{LoadBalancer: lb}
	b.Listeners = nil
	for _, seed := range lb.Listeners {
		l, err := s.newListener(b, seed)
		if err != nil {
			return lb, fmt.Errorf("add load balancer %s: listener on port %d: %w", lb.Name, seed.Port, err)
		}
		b.listeners = append(b.listeners, l)
	}
	slices.SortFunc(b.listeners, func(a, b *listener) int { return cmp.Compare(a.Port, b.Port) })
	s.balancers[b.ARN] = b
	for _, l := range b.listeners {
		s.listeners[l.ARN] = l
		for _, r := range l.rules {
			s.rules[r.ARN] = r
		}
	}
	s.recount(now)
	return b.copy(), nil
}

func (s *Service) fill(lb *LoadBalancer) {
	kind := "app"
	if lb.Type = cmp.Or(lb.Type, "application"); lb.Type == "network" {
		kind = "net"
	}
	own := id("loadbalancer", lb.Name)
	lb.ARN = cmp.Or(lb.ARN, s.arn("loadbalancer/"+kind+"/"+lb.Name+"/"+own))
	lb.Scheme = cmp.Or(lb.Scheme, "internet-facing")
	number := binary.BigEndian.Uint32([]byte(own))%900000000 + 100000000
	lb.DNSName = cmp.Or(lb.DNSName, fmt.Sprintf("%s-%d.%s.elb.amazonaws.com", lb.Name, number, s.opts.Region))
	lb.CanonicalHostedZoneID = cmp.Or(lb.CanonicalHostedZoneID, zones[s.opts.Region], zones["us-east-1"])
	lb.VPC = cmp.Or(lb.VPC, "vpc-0"+id("vpc"))
	if lb.CreatedAt.IsZero() {
		lb.CreatedAt = s.opts.Now().AddDate(-1, 0, 0)
	}
}

func (s *Service) newListener(b *balancer, seed Listener) (*listener, error) {
	path := strings.TrimPrefix(b.ARN[strings.Index(b.ARN, "loadbalancer/"):], "loadbalancer/")
	own := id("listener", b.Name, fmt.Sprint(seed.Port))
	seed.ARN = cmp.Or(seed.ARN, s.arn("listener/"+path+"/"+own))
	seed.Protocol = cmp.Or(seed.Protocol, "HTTP")
	if seed.Protocol == "HTTPS" {
		seed.SSLPolicy = cmp.Or(seed.SSLPolicy, "ELBSecurityPolicy-TLS13-1-2-2021-06")
	}
	l := &listener{Listener: seed, balancer: b}
	actions, apiErr := s.actions(l, seed.DefaultActions, nil)
	if apiErr != nil {
		return nil, apiErr
	}
	l.DefaultActions, l.Rules = actions, nil
	for _, r := range seed.Rules {
		r.ARN = cmp.Or(r.ARN, s.arn("listener-rule/"+path+"/"+own+"/"+id("rule", seed.ARN, fmt.Sprint(r.Priority))))
		if r.Actions, apiErr = s.actions(l, r.Actions, nil); apiErr != nil {
			return nil, fmt.Errorf("rule %d: %w", r.Priority, apiErr)
		}
		if r.Priority < 1 || r.Priority > 50000 || slices.ContainsFunc(l.rules, func(o *rule) bool { return o.Priority == r.Priority }) {
			return nil, fmt.Errorf("rule %d: priorities are unique, from 1 to 50000", r.Priority)
		}
		l.rules = append(l.rules, &rule{Rule: r, listener: l})
	}
	slices.SortFunc(l.rules, func(a, b *rule) int { return cmp.Compare(a.Priority, b.Priority) })
	return l, nil
}

// defaultRuleARN is the ARN of the rule that a listener's default actions make.
func (l *listener) defaultRuleARN() string {
	return strings.Replace(l.ARN, ":listener/", ":listener-rule/", 1) + "/" + id("rule", l.ARN, "default")
}
