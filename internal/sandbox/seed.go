package sandbox

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/eksbg/eksbg/internal/sandbox/eks"
	"github.com/eksbg/eksbg/internal/sandbox/elbv2"
	"github.com/eksbg/eksbg/internal/sandbox/route53"
)

// group is what a target group stands for.
type group struct {
	Backend
	name string
}

// balancer is a load balancer of the scenario as ELBv2 knows it.
type balancer struct {
	ALB
	dnsName  string
	zoneID   string
	listener string
	rules    map[int]string
}

// seedEKS puts both clusters into EKS, without their endpoints.
func (s *Sandbox) seedEKS() error {
	for _, side := range s.scenario.Sides() {
		c := s.scenario.Side(side)
		if c.Absent {
			continue
		}
		in := eks.Cluster{
			Name: c.Name, Version: c.Version, VPC: vpc(c.Name), CreatedAt: s.born.AddDate(0, -7, 0),
			SupportType: c.SupportType, AutoMode: c.AutoMode, DeletionProtection: c.DeletionProtection,
		}
		if c.UpgradedAgo > 0 {
			in.UpgradedAt = s.born.Add(-c.UpgradedAgo)
		}
		for _, g := range c.Nodegroups {
			in.Nodegroups = append(in.Nodegroups, g.seed(c.Name))
		}
		for _, n := range c.Subnets {
			in.Subnets = append(in.Subnets, n.ID)
		}
		for _, a := range c.Addons {
			in.Addons = append(in.Addons, eks.Addon{Name: a.Name, Version: a.Version, CreatedAt: in.CreatedAt})
		}
		for _, p := range c.Profiles {
			f := p.seed()
			f.CreatedAt, f.PodExecutionRoleARN = in.CreatedAt, fmt.Sprintf("arn:aws:iam::%s:role/%s-pods", s.scenario.Account, c.Name)
			if len(f.Subnets) == 0 {
				f.Subnets = in.Subnets
			}
			in.Profiles = append(in.Profiles, f)
		}
		if err := s.eks.AddCluster(in); err != nil {
			return fmt.Errorf("seed cluster %s: %w", c.Name, err)
		}
	}
	return s.seedMishaps()
}

// seed is the profile as EKS has it at first.
func (p Profile) seed() eks.FargateProfile {
	f := eks.FargateProfile{Name: p.Name, Subnets: p.Subnets}
	for _, sel := range p.Selectors {
		f.Selectors = append(f.Selectors, eks.Selector{Namespace: sel.Namespace, Labels: sel.Labels})
	}
	return f
}

func (s *Sandbox) seedMishaps() error {
	for _, u := range s.scenario.Updates {
		f := eks.Failure{Cluster: s.scenario.Side(u.Cluster).Name, Addon: u.Addon, Nodegroup: u.Nodegroup, Version: u.To, Times: u.Times}
		for _, e := range u.Errors {
			f.Errors = append(f.Errors, eks.UpdateError{Code: e.Code, Message: e.Message, ResourceIDs: e.ResourceIDs})
		}
		if err := s.eks.FailUpdates(f); err != nil {
			return fmt.Errorf("seed the failure of %s: %w", f.Cluster, err)
		}
	}
	for _, i := range s.scenario.Insights {
		name := s.scenario.Side(i.Cluster).Name
		err := s.eks.SetInsight(name, eks.Insight{
			Name: i.Name, Version: i.Version, Category: i.Category, Status: i.Status, Reason: i.Reason, Description: i.Description, Recommendation: i.Recommendation,
		})
		if err != nil {
			return fmt.Errorf("seed insight %q of %s: %w", i.Name, name, err)
		}
	}
	return nil
}

// seedALBs makes the target groups and load balancers.
func (s *Sandbox) seedALBs() error {
	for _, b := range s.scenario.ALBs {
		arns := map[string]string{}
		for _, g := range b.Groups {
			arn, err := s.elbv2.AddTargetGroup(elbv2.TargetGroup{Name: g.Name, Port: int(g.Port), HealthPath: g.Path, Tags: b.Tags})
			if err != nil {
				return fmt.Errorf("seed target group %s: %w", g.Name, err)
			}
			arns[g.Name] = arn
			s.groups.add(arn, group{Backend: g.Backend, name: g.Name})
		}
		listener := elbv2.Listener{Protocol: "HTTP", Port: int(b.Port), DefaultActions: []elbv2.Action{b.Default.action(arns)}, Tags: b.Tags}
		for _, r := range b.Rules {
			listener.Rules = append(listener.Rules, elbv2.Rule{
				Priority: r.Priority, Conditions: r.conditions(), Actions: []elbv2.Action{r.action(arns)}, Tags: b.Tags,
			})
		}
		lb, err := s.elbv2.AddLoadBalancer(elbv2.LoadBalancer{Name: b.Name, CreatedAt: s.born.AddDate(0, -7, 0), Tags: b.Tags, Listeners: []elbv2.Listener{listener}})
		if err != nil {
			return fmt.Errorf("seed load balancer %s: %w", b.Name, err)
		}
		out := balancer{ALB: b, dnsName: lb.DNSName, zoneID: lb.CanonicalHostedZoneID, rules: map[int]string{}}
		for _, l := range lb.Listeners {
			out.listener = l.ARN
			for _, r := range l.Rules {
				out.rules[r.Priority] = r.ARN
			}
		}
		s.balancers = append(s.balancers, out)
	}
	return nil
}

func (f Forward) action(arns map[string]string) elbv2.Action {
	cfg := &elbv2.ForwardConfig{}
	for _, g := range slices.Sorted(maps.Keys(f.Weights)) {
		cfg.TargetGroups = append(cfg.TargetGroups, elbv2.TargetGroupTuple{TargetGroupArn: arns[g], Weight: ptr(f.Weights[g])})
	}
	cfg.TargetGroupStickinessConfig = &elbv2.StickinessConfig{Enabled: ptr(f.Stickiness > 0)}
	if f.Stickiness > 0 {
		cfg.TargetGroupStickinessConfig.DurationSeconds = ptr(int32(f.Stickiness.Seconds()))
	}
	return elbv2.Action{Type: "forward", ForwardConfig: cfg}
}

func (r Rule) action(arns map[string]string) elbv2.Action {
	if r.Fixed == nil {
		return r.Forward.action(arns)
	}
	return elbv2.Action{Type: "fixed-response", FixedResponseConfig: &elbv2.FixedResponseConfig{
		ContentType: ptr("text/plain"), MessageBody: ptr(r.Fixed.Body), StatusCode: strconv.Itoa(r.Fixed.Status),
	}}
}

func (r Rule) conditions() []elbv2.Condition {
	var cs []elbv2.Condition
	if len(r.Paths) > 0 {
		cs = append(cs, elbv2.Condition{Field: "path-pattern", Values: r.Paths})
	}
	if len(r.Hosts) > 0 {
		cs = append(cs, elbv2.Condition{Field: "host-header", Values: r.Hosts})
	}
	return cs
}

// seedZones makes the hosted zones; the load balancers that aliases name come first.
func (s *Sandbox) seedZones() error {
	for i, z := range s.scenario.Zones {
		in := route53.Zone{ID: fmt.Sprintf("Z0SANDBOX%07d", i+1), Name: z.Name, Private: z.Private, Comment: "eksbg sandbox"}
		for _, r := range z.Records {
			set := route53.RecordSet{Name: r.Name, Type: r.Type, SetIdentifier: r.SetIdentifier, Weight: r.Weight, Values: r.Values}
			if r.Alias == "" {
				set.TTL = ptr(r.TTL)
			}
			for _, b := range s.balancers {
				if b.Name == r.Alias {
					set.Alias = &route53.Alias{ZoneID: b.zoneID, DNSName: b.dnsName, EvaluateTargetHealth: r.EvaluateHealth}
				}
			}
			in.Records = append(in.Records, set)
		}
		if err := s.route53.AddZone(in); err != nil {
			return fmt.Errorf("seed zone %s: %w", z.Name, err)
		}
	}
	return nil
}
