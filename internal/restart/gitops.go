package restart

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

// revertedBy finds out who took the stamp of an attempt away again, and has the owner
// admitted anew for evictions where the plan file allows them. Without that the owner is
// left, and the run ends blocked with that name once the rest is done.
func (c *campaign) revertedBy(ctx context.Context, w *work, a attempt) (bool, error) {
	meta, err := c.metaOf(ctx, w.item.Owner)
	if err != nil && !apierrors.IsNotFound(err) {
		if later, err := c.later(w, err); later {
			return false, err
		}
		return false, fmt.Errorf("look who reverts the restart of %s: %w", w.name, err)
	}
	who := "somebody"
	if m := culprit(meta.ManagedFields); m != nil {
		who = m.Manager
		// An entry that its manager wrote before the restart only says who, not when.
		if at, err := time.Parse(time.RFC3339, a.Stamp); m.Time != nil && (err != nil || !m.Time.Time.Before(at)) {
			who += " at " + m.Time.UTC().Format(time.RFC3339)
		}
	}
	who = state.Clean(who)
	a.Reverted = who
	if err := c.settle(a.Seq, state.Failed, fmt.Sprintf("%s: %s %s was taken away again by %s", w.name, restartedAt, a.Stamp, who), a.landed); err != nil {
		return false, err
	}
	if c.allows(w.name, planfile.ActionEvict) {
		return false, c.evictInstead(w, who)
	}
	c.reverted[w.name] = who
	w.active, w.done = false, true
	return false, c.record(state.RecordWarning, fmt.Sprintf("%s: %s", w.name, revertedText(who)))
}

// evictInstead puts an owner whose restart does not last among what has not begun, as one
// whose pods go one by one: that takes other pods away, and may be an outage where the
// rollout is none. Where an eviction may not be, the owner is left.
func (c *campaign) evictInstead(w *work, who string) error {
	it := c.options(c.minor).Evicting(w.item, revertedText(who))
	w.active = false
	if !it.Works() {
		w.done = true
		return c.record(state.RecordWarning, fmt.Sprintf("%s: %s", w.name, it.Reason))
	}
	w.item, w.method = it, it.Method
	return c.record(state.RecordNote, fmt.Sprintf("%s: %s reverts the restart; its pods are evicted one by one instead, as the plan file allows", w.name, who))
}

func revertedText(who string) string {
	return fmt.Sprintf("the restart is reverted: %s took %s away again", who, restartedAt)
}

// allows tells whether the plan file permits an action on an owner.
func (r *Restart) allows(owner, action string) bool {
	for _, a := range r.Allow {
		if a.Owner == owner && a.Action == action {
			return true
		}
	}
	return false
}

// metaOf reads the metadata of a workload with its managed fields.
func (c *campaign) metaOf(ctx context.Context, o cluster.Owner) (metav1.ObjectMeta, error) {
	if o.Kind == "StatefulSet" {
		s, err := c.Kubernetes.AppsV1().StatefulSets(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
		if err != nil {
			return metav1.ObjectMeta{}, err
		}
		return s.ObjectMeta, nil
	}
	d, err := c.Kubernetes.AppsV1().Deployments(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	if err != nil {
		return metav1.ObjectMeta{}, err
	}
	return d.ObjectMeta, nil
}

// beforeFirstApply is the name that the API server gives to whoever wrote an object
// before its first server-side apply: nobody in particular.
const beforeFirstApply = "before-first-apply"

// culprit is the manager that last wrote anything of the template, otherwise of the
// spec; nil where managedFields do not say. Who takes an annotation away does not own it
// afterwards, but owns what else it has written there.
func culprit(all []metav1.ManagedFieldsEntry) *metav1.ManagedFieldsEntry {
	for _, path := range [][]string{{"f:spec", "f:template"}, {"f:spec"}} {
		var newest *metav1.ManagedFieldsEntry
		for i := range all {
			m := &all[i]
			if m.Subresource != "" || m.Manager == fieldManager || m.Manager == beforeFirstApply || m.FieldsV1 == nil || !owns(m.FieldsV1.GetRawBytes(), path) {
				continue
			}
			if newest == nil || m.Time != nil && (newest.Time == nil || newest.Time.Before(m.Time)) {
				newest = m
			}
		}
		if newest != nil {
			return newest
		}
	}
	return nil
}

// owns tells whether a set of fields (FieldsV1) has something under a path.
func owns(fields []byte, path []string) bool {
	for _, p := range path {
		var at map[string]json.RawMessage
		if json.Unmarshal(fields, &at) != nil || at[p] == nil {
			return false
		}
		fields = at[p]
	}
	return true
}
