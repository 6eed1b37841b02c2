package restart

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/restart/survey"
	"github.com/eksbg/eksbg/internal/state"
)

// leastCost makes a pod the first that its ReplicaSet lets go of when it shrinks
// (controller.kubernetes.io/pod-deletion-cost, KEP-2255).
var leastCost = strconv.Itoa(math.MinInt32)

// undoSurge is how a surge is put back.
type undoSurge struct {
	Replicas int32  `json:"replicas"`
	Mark     string `json:"mark"`
}

// surge drives a ReplicaSet or ReplicationController with one replica: one more is
// asked for, the old pod is marked as the one to go, and the number is put back.
func (c *campaign) surge(ctx context.Context, w *work) (bool, error) {
	e, v := c.newest(w.name, doSurge), w.view
	switch {
	case e != nil && e.open():
		return true, c.landed(ctx, w, e)
	case v.Found && v.Generation < w.generation:
		return false, c.watchOver(ctx, w) // the watch does not show it yet
	case e != nil && e.standing() && v.Found && v.UID == e.UID && v.Generation < e.Generation:
		return false, c.watchOver(ctx, w) // nor what a process before this one did
	case e != nil && e.standing() && (!v.Found || v.Mark != e.Mark):
		return c.disowned(ctx, w, e)
	case e != nil && e.standing():
		return c.shrink(ctx, w, e)
	case v.settledSurge():
		w.active, w.done, c.moved = false, true, true
		return false, c.forgetMarks(w)
	case v.Found && v.Desired > 1:
		w.method = survey.Evict // somebody has scaled it meanwhile
		return true, nil
	case !v.Found || len(v.standing()) == 0 || !v.counted():
		return false, c.watchOver(ctx, w)
	case surges(c.deeds(w.name, doSurge)) >= maxAttempts:
		return false, c.stop(w, state.ExitBlocked, fmt.Sprintf("still lags after %d replicas more: %s", maxAttempts, v.unsettled()),
			"see which nodes its pods get (kubectl get pods -o wide);\nmove them by hand or name it under restart.skip in the plan file, then run the same command again")
	}
	if e != nil {
		if sure, err := c.confirm(ctx, w); err != nil || !sure {
			if err == nil {
				err = c.watchOver(ctx, w)
			}
			return false, err
		}
	}
	return false, c.grow(ctx, w)
}

// surges counts those that had their time: an interrupt uses no attempt up.
func surges(all []*entry) (n int) {
	for _, e := range all {
		if e.Result != state.Rejected && !e.Early {
			n++
		}
	}
	return n
}

// grow asks for one replica more, unless somebody has changed the object meanwhile.
func (c *campaign) grow(ctx context.Context, w *work) error {
	v, old := w.view, w.view.standing()[0]
	mark := c.Clock.Now().UTC().Format("20060102T150405Z") + "." + strconv.Itoa(int(v.Desired))
	seq, err := c.intend("k8s:patch "+resource(w.item.Owner), w.name, deed{Do: doSurge, Owner: w.name, Object: w.item.Owner.Name, UID: v.UID,
		From: v.Desired, To: v.Desired + 1, Before: old.Name, Mark: mark}, undoSurge{Replicas: v.Desired, Mark: mark})
	if err != nil {
		return err
	}
	l, err := c.patchReplicas(ctx, w.item.Owner, v.Desired+1, &mark, v.ResourceVersion)
	if apierrors.IsConflict(err) {
		return c.conflicted(ctx, w, c.bySeq[seq], err)
	}
	return c.sent(w, seq, answer{err: err, did: fmt.Sprintf("%s for a while instead of %d", plural(int(v.Desired)+1, "replica"), v.Desired),
		what: "surge", verb: "patch " + resource(w.item.Owner), at: l})
}

// conflicted looks who has changed the object: where the answer to the surge was lost and
// it was sent again, it was the surge itself. While that cannot be told its intent stays open.
func (c *campaign) conflicted(ctx context.Context, w *work, e *entry, conflict error) error {
	if err := c.landed(ctx, w, e); err != nil || e.Result != state.Rejected {
		w.since, c.moved = c.Clock.Now(), true
		return err
	}
	c.refuse(w, "changed by somebody else at the same moment", conflict)
	return nil
}

// landed finds out what came of a surge whose intent has no outcome.
func (c *campaign) landed(ctx context.Context, w *work, e *entry) error {
	live, err := c.scaled(ctx, w.item.Owner)
	switch {
	case apierrors.IsNotFound(err):
		return c.settle(e.Seq, state.Unknown, w.name+": it is gone", landed{})
	case err != nil:
		if later, err := c.later(w, err); later {
			return err
		}
		return fmt.Errorf("look whether %s has landed: %w", w.name, err)
	case live.mark == e.Mark:
		w.generation = max(w.generation, live.generation)
		return c.settle(e.Seq, state.Found, w.name+": the replica more is there", landed{UID: e.UID, Generation: live.generation})
	}
	return c.settle(e.Seq, state.Rejected, w.name+": the replica more was not asked for", landed{})
}

// disowned gives a surge up that the watch does not show any more, once the API server says
// so too: a first list may be from before the surge, and the number would stay.
func (c *campaign) disowned(ctx context.Context, w *work, e *entry) (bool, error) {
	now := c.Clock.Now()
	if !w.confirmed.IsZero() && now.Sub(w.confirmed) < confirmEvery {
		return false, c.watchOver(ctx, w)
	}
	w.confirmed = now
	live, err := c.scaled(ctx, w.item.Owner)
	switch {
	case apierrors.IsNotFound(err):
		return true, c.settle(e.Seq, state.Unknown, w.name+": it is gone", landed{})
	case err != nil:
		if later, err := c.later(w, err); later {
			return false, err
		}
		return false, fmt.Errorf("look whether the replica more of %s is there: %w", w.name, err)
	case live.mark != e.Mark:
		return true, c.unmarked(w, e, live, landed{})
	}
	w.generation = max(w.generation, live.generation)
	return false, c.watchOver(ctx, w)
}

// shrink puts the number back once a pod on a current kubelet is ready.
func (c *campaign) shrink(ctx context.Context, w *work, e *entry) (bool, error) {
	ready := int32(0)
	for _, p := range w.view.Pods {
		if p.Place == current && p.Ready && !p.Terminating {
			ready++
		}
	}
	if ready < e.From && w.view.missed() {
		if err := c.record(state.RecordNote, w.name+": the replica more is on the old kubelet too; put back, and tried anew"); err != nil {
			return false, err
		}
		return false, c.giveBack(ctx, w, e)
	}
	if ready < e.From {
		return false, c.watchOver(ctx, w)
	}
	for _, p := range w.view.standing() {
		if p.Cost == leastCost {
			continue
		}
		if m := c.newest(w.name, doMark); m == nil || m.UID != p.UID || !m.standing() {
			return false, c.markToGo(ctx, w, p)
		}
		// Its controller sees the mark no sooner than this watch does.
		return false, c.watchOver(ctx, w)
	}
	return false, c.giveBack(ctx, w, e)
}

// giveBack puts the number back in the course of the restart, under the lock.
func (c *campaign) giveBack(ctx context.Context, w *work, e *entry) error {
	if err := c.guard("k8s:patch "+resource(w.item.Owner), w.name); err != nil {
		return err
	}
	return c.restore(ctx, w, e, false)
}

// markToGo writes the deletion cost onto a pod. It goes with the pod.
func (c *campaign) markToGo(ctx context.Context, w *work, p podView) error {
	seq, err := c.intend("k8s:patch pods", podName(w, p), deed{Do: doMark, Owner: w.name, Object: p.Name, UID: p.UID, Before: p.Cost},
		map[string]string{corev1.PodDeletionCost: p.Cost})
	if err != nil {
		return err
	}
	err = c.patchCost(ctx, w.item.Owner.Namespace, p.Name, p.UID, &leastCost)
	return c.sent(w, seq, answer{err: err, did: p.Name + " is the one to go", what: "mark a pod of", verb: "patch pods", gone: state.Found})
}

// patchCost sets the deletion cost of exactly that pod; nil takes it away. Another pod of
// the name is NotFound: the API server answers 422 to a UID that is not the object's.
func (c *campaign) patchCost(ctx context.Context, namespace, name, uid string, cost *string) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, "annotations": map[string]*string{corev1.PodDeletionCost: cost}}})
	if err != nil {
		return fmt.Errorf("write the patch: %w", err)
	}
	pods := c.Kubernetes.CoreV1().Pods(namespace)
	_, err = pods.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
	if apierrors.IsInvalid(err) {
		if p, getErr := pods.Get(ctx, name, metav1.GetOptions{}); apierrors.IsNotFound(getErr) || getErr == nil && string(p.UID) != uid {
			return apierrors.NewNotFound(corev1.Resource("pods"), name)
		}
	}
	return err
}

// forgetMarks closes the marks on pods that are gone.
func (c *campaign) forgetMarks(w *work) error {
	for _, e := range c.deeds(w.name, doMark) {
		if _, there := w.view.pod(e.UID); there || !e.standing() {
			continue
		}
		if err := c.settle(e.Seq, state.Succeeded, w.name+": "+e.Object+" is gone", landed{}); err != nil {
			return err
		}
	}
	return nil
}

// restore puts the replicas of a surge back, unless somebody has set another number
// meanwhile, which stays. It is safe to call at any time; early says that the surge has
// had no time to help.
func (c *campaign) restore(ctx context.Context, w *work, e *entry, early bool) error {
	live, err := c.scaled(ctx, w.item.Owner)
	switch {
	case apierrors.IsNotFound(err):
		return c.settle(e.Seq, state.Unknown, w.name+": it is gone", landed{})
	case err != nil:
	case live.mark != e.Mark: // an early put-back may be sent twice as well
		return c.unmarked(w, e, live, landed{Early: early})
	default:
		to, text := e.From, fmt.Sprintf("%s: put back to %s", w.name, plural(int(e.From), "replica"))
		if live.replicas != e.To {
			to, text = live.replicas, fmt.Sprintf("%s: somebody has set %s meanwhile, and that stays", w.name, plural(int(live.replicas), "replica"))
		}
		var l landed
		if l, err = c.patchReplicas(ctx, w.item.Owner, to, nil, live.version); err == nil {
			w.since, w.generation, c.moved = c.Clock.Now(), max(w.generation, l.Generation), true
			l.Early = early
			return c.settle(e.Seq, state.Succeeded, text, l)
		}
	}
	if later, err := c.later(w, err); later {
		return err
	}
	return fmt.Errorf("put the replicas of %s back to %d: %w", w.name, e.From, err)
}

// unmarked settles a surge whose mark is gone: put back, by this step too whose answer was
// lost, or somebody else's by now.
func (c *campaign) unmarked(w *work, e *entry, live scale, l landed) error {
	if live.replicas != e.From {
		return c.settle(e.Seq, state.Unknown, w.name+": its replicas are no longer eksbg's to put back", l)
	}
	w.since, w.generation, c.moved = c.Clock.Now(), max(w.generation, live.generation), true
	l.Generation = live.generation
	return c.settle(e.Seq, state.Succeeded, fmt.Sprintf("%s: is back at %s", w.name, plural(int(e.From), "replica")), l)
}

// scale is the live state of what a surge changes.
type scale struct {
	replicas      int32
	mark, version string
	generation    int64
}

func (c *campaign) scaled(ctx context.Context, o cluster.Owner) (scale, error) {
	if o.Kind == "ReplicationController" {
		rc, err := c.Kubernetes.CoreV1().ReplicationControllers(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
		if err != nil {
			return scale{}, err
		}
		return scale{replicas(rc.Spec.Replicas), rc.Annotations[surgeAnnotation], rc.ResourceVersion, rc.Generation}, nil
	}
	rs, err := c.Kubernetes.AppsV1().ReplicaSets(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	if err != nil {
		return scale{}, err
	}
	return scale{replicas(rs.Spec.Replicas), rs.Annotations[surgeAnnotation], rs.ResourceVersion, rs.Generation}, nil
}

// patchReplicas sets the number and the mark (nil takes it away) of the object at
// exactly that resourceVersion.
func (c *campaign) patchReplicas(ctx context.Context, o cluster.Owner, n int32, mark *string, version string) (landed, error) {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": version, "annotations": map[string]*string{surgeAnnotation: mark}},
		"spec":     map[string]any{"replicas": n},
	})
	if err != nil {
		return landed{}, fmt.Errorf("write the patch: %w", err)
	}
	opts := metav1.PatchOptions{FieldManager: fieldManager}
	if o.Kind == "ReplicationController" {
		rc, err := c.Kubernetes.CoreV1().ReplicationControllers(o.Namespace).Patch(ctx, o.Name, types.MergePatchType, body, opts)
		if err != nil {
			return landed{}, err
		}
		return landed{UID: string(rc.UID), Generation: rc.Generation}, nil
	}
	rs, err := c.Kubernetes.AppsV1().ReplicaSets(o.Namespace).Patch(ctx, o.Name, types.MergePatchType, body, opts)
	if err != nil {
		return landed{}, err
	}
	return landed{UID: string(rs.UID), Generation: rs.Generation}, nil
}

// counted tells whether the controller has seen the newest number and made it so, and
// the watch of the pods shows as many.
func (v view) counted() bool {
	stay := int32(0)
	for _, p := range v.Pods {
		if !p.Terminating {
			stay++
		}
	}
	return v.Observed >= v.Generation && v.Replicas == v.Desired && stay == v.Desired
}

// missed tells whether all pods are there and every one of them is on an old kubelet, so
// that waiting brings none that could replace one.
func (v view) missed() bool { return v.counted() && len(v.standing()) == int(v.Desired) }

// settledSurge tells whether nothing of a ReplicaSet or ReplicationController lags and
// as many pods as it wants are ready.
func (v view) settledSurge() bool {
	if !v.Found || v.Desired == 0 {
		return len(v.Pods) == 0
	}
	return len(v.lagging()) == 0 && v.counted() && v.whole(int(v.Desired))
}
