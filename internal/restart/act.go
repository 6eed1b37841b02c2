package restart

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/restart/survey"
	"github.com/eksbg/eksbg/internal/state"
)

// work is one owner that the step works on: one to restart, or one to wait for.
type work struct {
	item survey.Item
	// name is the owner as plan files name it, method how it is restarted now; a rollout
	// that somebody reverts may go on as evictions.
	name   string
	method survey.Method
	// active is true from when it was begun, done once nothing is left of it; seen once
	// it was looked at while active.
	active, done, seen bool
	// begun is true where a deed was under way when the work was taken up, older where a
	// rollout was: what its controller complains of may be from before somebody mended it.
	begun, older bool
	// since is when this process began to wait for the newest thing that it did.
	since time.Time
	// troubled is since when a container fails to start, retry when something that was
	// refused for now is tried again, and refusals how often it was.
	troubled, retry time.Time
	refusals        int
	refused         string
	// confirmed is when the API server was last asked whether it really still lags.
	confirmed time.Time
	// looked is when it was last looked at.
	looked time.Time
	// noted is the foreign stamp that a note was written about.
	noted string
	// generation is the least that the watch has to show before anything is decided.
	generation int64
	// pending are the pods (by UID) that wait for the Fargate scheduler.
	pending map[string]unscheduled
	// short is since when a custom owner has fewer pods than it had and none on its way,
	// asked when it was asked for its number, and wants what that is; nil for not known.
	short, asked time.Time
	wants        *int
	// answers are the CoreDNS pods (by UID) that resolved the name; dumb is since when
	// one does not, and because of what.
	answers map[string]bool
	dumb    time.Time
	view    view
	// judged is what the survey that chose the method saw of the owner.
	judged judged
}

// errStale says that the watches no longer show what happens in the cluster.
var errStale = errors.New("the watches are behind the cluster")

// campaign is one Act: its watches, and what it knows of its own changes.
type campaign struct {
	*Restart
	*ledger
	mirror *mirror
	minor  string
	// controllers is true where the cluster has ReplicationControllers.
	controllers bool
	// todo is what this round works on, in order; index finds it by what changes.
	todo  []*work
	index map[string][]*work
	// owners are all that this step has worked on, in this process or before it.
	owners map[string]bool
	// reverted are the owners whose restart somebody takes back, and who does.
	reverted map[string]string
	fargate  capacity
	// outdatedBy is what was said about an owner that was not as it had been judged.
	outdatedBy map[string]string
	// toldPending are the pods (by UID) of which was said that they stay Pending.
	toldPending map[string]bool
	// waits say why what is not begun has to wait; starved is since when nothing at all
	// can begin.
	waits             map[string]string
	starved, admitted time.Time
	said              string
	saidAt            time.Time
	// differed are the owners of which a fresh list has shown other pods than the watches.
	differed map[string]bool
	// unmade are the bare pods that the API server has refused to make again: that is said.
	unmade map[string]bool
	// suspended is true once the CronJobs are held.
	suspended bool
	// moved is true once a pass changed something or had to wait.
	moved bool
}

// Act restarts what lags and returns when nothing of it is left, or with why it
// stopped. It begins nothing any more once ctx is cancelled; rollouts that have begun
// go on in the cluster and are found again on resume. What was changed only for the
// time of the restart (replicas, suspended CronJobs) is put back however it ends, and a
// bare pod that was evicted is made again first.
func (r *Restart) Act(ctx context.Context, rec state.Recorder) (err error) {
	c := &campaign{Restart: r, ledger: readLedger(r.History.Records(r.spec.ID), rec), owners: map[string]bool{},
		reverted: map[string]string{}, outdatedBy: map[string]string{}, toldPending: map[string]bool{},
		differed: map[string]bool{}, unmade: map[string]bool{}}
	for name := range c.last {
		c.owners[name] = true
	}
	for name, all := range c.byOwner {
		// A CronJob that is only held meanwhile is not restarted.
		c.owners[name] = c.owners[name] || slices.ContainsFunc(all, func(e *entry) bool { return e.Do != doSuspend })
	}
	maps.DeleteFunc(c.owners, func(_ string, worked bool) bool { return !worked })
	defer func() {
		ended := c.stopReading()
		err = c.putBack(ctx, err)
		ended()
		if c.mirror != nil {
			c.mirror.close()
		}
	}()
	return c.rounds(ctx)
}

// rounds looks at the whole cluster and works on what it shows, until that is nothing.
func (c *campaign) rounds(ctx context.Context) error {
	quiet, looking := c.Clock.Now(), c.firstLook
	for round := 0; ; round++ {
		l, err := looking(ctx)
		if err != nil {
			return err
		}
		looking = c.lookAgain
		if stop := l.behind(); stop != nil {
			return stop
		}
		if round == 0 || !l.busy() {
			if err := c.recordCluster(l); err != nil {
				return err
			}
		}
		if round == 0 {
			if err := c.leftManifests(ctx, l.inv); err != nil {
				return err
			}
		}
		if len(l.orphans) > 0 {
			if err := c.adopt(ctx, l.orphans); err != nil {
				return err
			}
			continue
		}
		if !l.busy() {
			return c.end(l)
		}
		if err := c.prepare(ctx, l); err != nil {
			return err
		}
		todo, name, left := c.works(l), l.inv.Name, l.todo()
		c.own = nil // a wave is long, and a list of thousands of pods large
		err = c.wave(ctx, todo)
		if errors.Is(err, errStale) {
			if err = c.reopen(ctx); err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		if c.moved {
			quiet = c.Clock.Now()
		} else if c.Clock.Since(quiet) >= c.Timeout {
			return &state.Stop{Code: state.ExitResumable, Why: "the lists and the watches of " + name + " disagree: " + left,
				Cure: "run the same command again"}
		} else if err := c.pause(ctx, c.Clock.Now().Add(time.Second)); err != nil {
			return err
		}
	}
}

// firstLook takes over what was seen of the cluster right before the step acts, unless
// there is nothing to do: that is told from a list of its own.
func (c *campaign) firstLook(ctx context.Context) (*look, error) {
	inv, err := c.glance(ctx)
	if err != nil {
		return nil, err
	}
	if l := c.judge(inv); l.busy() || inv == c.own {
		return l, nil
	}
	return c.lookAgain(ctx)
}

// lookAgain reads the cluster afresh.
func (c *campaign) lookAgain(ctx context.Context) (*look, error) {
	inv, err := c.inventory(ctx)
	if err != nil {
		return nil, err
	}
	return c.judge(inv), nil
}

// judge sorts an inventory by what is to be done.
func (c *campaign) judge(inv *cluster.Inventory) *look {
	l := c.look(inv, c.ledger, c.reverted)
	c.minor, c.controllers = l.minor, false
	for _, w := range inv.Workloads {
		c.controllers = c.controllers || w.Kind == "ReplicationController"
	}
	return l
}

// prepare opens the watches and does what comes before the first wave.
func (c *campaign) prepare(ctx context.Context, l *look) error {
	if c.mirror == nil {
		if err := c.reopen(ctx); err != nil {
			return err
		}
		if err := c.closeLost(); err != nil {
			return err
		}
	}
	if len(l.work) > 0 {
		return c.suspend(ctx, l.inv)
	}
	return nil
}

// reopen begins all watches anew.
func (c *campaign) reopen(ctx context.Context) error {
	if c.mirror != nil {
		c.mirror.close()
		c.mirror = nil
	}
	m, err := openMirror(ctx, c.Kubernetes, c.Clock, c.minor, c.controllers)
	if err != nil {
		return err
	}
	c.mirror = m
	return c.sync(ctx)
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

// works are what the look leaves to do, in order; what has begun already comes
// first, so that no more than MaxParallel roll at once after a resume either.
func (c *campaign) works(l *look) []*work {
	var begun, fresh []*work
	judged := judgements(l.inv)
	add := func(items []survey.Item) {
		for _, it := range items {
			w := &work{item: it, name: it.Owner.String(), method: it.Method, judged: judged(it.Owner)}
			c.owners[w.name] = true
			if c.last[w.name].Number > 0 || len(c.byOwner[w.name]) > 0 {
				begun = append(begun, w)
			} else {
				fresh = append(fresh, w)
			}
		}
	}
	add(l.work)
	add(l.hanging)
	add(l.leaving)
	return append(begun, fresh...)
}

// sync waits until the watches show the whole cluster, and have been counted.
func (c *campaign) sync(ctx context.Context) error {
	begin := c.Clock.Now()
	for _, told := range c.mirror.told {
		for !told.HasSynced() {
			text, fatal := c.mirror.trouble()
			switch {
			case fatal != nil:
				return fatal
			case c.Clock.Since(begin) >= c.Timeout:
				return &state.Stop{Code: state.ExitResumable, Why: fmt.Sprintf("the watches did not show the cluster within %s; %s", c.Timeout, text),
					Cure: "check that the API server can be reached and that you may list and watch pods, nodes, workloads and PodDisruptionBudgets;\n" +
						"then run the same command again"}
			case text != "" && c.Clock.Since(begin) >= aws.Budget(ctx, c.Timeout): // nothing was changed yet
				return &state.Stop{Code: state.ExitFailed, Why: "the watches do not show the cluster; " + text,
					Cure: "check that the API server can be reached and what it answers; then run the same command again"}
			case text != "":
				c.rec.Waiting(text)
			}
			if err := c.pauseFor(ctx, told.HasSyncedChecker().Done(), c.Clock.Now().Add(c.Heartbeat)); err != nil {
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
	case got := <-c.fargate.result:
		c.fargate.came = &got
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
