package restart

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/restart/survey"
	"github.com/eksbg/eksbg/internal/state"
)

// rollOut drives a Deployment or StatefulSet by kubectl's restartedAt annotation.
func (c *campaign) rollOut(ctx context.Context, w *work) (bool, error) {
	a := c.last[w.name]
	switch d := decide(w.view, a, c.stamps[1]); d.act {
	case actDone:
		if ok, err := c.resolving(ctx, w); !ok {
			return false, err
		}
		return false, c.finish(w, a)
	case actClose:
		l := landed{UID: w.view.UID}
		if d.result == state.Found {
			l.Generation = w.view.Generation
		}
		return true, c.settle(a.Seq, d.result, w.name+": "+d.text, l)
	case actPinned:
		w.active, w.done = false, true
		return false, c.record(state.RecordWarning, fmt.Sprintf("%s can no longer be restarted: %s", w.name, d.text))
	case actResend:
		return false, c.sendStamp(ctx, w, a)
	case actExhausted, actReverted, actRestart:
		if why := c.outdated(w); why != "" && d.act == actRestart {
			return false, c.leave(w, why)
		}
		if !w.item.Works() {
			w.active, w.done = false, true // the next round judges it anew and admits it in its turn
			return false, nil
		}
		if d.act != actRestart || a.Number > 0 || touched(c.stamps[1], w.view.Stamp) {
			if sure, err := c.confirm(ctx, w); err != nil {
				return false, err
			} else if !sure {
				return false, c.watchOver(ctx, w)
			}
		}
		return c.lagsAgain(ctx, w, a, d)
	case actForeign:
		if err := c.noteForeign(w, d.text); err != nil {
			return false, err
		}
	}
	return false, c.watchOver(ctx, w)
}

// lagsAgain begins the next attempt, or says why there is none.
func (c *campaign) lagsAgain(ctx context.Context, w *work, a attempt, d verdict) (bool, error) {
	switch d.act {
	case actReverted:
		return c.revertedBy(ctx, w, a)
	case actExhausted:
		return false, c.stop(w, state.ExitBlocked, d.text,
			"see which nodes its pods get (kubectl get pods -o wide) and whether a controller reverts the annotation;\n"+
				"restart it by hand or name it under restart.skip in the plan file, then run the same command again")
	}
	return false, c.stamp(ctx, w, a, w.view.Stamp)
}

// finish marks a rollout as done and closes its attempt.
func (c *campaign) finish(w *work, a attempt) error {
	w.active, w.done = false, true
	if a.Seq == 0 || w.view.Found && w.view.Stamp != a.Stamp {
		return nil // not restarted by us, or not by us in the end
	}
	result, text := state.Succeeded, fmt.Sprintf("%s: %s on %s", w.name, plural(w.view.current(), "pod"), c.minor)
	if !w.view.Found {
		result, text = state.Unknown, w.name+" was deleted meanwhile"
	}
	c.moved = true
	return c.settle(a.Seq, result, text, a.landed)
}

// stamp begins a new attempt: the intent is durable before the patch is sent. live is
// the stamp that it replaces.
func (c *campaign) stamp(ctx context.Context, w *work, a attempt, live string) error {
	n := attempt{Number: a.Number + 1}
	n.Stamp = stampFor(c.stamps, n.Number, live, c.Clock.Now())
	if w.method == survey.RestartAt {
		n.Stamp = afterNewest(n.Stamp, w.view)
	}
	seq, err := c.intend("k8s:patch "+resource(w.item.Owner), w.name, stamped{Owner: w.name, UID: w.view.UID, Attempt: n.Number,
		Stamp: n.Stamp, Before: live}, nil)
	if err != nil {
		return err
	}
	return c.sendStamp(ctx, w, attempt{Seq: seq, Number: n.Number, Stamp: n.Stamp})
}

// sendStamp patches the workload with the stamp of the attempt and records what came of
// it. Sent again with the same value, it changes nothing where it has landed before.
func (c *campaign) sendStamp(ctx context.Context, w *work, a attempt) error {
	if err := c.guard("k8s:patch "+resource(w.item.Owner), w.name); err != nil {
		return err
	}
	l, err := c.patchStamp(ctx, w.item.Owner, a.Stamp)
	return c.sent(w, a.Seq, answer{err: err, did: "restarted at " + a.Stamp, what: "restart", verb: "patch " + resource(w.item.Owner), at: l})
}

// patchStamp sets the restartedAt annotation of the pod template as kubectl does, or
// an Argo Rollout's restartAt.
func (c *campaign) patchStamp(ctx context.Context, o cluster.Owner, stamp string) (landed, error) {
	opts := metav1.PatchOptions{FieldManager: fieldManager}
	if o.Kind == "Rollout" {
		return c.patchRestartAt(ctx, o, stamp, opts)
	}
	body, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{restartedAt: stamp}}}}})
	if err != nil {
		return landed{}, fmt.Errorf("write the patch: %w", err)
	}
	if o.Kind == "StatefulSet" {
		s, err := c.Kubernetes.AppsV1().StatefulSets(o.Namespace).Patch(ctx, o.Name, types.StrategicMergePatchType, body, opts)
		if err != nil {
			return landed{}, err
		}
		return landed{UID: string(s.UID), Generation: s.Generation}, nil
	}
	d, err := c.Kubernetes.AppsV1().Deployments(o.Namespace).Patch(ctx, o.Name, types.StrategicMergePatchType, body, opts)
	if err != nil {
		return landed{}, err
	}
	return landed{UID: string(d.UID), Generation: d.Generation}, nil
}

// confirm asks the API server whether a pod of the owner is still there that lags and
// does not leave: a watch may be behind, and a restart too many is an outage too many.
func (c *campaign) confirm(ctx context.Context, w *work) (bool, error) {
	now := c.Clock.Now()
	if !w.confirmed.IsZero() && now.Sub(w.confirmed) < confirmEvery {
		return false, nil
	}
	w.confirmed = now
	standing := w.view.standing()
	if len(standing) == 0 {
		return false, nil
	}
	p, err := c.Kubernetes.CoreV1().Pods(w.item.Owner.Namespace).Get(ctx, standing[0].Name, metav1.GetOptions{})
	if later, err := c.later(w, err); later || err != nil {
		return false, err
	}
	return p != nil && string(p.UID) == standing[0].UID && p.DeletionTimestamp == nil && !finished(p) && p.Spec.NodeName == standing[0].Node, nil
}

// noteForeign records once that somebody else's restart is waited for.
func (c *campaign) noteForeign(w *work, text string) error {
	if w.noted == w.view.Stamp {
		return nil
	}
	w.noted = w.view.Stamp
	return c.record(state.RecordNote, fmt.Sprintf("%s %s; waiting for that rollout", w.name, text))
}

// record writes a note or a warning.
func (c *campaign) record(kind state.RecordKind, text string) error {
	if err := c.rec.Record(state.Record{Kind: kind, Text: state.Clean(text)}); err != nil {
		return fmt.Errorf("record a %s: %w", kind, err)
	}
	return nil
}

// resource is the API's name of an owner's kind.
func resource(o cluster.Owner) string {
	switch o.Kind {
	case "StatefulSet":
		return "statefulsets"
	case "Rollout":
		return "rollouts"
	case "ReplicaSet":
		return "replicasets"
	case "ReplicationController":
		return "replicationcontrollers"
	}
	return "deployments"
}
