package elbv2

import (
	"fmt"
	"slices"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// modifyListener is ModifyListener: lists that are sent replace those that are
// there, what is not sent stays.
func (s *Service) modifyListener(r *request) (any, *wire.APIError) {
	var in struct {
		ListenerArn, Protocol, SslPolicy string
		Port                             *int32
		Certificates                     []certificateXML
		DefaultActions                   []Action
	}
	if apiErr := r.input(&in); apiErr != nil {
		return nil, apiErr
	}
	wire.Note(r.Context(), "actions", summary(in.DefaultActions))
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.listeners[in.ListenerArn]
	if l == nil {
		return nil, notFound("Listener", "listeners")
	}
	changed := *l
	if in.Protocol != "" {
		changed.Protocol = in.Protocol
	}
	if in.SslPolicy != "" {
		changed.SSLPolicy = in.SslPolicy
	}
	if in.Port != nil {
		changed.Port = int(*in.Port)
		if slices.ContainsFunc(l.balancer.listeners, func(o *listener) bool { return o != l && o.Port == changed.Port }) {
			return nil, wire.Errorf("DuplicateListener", "A listener already exists on this port for this load balancer '%s'", l.balancer.ARN)
		}
	}
	if in.Certificates != nil {
		changed.Certificates = nil
		for _, c := range in.Certificates {
			changed.Certificates = append(changed.Certificates, c.CertificateArn)
		}
	}
	if in.DefaultActions != nil {
		actions, apiErr := s.actions(&changed, in.DefaultActions, l.DefaultActions)
		if apiErr != nil {
			return nil, apiErr
		}
		changed.DefaultActions = actions
	}
	l.Listener = changed.Listener
	s.recount(r.now)
	return struct{ Listeners []listenerXML }{[]listenerXML{l.xml()}}, nil
}

// modifyRule is ModifyRule: actions and conditions that are sent replace all those
// that are there, what is not sent stays, transforms too unless they are reset.
func (s *Service) modifyRule(r *request) (any, *wire.APIError) {
	var in struct {
		RuleArn         string
		Actions         []Action
		Conditions      []conditionXML
		Transforms      []Transform
		ResetTransforms *bool
	}
	if apiErr := r.input(&in); apiErr != nil {
		return nil, apiErr
	}
	wire.Note(r.Context(), "actions", summary(in.Actions))
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.rules[in.RuleArn]
	if at == nil {
		if _, isDefault := s.ruleXML(in.RuleArn); isDefault {
			return nil, wire.Errorf("OperationNotPermitted", "Default rule '%s' cannot be modified", in.RuleArn)
		}
		return nil, notFound("Rule", "rules")
	}
	changed := at.Rule
	if in.Actions != nil {
		actions, apiErr := s.actions(at.listener, in.Actions, at.Actions)
		if apiErr != nil {
			return nil, apiErr
		}
		changed.Actions = actions
	}
	if in.Conditions != nil {
		changed.Conditions = nil
		for _, c := range in.Conditions {
			changed.Conditions = append(changed.Conditions, c.condition())
		}
	}
	reset := in.ResetTransforms != nil && *in.ResetTransforms
	switch {
	case reset && in.Transforms != nil:
		return nil, wire.Errorf("ValidationError", "You cannot specify both transforms and reset transforms")
	case reset:
		changed.Transforms = nil
	case in.Transforms != nil:
		changed.Transforms = in.Transforms
	}
	at.Rule = changed
	s.recount(r.now)
	return struct{ Rules []ruleXML }{[]ruleXML{at.xml()}}, nil
}

// summary is a list of actions for the log: types, groups and weights.
func summary(list []Action) []string {
	var out []string
	for _, a := range list {
		text := a.Type
		if a.TargetGroupArn != "" {
			text += " " + a.TargetGroupArn
		}
		if a.ForwardConfig != nil {
			for _, t := range a.ForwardConfig.TargetGroups {
				weight := "default"
				if t.Weight != nil {
					weight = fmt.Sprint(*t.Weight)
				}
				text += fmt.Sprintf(" %s=%s", t.TargetGroupArn, weight)
			}
		}
		out = append(out, text)
	}
	return out
}
