package restart

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/eksbg/eksbg/internal/restart/survey"
	"github.com/eksbg/eksbg/internal/state"
)

// tick is the shortest time between two lines of progress, confirmEvery that between
// two questions to the API server for the sake of one workload.
const (
	tick         = time.Second
	confirmEvery = 3 * time.Second
)

// wave works on everything in todo until all of it is done. Everything happens in this
// goroutine, woken by the watches; it looks at what has changed and at what is due.
func (c *campaign) wave(ctx context.Context, todo []*work) error {
	c.moved, c.waits, c.starved = false, nil, time.Time{}
	c.begin(todo)
	for again := true; ; {
		if _, fatal := c.mirror.trouble(); fatal != nil {
			return fatal
		}
		changed, limits := c.mirror.take()
		ended, err := c.pass(ctx, changed)
		if err != nil {
			return err
		}
		if again || ended || limits || c.roomCame() || c.admitDue() {
			if err := c.admit(ctx); err != nil {
				return err
			}
		}
		again = false
		if c.left() == 0 {
			return nil
		}
		c.moved = true
		if err := c.pause(ctx, c.nextDue()); err != nil {
			return err
		}
	}
}

// begin takes up a round's works. What is only waited for, and what is under way in the
// cluster since before, is active at once: admission is about what begins.
func (c *campaign) begin(todo []*work) {
	c.todo, c.index = todo, map[string][]*work{}
	unfinished := c.unfinished()
	for _, w := range todo {
		keys := []string{w.item.Owner.UID, w.item.Owner.Namespace + "/" + w.item.Owner.Name}
		for _, p := range w.item.Pods {
			keys = append(keys, p.UID)
		}
		for _, k := range keys {
			if k != "" {
				c.index[k] = append(c.index[k], w)
			}
		}
		w.begun = unfinished[w.name] != nil
		w.older = c.underWay(w)
		w.active = !w.item.Works() || w.begun || w.older
		w.since = c.Clock.Now()
	}
}

// underWay tells whether a restart that this step has begun still goes on.
func (c *campaign) underWay(w *work) bool {
	a := c.last[w.name]
	if a.Number == 0 {
		return false
	}
	v := c.mirror.view(w.item.Owner, w.item.Pods)
	return a.Open || w.method == survey.RestartAt && !a.Settled || w.method == survey.Rollout && v.Found && v.Stamp == a.Stamp && !v.complete()
}

// pass advances what is active and has changed or is due. It tells whether anything
// ended by that, has to be admitted anew, or has only pods left that terminate.
func (c *campaign) pass(ctx context.Context, changed map[string]bool) (ended bool, err error) {
	touched := map[*work]bool{}
	for k := range changed {
		for _, w := range c.index[k] {
			touched[w] = true
		}
	}
	now := c.Clock.Now()
	for _, w := range c.todo {
		if !w.active || !touched[w] && w.seen && now.Before(c.due(w)) {
			continue
		}
		before := c.leaving(w)
		if err := c.advance(ctx, w); err != nil {
			return false, err
		}
		ended = ended || !w.active || c.leaving(w) != before
	}
	return ended, nil
}

// advance takes one work as far as it goes now.
func (c *campaign) advance(ctx context.Context, w *work) error {
	w.seen, w.looked = true, c.Clock.Now()
	for {
		if ctx.Err() != nil {
			return interrupted(ctx)
		}
		w.view = c.mirror.view(w.item.Owner, w.item.Pods)
		if c.Clock.Now().Before(w.retry) {
			return nil
		}
		w.retry = time.Time{}
		again, err := c.machine(w)(ctx, w)
		if err != nil || !again || w.done {
			return err
		}
	}
}

// machine is what drives a work: it does the next thing and tells whether there may be
// another one right away.
func (c *campaign) machine(w *work) func(context.Context, *work) (bool, error) {
	switch w.method {
	case survey.Rollout:
		return c.rollOut
	case survey.Evict, survey.InOrder:
		return c.evictNext
	case survey.Surge:
		return c.surge
	case survey.RestartAt:
		return c.restartAt
	case survey.Recreate:
		return c.recreate
	}
	return c.attend
}

// attend waits for what goes by itself: Jobs, pods that terminate or get a node, rollouts
// of others, what was taken of an owner from which nothing more is.
func (c *campaign) attend(ctx context.Context, w *work) (bool, error) {
	if all := c.deeds(w.name, doEvict); owing(all) {
		return c.awaitTaken(ctx, w, all)
	}
	if w.view.unplaced() > 0 && len(w.view.standing()) == 0 {
		return false, c.watchOver(ctx, w)
	}
	if known(w.item.Owner) && w.item.Owner.Kind != "ReplicaSet" && w.item.Owner.Kind != "ReplicationController" {
		return c.rollOut(ctx, w)
	}
	if len(w.view.lagging()) == 0 && (!known(w.item.Owner) || w.view.clear()) {
		w.active, w.done = false, true
		return false, nil
	}
	return false, c.watchOver(ctx, w)
}

// left counts what is not done.
func (c *campaign) left() (n int) {
	for _, w := range c.todo {
		if !w.done {
			n++
		}
	}
	return n
}

// nextDue says the progress and gives when something has to be looked at though
// nothing changes.
func (c *campaign) nextDue() time.Time {
	next := c.say()
	for _, w := range c.todo {
		if t := c.due(w); w.active && t.Before(next) {
			next = t
		}
	}
	if t := c.admitAt(); !t.IsZero() && t.Before(next) {
		next = t
	}
	return next
}

// due is when an active work has to be looked at though nothing happens.
func (c *campaign) due(w *work) time.Time {
	t := w.since.Add(c.patience(w))
	if !w.troubled.IsZero() {
		t = earlier(t, w.troubled.Add(c.Grace))
	}
	if again := w.confirmed.Add(confirmEvery); !w.confirmed.IsZero() && w.looked.Before(again) {
		t = earlier(t, again)
	}
	if !w.retry.IsZero() {
		t = earlier(t, w.retry)
	}
	if !w.short.IsZero() {
		t = earlier(t, w.nextAsk())
	}
	for _, u := range w.pending {
		t = earlier(t, u.due(c.Pending))
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
func (c *campaign) say() time.Time {
	now := c.Clock.Now()
	if !c.saidAt.IsZero() && now.Sub(c.saidAt) < tick {
		return c.saidAt.Add(tick)
	}
	text := c.progress()
	if text == c.said && now.Sub(c.saidAt) < c.Heartbeat {
		return c.saidAt.Add(c.Heartbeat)
	}
	c.rec.Waiting(text)
	c.said, c.saidAt = text, now
	return now.Add(c.Heartbeat)
}

// progress is the state of the whole restart in one line.
func (c *campaign) progress() string {
	left, leaving := 0, 0
	var rolling []string
	newest, hold := "", ""
	for _, w := range c.todo {
		if w.done {
			continue
		}
		left++
		if !w.active {
			if why := c.waits[w.name]; hold == "" && why != "" && !c.starved.IsZero() {
				hold = w.name + " " + why
			}
			continue
		}
		if c.leaving(w) > 0 {
			leaving++
			continue
		}
		rolling = append(rolling, w.name)
		if n := w.newest(); n != "" && newest == "" {
			newest = n
		}
	}
	all, at := c.mirror.count()
	parts := []string{fmt.Sprintf("%d of %s, %d of %s on %s", len(c.owners)-left, plural(len(c.owners), "workload"), at, plural(all, "pod"), c.minor)}
	if len(rolling) > 0 {
		parts = append(parts, "rolling "+first(rolling, 3))
	}
	if leaving > 0 {
		parts = append(parts, "old pods of "+plural(leaving, "workload")+" terminate")
	}
	complaint, _ := c.mirror.trouble()
	if f := &c.fargate; f.result != nil && !f.known && c.Clock.Since(f.begun) >= c.Heartbeat {
		hold = "what Fargate has room for is being read"
	}
	for _, text := range []string{newest, hold, complaint} {
		if text != "" {
			parts = append(parts, text)
		}
	}
	return state.Clean(strings.Join(parts, "; "))
}

// newest is the newest thing that says why the work is not done, or "".
func (w *work) newest() string {
	if w.refused != "" {
		return w.refused
	}
	return w.view.newest()
}
