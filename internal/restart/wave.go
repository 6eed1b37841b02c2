package restart

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/state"
)

// tick is the shortest time between two lines of progress, confirmEvery that between
// two looks at the whole cluster for the sake of one workload.
const (
	tick         = time.Second
	confirmEvery = 3 * time.Second
)

// wave works on the rollouts until all of them are done, MaxParallel at a time and
// CoreDNS alone first. Everything happens in this goroutine, woken by the watches.
func (c *campaign) wave(ctx context.Context, todo []*rollout) error {
	c.moved = false
	for {
		left, err := c.pass(ctx, todo)
		if err != nil || left == 0 {
			return err
		}
		c.moved = true
		next := c.say(todo)
		for _, ro := range todo {
			if t := c.due(ro); ro.active && t.Before(next) {
				next = t
			}
		}
		if err := c.pause(ctx, next); err != nil {
			return err
		}
	}
}

// pass looks at everything that rolls, then begins what there is room for. It
// returns how many rollouts are left.
func (c *campaign) pass(ctx context.Context, todo []*rollout) (left int, err error) {
	if _, fatal := c.mirror.trouble(); fatal != nil {
		return 0, fatal
	}
	active := 0
	for _, ro := range todo {
		if !ro.active {
			continue
		}
		if err := c.advance(ctx, ro, todo); err != nil {
			return 0, err
		}
		if ro.active {
			active++
		}
	}
	alone := false
	for _, ro := range todo {
		alone = alone || isCoreDNS(ro.owner) && !ro.done
	}
	for _, ro := range todo {
		if ro.active || ro.done || active >= c.MaxParallel || alone && (!isCoreDNS(ro.owner) || active > 0) {
			continue
		}
		ro.active, ro.since = true, c.Clock.Now()
		if err := c.advance(ctx, ro, todo); err != nil {
			return 0, err
		}
		if ro.active {
			active++
		} else if isCoreDNS(ro.owner) {
			alone = false
		}
	}
	for _, ro := range todo {
		if !ro.done {
			left++
		}
	}
	return left, nil
}

// advance takes one rollout as far as it goes now.
func (c *campaign) advance(ctx context.Context, ro *rollout, todo []*rollout) error {
	name := ro.owner.String()
	for {
		if ctx.Err() != nil {
			return interrupted(ctx)
		}
		ro.view = c.mirror.view(ro.owner, ro.pods, c.minor)
		a := c.last[name]
		switch d := decide(ro.view, a, c.stamps[1]); d.act {
		case actDone:
			return c.finish(ro, a)
		case actClose:
			l := landed{UID: ro.view.UID}
			if d.result == state.Found {
				l.Generation = ro.view.Generation
			}
			if err := c.outcome(name, d.result, d.text, l); err != nil {
				return err
			}
		case actPinned:
			ro.active, ro.done = false, true
			return c.rec.Record(state.Record{Kind: state.RecordWarning, Text: fmt.Sprintf("%s can no longer be restarted: %s", state.Clean(name), d.text)})
		case actResend:
			return c.send(ctx, ro, a)
		case actExhausted:
			if sure, err := c.confirm(ctx, ro); err != nil {
				return err
			} else if !sure {
				return c.watchOver(ro, todo)
			}
			return c.stop(ro, todo, state.ExitBlocked, d.text,
				"see which nodes its pods get (kubectl get pods -o wide) and whether a controller reverts the annotation;\n"+
					"restart it by hand or name it under restart.skip in the plan file, then run the same command again")
		case actRestart:
			if a.Number > 0 || touched(c.stamps[1], ro.view.Stamp) {
				if sure, err := c.confirm(ctx, ro); err != nil {
					return err
				} else if !sure {
					return c.watchOver(ro, todo)
				}
			}
			return c.restart(ctx, ro, a)
		case actForeign:
			if err := c.noteForeign(ro, d.text); err != nil {
				return err
			}
			return c.watchOver(ro, todo)
		default:
			return c.watchOver(ro, todo)
		}
	}
}

// finish marks a rollout as done and closes its attempt.
func (c *campaign) finish(ro *rollout, a attempt) error {
	ro.active, ro.done = false, true
	if a.Seq == 0 || ro.view.Found && ro.view.Stamp != a.Stamp {
		return nil // not restarted by us, or not by us in the end
	}
	result, text := state.Succeeded, fmt.Sprintf("%s: %s on %s", ro.owner, plural(ro.view.current(), "pod"), c.minor)
	if !ro.view.Found {
		result, text = state.Unknown, ro.owner.String()+" was deleted meanwhile"
	}
	if err := c.rec.Outcome(a.Seq, result, state.Clean(text), a.landed); err != nil {
		return fmt.Errorf("record that %s is restarted: %w", ro.owner, err)
	}
	a.Open = false
	c.last[ro.owner.String()] = a
	c.moved = true
	return nil
}

// restart begins a new attempt: the intent is durable before the patch is sent.
func (c *campaign) restart(ctx context.Context, ro *rollout, a attempt) error {
	name := ro.owner.String()
	n := attempt{Number: a.Number + 1, Open: true, landed: landed{UID: ro.view.UID}}
	n.Stamp = stampFor(c.stamps, n.Number, ro.view.Stamp, c.Clock.Now())
	seq, err := c.rec.Intent("k8s:patch "+resource(ro.owner), state.Clean(name), stamped{Owner: name, UID: ro.view.UID,
		Attempt: n.Number, Stamp: n.Stamp, Before: ro.view.Stamp}, nil)
	if err != nil {
		return fmt.Errorf("write the restart of %s to the journal: %w", name, err)
	}
	n.Seq = seq
	c.last[name] = n
	return c.send(ctx, ro, n)
}

// watchOver looks whether a rollout under way has failed or takes too long.
func (c *campaign) watchOver(ro *rollout, todo []*rollout) error {
	now := c.Clock.Now()
	text, fatal := ro.view.trouble()
	if text == "" {
		ro.troubled = time.Time{}
	} else if ro.troubled.IsZero() {
		ro.troubled = now
	}
	if text != "" && (fatal || now.Sub(ro.troubled) >= c.Grace) {
		if a := c.last[ro.owner.String()]; a.Seq > 0 && !a.Open {
			if err := c.rec.Outcome(a.Seq, state.Failed, state.Clean(ro.owner.String()+": "+text), a.landed); err != nil {
				return fmt.Errorf("record that %s fails: %w", ro.owner, err)
			}
		}
		return c.stop(ro, todo, state.ExitBlocked, "its new pods do not come up: "+text,
			"mend it (kubectl describe pod, kubectl logs), or name it under restart.skip in the plan file;\nthen run the same command again")
	}
	if now.Sub(ro.since) < c.Timeout {
		return nil
	}
	why := fmt.Sprintf("not done after %s: %s", c.Timeout, ro.view.unsettled())
	if newest := ro.view.newest(); newest != "" {
		why += "; " + newest
	}
	if text, _ := c.mirror.trouble(); text != "" {
		why += "; " + text
	}
	return c.stop(ro, todo, state.ExitResumable, why,
		"run the same command again to go on waiting, or raise restart.timeout in the plan file")
}

// stop names the workload, and says what of the rest is untouched.
func (c *campaign) stop(ro *rollout, todo []*rollout, code state.Exit, why, cure string) error {
	text := fmt.Sprintf("%s: %s", ro.owner, why)
	waiting, rolling := 0, 0
	for _, o := range todo {
		switch {
		case o == ro || o.done:
		case o.active:
			rolling++
		default:
			waiting++
		}
	}
	if rolling > 0 {
		text += fmt.Sprintf("; %s still rolling", plural(rolling, "other workload"))
	}
	if waiting > 0 {
		text += fmt.Sprintf("; %s not begun, untouched", plural(waiting, "workload"))
	}
	return &state.Stop{Code: code, Why: state.Clean(text), Cure: cure}
}

// confirm asks a fresh inventory whether the owner still has a lagging pod that does
// not leave: a watch may be behind, and a restart too many is an outage too many.
func (c *campaign) confirm(ctx context.Context, ro *rollout) (bool, error) {
	now := c.Clock.Now()
	if !ro.confirmed.IsZero() && now.Sub(ro.confirmed) < confirmEvery {
		return false, nil
	}
	ro.confirmed = now
	inv, err := c.inventory(ctx)
	if err != nil {
		return false, err
	}
	place := places(inv, c.minor)
	for _, p := range inv.Pods {
		if p.Owner.String() == ro.owner.String() && !p.Finished && !p.Terminating && place(p.Node) == lagging {
			return true, nil
		}
	}
	return false, nil
}

// noteForeign records once that somebody else's restart is waited for.
func (c *campaign) noteForeign(ro *rollout, text string) error {
	if ro.noted == ro.view.Stamp {
		return nil
	}
	ro.noted = ro.view.Stamp
	err := c.rec.Record(state.Record{Kind: state.RecordNote, Text: fmt.Sprintf("%s %s; waiting for that rollout", state.Clean(ro.owner.String()), text)})
	if err != nil {
		return fmt.Errorf("record the restart of %s by somebody else: %w", ro.owner, err)
	}
	return nil
}

// due is when an active rollout has to be looked at though nothing happens.
func (c *campaign) due(ro *rollout) time.Time {
	t := ro.since.Add(c.Timeout)
	if !ro.troubled.IsZero() {
		t = earlier(t, ro.troubled.Add(c.Grace))
	}
	if !ro.confirmed.IsZero() && ro.confirmed.Add(confirmEvery).After(c.Clock.Now()) {
		t = earlier(t, ro.confirmed.Add(confirmEvery))
	}
	return t
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// say tells the progress, at most once a tick and at least once a heartbeat, and
// returns when it wants to be asked again.
func (c *campaign) say(todo []*rollout) time.Time {
	now := c.Clock.Now()
	if !c.saidAt.IsZero() && now.Sub(c.saidAt) < tick {
		return c.saidAt.Add(tick)
	}
	text := c.progress(todo)
	if text == c.said && now.Sub(c.saidAt) < c.Heartbeat {
		return c.saidAt.Add(c.Heartbeat)
	}
	c.rec.Waiting(text)
	c.said, c.saidAt = text, now
	return now.Add(c.Heartbeat)
}

// progress is the state of the whole restart in one line.
func (c *campaign) progress(todo []*rollout) string {
	left := map[string]bool{}
	var rolling []string
	newest := ""
	for _, ro := range todo {
		if ro.done {
			continue
		}
		left[ro.owner.String()] = true
		if ro.active {
			rolling = append(rolling, ro.owner.String())
			if n := ro.view.newest(); n != "" && newest == "" {
				newest = n
			}
		}
	}
	all, at := c.mirror.count(c.minor)
	parts := []string{fmt.Sprintf("%d of %s, %d of %s on %s", len(c.owners)-len(left), plural(len(c.owners), "workload"), at, plural(all, "pod"), c.minor)}
	if len(rolling) > 0 {
		parts = append(parts, "rolling "+first(rolling, 3))
	}
	if newest != "" {
		parts = append(parts, newest)
	}
	if text, _ := c.mirror.trouble(); text != "" {
		parts = append(parts, text)
	}
	return state.Clean(strings.Join(parts, "; "))
}

func resource(o cluster.Owner) string {
	if o.Kind == "StatefulSet" {
		return "statefulsets"
	}
	return "deployments"
}
