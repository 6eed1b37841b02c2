package restart

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eksbg/eksbg/internal/state"
)

// remake makes a bare pod again before the Act ends: it was evicted, and nobody else does
// it. The pod is waited for until it has gone, for its name is free only then. One that
// stands, since the eviction did not land or somebody has made it again, is left.
func (c *campaign) remake(ctx context.Context, e *entry) error {
	w := c.outside(e)
	if c.unmade[w.name] {
		return nil // it is said already, and the API server would say the same
	}
	c.rec.Waiting(state.Clean(w.name + " is between two lives: made again before this ends"))
	for {
		made, err := c.remade(ctx, w, e)
		if made || err != nil {
			return err
		}
		if err := c.rest(ctx, latest(w.retry, c.Clock.Now().Add(tick))); err != nil {
			why := "it has not gone yet"
			if w.refused != "" {
				why = w.refused
			}
			return fmt.Errorf("make %s again: %s", state.Clean(w.name), why)
		}
	}
}

// remade takes one try, and tells whether the pod needs nothing more.
func (c *campaign) remade(ctx context.Context, w *work, e *entry) (bool, error) {
	o := w.item.Owner
	p, err := c.Kubernetes.CoreV1().Pods(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	switch {
	case err == nil && string(p.UID) == e.UID && p.DeletionTimestamp == nil:
		// An eviction whose answer nobody heard may land a moment later.
		sure := w.seen || !slices.ContainsFunc(c.deeds(w.name, doEvict), (*entry).open)
		w.seen = true
		return sure, nil
	case err == nil && string(p.UID) == e.UID:
		return false, nil
	case err == nil:
		return true, nil // what that comes to is for the next run to see
	case !apierrors.IsNotFound(err):
		if later, err := c.later(w, err); later || err == nil {
			return false, err
		}
		return false, fmt.Errorf("look for pod %s: %w", state.Clean(w.name), err)
	}
	open := c.newest(w.name, doCreate)
	if err := c.create(ctx, w, open); err != nil {
		return false, err
	}
	made := c.newest(w.name, doCreate)
	return w.done || made != nil && made.standing(), nil
}

// rest waits until a time.
func (c *campaign) rest(ctx context.Context, until time.Time) error {
	timer := c.Clock.NewTimer(until.Sub(c.Clock.Now()))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return interrupted(ctx)
	case <-timer.C():
		return nil
	}
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// remakeByHand is the command that makes a bare pod again from its kept manifest. It prints
// the PodTemplate as YAML, of which JSON is a part.
func remakeByHand(namespace, pod string) string {
	ns, name := state.Clean(namespace), state.Clean(pod)
	return "kubectl get podtemplate -n " + ns + " " + stashName(name) + ` -o jsonpath='{"apiVersion: v1\nkind: Pod\nmetadata:\n  name: ` + name +
		`\n  labels: "}{.template.metadata.labels}{"\n  annotations: "}{.template.metadata.annotations}{"\n  finalizers: "}{.template.metadata.finalizers}` +
		`{"\nspec: "}{.template.spec}{"\n"}' | kubectl create -n ` + ns + " -f -"
}
