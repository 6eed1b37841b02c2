package restart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/state"
)

// rolloutsOf is the resource of an Argo Rollout (argoproj.io/v1alpha1).
func rolloutsOf(o cluster.Owner) schema.GroupVersionResource {
	group, version := groupVersion(o.APIVersion)
	return schema.GroupVersionResource{Group: group, Version: version, Resource: "rollouts"}
}

// restartAt drives an Argo Rollout: its controller evicts, a bounded number at a time,
// the pods that are older than spec.restartAt (argo-rollouts, docs/features/restart.md).
// Whether that is over is seen at the pods; the object is read once an attempt.
func (c *campaign) restartAt(ctx context.Context, w *work) (bool, error) {
	a, v := c.last[w.name], w.view
	standing := v.standing()
	switch {
	case a.Open:
		// The same value again changes nothing where it has landed.
		return c.again(w, c.sendStamp(ctx, w, a))
	case len(v.lagging()) == 0 && a.Number == 0 && v.clear():
		return false, c.finishRestartAt(w, a)
	case len(v.lagging()) == 0 && v.whole(0):
		return false, c.counted(ctx, w, a)
	case len(standing) == 0 || a.Number > 0 && !bornAfter(standing, a.Stamp):
		return false, c.watchOver(ctx, w) // its controller is at it
	case a.Number >= maxAttempts:
		return false, c.stop(w, state.ExitBlocked, exhausted(a, a.Stamp),
			"see which nodes its pods get (kubectl get pods -o wide);\nrestart it by hand or name it under restart.skip in the plan file, then run the same command again")
	}
	live, err := c.restartAtOf(ctx, w.item.Owner)
	if err != nil {
		return false, c.unreachable(w, err)
	}
	return false, c.stamp(ctx, w, a, live)
}

// counted ends the restart of a Rollout all of whose pods stand, if they are as many as it
// wants by now: somebody may have scaled it since the survey.
func (c *campaign) counted(ctx context.Context, w *work, a attempt) error {
	now := c.Clock.Now()
	if !w.confirmed.IsZero() && now.Sub(w.confirmed) < confirmEvery {
		return c.watchOver(ctx, w)
	}
	w.confirmed = now
	obj, err := c.rollout(ctx, w.item.Owner)
	switch {
	case apierrors.IsNotFound(err):
		w.active, w.done, c.moved = false, true, true
		return c.settle(a.Seq, state.Unknown, w.name+" was deleted meanwhile", a.landed)
	case err != nil:
		return c.unreachable(w, err)
	}
	want, found, err := unstructured.NestedInt64(obj.Object, "spec", "replicas")
	if err != nil {
		return c.unreachable(w, fmt.Errorf("spec.replicas: %w", err))
	}
	if !found {
		want = 1 // the default of the custom resource
	}
	if !w.view.whole(int(want)) {
		return c.watchOver(ctx, w)
	}
	return c.finishRestartAt(w, a)
}

// bornAfter tells whether one of the pods was made after the stamp: its controller will
// not restart that one.
func bornAfter(pods []podView, stamp string) bool {
	at, err := time.Parse(time.RFC3339, stamp)
	for _, p := range pods {
		if err == nil && !p.Created.Before(at) {
			return true
		}
	}
	return false
}

// afterNewest gives a stamp that is later than the birth of every lagging pod: the
// API server's clock may be ahead of ours.
func afterNewest(stamp string, v view) string {
	for _, p := range v.standing() {
		if !p.Created.IsZero() {
			stamp = later(stamp, p.Created.UTC().Format(time.RFC3339))
		}
	}
	return stamp
}

func (c *campaign) finishRestartAt(w *work, a attempt) error {
	w.active, w.done, c.moved = false, true, true
	if a.Seq == 0 {
		return nil
	}
	return c.settle(a.Seq, state.Succeeded, fmt.Sprintf("%s: %s on %s", w.name, plural(w.view.current(), "pod"), c.minor), a.landed)
}

// rollout reads an Argo Rollout.
func (c *campaign) rollout(ctx context.Context, o cluster.Owner) (*unstructured.Unstructured, error) {
	if c.Dynamic == nil {
		return nil, errors.New("no client for custom resources")
	}
	return c.Dynamic.Resource(rolloutsOf(o)).Namespace(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
}

// restartAtOf reads spec.restartAt; "" where there is none.
func (c *campaign) restartAtOf(ctx context.Context, o cluster.Owner) (string, error) {
	obj, err := c.rollout(ctx, o)
	if err != nil {
		return "", err
	}
	at, _, err := unstructured.NestedString(obj.Object, "spec", "restartAt")
	if err != nil {
		return "", fmt.Errorf("spec.restartAt: %w", err)
	}
	return at, nil
}

// unreachable says that a custom resource cannot be read, or tries it again later.
func (c *campaign) unreachable(w *work, err error) error {
	if later, err := c.later(w, err); later {
		return err
	}
	return &state.Stop{Code: state.ExitBlocked, Why: fmt.Sprintf("%s cannot be read: %s", state.Clean(w.name), state.Clean(err.Error())),
		Cure: fmt.Sprintf("allow eksbg to get and patch rollouts.argoproj.io in namespace %s (RBAC), or name it under restart.skip in the plan file;\n"+
			"then run the same command again", state.Clean(w.item.Owner.Namespace))}
}

func (c *campaign) patchRestartAt(ctx context.Context, o cluster.Owner, stamp string, opts metav1.PatchOptions) (landed, error) {
	body, err := json.Marshal(map[string]any{"spec": map[string]any{"restartAt": stamp}})
	if err != nil {
		return landed{}, fmt.Errorf("write the patch: %w", err)
	}
	if c.Dynamic == nil {
		return landed{}, errors.New("no client for custom resources")
	}
	obj, err := c.Dynamic.Resource(rolloutsOf(o)).Namespace(o.Namespace).Patch(ctx, o.Name, types.MergePatchType, body, opts)
	if err != nil {
		return landed{}, err
	}
	return landed{UID: string(obj.GetUID()), Generation: obj.GetGeneration()}, nil
}
