package restart

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/state"
)

// fieldManager is the name under which the API server keeps what eksbg has set.
const fieldManager = "eksbg"

// The annotations that mark what eksbg has changed for the time of a restart only, so
// that it knows its own change from somebody else's.
const (
	// surgeAnnotation is on a ReplicaSet or ReplicationController with a replica more.
	surgeAnnotation = cluster.SurgeAnnotation
	// suspendAnnotation is on a CronJob that is suspended for the restart.
	suspendAnnotation = cluster.SuspendAnnotation
	// recreateAnnotation is on a PodTemplate that keeps a bare pod's manifest: its UID.
	recreateAnnotation = "eksbg.dev/recreates"
)

// The pauses between two tries of what the API server refuses for now.
const (
	firstPause   = 2 * time.Second
	longestPause = 30 * time.Second
)

// answer is what came back from a change.
type answer struct {
	err error
	// did says what is done when there is no error; what and verb are for errors: "restart",
	// "patch deployments".
	did, what, verb string
	at              landed
	// gone is the result when the object is not there any more; Rejected where empty.
	gone state.Result
}

// sent records what came of a change. An error that leaves open whether the change
// landed leaves its intent open too.
func (c *campaign) sent(w *work, seq int64, a answer) error {
	c.moved = true
	switch err := a.err; {
	case err == nil:
		w.since, w.refusals, w.refused = c.Clock.Now(), 0, ""
		w.generation = max(w.generation, a.at.Generation)
		return c.settle(seq, state.Accepted, w.name+": "+a.did, a.at)
	case apierrors.IsNotFound(err):
		if a.gone != "" {
			w.since = c.Clock.Now()
			return c.settle(seq, a.gone, w.name+": it is gone", landed{})
		}
		w.active, w.done = false, true
		return c.settle(seq, state.Rejected, w.name+": it is gone", landed{})
	case !ending(err) && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)):
		said := state.Clean(err.Error())
		if err := c.settle(seq, state.Rejected, w.name+": "+said, landed{}); err != nil {
			return err
		}
		return &state.Stop{Code: state.ExitBlocked, Why: fmt.Sprintf("the API server refuses to %s %s: %s", a.what, state.Clean(w.name), said),
			Cure: fmt.Sprintf("allow eksbg to %s in namespace %s (RBAC, admission webhooks), or name it under restart.skip in the plan file;\n"+
				"then run the same command again", a.verb, state.Clean(w.item.Owner.Namespace))}
	}
	if later, err := c.later(w, a.err); later {
		return err
	}
	return fmt.Errorf("%s %s: %w", a.what, state.Clean(w.name), a.err)
}

// ending tells whether an error says that the namespace is being deleted: nothing is
// created in it any more, evictions included, and what is in it goes.
func ending(err error) bool { return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) }

// again goes on right away after a change that no watch shows, unless it was refused.
func (c *campaign) again(w *work, err error) (bool, error) {
	return err == nil && w.retry.IsZero(), err
}

// later tells whether an error of the API server is one that time cures (it restarts,
// is overloaded, an etcd leader is elected); the work is then looked at again after a
// growing pause. NotFound is neither: nil and false. Other errors are given back.
func (c *campaign) later(w *work, err error) (bool, error) {
	var status apierrors.APIStatus
	switch {
	case err == nil || apierrors.IsNotFound(err):
		return false, nil
	case !errors.As(err, &status):
		return false, err
	case ending(err):
		return true, c.awaitEnd(w, err)
	case apierrors.IsInternalError(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsTooManyRequests(err),
		apierrors.IsServiceUnavailable(err), apierrors.IsUnexpectedServerError(err), apierrors.IsConflict(err), utilnet.IsConnectionRefused(err):
		c.refuse(w, state.Clean(err.Error()), err)
		if c.Clock.Since(w.since) >= c.Timeout {
			return true, c.stop(w, state.ExitResumable, fmt.Sprintf("the API server has not taken it for %s: %s", c.Timeout, w.refused),
				"see why it answers so (an admission webhook that fails, an overload); then run the same command again")
		}
		return true, nil
	}
	return false, err
}

// outside is the work for what is done about an object outside the wave.
func (c *campaign) outside(e *entry) *work {
	return &work{name: e.Owner, item: itemNamed(e.Owner, e.UID), since: c.Clock.Now()}
}

// insist tries what is done outside the wave until the API server takes it, with the
// pauses and the end that later has for what is done in it. NotFound is given back, and
// what the lock withholds: that has been waited for.
func (c *campaign) insist(ctx context.Context, w *work, try func() error) error {
	for {
		w.retry = time.Time{}
		err := try()
		later, ended := false, err
		var withheld *state.Withheld
		if !apierrors.IsNotFound(err) && !errors.As(err, &withheld) {
			later, ended = c.later(w, err)
		}
		if ended != nil || !later && w.retry.IsZero() {
			return ended
		}
		c.rec.Waiting(state.Clean(w.name + ": " + w.refused))
		if err := c.rest(ctx, w.retry); err != nil {
			return err
		}
	}
}

// awaitEnd waits until a namespace that is being deleted has gone with the pods in it.
func (c *campaign) awaitEnd(w *work, err error) error {
	ns := state.Clean(w.item.Owner.Namespace)
	why := "namespace " + ns + " is being deleted: waiting until its pods have gone"
	if w.refusals == 0 {
		if err := c.record(state.RecordNote, w.name+": "+why); err != nil {
			return err
		}
	}
	c.refuse(w, why, err)
	if c.Clock.Since(w.since) < c.Timeout {
		return nil
	}
	return c.stop(w, state.ExitResumable, fmt.Sprintf("namespace %s is being deleted, and its pods have not gone for %s", ns, c.Timeout),
		"see what holds it (kubectl get namespace "+ns+" -o yaml: conditions and finalizers); then run the same command again")
}

// refuse remembers why something is not done yet, and when to try it again.
func (c *campaign) refuse(w *work, why string, err error) {
	pause := min(firstPause<<min(w.refusals, 8), longestPause)
	if s, ok := apierrors.SuggestsClientDelay(err); ok && s > 0 {
		pause = max(pause, min(time.Duration(s)*time.Second, longestPause))
	}
	w.refusals++
	w.refused, w.retry = why, c.Clock.Now().Add(pause)
}

// patience is how long a work may take.
func (c *campaign) patience(w *work) time.Duration {
	if w.waitsForJobs() {
		return c.JobTimeout
	}
	return c.Timeout
}

// watchOver looks whether a work under way has failed or takes too long.
func (c *campaign) watchOver(ctx context.Context, w *work) error {
	now := c.Clock.Now()
	if err := c.wakeScheduler(ctx, w); err != nil {
		return err
	}
	text, fatal := w.view.trouble()
	fatal = fatal && (text != w.view.Deadline || !w.older)
	if text == "" {
		w.troubled = time.Time{}
	} else if w.troubled.IsZero() {
		w.troubled = now
	}
	if text != "" && (fatal || now.Sub(w.troubled) >= c.Grace) {
		if err := c.failed(w, text); err != nil {
			return err
		}
		return c.stop(w, state.ExitBlocked, "its new pods do not come up: "+text,
			"mend it (kubectl describe pod, kubectl logs), or name it under restart.skip in the plan file;\nthen run the same command again")
	}
	if now.Sub(w.since) < c.patience(w) {
		return nil
	}
	if err := c.stale(ctx, w); err != nil {
		return err
	}
	return c.timedOut(w)
}

// failed records that what was begun last for a work does not come up.
func (c *campaign) failed(w *work, text string) error {
	if a := c.last[w.name]; a.Seq > 0 && !a.Open {
		return c.settle(a.Seq, state.Failed, w.name+": "+text, a.landed)
	}
	for _, e := range c.byOwner[w.name] {
		if (e.Do == doEvict || e.Do == doCreate) && e.standing() {
			if err := c.settle(e.Seq, state.Failed, w.name+": "+text, landed{}); err != nil {
				return err
			}
		}
	}
	return nil
}
