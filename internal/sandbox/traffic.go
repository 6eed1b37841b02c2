package sandbox

import (
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/eksbg/eksbg/internal/sandbox/edge"
	"github.com/eksbg/eksbg/internal/sandbox/elbv2"
)

// groups remembers what target groups stand for. ELBv2 asks while it is seeded.
type groups struct {
	mu    sync.Mutex
	byARN map[string]group
}

func (g *groups) add(arn string, v group) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.byARN == nil {
		g.byARN = map[string]group{}
	}
	g.byARN[arn] = v
}

func (g *groups) get(arn string) (group, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v, ok := g.byARN[arn]
	return v, ok
}

// endpoints are the pods behind a backend.
func (s *Sandbox) endpoints(b Backend) []edge.Endpoint {
	c := s.cluster(b.Cluster)
	if c == nil {
		return nil
	}
	var eps []edge.Endpoint
	for _, p := range c.kube.ReadyPods(b.Namespace, b.Selector) {
		eps = append(eps, edge.Endpoint{Pod: p.Name, IP: p.IP, Ready: p.Ready})
	}
	return eps
}

// targets are what the controllers of the clusters would have registered with a
// group: the pods of the service that it stands for.
func (s *Sandbox) targets(arn string) []elbv2.Target {
	g, ok := s.groups.get(arn)
	if !ok {
		return nil
	}
	var ts []elbv2.Target
	for _, e := range s.endpoints(g.Backend) {
		ts = append(ts, elbv2.Target{ID: e.IP, Port: int(g.Port), Zone: s.zoneOf(g.Cluster, e.IP), Ready: e.Ready})
	}
	return ts
}

// zoneOf is the availability zone of an address of a cluster.
func (s *Sandbox) zoneOf(side, ip string) string {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return ""
	}
	for _, n := range s.scenario.Side(side).Subnets {
		if p, err := netip.ParsePrefix(n.CIDR); err == nil && p.Contains(a) {
			return n.Zone
		}
	}
	return ""
}

// startEdge serves what users of the service would meet.
func (s *Sandbox) startEdge() error {
	o := edge.Options{Share: s.share}
	for _, z := range s.scenario.Zones {
		for _, r := range z.Records {
			if r.Serves == nil {
				continue
			}
			for _, v := range r.Values {
				addr, err := netip.ParseAddr(v)
				if err != nil {
					return err
				}
				o.Members = append(o.Members, edge.Member{
					Addr: addr, Cluster: s.scenario.Side(r.Serves.Cluster).Name, Endpoints: func() []edge.Endpoint { return s.endpoints(*r.Serves) },
				})
			}
		}
	}
	for _, b := range s.balancers {
		addr, err := netip.ParseAddr(b.Address)
		if err != nil {
			return err
		}
		o.Balancers = append(o.Balancers, edge.Balancer{Addr: addr, Name: b.dnsName, Route: func(r *http.Request) edge.Action { return s.route(b, r) }})
	}
	for _, f := range s.scenario.Failures {
		o.Failures = append(o.Failures, f.edge(s.scenario))
	}
	e, err := edge.Start(o)
	if err != nil {
		return err
	}
	s.edge = e
	s.onClose(e.Close)
	d, err := edge.StartDNS("127.0.0.1", names{s})
	if err != nil {
		return err
	}
	s.dns = d
	s.onClose(d.Close)
	return nil
}

func (f Failure) edge(s *Scenario) edge.Failure {
	return edge.Failure{Cluster: s.Side(f.Cluster).Name, Status: f.Status, Percent: f.Percent, Share: f.Share}
}

// route is what a load balancer does with a request now.
func (s *Sandbox) route(b balancer, r *http.Request) edge.Action {
	actions, _ := s.elbv2.Route(b.listener, r)
	for _, a := range actions {
		if a.FixedResponseConfig == nil {
			continue
		}
		status, err := strconv.Atoi(a.FixedResponseConfig.StatusCode)
		if err != nil {
			status = http.StatusInternalServerError
		}
		out := edge.Action{Status: status}
		if a.FixedResponseConfig.MessageBody != nil {
			out.Body = *a.FixedResponseConfig.MessageBody
		}
		return out
	}
	return edge.Action{Groups: s.forward(actions)}
}

// forward reads the groups of a list of actions with their weights and targets.
func (s *Sandbox) forward(actions []elbv2.Action) []edge.Group {
	var out []edge.Group
	for _, t := range tuples(actions) {
		g, _ := s.groups.get(t.TargetGroupArn)
		eg := edge.Group{ARN: t.TargetGroupArn, Weight: weightOf(t), Cluster: s.scenario.Side(g.Cluster).Name}
		pods := map[string]edge.Endpoint{}
		for _, e := range s.endpoints(g.Backend) {
			pods[e.IP] = e
		}
		for _, h := range s.elbv2.Health(t.TargetGroupArn) {
			if h.State == "draining" {
				continue
			}
			e, there := pods[h.ID]
			if !there {
				e = edge.Endpoint{IP: h.ID}
			}
			eg.Targets = append(eg.Targets, edge.Target{Endpoint: e, Healthy: h.State == "healthy"})
		}
		out = append(out, eg)
	}
	return out
}

// tuples are the groups that a list of actions forwards to.
func tuples(actions []elbv2.Action) []elbv2.TargetGroupTuple {
	for _, a := range actions {
		switch {
		case a.Type != "forward":
		case a.ForwardConfig != nil:
			return a.ForwardConfig.TargetGroups
		default:
			return []elbv2.TargetGroupTuple{{TargetGroupArn: a.TargetGroupArn}}
		}
	}
	return nil
}

// weightOf reads a weight; one that was left out counts as 1.
func weightOf(t elbv2.TargetGroupTuple) int64 {
	if t.Weight == nil {
		return 1
	}
	return int64(*t.Weight)
}

// share is the per cent of the traffic that a cluster gets by the entrance that
// gives it most.
func (s *Sandbox) share(cluster string) float64 {
	most := 0.0
	for _, by := range s.sharesByEntrance() {
		var sum, own int64
		for c, w := range by {
			sum += w
			if c == cluster {
				own = w
			}
		}
		if sum > 0 {
			most = max(most, 100*float64(own)/float64(sum))
		}
	}
	return most
}

// sharesByEntrance sums the weights of the clusters for each record and each rule.
func (s *Sandbox) sharesByEntrance() map[string]map[string]int64 {
	out := map[string]map[string]int64{}
	add := func(entrance, side string, w int64) {
		if out[entrance] == nil {
			out[entrance] = map[string]int64{}
		}
		out[entrance][s.scenario.Side(side).Name] += w
	}
	for _, z := range s.scenario.Zones {
		for _, r := range z.Records {
			if r.Serves == nil || r.Weight == nil {
				continue
			}
			for _, now := range s.route53.Lookup(r.Name, r.Type) {
				if now.SetIdentifier == r.SetIdentifier && now.Weight != nil {
					add("record "+r.Name+" "+r.Type, r.Serves.Cluster, *now.Weight)
				}
			}
		}
	}
	for _, lb := range s.elbv2.LoadBalancers() {
		for _, l := range lb.Listeners {
			lists := map[string][]elbv2.Action{"listener " + l.ARN: l.DefaultActions}
			for _, r := range l.Rules {
				lists["rule "+r.ARN] = r.Actions
			}
			for entrance, actions := range maps.All(lists) {
				for _, t := range tuples(actions) {
					if g, ok := s.groups.get(t.TargetGroupArn); ok {
						add(entrance, g.Cluster, weightOf(t))
					}
				}
			}
		}
	}
	return out
}

// names answers DNS from the zones and the load balancers.
type names struct{ s *Sandbox }

func (n names) Zones() []string { return n.s.route53.Zones() }

func (n names) Exists(name string) bool { return n.s.route53.Exists(name) }

func (n names) Lookup(name, typ string) []edge.RecordSet {
	var out []edge.RecordSet
	for _, r := range n.s.route53.Lookup(name, typ) {
		set := edge.RecordSet{Name: r.Name, Type: r.Type, SetIdentifier: r.SetIdentifier, Weight: r.Weight, Values: r.Values}
		if r.TTL != nil {
			set.TTL = uint32(*r.TTL) //nolint:gosec // Route 53 refuses what does not fit
		}
		if r.Alias != nil {
			set.Alias, set.EvaluateHealth = r.Alias.DNSName, r.Alias.EvaluateTargetHealth
		}
		out = append(out, set)
	}
	return out
}

// Balancer finds a load balancer; it is healthy for an alias when every group in
// use that has targets has a healthy one, and no group is empty (Route 53 API,
// AliasTarget, EvaluateTargetHealth).
func (n names) Balancer(name string) ([]netip.Addr, bool, bool) {
	for _, b := range n.s.balancers {
		dnsName := strings.ToLower(strings.TrimSuffix(b.dnsName, ".") + ".")
		// The console and many clients put dualstack. in front of the name.
		if name != dnsName && name != "dualstack."+dnsName {
			continue
		}
		addr, err := netip.ParseAddr(b.Address)
		if err != nil {
			return nil, false, false
		}
		return []netip.Addr{addr}, n.s.balancerHealthy(b), true
	}
	return nil, false, false
}

func (s *Sandbox) balancerHealthy(b balancer) bool {
	for _, lb := range s.elbv2.LoadBalancers() {
		if lb.Name != b.Name {
			continue
		}
		for _, l := range lb.Listeners {
			actions := slices.Clone(l.DefaultActions)
			for _, r := range l.Rules {
				actions = append(actions, r.Actions...)
			}
			for _, a := range actions {
				for _, t := range tuples([]elbv2.Action{a}) {
					if !s.anyHealthy(t.TargetGroupArn) {
						return false
					}
				}
			}
		}
	}
	return true
}

func (s *Sandbox) anyHealthy(arn string) bool {
	for _, h := range s.elbv2.Health(arn) {
		if h.State == "healthy" {
			return true
		}
	}
	return false
}
