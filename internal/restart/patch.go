package restart

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/state"
)

// fieldManager is the name under which the API server keeps what eksbg has set.
const fieldManager = "eksbg"

// send patches the workload with the stamp of the attempt and records what came of
// it. Sent again with the same value, it changes nothing where it has landed before.
// An error that leaves open whether the patch landed leaves the intent open too.
func (c *campaign) send(ctx context.Context, ro *rollout, a attempt) error {
	name := ro.owner.String()
	c.moved = true
	ro.since = c.Clock.Now()
	l, err := c.patch(ctx, ro.owner, a.Stamp)
	switch {
	case err == nil:
		return c.outcome(name, state.Accepted, "restarted at "+a.Stamp, l)
	case apierrors.IsNotFound(err):
		ro.active, ro.done = false, true
		return c.outcome(name, state.Rejected, "it is gone", landed{})
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		said := state.Clean(err.Error())
		if err := c.outcome(name, state.Rejected, said, landed{}); err != nil {
			return err
		}
		return &state.Stop{Code: state.ExitBlocked, Why: fmt.Sprintf("the API server refuses to restart %s: %s", state.Clean(name), said),
			Cure: fmt.Sprintf("allow eksbg to patch %s in namespace %s (RBAC, admission webhooks), or name it under restart.skip in the plan file;\n"+
				"then run the same command again", resource(ro.owner), state.Clean(ro.owner.Namespace))}
	}
	return fmt.Errorf("restart %s: %w", state.Clean(name), err)
}

// outcome records what came of the newest attempt of an owner, and takes it in.
func (c *campaign) outcome(owner string, result state.Result, text string, l landed) error {
	a := c.last[owner]
	if err := c.rec.Outcome(a.Seq, result, state.Clean(owner+": "+text), l); err != nil {
		return fmt.Errorf("record the restart of %s: %w", state.Clean(owner), err)
	}
	if result == state.Rejected {
		// Refused, it changed nothing: what counts is the attempt before it.
		c.last, _ = attempts(c.History.Records(c.spec.ID))
		return nil
	}
	a.Open = false
	if l.Generation > 0 {
		a.landed = l
	}
	c.last[owner] = a
	return nil
}

// patch sets the restartedAt annotation of the pod template as kubectl does.
func (c *campaign) patch(ctx context.Context, o cluster.Owner, stamp string) (landed, error) {
	body, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{restartedAt: stamp}}}}})
	if err != nil {
		return landed{}, fmt.Errorf("write the patch: %w", err)
	}
	opts := metav1.PatchOptions{FieldManager: fieldManager}
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
