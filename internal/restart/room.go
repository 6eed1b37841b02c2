package restart

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/eksbg/eksbg/internal/fargate"
	"github.com/eksbg/eksbg/internal/restart/survey"
	"github.com/eksbg/eksbg/internal/state"
)

// capacity is what Fargate has left, as last read, and the bucket of its launch rate:
// it holds Burst tokens, fills by PerSecond, and each pod takes one.
type capacity struct {
	room fargate.Room
	// known is true once it was read, or could not be.
	known  bool
	tokens float64
	filled time.Time
	warned bool
	// result gives what the read that is under way gives, nil for none; came is what was
	// received of it and is not taken yet. cancel ends the read, begun is when it began.
	result chan reading
	came   *reading
	cancel context.CancelFunc
	begun  time.Time
	// next is when the next read is due, pause how long after the last one.
	next  time.Time
	pause time.Duration
}

// withLast gives a room in which what could not be read now is as it was last read: that
// a call failed says nothing about what is free.
func withLast(now, last fargate.Room) fargate.Room {
	if now.MilliCPU == fargate.Unknown {
		now.MilliCPU = last.MilliCPU
	}
	if now.Burst == fargate.Unknown || now.PerSecond == fargate.Unknown {
		now.Burst, now.PerSecond = last.Burst, last.PerSecond
	}
	now.Addresses, now.Free = lastCounts(now.Addresses, last.Addresses), lastCounts(now.Free, last.Free)
	subnets := maps.Clone(last.Subnets)
	if subnets == nil {
		subnets = map[string][]string{}
	}
	maps.Copy(subnets, now.Subnets)
	now.Subnets = subnets
	return now
}

func lastCounts(now, last map[string]int) map[string]int {
	out := maps.Clone(last)
	if out == nil {
		out = map[string]int{}
	}
	for k, n := range now {
		if _, ok := out[k]; !ok || n != fargate.Unknown {
			out[k] = n
		}
	}
	return out
}

// launches are the whole tokens in the bucket now.
func (f *capacity) launches(now time.Time) int {
	if f.room.Burst <= 0 || f.room.PerSecond <= 0 {
		return fargate.Unknown
	}
	f.tokens = min(float64(f.room.Burst), f.tokens+now.Sub(f.filled).Seconds()*float64(f.room.PerSecond))
	f.filled = now
	return int(f.tokens)
}

// launch takes the tokens of what begins.
func (f *capacity) launch(it survey.Item) { f.tokens = max(0, f.tokens-float64(it.Launches())) }

// admit begins what there is room for.
func (c *campaign) admit(ctx context.Context) error {
	for {
		active, todo, fresh := c.split()
		if len(todo) == 0 {
			c.waits, c.starved = nil, time.Time{}
			return nil
		}
		known, err := c.readRoom(ctx, active, todo)
		if err != nil || !known {
			return err
		}
		now := c.Clock.Now()
		c.admitted = now
		limits := survey.Limits{MaxParallel: c.MaxParallel, Room: c.fargate.room, Budgets: c.mirror.allowances(), Launches: c.fargate.launches(now)}
		begin, waits := survey.Next(active, todo, limits)
		c.waits = map[string]string{}
		for i, why := range waits {
			c.waits[fresh[i].name] = why
		}
		ended := false
		for _, i := range begin {
			w := fresh[i]
			if w.done {
				continue // left together with one that it has to wait for
			}
			if why := c.outdated(w); why != "" {
				if err := c.leave(w, why); err != nil {
					return err
				}
				ended = true
				continue
			}
			w.active, w.since = true, c.Clock.Now()
			c.fargate.launch(w.item)
			if err := c.advance(ctx, w); err != nil {
				return err
			}
			ended = ended || !w.active
		}
		if len(begin) == 0 && len(active) == 0 {
			if left, err := c.leaveOutdated(fresh); err != nil {
				return err
			} else if left {
				continue
			}
			return c.starve(todo, limits)
		}
		c.starved = time.Time{}
		if !ended {
			return nil
		}
	}
}

// leaveOutdated leaves what cannot begin and is not what was judged any more to the next
// round: by a fresh judgement it perhaps can.
func (c *campaign) leaveOutdated(fresh []*work) (left bool, err error) {
	for _, w := range fresh {
		if why := c.outdated(w); why != "" && !w.done {
			if err := c.leave(w, why); err != nil {
				return false, err
			}
			left = true
		}
	}
	return left, nil
}

// split sorts what is not done into what takes part of the limits and what has yet to
// begin.
func (c *campaign) split() (active, todo []survey.Item, fresh []*work) {
	for _, w := range c.todo {
		switch {
		case w.done:
		case !w.active:
			todo, fresh = append(todo, w.item), append(fresh, w)
		case c.takesPart(w):
			active = append(active, c.share(w))
		}
	}
	return active, todo, fresh
}

// takesPart tells whether a work takes part of the limits. What is only waited for takes
// none, except rollouts of this step.
func (c *campaign) takesPart(w *work) bool {
	return w.active && !w.done && (w.item.Works() || w.begun || c.last[w.name].Number > 0)
}

// share is what an active work takes of the limits. A rollout of which only old pods are
// left to terminate, which may take their whole grace period, makes room for the next. It
// counts in full again once one of its new pods is not ready any more: more than
// MaxParallel may be active then, and nothing begins until there is room again.
func (c *campaign) share(w *work) survey.Item {
	it := w.item
	if n := c.leaving(w); n > 0 {
		it.Leaving, it.Extra = true, n
	}
	return it
}

// leaving counts the pods that are left of a rollout of this step which is otherwise done.
// What others wait for (CoreDNS, webhook backends) is done when nothing is left of it.
func (c *campaign) leaving(w *work) int {
	a := c.last[w.name]
	if !w.active || w.done || w.method != survey.Rollout || w.item.Group != survey.Rest || a.Number == 0 || a.Open ||
		w.view.UID != a.UID || w.view.Generation < a.Generation || w.view.Stamp != a.Stamp {
		return 0
	}
	return w.view.leaving()
}

// starve keeps watch over a restart in which nothing can begin and nothing is under
// way: budgets and addresses may come free, but not for ever.
func (c *campaign) starve(todo []survey.Item, limits survey.Limits) error {
	now := c.Clock.Now()
	if c.starved.IsZero() {
		c.starved = now
	}
	blocked := survey.Blocked(todo, limits)
	if now.Sub(c.starved) < c.Timeout || len(blocked) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "nothing can begin for %s:", c.Timeout)
	for i, it := range todo {
		if why := blocked[i]; why != "" {
			b.WriteString("\n  " + state.Clean(it.Owner.String()+": "+why))
		}
	}
	return &state.Stop{Code: state.ExitResumable, Why: b.String(),
		Cure: "make room (raise the budget or the quota, free addresses: `eksbg jobs clean`), or name the owners under restart.skip in the plan file;\n" +
			"then run the same command again"}
}

// admitAt is when admission has to be tried again though nothing ends: launch tokens
// fill, and room may have come free. The zero time for not at all.
func (c *campaign) admitAt() time.Time {
	if c.fargate.result != nil && !c.fargate.known {
		return c.fargate.begun.Add(roomFirst)
	}
	if len(c.waits) == 0 {
		return time.Time{}
	}
	if f := &c.fargate; f.room.Burst > 0 && f.room.PerSecond > 0 && f.tokens < float64(f.room.Burst) {
		return f.filled.Add(time.Second)
	}
	return c.admitted.Add(roomEvery)
}

// admitDue tells whether admission has to be tried again now.
func (c *campaign) admitDue() bool {
	at := c.admitAt()
	return !at.IsZero() && !c.Clock.Now().Before(at)
}
