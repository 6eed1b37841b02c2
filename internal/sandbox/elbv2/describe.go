package elbv2

import (
	"cmp"
	"slices"
	"strings"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

func (s *Service) describeLoadBalancers(r *request) (any, *wire.APIError) {
	var in struct {
		LoadBalancerArns, Names []string
		Marker                  string
		PageSize                *int32
	}
	if apiErr := r.input(&in); apiErr != nil {
		return nil, apiErr
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, arn := range in.LoadBalancerArns {
		if s.balancers[arn] == nil {
			return nil, notFound("LoadBalancer", "load balancers")
		}
	}
	var found []balancerXML
	names := map[string]bool{}
	for _, b := range s.sortedBalancers() {
		if wanted(in.LoadBalancerArns, b.ARN) && wanted(in.Names, b.Name) {
			found = append(found, b.xml())
			names[b.Name] = true
		}
	}
	for _, name := range in.Names {
		if !names[name] {
			return nil, wire.Errorf("LoadBalancerNotFound", "Load balancers '[%s]' not found", name)
		}
	}
	part, next, apiErr := cut(found, in.Marker, in.PageSize)
	return struct {
		LoadBalancers []balancerXML
		NextMarker    string
	}{part, next}, apiErr
}

func wanted(list []string, v string) bool { return len(list) == 0 || slices.Contains(list, v) }

func (s *Service) describeListeners(r *request) (any, *wire.APIError) {
	var in struct {
		LoadBalancerArn string
		ListenerArns    []string
		Marker          string
		PageSize        *int32
	}
	if apiErr := r.input(&in); apiErr != nil {
		return nil, apiErr
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []listenerXML
	switch {
	case in.LoadBalancerArn == "" && len(in.ListenerArns) == 0:
		return nil, wire.Errorf("ValidationError", "You must specify either listener ARNs or a load balancer ARN")
	case in.LoadBalancerArn != "":
		b := s.balancers[in.LoadBalancerArn]
		if b == nil {
			return nil, notFound("LoadBalancer", "load balancers")
		}
		for _, l := range b.listeners {
			found = append(found, l.xml())
		}
	}
	for _, arn := range in.ListenerArns {
		l := s.listeners[arn]
		if l == nil {
			return nil, notFound("Listener", "listeners")
		}
		found = append(found, l.xml())
	}
	part, next, apiErr := cut(found, in.Marker, in.PageSize)
	return struct {
		Listeners  []listenerXML
		NextMarker string
	}{part, next}, apiErr
}

func (s *Service) describeRules(r *request) (any, *wire.APIError) {
	var in struct {
		ListenerArn string
		RuleArns    []string
		Marker      string
		PageSize    *int32
	}
	if apiErr := r.input(&in); apiErr != nil {
		return nil, apiErr
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []ruleXML
	switch {
	case (in.ListenerArn == "") == (len(in.RuleArns) == 0):
		return nil, wire.Errorf("ValidationError", "You must specify either listener rule ARNs or a listener ARN")
	case in.ListenerArn != "":
		l := s.listeners[in.ListenerArn]
		if l == nil {
			return nil, notFound("Listener", "listeners")
		}
		for _, r := range l.rules {
			found = append(found, r.xml())
		}
		found = append(found, l.defaultRule())
	}
	for _, arn := range in.RuleArns {
		x, ok := s.ruleXML(arn)
		if !ok {
			return nil, notFound("Rule", "rules")
		}
		found = append(found, x)
	}
	part, next, apiErr := cut(found, in.Marker, in.PageSize)
	return struct {
		Rules      []ruleXML
		NextMarker string
	}{part, next}, apiErr
}

func (s *Service) ruleXML(arn string) (ruleXML, bool) {
	if r := s.rules[arn]; r != nil {
		return r.xml(), true
	}
	for _, l := range s.listeners {
		if l.defaultRuleARN() == arn {
			return l.defaultRule(), true
		}
	}
	return ruleXML{}, false
}

func (s *Service) describeTargetGroups(r *request) (any, *wire.APIError) {
	var in struct {
		LoadBalancerArn        string
		TargetGroupArns, Names []string
		Marker                 string
		PageSize               *int32
	}
	if apiErr := r.input(&in); apiErr != nil {
		return nil, apiErr
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if in.LoadBalancerArn != "" && s.balancers[in.LoadBalancerArn] == nil {
		return nil, notFound("LoadBalancer", "load balancers")
	}
	var found []groupXML
	for _, g := range s.sortedGroups() {
		users := s.users(g.ARN)
		if wanted(in.TargetGroupArns, g.ARN) && wanted(in.Names, g.Name) && (in.LoadBalancerArn == "" || slices.Contains(users, in.LoadBalancerArn)) {
			found = append(found, g.xml(users))
		}
	}
	if len(found) < max(len(in.TargetGroupArns), len(in.Names)) {
		return nil, notFound("TargetGroup", "target groups")
	}
	part, next, apiErr := cut(found, in.Marker, in.PageSize)
	return struct {
		TargetGroups []groupXML
		NextMarker   string
	}{part, next}, apiErr
}

// users are the ARNs of the load balancers that use a group.
func (s *Service) users(arn string) []string {
	out := []string{}
	for _, b := range s.sortedBalancers() {
		if slices.Contains(b.groups(), arn) {
			out = append(out, b.ARN)
		}
	}
	return out
}

func (s *Service) describeTargetHealth(r *request) (any, *wire.APIError) {
	var in struct {
		TargetGroupArn string
		Targets        []targetXML
	}
	if apiErr := r.input(&in); apiErr != nil {
		return nil, apiErr
	}
	health := s.Health(in.TargetGroupArn)
	s.mu.Lock()
	g := s.groups[in.TargetGroupArn]
	s.mu.Unlock()
	if g == nil {
		return nil, notFound("TargetGroup", "target groups")
	}
	out := []targetHealthXML{}
	if len(in.Targets) == 0 {
		for _, h := range health {
			out = append(out, h.xml())
		}
	}
	for _, t := range in.Targets {
		i := slices.IndexFunc(health, func(h Health) bool { return h.ID == t.Id && (t.Port == 0 || h.Port == t.Port) })
		if i >= 0 {
			out = append(out, health[i].xml())
			continue
		}
		out = append(out, Health{
			Target: Target{ID: t.Id, Port: cmp.Or(t.Port, g.Port), Zone: t.AvailabilityZone}, State: unused,
			Reason: "Target.NotRegistered", Description: "Target is not registered to the target group",
		}.xml())
	}
	return struct{ TargetHealthDescriptions []targetHealthXML }{out}, nil
}

func (s *Service) describeTags(r *request) (any, *wire.APIError) {
	var in struct{ ResourceArns []string }
	if apiErr := r.input(&in); apiErr != nil {
		return nil, apiErr
	}
	if n := len(in.ResourceArns); n < 1 || n > 20 {
		return nil, wire.Errorf("ValidationError", "You must specify between 1 and 20 resource ARNs")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []tagsXML
	for _, arn := range in.ResourceArns {
		tags, apiErr := s.tags(arn)
		if apiErr != nil {
			return nil, apiErr
		}
		out = append(out, tagsXML{arn, tagList(tags)})
	}
	return struct{ TagDescriptions []tagsXML }{out}, nil
}

func (s *Service) tags(arn string) (map[string]string, *wire.APIError) {
	if b := s.balancers[arn]; b != nil {
		return b.Tags, nil
	}
	if l := s.listeners[arn]; l != nil {
		return l.Tags, nil
	}
	if r := s.rules[arn]; r != nil {
		return r.Tags, nil
	}
	if g := s.groups[arn]; g != nil {
		return g.Tags, nil
	}
	if _, ok := s.ruleXML(arn); ok {
		return nil, nil
	}
	for part, e := range map[string]*wire.APIError{
		":loadbalancer/": notFound("LoadBalancer", "load balancers"), ":targetgroup/": notFound("TargetGroup", "target groups"),
		":listener/": notFound("Listener", "listeners"), ":listener-rule/": notFound("Rule", "rules"),
	} {
		if strings.Contains(arn, part) {
			return nil, e
		}
	}
	return nil, wire.Errorf("ValidationError", "'%s' is not a valid ARN", arn)
}
