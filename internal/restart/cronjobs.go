package restart

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/state"
)

// suspendAll is the value of Deps.CronJobs that holds CronJobs during the restart.
const suspendAll = "suspend"

// undoSuspend is how a suspension is put back.
type undoSuspend struct {
	Suspend bool   `json:"suspend"`
	Mark    string `json:"mark"`
}

// suspend holds every CronJob that nobody holds, once a campaign, before anything is
// restarted. Each is marked, so that only what eksbg has suspended is put back.
func (c *campaign) suspend(ctx context.Context, inv *cluster.Inventory) error {
	if c.CronJobs != suspendAll || c.suspended {
		return nil
	}
	c.suspended = true
	mark := c.Clock.Now().UTC().Format(time.RFC3339)
	for _, cj := range inv.CronJobs {
		if ctx.Err() != nil {
			return interrupted(ctx)
		}
		e := c.newest(cj.String(), doSuspend)
		switch {
		case e != nil && e.UID == cj.UID && e.standing():
			continue // by this step, before the process died
		case e != nil && e.UID == cj.UID && e.open():
			if err := c.holdAgain(ctx, cj, e); err != nil {
				return err
			}
			continue
		case cj.Suspended:
			continue
		}
		if err := c.holdFirst(ctx, cj, mark); err != nil {
			return err
		}
	}
	return nil
}

// holdFirst suspends one CronJob.
func (c *campaign) holdFirst(ctx context.Context, cj cluster.CronJob, mark string) error {
	seq, err := c.intend("k8s:patch cronjobs", cj.String(), deed{Do: doSuspend, Owner: cj.String(), Object: cj.Name, UID: cj.UID, Mark: mark},
		undoSuspend{Mark: mark})
	if err != nil {
		return err
	}
	return c.hold(ctx, cj, seq, mark)
}

// hold suspends one CronJob whose intent is durable, and waits while the API server does
// not take that for now.
func (c *campaign) hold(ctx context.Context, cj cluster.CronJob, seq int64, mark string) error {
	return c.insist(ctx, c.outside(c.bySeq[seq]), func() error { return c.holdOnce(ctx, cj, seq, mark) })
}

// holdOnce takes one try, at the CronJob as it was listed: one that somebody has suspended
// since stays theirs. One that was made anew since is another one, with an intent of its
// own.
func (c *campaign) holdOnce(ctx context.Context, cj cluster.CronJob, seq int64, mark string) error {
	var err error
	version := cj.ResourceVersion
	for range releases {
		if err := c.guard("k8s:patch cronjobs", cj.String()); err != nil {
			return err
		}
		var now *batchv1.CronJob
		if now, err = c.patchCronJob(ctx, cj.Owner, true, &mark, version, cj.UID); err == nil {
			return c.settle(seq, state.Accepted, cj.String()+": suspended", landed{UID: cj.UID, Generation: now.Generation})
		}
		// The API server answers 422 to a UID that is not the object's, 409 where somebody
		// has written it at the same moment.
		var live *batchv1.CronJob
		if apierrors.IsInvalid(err) || apierrors.IsConflict(err) {
			var getErr error
			if live, getErr = c.Kubernetes.BatchV1().CronJobs(cj.Namespace).Get(ctx, cj.Name, metav1.GetOptions{}); getErr != nil {
				err, live = getErr, nil
			}
		}
		switch {
		case apierrors.IsNotFound(err):
			return c.settle(seq, state.Rejected, cj.String()+": it is gone", landed{})
		case live != nil && string(live.UID) != cj.UID:
			if err := c.settle(seq, state.Rejected, cj.String()+": it was made anew", landed{}); err != nil || suspended(live) {
				return err
			}
			cj.UID, cj.ResourceVersion = string(live.UID), live.ResourceVersion
			return c.holdFirst(ctx, cj, mark)
		case live != nil && live.Annotations[suspendAnnotation] == mark: // sent twice
			return c.settle(seq, state.Found, cj.String()+": suspended", landed{UID: cj.UID, Generation: live.Generation})
		case live != nil && suspended(live):
			return c.settle(seq, state.Rejected, cj.String()+": somebody else has suspended it", landed{})
		case apierrors.IsConflict(err) && live != nil:
			version = live.ResourceVersion
			continue
		}
		break
	}
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		said := state.Clean(err.Error())
		if err := c.settle(seq, state.Rejected, cj.String()+": "+said, landed{}); err != nil {
			return err
		}
		return &state.Stop{Code: state.ExitBlocked, Why: fmt.Sprintf("the API server refuses to suspend %s: %s", state.Clean(cj.String()), said),
			Cure: "allow eksbg to patch cronjobs in namespace " + state.Clean(cj.Namespace) + ", or set restart.cronJobs: run in the plan file;\nthen run the same command again"}
	}
	return fmt.Errorf("suspend %s: %w", state.Clean(cj.String()), err)
}

// holdAgain settles a suspension that nobody knows the outcome of. The inventory tells
// whether the CronJob is suspended, the mark whether by this step.
func (c *campaign) holdAgain(ctx context.Context, cj cluster.CronJob, e *entry) error {
	var live *batchv1.CronJob
	err := c.insist(ctx, c.outside(e), func() (err error) {
		live, err = c.Kubernetes.BatchV1().CronJobs(cj.Namespace).Get(ctx, cj.Name, metav1.GetOptions{})
		return err
	})
	_, stopped := asStop(err)
	switch {
	case apierrors.IsNotFound(err):
		return c.settle(e.Seq, state.Unknown, cj.String()+": it is gone", landed{})
	case stopped:
		return err
	case err != nil:
		return fmt.Errorf("look whether %s is suspended: %w", state.Clean(cj.String()), err)
	case live.Annotations[suspendAnnotation] == e.Mark:
		return c.settle(e.Seq, state.Found, cj.String()+": suspended", landed{UID: cj.UID})
	case suspended(live):
		return c.settle(e.Seq, state.Rejected, cj.String()+": somebody else has suspended it", landed{})
	}
	return c.hold(ctx, cj, e.Seq, e.Mark)
}

func suspended(cj *batchv1.CronJob) bool { return cj.Spec.Suspend != nil && *cj.Spec.Suspend }

// release puts one CronJob back, unless it is no longer this step's to put back.
func (c *campaign) release(ctx context.Context, e *entry) error {
	ns, _, _ := strings.Cut(e.Owner, "/")
	o := cluster.Owner{Namespace: ns, Kind: "CronJob", Name: e.Object}
	var conflict error
	for range releases {
		live, err := c.Kubernetes.BatchV1().CronJobs(ns).Get(ctx, e.Object, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return c.settle(e.Seq, state.Unknown, e.Owner+": it is gone", landed{})
		case err != nil:
			return fmt.Errorf("read %s: %w", state.Clean(e.Owner), err)
		case live.Annotations[suspendAnnotation] != e.Mark:
			result, text := state.Unknown, e.Owner+": the suspension is no longer eksbg's to put back"
			switch {
			case e.open():
				result, text = state.Rejected, e.Owner+": was not suspended"
			case !suspended(live): // by this step too, whose answer was lost
				result, text = state.Succeeded, e.Owner+": is put back, it runs again"
			}
			return c.settle(e.Seq, result, text, landed{})
		}
		_, err = c.patchCronJob(ctx, o, false, nil, live.ResourceVersion, "")
		switch {
		case err == nil:
			return c.settle(e.Seq, state.Succeeded, e.Owner+": put back, it runs again", landed{})
		case !apierrors.IsConflict(err):
			return fmt.Errorf("put %s back: %w", state.Clean(e.Owner), err)
		}
		conflict = err
	}
	return fmt.Errorf("put %s back: somebody else writes it all the time: %w", state.Clean(e.Owner), conflict)
}

// releases is how often a CronJob is read anew because somebody wrote it meanwhile.
const releases = 5

// patchCronJob sets suspend and the mark (nil takes it away) of the object with the UID,
// or of exactly that version.
func (c *campaign) patchCronJob(ctx context.Context, o cluster.Owner, suspend bool, mark *string, version, uid string) (*batchv1.CronJob, error) {
	meta := map[string]any{"annotations": map[string]*string{suspendAnnotation: mark}}
	if uid != "" {
		meta["uid"] = uid
	}
	if version != "" {
		meta["resourceVersion"] = version
	}
	body, err := json.Marshal(map[string]any{"metadata": meta, "spec": map[string]any{"suspend": suspend}})
	if err != nil {
		return nil, fmt.Errorf("write the patch: %w", err)
	}
	return c.Kubernetes.BatchV1().CronJobs(o.Namespace).Patch(ctx, o.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
}
