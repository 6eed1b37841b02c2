package restart

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/restart/survey"
	"github.com/eksbg/eksbg/internal/state"
)

// maxPending is how many pods of one owner are made anew because the Fargate scheduler
// does not place them: it does not reconsider some of them
// (aws/containers-roadmap#2654).
const maxPending = 3

// leastSeen is how long this process has to have seen a pod wait itself, however old it is:
// a first list may be from before the pod was scheduled.
const leastSeen = 10 * time.Second

// unscheduled is a pod that waits for the Fargate scheduler: since when as the API server's
// own times show it, and since when this process sees it.
type unscheduled struct {
	since, seen time.Time
	// deleted is true once it was: it is gone as soon as the watch shows that.
	deleted bool
}

// due is when it has waited for that long.
func (u unscheduled) due(patience time.Duration) time.Time {
	return latest(u.since.Add(patience), u.seen.Add(min(patience, leastSeen)))
}

// wakeScheduler deletes a pod that has waited for the Fargate scheduler for too long, so
// that its controller makes another one. Pods of owners that are only waited for and
// pods that are meant to end are told of and left alone.
func (c *campaign) wakeScheduler(ctx context.Context, w *work) error {
	now := c.Clock.Now()
	waiting := map[string]unscheduled{}
	for _, p := range w.view.Pods {
		if !p.Waiting || p.Terminating || w.method == survey.Recreate {
			continue
		}
		u, ok := w.pending[p.UID]
		if !ok {
			u = unscheduled{since: now, seen: now}
		}
		if !u.deleted {
			u.since = earlier(u.since, now.Add(-c.mirror.times.age(p.Created)))
		}
		waiting[p.UID] = u
		if now.Before(u.due(c.Pending)) {
			continue
		}
		if w.method == survey.Wait || p.Once || runsOnce(w.item.Owner) {
			delete(waiting, p.UID)
			if err := c.tellPending(w, p, now.Sub(u.since)); err != nil {
				return err
			}
			continue
		}
		if len(c.deeds(w.name, doPending)) >= maxPending {
			delete(waiting, p.UID)
			continue
		}
		if err := c.makeAnew(ctx, w, p, now.Sub(u.since)); err != nil {
			return err
		}
		waiting[p.UID] = unscheduled{since: now, seen: now, deleted: true}
	}
	w.pending = waiting
	return nil
}

// runsOnce tells whether the owner's controller counts a pod that is deleted as one that
// has failed (with backoffLimit 0 a Job then ends, and the pods of it that run with it).
func runsOnce(o cluster.Owner) bool {
	group, _ := groupVersion(o.APIVersion)
	return group == "batch" && (o.Kind == "Job" || o.Kind == "CronJob")
}

// tellPending says once of a pod that it is Pending and why nothing is done about it.
func (c *campaign) tellPending(w *work, p podView, after time.Duration) error {
	if c.toldPending[p.UID] {
		return nil
	}
	c.toldPending[p.UID] = true
	return c.record(state.RecordWarning, fmt.Sprintf("%s: pod %s is Pending under the Fargate scheduler for at least %s; not deleted, since that may fail what it is part of: "+
		"delete it by hand if its owner makes another one", w.name, p.Name, after.Round(time.Second)))
}

func (c *campaign) makeAnew(ctx context.Context, w *work, p podView, after time.Duration) error {
	seq, err := c.intend("k8s:delete pods", podName(w, p), deed{Do: doPending, Owner: w.name, Object: p.Name, UID: p.UID}, nil)
	if err != nil {
		return err
	}
	uid, since := types.UID(p.UID), w.since
	err = c.Kubernetes.CoreV1().Pods(w.item.Owner.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsConflict(err) {
		return c.settle(seq, state.Rejected, w.name+": "+p.Name+" is another pod by now", landed{})
	}
	if err == nil {
		err = c.record(state.RecordWarning, fmt.Sprintf("%s: pod %s was Pending under the Fargate scheduler for at least %s; deleted so that another one is made",
			w.name, p.Name, after.Round(time.Second)))
		if err != nil {
			return err
		}
	}
	err = c.sent(w, seq, answer{err: err, did: "deleted " + p.Name + ", which was not scheduled", what: "delete a Pending pod of", verb: "delete pods", gone: state.Found})
	w.since = since // its time goes on: the owner is no further than before
	return err
}

// closeLost settles what a process that died did not hear the outcome of and what
// nothing else looks up: pods deleted, or marked.
func (c *campaign) closeLost() error {
	for _, e := range c.all {
		if !e.open() || e.Do != doPending {
			continue
		}
		result, text := state.Rejected, e.Object+" is still there"
		o := itemNamed(e.Owner, "").Owner
		if p := c.mirror.pod(o.Namespace, e.Object); p == nil || string(p.UID) != e.UID || p.DeletionTimestamp != nil {
			result, text = state.Found, e.Object+" is gone"
		}
		if err := c.settle(e.Seq, result, e.Owner+": "+text, landed{}); err != nil {
			return err
		}
	}
	return nil
}
