package restart

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/state"
)

// rollout is one owner that the step works on: one to restart, or one to wait for.
type rollout struct {
	owner cluster.Owner
	// pods are the lagging ones that the inventory showed.
	pods []cluster.Pod
	// active counts against MaxParallel.
	active, done bool
	// since is when this process began to wait for the newest attempt.
	since time.Time
	// troubled is since when a container fails to start.
	troubled time.Time
	// confirmed is when the inventory was last asked whether it really still lags.
	confirmed time.Time
	// noted is the foreign stamp that a note was written about.
	noted string
	view  view
}

// campaign is one Act: its watches, and what it knows of its own attempts.
type campaign struct {
	*Restart
	rec    state.Recorder
	mirror *mirror
	minor  string
	last   map[string]attempt
	stamps map[int]string
	// owners are all that this step has worked on, in this process or before it.
	owners map[string]bool
	said   string
	saidAt time.Time
	// moved is true once a pass changed something or had to wait.
	moved bool
}

// Act restarts what lags and returns when nothing of it is left, or with why it
// stopped. It begins nothing any more once ctx is cancelled; rollouts that have begun
// go on in the cluster and are found again on resume.
func (r *Restart) Act(ctx context.Context, rec state.Recorder) error {
	m, err := openMirror(ctx, r.Kubernetes)
	if err != nil {
		return err
	}
	defer m.close()
	c := &campaign{Restart: r, rec: rec, mirror: m, owners: map[string]bool{}}
	c.last, c.stamps = attempts(r.History.Records(r.spec.ID))
	for name := range c.last {
		c.owners[name] = true
	}
	if err := c.sync(ctx); err != nil {
		return err
	}
	quiet := r.Clock.Now()
	for round := 0; ; round++ {
		inv, err := r.inventory(ctx)
		if err != nil {
			return err
		}
		l := r.look(inv, c.last, c.stamps[1])
		c.minor = l.minor
		if stop := l.behind(); stop != nil {
			return stop
		}
		if round == 0 || !l.busy() {
			if err := c.recordCluster(l); err != nil {
				return err
			}
		}
		if !l.busy() {
			return c.end(l)
		}
		if err := c.wave(ctx, c.rollouts(l)); err != nil {
			return err
		}
		if c.moved {
			quiet = r.Clock.Now()
		} else if r.Clock.Since(quiet) >= r.Timeout {
			return &state.Stop{Code: state.ExitResumable, Why: "the lists and the watches of " + inv.Name + " disagree: " + l.todo(),
				Cure: "run the same command again"}
		} else if err := c.pause(ctx, r.Clock.Now().Add(time.Second)); err != nil {
			return err
		}
	}
}

// end is the last word: nothing is left, or only what nobody can restart.
func (c *campaign) end(l *look) error {
	if len(l.stuck) > 0 {
		return l.blocked()
	}
	return nil
}

func (c *campaign) recordCluster(l *look) error {
	v := l.view()
	err := c.rec.Record(state.Record{Kind: state.RecordCluster, Side: c.spec.Side, Cluster: &v,
		Text: fmt.Sprintf("%s, %d below %s", plural(v.Pods, "pod"), v.Lagging, l.minor)})
	if err != nil {
		return fmt.Errorf("record the cluster: %w", err)
	}
	return nil
}

// rollouts are what the look leaves to do, in order; what has begun already comes
// first, so that no more than MaxParallel roll at once after a resume either.
func (c *campaign) rollouts(l *look) []*rollout {
	var begun, fresh []*rollout
	add := func(items []Item) {
		for _, it := range items {
			ro := &rollout{owner: it.Owner, pods: it.Pods}
			c.owners[it.Owner.String()] = true
			if c.last[it.Owner.String()].Number > 0 {
				begun = append(begun, ro)
			} else {
				fresh = append(fresh, ro)
			}
		}
	}
	add(l.roll)
	add(l.hanging)
	add(l.leaving)
	return append(begun, fresh...)
}

// sync waits until the watches show the whole cluster.
func (c *campaign) sync(ctx context.Context) error {
	begin := c.Clock.Now()
	for _, informer := range c.mirror.informers() {
		for !informer.HasSynced() {
			text, fatal := c.mirror.trouble()
			switch {
			case fatal != nil:
				return fatal
			case c.Clock.Since(begin) >= c.Timeout:
				return &state.Stop{Code: state.ExitResumable, Why: fmt.Sprintf("the watches did not show the cluster within %s; %s", c.Timeout, text),
					Cure: "check that the API server can be reached and that you may list and watch pods, nodes and workloads;\nthen run the same command again"}
			case text != "":
				c.rec.Waiting(text)
			}
			if err := c.pauseFor(ctx, informer.HasSyncedChecker().Done(), c.Clock.Now().Add(c.Heartbeat)); err != nil {
				return err
			}
		}
	}
	return nil
}

// pause waits for a change in the cluster, or until the time.
func (c *campaign) pause(ctx context.Context, until time.Time) error {
	return c.pauseFor(ctx, nil, until)
}

func (c *campaign) pauseFor(ctx context.Context, other <-chan struct{}, until time.Time) error {
	timer := c.Clock.NewTimer(until.Sub(c.Clock.Now()))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return interrupted(ctx)
	case <-c.mirror.wake:
	case <-other:
	case <-timer.C():
	}
	return nil
}

// interrupted says why the context ended.
func interrupted(ctx context.Context) error {
	cause := context.Cause(ctx)
	if !errors.Is(cause, ctx.Err()) {
		cause = errors.Join(cause, ctx.Err())
	}
	return fmt.Errorf("restart: %w", cause)
}
