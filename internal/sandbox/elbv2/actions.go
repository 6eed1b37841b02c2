package elbv2

import (
	"cmp"
	"slices"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// actions holds a list of actions to the rules of the API and answers it as it is
// kept and shown: sorted by order, weights and stickiness filled in, and for a
// forward to one group its ARN beside the ForwardConfig. old are the actions that
// it replaces, whose OIDC secret UseExistingClientSecret keeps. mu is held.
//
// See https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/API_Action.html.
func (s *Service) actions(l *listener, list, old []Action) ([]Action, *wire.APIError) {
	if len(list) == 0 {
		return nil, wire.Errorf("ValidationError", "You must specify at least one action")
	}
	list = slices.Clone(list)
	orders := map[int32]bool{}
	for i := range list {
		a := &list[i]
		if len(list) > 1 && (a.Order == nil || orders[*a.Order]) {
			return nil, wire.Errorf("InvalidLoadBalancerAction", "You must specify a unique order for each of multiple actions")
		}
		if a.Order != nil {
			orders[*a.Order] = true
			if *a.Order < 1 || *a.Order > 50000 {
				return nil, wire.Errorf("ValidationError", "Action order must be between 1 and 50000")
			}
		}
		var apiErr *wire.APIError
		if *a, apiErr = s.action(l, *a, old); apiErr != nil {
			return nil, apiErr
		}
	}
	slices.SortStableFunc(list, func(a, b Action) int { return cmp.Compare(order(a), order(b)) })
	for i, a := range list {
		if terminal := a.Type == "forward" || a.Type == "redirect" || a.Type == "fixed-response"; terminal != (i == len(list)-1) {
			return nil, wire.Errorf("InvalidLoadBalancerAction",
				"The last action, and only that, must be a forward, redirect or fixed-response action")
		}
	}
	return list, nil
}

func order(a Action) int32 {
	if a.Order == nil {
		return 0
	}
	return *a.Order
}

func (s *Service) action(l *listener, a Action, old []Action) (Action, *wire.APIError) {
	configs := map[string]bool{
		"forward": a.ForwardConfig != nil || a.TargetGroupArn != "", "fixed-response": a.FixedResponseConfig != nil,
		"redirect": a.RedirectConfig != nil, "authenticate-oidc": a.AuthenticateOidcConfig != nil,
		"authenticate-cognito": a.AuthenticateCognitoConfig != nil, "jwt-validation": a.JwtValidationConfig != nil,
	}
	given, known := configs[a.Type]
	if !known {
		return a, wire.Errorf("ValidationError", "1 validation error detected: Value '%s' at 'actions.type' failed to satisfy constraint: "+
			"Member must satisfy enum value set: [forward, authenticate-oidc, authenticate-cognito, redirect, fixed-response, jwt-validation]", a.Type)
	}
	for kind, set := range configs {
		if set && kind != a.Type {
			return a, wire.Errorf("InvalidLoadBalancerAction", "An action of type '%s' cannot have the configuration of type '%s'", a.Type, kind)
		}
	}
	switch {
	case !given && a.Type == "forward":
		return a, wire.Errorf("ValidationError", "A target group ARN must be specified")
	case !given:
		return a, wire.Errorf("InvalidLoadBalancerAction", "An action of type '%s' must have its configuration", a.Type)
	case a.Type == "forward":
		return s.forward(l, a)
	}
	if l.Protocol != "HTTPS" && (a.Type == "authenticate-oidc" || a.Type == "authenticate-cognito" || a.Type == "jwt-validation") {
		return a, wire.Errorf("InvalidLoadBalancerAction", "Actions of type '%s' are supported only on HTTPS listeners", a.Type)
	}
	if a.Type == "authenticate-oidc" {
		return keepSecret(a, old)
	}
	return a, nil
}

func (s *Service) forward(l *listener, a Action) (Action, *wire.APIError) {
	config := ForwardConfig{TargetGroups: []TargetGroupTuple{{TargetGroupArn: a.TargetGroupArn}}}
	if a.ForwardConfig != nil {
		config = *a.ForwardConfig
		config.TargetGroups = slices.Clone(config.TargetGroups)
	}
	network := l.balancer.Type == "network"
	switch n := len(config.TargetGroups); {
	case n == 0:
		return a, wire.Errorf("ValidationError", "You must specify at least one target group")
	case n > 5:
		return a, wire.Errorf("TooManyTargetGroups", "You can specify at most 5 target groups in a forward action")
	case a.TargetGroupArn != "" && (n > 1 || config.TargetGroups[0].TargetGroupArn != a.TargetGroupArn):
		return a, wire.Errorf("ValidationError", "You cannot specify both a target group list and a top-level target group ARN in a forward action")
	}
	seen := map[string]bool{}
	for i := range config.TargetGroups {
		t := &config.TargetGroups[i]
		g := s.groups[t.TargetGroupArn]
		switch {
		case g == nil:
			return a, notFound("TargetGroup", "target groups")
		case seen[t.TargetGroupArn]:
			return a, wire.Errorf("ValidationError", "Target group '%s' is specified more than once", t.TargetGroupArn)
		case network && t.Weight != nil:
			return a, wire.Errorf("ValidationError", "You cannot specify a target group weight on load balancers of type 'network'")
		case t.Weight != nil && (*t.Weight < 0 || *t.Weight > 999):
			return a, wire.Errorf("ValidationError", "The weight for each target group must be between 0 and 999, inclusive")
		case s.elsewhere(g.ARN, l.balancer):
			return a, wire.Errorf("TargetGroupAssociationLimit", "TargetGroup cannot be associated with more than one load balancer")
		}
		seen[t.TargetGroupArn] = true
		if t.Weight == nil && !network {
			one := int32(1)
			t.Weight = &one
		}
	}
	if st := config.TargetGroupStickinessConfig; st != nil && st.DurationSeconds != nil && (*st.DurationSeconds < 1 || *st.DurationSeconds > 604800) {
		return a, wire.Errorf("ValidationError", "Target group stickiness duration must be between 1 and 604800 seconds")
	} else if st == nil {
		off := false
		config.TargetGroupStickinessConfig = &StickinessConfig{Enabled: &off}
	}
	a.ForwardConfig, a.TargetGroupArn = &config, ""
	if len(config.TargetGroups) == 1 {
		a.TargetGroupArn = config.TargetGroups[0].TargetGroupArn
	}
	return a, nil
}

// elsewhere reports whether another load balancer uses the group.
func (s *Service) elsewhere(arn string, own *balancer) bool {
	for _, b := range s.balancers {
		if b != own && b.ARN != own.ARN && slices.Contains(b.groups(), arn) {
			return true
		}
	}
	return false
}

// groups are the ARNs of the target groups that a load balancer uses, with
// whatever weight.
func (b *balancer) groups() []string {
	var out []string
	add := func(actions []Action) {
		for _, a := range actions {
			if a.ForwardConfig != nil {
				for _, t := range a.ForwardConfig.TargetGroups {
					out = append(out, t.TargetGroupArn)
				}
			}
		}
	}
	for _, l := range b.listeners {
		add(l.DefaultActions)
		for _, r := range l.rules {
			add(r.Actions)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// keepSecret sees to the client secret of an OIDC action, which the API never shows:
// who sends a described action back says UseExistingClientSecret.
func keepSecret(a Action, old []Action) (Action, *wire.APIError) {
	config := *a.AuthenticateOidcConfig
	existing := config.UseExistingClientSecret != nil && *config.UseExistingClientSecret
	if existing {
		i := slices.IndexFunc(old, func(o Action) bool { return o.AuthenticateOidcConfig != nil })
		if config.ClientSecret != nil || i < 0 {
			return a, wire.Errorf("InvalidLoadBalancerAction",
				"UseExistingClientSecret needs an existing authenticate-oidc action, and no client secret beside it")
		}
		config.ClientSecret = old[i].AuthenticateOidcConfig.ClientSecret
	}
	if config.ClientSecret == nil {
		return a, wire.Errorf("InvalidLoadBalancerAction", "You must specify a client secret, or UseExistingClientSecret, for an authenticate-oidc action")
	}
	config.UseExistingClientSecret = nil
	a.AuthenticateOidcConfig = &config
	return a, nil
}

// shown is a list of actions as the API answers it, without secrets.
func shown(list []Action) []Action {
	list = slices.Clone(list)
	for i, a := range list {
		if a.AuthenticateOidcConfig != nil {
			config := *a.AuthenticateOidcConfig
			config.ClientSecret = nil
			list[i].AuthenticateOidcConfig = &config
		}
	}
	return list
}

func notFound(kind, what string) *wire.APIError {
	return wire.Errorf(kind+"NotFound", "One or more %s not found", what)
}
