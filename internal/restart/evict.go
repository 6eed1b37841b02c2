package restart

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eksbg/eksbg/internal/restart/survey"
	"github.com/eksbg/eksbg/internal/state"
)

// actUnsent: the open eviction is not sent again, for it is not the one to go next now.
const actUnsent act = -1

// taking is what to do next about an owner whose pods go one by one.
type taking struct {
	act act
	pod podView
	// entry is the eviction that act is about, for actClose, actResend and actUnsent.
	entry *entry
	// whole is true where every pod that stands is ready on a current kubelet or lags.
	whole bool
}

// take decides about the pods of an owner that wants that many of them. all are the
// evictions of this step so far, in order; the next one goes only when what the ones
// before it took stands again.
func take(v view, want int, all []*entry, inOrder bool) taking {
	whole := v.whole(want) && v.available()
	standing := v.standing()
	for _, e := range all {
		p, there := v.pod(e.UID)
		switch {
		case e.open() && (!there || p.Terminating):
			return taking{act: actClose, entry: e}
		case e.open() && whole && len(standing) > 0 && pick(standing, inOrder).UID == p.UID:
			return taking{act: actResend, pod: p, entry: e}
		case e.open():
			return taking{act: actUnsent, pod: p, entry: e}
		case e.standing() && there && !p.Terminating:
			return taking{act: actWait} // the watch does not show it yet
		}
	}
	switch {
	case len(standing) == 0 && (whole && len(v.lagging()) == 0 || len(all) == 0 && v.clear()):
		return taking{act: actDone, whole: whole}
	case len(standing) == 0 || !whole:
		return taking{act: actWait}
	case taken(all) >= maxAttempts*most(want, all):
		return taking{act: actExhausted, whole: true}
	}
	return taking{act: actRestart, pod: pick(standing, inOrder), whole: true}
}

// pick is the pod that goes next: one that is not ready first, since it serves nobody;
// for a StatefulSet the highest ordinal, as its controller does it.
func pick(standing []podView, inOrder bool) podView {
	return slices.MinFunc(standing, func(a, b podView) int {
		if inOrder {
			na, _ := survey.Ordinal(a.Name)
			nb, _ := survey.Ordinal(b.Name)
			return cmp.Or(cmp.Compare(nb, na), cmp.Compare(a.Name, b.Name))
		}
		switch {
		case a.Ready == b.Ready:
			return cmp.Compare(a.Name, b.Name)
		case a.Ready:
			return 1
		}
		return -1
	})
}

// taken counts the evictions that took a pod.
func taken(all []*entry) (n int) {
	for _, e := range all {
		if e.Result != state.Rejected && e.Result != state.Unknown {
			n++
		}
	}
	return n
}

// most is how many pods the owner has had at a time, for all that is known: one that was
// scaled down since has used up no attempts by that.
func most(want int, all []*entry) int {
	n := max(want, 1)
	for _, e := range all {
		n = max(n, e.Want)
	}
	return n
}

// evictNext drives an owner whose pods go one by one through the Eviction API.
func (c *campaign) evictNext(ctx context.Context, w *work) (bool, error) {
	w.view.Deadline = "" // of an earlier rollout: evictions change no template
	all := c.deeds(w.name, doEvict)
	want, err := c.wanted(ctx, w, all)
	if err != nil {
		return false, err
	}
	t := take(w.view, want, all, w.method == survey.InOrder)
	if t.whole {
		if ok, err := c.resolving(ctx, w); !ok {
			return false, err
		}
		if err := c.stands(w, all); err != nil {
			return false, err
		}
	}
	switch t.act {
	case actDone:
		w.active, w.done, c.moved = false, true, true
		return false, nil
	case actClose:
		return true, c.settle(t.entry.Seq, state.Found, w.name+": "+t.entry.Object+" is gone", landed{})
	case actResend:
		return false, c.evict(ctx, w, t.entry.Seq, t.pod)
	case actUnsent:
		return c.unsent(ctx, w, t, "not sent again: "+cmp.Or(w.view.unsettled(), "another pod goes first"))
	case actExhausted:
		return false, c.stop(w, state.ExitBlocked, fmt.Sprintf("still lags after %d evictions: %s", taken(all), w.view.unsettled()),
			"see which nodes its pods get (kubectl get pods -o wide);\nmove them by hand or name it under restart.skip in the plan file, then run the same command again")
	case actRestart:
		seq, err := c.intend("k8s:create pods/eviction", podName(w, t.pod), deed{Do: doEvict, Owner: w.name, Object: t.pod.Name,
			UID: t.pod.UID, OwnerUID: w.item.Owner.UID, APIVersion: w.item.Owner.APIVersion, Want: want}, nil)
		if err != nil {
			return false, err
		}
		return false, c.evict(ctx, w, seq, t.pod)
	}
	return false, c.watchOver(ctx, w)
}

// awaitTaken waits until an owner stands again from which no pod may be taken any more: what
// the plan file had consented to it does no longer, or there is nothing left to take.
func (c *campaign) awaitTaken(ctx context.Context, w *work, all []*entry) (bool, error) {
	want, err := c.wanted(ctx, w, all)
	if err != nil {
		return false, err
	}
	t := take(w.view, want, all, false)
	switch t.act {
	case actClose:
		return true, c.settle(t.entry.Seq, state.Found, w.name+": "+t.entry.Object+" is gone", landed{})
	case actResend, actUnsent:
		return c.unsent(ctx, w, t, "not sent again: "+cmp.Or(w.item.Reason, "nothing lags"))
	}
	if !t.whole {
		return false, c.watchOver(ctx, w)
	}
	if ok, err := c.resolving(ctx, w); !ok {
		return false, err
	}
	if err := c.stands(w, all); err != nil {
		return false, err
	}
	w.active, w.done, c.moved = false, true, true
	return false, nil
}

// owing tells whether a pod that was taken, or may have been, is not known to stand again.
func owing(all []*entry) bool { return slices.ContainsFunc(all, (*entry).owing) }

// unsent closes an open eviction that is not sent again. The API server is asked whether
// it has landed after all: the watch may be behind.
func (c *campaign) unsent(ctx context.Context, w *work, t taking, why string) (bool, error) {
	p, err := c.Kubernetes.CoreV1().Pods(w.item.Owner.Namespace).Get(ctx, t.pod.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && (string(p.UID) != t.pod.UID || p.DeletionTimestamp != nil):
		return true, c.settle(t.entry.Seq, state.Found, w.name+": "+t.pod.Name+" is gone", landed{})
	case err != nil:
		if later, err := c.later(w, err); later {
			return false, err
		}
		return false, fmt.Errorf("look whether %s of %s is gone: %w", t.pod.Name, w.name, err)
	}
	return true, c.settle(t.entry.Seq, state.Rejected, w.name+": eviction of "+t.pod.Name+" "+why, landed{})
}

func podName(w *work, p podView) string { return w.item.Owner.Namespace + "/" + p.Name }

// stands records that what the evictions took stands again.
func (c *campaign) stands(w *work, all []*entry) error {
	for _, e := range all {
		if !e.owing() || e.open() {
			continue
		}
		if err := c.settle(e.Seq, state.Succeeded, fmt.Sprintf("%s: %d of %s on %s", w.name, w.view.current(),
			plural(len(w.view.Pods), "pod"), c.minor), landed{}); err != nil {
			return err
		}
		w.since = c.Clock.Now()
	}
	return nil
}

// evict sends an eviction whose intent is durable. A budget that forbids it for now is
// asked again; the intent stays open meanwhile.
func (c *campaign) evict(ctx context.Context, w *work, seq int64, p podView) error {
	if err := c.guard("k8s:create pods/eviction", podName(w, p)); err != nil {
		return err
	}
	uid := types.UID(p.UID)
	err := c.Kubernetes.PolicyV1().Evictions(w.item.Owner.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: w.item.Owner.Namespace, Name: p.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	})
	switch {
	case apierrors.IsTooManyRequests(err):
		return c.forbidden(w, seq, p, err)
	case apierrors.IsInternalError(err) && strings.Contains(err.Error(), "more than one PodDisruptionBudget"):
		said := state.Clean(err.Error())
		if err := c.settle(seq, state.Rejected, w.name+": "+said, landed{}); err != nil {
			return err
		}
		return c.stop(w, state.ExitBlocked, fmt.Sprintf("pod %s cannot be evicted: %s", p.Name, said),
			"leave one PodDisruptionBudget over its pods ("+strings.Join(w.item.Budgets, ", ")+"); then run the same command again")
	}
	return c.sent(w, seq, answer{err: err, did: "evicted " + p.Name, what: "evict " + p.Name + " of", verb: "create pods/eviction", gone: state.Found})
}

// forbidden takes a refusal by a PodDisruptionBudget: it is tried again until the
// workload's time is over.
func (c *campaign) forbidden(w *work, seq int64, p podView, err error) error {
	why := "eviction of pod " + p.Name + " refused: " + c.budgetsOf(w, err)
	c.refuse(w, why, err)
	c.moved = true
	if c.Clock.Since(w.since) < c.Timeout {
		return nil
	}
	if err := c.settle(seq, state.Rejected, w.name+": "+why, landed{}); err != nil {
		return err
	}
	return c.stop(w, state.ExitResumable, fmt.Sprintf("not done after %s: %s", c.Timeout, why),
		"see why the budget's other pods are not ready, or lower what it asks for;\nthen run the same command again")
}

// budgetsOf says what the budgets over an owner's pods allow now, with the words of the
// API server where it gives any.
func (c *campaign) budgetsOf(w *work, err error) string {
	var parts []string
	for _, name := range w.item.Budgets {
		if b, ok := c.mirror.budget(name); ok {
			s := b.Status
			parts = append(parts, fmt.Sprintf("PodDisruptionBudget %s allows %d (%d healthy, %d desired)", name, s.DisruptionsAllowed, s.CurrentHealthy, s.DesiredHealthy))
		}
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			if cause.Type == policyv1.DisruptionBudgetCause {
				parts = append(parts, cause.Message)
			}
		}
	}
	if len(parts) == 0 {
		parts = append(parts, err.Error())
	}
	return state.Clean(strings.Join(parts, "; "))
}

// pod finds a pod of the view by its UID.
func (v view) pod(uid string) (podView, bool) {
	for _, p := range v.Pods {
		if p.UID == uid {
			return p, true
		}
	}
	return podView{}, false
}

// available tells whether every ready pod that stays has been so for the minReadySeconds
// that the owner states.
func (v view) available() bool {
	ready := int32(0)
	for _, p := range v.Pods {
		if p.Ready && !p.Terminating {
			ready++
		}
	}
	return v.MinReady == 0 || v.Available >= ready
}

// unplaced counts the pods on no kubelet: on no node, or on one that is gone or states no
// version.
func (v view) unplaced() (n int) {
	for _, p := range v.Pods {
		if p.Place == nowhere {
			n++
		}
	}
	return n
}

// lagging are the pods on old kubelets, terminating ones included.
func (v view) lagging() []podView {
	var out []podView
	for _, p := range v.Pods {
		if p.Place == lagging {
			out = append(out, p)
		}
	}
	return out
}

// whole tells whether that many pods stand and none of them but the lagging ones is
// anything else than ready on a current kubelet; a pod that terminates leaves a gap.
func (v view) whole(want int) bool {
	stay := 0
	for _, p := range v.Pods {
		switch {
		case p.Terminating, p.Place == nowhere, p.Place == current && !p.Ready:
			return false
		}
		stay++
	}
	return stay >= want
}
