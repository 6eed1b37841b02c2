package cutover

import (
	"context"
	"fmt"
	"time"

	eksaws "github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/state"
)

// prepare puts the destination's target groups on their listeners and rules at weight
// 0, where they are not yet, and waits until they are healthy: a group on no listener
// is never checked, and one without healthy targets must not get weight.
func (s *Stage) prepare(ctx context.Context, rec state.Recorder, sc *scene, r *reading) error {
	var fresh []*balancer
	for i, m := range sc.movers {
		b, ok := m.(*balancer)
		if !ok || r.views[i].shares[0].Of(s.d.Destination) > 0 {
			continue
		}
		if err := s.attach(ctx, rec, b); err != nil {
			return err
		}
		fresh = append(fresh, b)
	}
	if len(fresh) == 0 {
		return nil
	}
	return s.awaitHealthy(ctx, rec, fresh)
}

// attach puts one group on at weight 0.
func (s *Stage) attach(ctx context.Context, rec state.Recorder, b *balancer) error {
	h, _, err := b.health(ctx, s.d.Destination)
	if err != nil {
		return err
	}
	if h.registered() == 0 {
		return &state.Stop{Code: state.ExitBlocked,
			Why:  fmt.Sprintf("target group %s of %s has no targets, so it cannot take traffic from %s", h.of, s.d.Destination, b.object()),
			Cure: "register the pods of " + string(s.d.Destination) + " in it (TargetGroupBinding), then run the same command again"}
	}
	x, err := s.begin(ctx, rec, b, want{purpose: attach, dest: s.d.Destination})
	if err != nil {
		return fmt.Errorf("put target group %s on %s at weight 0: %w", h.of, b.object(), err)
	}
	if x == nil {
		return nil
	}
	if err := s.finish(ctx, rec, x); err != nil {
		return fmt.Errorf("put target group %s on %s at weight 0: %w", h.of, b.object(), err)
	}
	return nil
}

func (s *Stage) awaitHealthy(ctx context.Context, rec state.Recorder, groups []*balancer) error {
	begun := s.d.Clock.Now()
	limit := max(s.d.Patience, attachPatience)
	for pause := firstPause; ; pause = longer(pause, pollPause) {
		lacking := ""
		for _, b := range groups {
			h, _, err := b.health(ctx, s.d.Destination)
			switch {
			case err != nil && s.final(ctx, err):
				return err
			case err != nil:
				lacking = eksaws.Message(err)
			case h.healthy == 0 && h.unchecked > 0 && h.unhealthy+h.initial+h.unused == 0:
				// Health checks are off: there is nothing to wait for.
			case h.healthy == 0 || h.initial+h.unused > 0 || h.percent() < s.healthyPercent():
				lacking = h.String()
			}
		}
		if lacking == "" {
			return nil
		}
		waited := s.d.Clock.Since(begun)
		if waited >= limit {
			return &state.Stop{Code: state.ExitResumable,
				Why:  fmt.Sprintf("no traffic was given to %s: after %s at weight 0 only %s", s.d.Destination, limit, lacking),
				Cure: "find out why its targets do not get healthy, then run the same command again"}
		}
		rec.Waiting(fmt.Sprintf("%s, %s of up to %s", lacking, waited.Round(time.Second), limit))
		if err := s.sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// healthyPercent is the part of the targets that the plan file wants healthy; all of
// them where it does not say.
func (s *Stage) healthyPercent() float64 {
	for _, g := range s.d.Gates {
		if g.TargetHealth != nil {
			return float64(g.TargetHealth.AtLeast)
		}
	}
	return 100
}
