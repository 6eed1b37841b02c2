package restart

import (
	"context"
	"errors"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eksbg/eksbg/internal/cluster"
)

// askAgain is the time between two questions to a custom owner for its number.
const askAgain = 30 * time.Second

// wanted is how many pods the owner should have: what it says itself, otherwise what
// it had when the first of them was taken.
func (c *campaign) wanted(ctx context.Context, w *work, all []*entry) (int, error) {
	switch {
	case w.view.Found:
		return int(w.view.Desired), nil
	case known(w.item.Owner):
		return 0, nil // it was deleted, and its pods go with it
	}
	want := int(w.item.Replicas)
	if len(all) > 0 && all[len(all)-1].owing() {
		want = all[len(all)-1].Want
	}
	return c.rescaled(ctx, w, want)
}

// rescaled is how many pods a custom owner wants that had that many before one was taken.
// Nothing that is watched tells whether it was scaled down since. So where its pods all
// stand and are too few, and no other comes for a moment, it is asked itself.
func (c *campaign) rescaled(ctx context.Context, w *work, had int) (int, error) {
	now := c.Clock.Now()
	if !w.view.whole(0) || len(w.view.Pods) >= had {
		w.short, w.wants = time.Time{}, nil
		return had, nil
	}
	if w.short.IsZero() {
		w.short = now
	}
	if now.Before(w.nextAsk()) {
		return w.orWants(had), nil
	}
	w.asked = now
	n, err := c.replicasOf(ctx, w.item.Owner)
	switch {
	case ctx.Err() != nil:
		return 0, interrupted(ctx)
	case apierrors.IsNotFound(err) && len(w.view.Pods) == 0:
		n = 0 // deleted, and its pods with it
	case err != nil:
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || errors.Is(err, errNoNumber) {
			w.asked = now.Add(c.Timeout) // it will not say later either: the work's time bounds the wait
		}
		return had, nil
	}
	w.wants = &n
	return n, nil
}

// nextAsk is when a custom owner that is short of pods is asked for its number.
func (w *work) nextAsk() time.Time {
	if w.asked.Before(w.short) {
		return w.short.Add(confirmEvery)
	}
	return w.asked.Add(askAgain)
}

func (w *work) orWants(had int) int {
	if w.wants != nil {
		return *w.wants
	}
	return had
}

// errNoNumber says that a kind does not tell how many pods it wants.
var errNoNumber = errors.New("it has neither a scale nor spec.replicas")

// replicasOf asks a custom owner how many pods it wants: its scale subresource, where the
// API server says that its kind has one, otherwise spec.replicas as is the custom.
func (c *campaign) replicasOf(ctx context.Context, o cluster.Owner) (int, error) {
	if c.Dynamic == nil {
		return 0, errNoNumber
	}
	served, err := c.Kubernetes.Discovery().ServerResourcesForGroupVersion(o.APIVersion)
	if err != nil {
		return 0, err
	}
	gvr, scales := resourceOf(o, served)
	if gvr.Resource == "" {
		return 0, errNoNumber
	}
	var sub []string
	if scales {
		sub = []string{"scale"}
	}
	obj, err := c.Dynamic.Resource(gvr).Namespace(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{}, sub...)
	switch {
	case err != nil:
		return 0, err
	case o.UID != "" && string(obj.GetUID()) != o.UID:
		return 0, apierrors.NewNotFound(gvr.GroupResource(), o.Name) // another one of that name
	}
	n, found, err := unstructured.NestedInt64(obj.Object, "spec", "replicas")
	if err != nil || !found {
		return 0, errors.Join(errNoNumber, err)
	}
	return int(n), nil
}

// resourceOf finds a kind among those that a group and version serves, and whether it has
// a scale subresource.
func resourceOf(o cluster.Owner, served *metav1.APIResourceList) (gvr schema.GroupVersionResource, scales bool) {
	gvr.Group, gvr.Version = groupVersion(o.APIVersion)
	all := map[string]bool{}
	for _, r := range served.APIResources {
		all[r.Name] = true
		if r.Kind == o.Kind && r.Namespaced && !strings.Contains(r.Name, "/") {
			gvr.Resource = r.Name
		}
	}
	return gvr, all[gvr.Resource+"/scale"]
}
