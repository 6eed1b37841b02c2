package elbv2

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// The states of a target (TargetHealthStateEnum).
const (
	initial   = "initial"
	healthy   = "healthy"
	unhealthy = "unhealthy"
	unused    = "unused"
	draining  = "draining"
)

// group is a target group and what is known about its targets.
type group struct {
	TargetGroup
	inUse   bool
	targets map[string]*tracked
}

// tracked is one target through time. A target is what it was until HealthDelay
// after the last change, and then what it is.
type tracked struct {
	Target
	changed time.Time
	was     string
	// left is when it was deregistered, zero while it is registered.
	left time.Time
}

func (t Target) key() string { return fmt.Sprintf("%s:%d", t.ID, t.Port) }

func (s *Service) state(g *group, t *tracked, now time.Time) string {
	switch {
	case !t.left.IsZero():
		return draining
	case !g.inUse:
		return unused
	case now.Sub(t.changed) < s.opts.HealthDelay:
		return t.was
	case t.Ready:
		return healthy
	}
	return unhealthy
}

// Observe takes in what targets are registered and ready now. Reads do it
// themselves; whoever changes the world calls it too, so that health counts from
// the change and not from the next look.
func (s *Service) Observe() {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.mu.Lock()
	var arns []string
	for arn := range s.groups {
		arns = append(arns, arn)
	}
	s.mu.Unlock()
	world := map[string][]Target{}
	for _, arn := range arns {
		world[arn] = s.opts.Targets(arn)
	}
	now := s.opts.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for arn, targets := range world {
		s.takeIn(s.groups[arn], targets, now)
	}
}

func (s *Service) takeIn(g *group, targets []Target, now time.Time) {
	there := map[string]bool{}
	for _, target := range targets {
		target.Port = cmp.Or(target.Port, g.Port)
		there[target.key()] = true
		t := g.targets[target.key()]
		switch {
		case t == nil || !t.left.IsZero():
			g.targets[target.key()] = &tracked{Target: target, changed: now, was: initial}
		case t.Ready != target.Ready:
			was := s.state(g, t, now)
			if was == unused {
				was = initial
			}
			t.Target, t.was, t.changed = target, was, now
		default:
			t.Target = target
		}
	}
	for key, t := range g.targets {
		switch {
		case there[key]:
		case !g.inUse, !t.left.IsZero() && now.Sub(t.left) >= s.opts.Draining:
			delete(g.targets, key)
		case t.left.IsZero() && s.opts.Draining > 0:
			t.left = now
		case t.left.IsZero():
			delete(g.targets, key)
		}
	}
}

// recount sees which groups are in use after listeners have changed. A group that
// comes into use begins its health checks from the start. mu is held.
func (s *Service) recount(now time.Time) {
	used := map[string]bool{}
	for _, b := range s.balancers {
		for _, arn := range b.groups() {
			used[arn] = true
		}
	}
	for arn, g := range s.groups {
		if used[arn] && !g.inUse {
			for _, t := range g.targets {
				t.was, t.changed = initial, now
			}
		}
		g.inUse = used[arn]
	}
}

// Settle takes in the world and ends every health check that is under way, as when
// a load balancer has been there for long.
func (s *Service) Settle() {
	s.Observe()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		for _, t := range g.targets {
			t.changed = t.changed.Add(-s.opts.HealthDelay)
		}
	}
}

// Health is the health of every target of a group, draining ones included, sorted by
// address; nil for an unknown group.
func (s *Service) Health(targetGroupARN string) []Health {
	s.Observe()
	now := s.opts.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[targetGroupARN]
	if g == nil {
		return nil
	}
	var out []Health
	for _, t := range g.targets {
		out = append(out, describe(t.Target, s.state(g, t, now)))
	}
	slices.SortFunc(out, func(a, b Health) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Port, b.Port)) })
	return out
}

// describe adds the reason that the API gives with a state.
func describe(t Target, state string) Health {
	h := Health{Target: t, State: state}
	switch state {
	case initial:
		h.Reason, h.Description = "Elb.InitialHealthChecking", "Initial health checks in progress"
	case unhealthy:
		h.Reason, h.Description = "Target.FailedHealthChecks", "Health checks failed"
	case unused:
		h.Reason, h.Description = "Target.NotInUse", "Target group is not configured to receive traffic from the load balancer"
	case draining:
		h.Reason, h.Description = "Target.DeregistrationInProgress", "Target deregistration is in progress"
	}
	return h
}
