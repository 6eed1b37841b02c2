package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
)

// sayEvery is how often a wait for somebody else's Lease is told.
const sayEvery = 10 * time.Second

// watched is a foreign Lease under observation.
type watched struct {
	mark mark
	// at and said are by the monotonic clock: times asleep are not observed.
	at, said time.Time
}

// take makes the Lease ours: at once when it is free or its holder is dead, after its
// term when it is not renewed meanwhile. It returns *Held when it is.
func (c *claim) take(ctx context.Context) error {
	var w *watched
	var over mark
	why := ""
	for {
		err := c.try(ctx, over)
		if err == nil {
			if why != "" {
				c.note(why)
			}
			return nil
		}
		var f *foreign
		if !errors.As(err, &f) {
			return explain(c.cluster.Name, err)
		}
		holder, now := holderOf(f.lease), c.opt.Clock.Now()
		switch {
		case c.opt.Dead != nil && c.opt.Dead(holder):
			over = markOf(f.lease)
			why = fmt.Sprintf("took over the lock in cluster %s of %s, whose process is gone", c.cluster.Name, holder)
			continue
		case w == nil:
			w = &watched{mark: markOf(f.lease), at: now}
		case w.mark != markOf(f.lease):
			return &Held{Cluster: c.cluster.Name, Holder: holder}
		case now.Sub(w.at) >= termOf(f.lease):
			over = w.mark
			why = fmt.Sprintf("took over the lock in cluster %s of %s, who did not renew it for %s", c.cluster.Name, holder, termOf(f.lease))
			continue
		}
		c.wait(w, f.lease, holder, now)
		if err := c.sleep(ctx, poll); err != nil {
			return err
		}
	}
}

func (c *claim) wait(w *watched, l *coordinationv1.Lease, h Holder, now time.Time) {
	if c.opt.Waiting == nil || !w.said.IsZero() && now.Sub(w.said) < sayEvery {
		return
	}
	w.said = now
	left := termOf(l) - now.Sub(w.at)
	c.opt.Waiting(fmt.Sprintf("waiting for the lock in cluster %s, held by %s; free in %s at the latest unless it is renewed",
		c.cluster.Name, h, left.Round(time.Second)))
}

func (c *claim) sleep(ctx context.Context, d time.Duration) error {
	t := c.opt.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C():
		return nil
	}
}

// termOf is for how long a Lease stands: never less than our own term, which is what
// every eksbg relies on, and no longer than is bearable.
func termOf(l *coordinationv1.Lease) time.Duration {
	theirs := time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second
	return max(Term, min(theirs, longestTerm))
}
