package restart

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/state"
)

// putBackTime bounds the whole put-back at the end of an Act, whatever ended it; bare pods
// that have to go first are waited for remakeTime.
const (
	putBackTime = time.Minute
	remakeTime  = 2 * time.Minute
)

// putBack restores what was changed for the time of the restart only: replicas,
// deletion costs, suspended CronJobs, bare pods that were evicted and are not made again
// yet. It also does so after an interrupt, and waits for no lock (semantics 14); once
// somebody else is known to have that, nothing more is changed. What cannot be put back is
// said with the command that does it, and stays owed in the journal.
func (c *campaign) putBack(ctx context.Context, cause error) error {
	owed, away := c.owed(), c.away()
	if len(owed)+len(away) == 0 {
		return cause
	}
	if state.LockLost(cause) || state.LockLost(context.Cause(ctx)) {
		return c.leaveMarked(cause)
	}
	c.rec = state.Unguarded(c.rec)
	atMost := putBackTime
	if len(away) > 0 {
		atMost = remakeTime
	}
	stopped := ctx.Err() != nil
	if stopped {
		if err := c.record(state.RecordNote, fmt.Sprintf("putting back %s before the run stops, for %s at most", plural(len(owed)+len(away), "change"), atMost)); err != nil {
			cause = errors.Join(cause, err) // and put back all the same
		}
	}
	ctx, cancel := context.WithTimeout(aws.Unwaiting(context.WithoutCancel(ctx), state.LockLost), atMost)
	defer cancel()
	failed, errs, lost := c.undoAll(ctx, append(owed, away...))
	switch {
	case lost != nil:
		return c.leaveMarked(lostMeanwhile(lost, cause))
	case len(errs) == 0:
		return cause
	}
	return c.notBack(cause, stopped, "not put back: "+state.Clean(errors.Join(errs...).Error()),
		"the same command puts it back when it can; by hand:\n"+strings.Join(failed, "\n"))
}

// ended is how an Act ended: Stop says it all, and cause is what is behind that.
type ended struct {
	*state.Stop
	cause error
}

// Unwrap gives the stop and the cause.
func (e *ended) Unwrap() []error { return []error{e.Stop, e.cause} }

// notBack is the stop for what ended the Act, with what is not put back behind it.
func (c *campaign) notBack(cause error, stopped bool, text, cure string) error {
	out := state.Stop{Code: state.ExitResumable, Why: text, Cure: cure}
	stop, ok := asStop(cause)
	switch {
	case ok:
		out = *stop
		out.Why, out.Cause = stop.Error()+"; "+text, nil
		out.Cure = strings.TrimSpace(stop.Cure + "\n" + cure)
	case stopped: // what that withheld is nothing of its own
		out.Code, out.Why = state.ExitInterrupted, "interrupted during "+c.spec.ID+"; "+text
	case cause != nil:
		out.Why = state.Clean(cause.Error()) + "; " + text
	}
	return &ended{&out, cause}
}

// lostMeanwhile is the end of a put-back during which somebody else took the lock.
func lostMeanwhile(lost, cause error) error {
	both := errors.Join(lost, cause)
	stop, ok := asStop(lost)
	if !ok || cause == nil {
		return both
	}
	out := *stop
	out.Why, out.Cause = stop.Error()+"\n"+cause.Error(), nil
	return &ended{&out, both}
}

// undoAll puts back one after the other, those first that need nothing to be waited for,
// and gives what it could not put back as commands. It ends with lost once somebody else
// has the lock.
func (c *campaign) undoAll(ctx context.Context, all []*entry) (failed []string, errs []error, lost error) {
	soon, cancel := context.WithTimeout(ctx, putBackTime)
	defer cancel()
	for _, e := range all {
		_, err := aws.Allow(ctx)
		switch {
		case err != nil:
		case e.Do == doStash:
			err = c.remake(ctx, e)
		default:
			err = c.undo(soon, e)
		}
		if state.LockLost(err) {
			return nil, nil, err
		}
		if err != nil {
			errs = append(errs, err)
			failed = append(failed, "  "+e.byHand())
		}
	}
	return failed, errs, nil
}

// leaveMarked says what is not put back because somebody else has the lock now: that run finds
// the marks, and putting them back under it would change what it has just set.
func (c *campaign) leaveMarked(cause error) error {
	var left []string
	for _, e := range append(c.owed(), c.away()...) {
		left = append(left, "  "+e.byHand())
	}
	text := "not put back, since somebody else has the lock now; a restart that finds the marks of replicas and CronJobs puts those back, and by hand it is\n" +
		strings.Join(left, "\n")
	if err := c.rec.Record(state.Record{Kind: state.RecordWarning, Text: state.Clean(strings.ReplaceAll(text, "\n", " "))}); err != nil {
		return errors.Join(cause, fmt.Errorf("record what is not put back: %w", err))
	}
	return cause
}

// undo puts one thing back, without pauses between its tries.
func (c *campaign) undo(ctx context.Context, e *entry) error {
	w := c.outside(e)
	for range releases {
		w.retry = time.Time{}
		if err := c.undoOnce(ctx, w, e); err != nil {
			return err
		}
		if !e.open() && !e.standing() {
			return nil
		}
	}
	return fmt.Errorf("put the replicas of %s back to %d: %s", state.Clean(e.Owner), e.From, w.refused)
}

// undoOnce takes one try at putting one thing back.
func (c *campaign) undoOnce(ctx context.Context, w *work, e *entry) error {
	switch e.Do {
	case doSuspend:
		return c.release(ctx, e)
	case doMark:
		return c.unmark(ctx, e)
	}
	if e.open() {
		if err := c.landed(ctx, w, e); err != nil || !e.standing() {
			return err
		}
	}
	return c.restore(ctx, w, e, true)
}

// unmark takes the deletion cost off a pod that is still there.
func (c *campaign) unmark(ctx context.Context, e *entry) error {
	ns, _, _ := strings.Cut(e.Owner, "/")
	p, err := c.Kubernetes.CoreV1().Pods(ns).Get(ctx, e.Object, metav1.GetOptions{})
	gone := apierrors.IsNotFound(err)
	if err != nil && !gone {
		return fmt.Errorf("read pod %s: %w", state.Clean(e.Object), err)
	}
	if gone || string(p.UID) != e.UID || p.DeletionTimestamp != nil || p.Annotations[corev1.PodDeletionCost] != leastCost {
		return c.settle(e.Seq, state.Succeeded, e.Owner+": nothing to take off "+e.Object, landed{})
	}
	var before *string
	if e.Before != "" {
		before = &e.Before
	}
	if err := c.patchCost(ctx, ns, e.Object, e.UID, before); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("take the deletion cost off pod %s: %w", state.Clean(e.Object), err)
	}
	return c.settle(e.Seq, state.Succeeded, e.Owner+": "+e.Object+" put back as it was", landed{})
}

// byHand is the command that puts it back.
func (e *entry) byHand() string {
	ns, rest, _ := strings.Cut(e.Owner, "/")
	kind, name, _ := strings.Cut(rest, "/")
	ns, kind, name = state.Clean(ns), strings.ToLower(state.Clean(kind)), state.Clean(name)
	switch e.Do {
	case doSuspend:
		return fmt.Sprintf("kubectl patch cronjob -n %s %s -p '{\"spec\":{\"suspend\":false}}'", ns, name)
	case doStash:
		return remakeByHand(ns, name)
	case doMark:
		return fmt.Sprintf("kubectl annotate pod -n %s %s %s-", ns, state.Clean(e.Object), corev1.PodDeletionCost)
	}
	return fmt.Sprintf("kubectl scale %s -n %s %s --replicas=%d", kind, ns, name, e.From)
}

func asStop(err error) (*state.Stop, bool) {
	var stop *state.Stop
	ok := errors.As(err, &stop)
	return stop, ok
}
