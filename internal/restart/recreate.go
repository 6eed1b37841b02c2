package restart

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

// stashName is the PodTemplate that keeps a bare pod's manifest between its two lives.
// A spec may hold secrets: it stays in the cluster, never in the journal.
func stashName(pod string) string { return "eksbg-" + pod }

// recreate drives a bare pod: its manifest is put away, the pod is evicted, made again
// from the manifest, and that goes once the new pod stands. Every step is one that can
// be found in the cluster, so a process that died goes on where it was.
func (c *campaign) recreate(ctx context.Context, w *work) (bool, error) {
	old, now := c.birth(w), c.mirror.pod(w.item.Owner.Namespace, w.item.Owner.Name)
	stash, create := c.newest(w.name, doStash), c.newest(w.name, doCreate)
	switch {
	case now != nil && string(now.UID) == old && now.DeletionTimestamp != nil:
		return false, c.watchOver(ctx, w)
	case now != nil && string(now.UID) == old && !c.consents(w.name):
		return c.spare(ctx, w, c.mirror.podView(now))
	case now != nil && string(now.UID) == old && c.mirror.place(now.Spec.NodeName) == nowhere:
		return false, c.watchOver(ctx, w)
	case now != nil && string(now.UID) == old && c.mirror.place(now.Spec.NodeName) == current && stash != nil && stash.owing() && !c.took(w.name, old):
		return false, c.unstash(ctx, w) // it stands where it should
	case now != nil && string(now.UID) == old && c.mirror.place(now.Spec.NodeName) == current:
		w.active, w.done = false, true // likewise
		return false, nil
	case now != nil && string(now.UID) == old && (stash == nil || !stash.standing()):
		return c.again(w, c.stash(ctx, w, now, stash))
	case now != nil && string(now.UID) == old:
		return c.evictBare(ctx, w, c.mirror.podView(now))
	case now != nil:
		return c.reborn(ctx, w, now, create)
	case stash == nil || !stash.owing():
		w.active, w.done = false, true // it went without eksbg's doing
		return false, nil
	case !c.took(w.name, old):
		return false, c.unstash(ctx, w) // likewise
	case create != nil && create.standing():
		return false, c.watchOver(ctx, w) // the watch does not show it yet
	}
	return c.again(w, c.create(ctx, w, create))
}

// birth is the UID of the pod that is replaced.
func (c *campaign) birth(w *work) string {
	if e := c.newest(w.name, doStash); e != nil && e.owing() {
		return e.UID
	}
	return w.item.Owner.UID
}

// consents tells whether the plan file lets a bare pod be made anew.
func (r *Restart) consents(owner string) bool {
	return r.allows(owner, planfile.ActionRecreate) && !r.skipped(owner)
}

// spare leaves a pod that stands where it is, since the plan file has taken its consent
// back before the eviction; its manifest is kept no longer.
func (c *campaign) spare(ctx context.Context, w *work, p podView) (bool, error) {
	for _, e := range c.deeds(w.name, doEvict) {
		switch {
		case e.UID != p.UID:
		case e.open():
			return c.unsent(ctx, w, taking{pod: p, entry: e}, "not sent again: the plan file no longer allows it")
		case e.standing():
			return false, c.watchOver(ctx, w) // the watch does not show it yet
		}
	}
	return false, c.unstash(ctx, w)
}

// stash puts the manifest away in a PodTemplate of the pod's own namespace.
func (c *campaign) stash(ctx context.Context, w *work, seen *corev1.Pod, open *entry) error {
	seq := int64(0)
	if open != nil && open.open() {
		seq = open.Seq
	}
	pods := c.Kubernetes.CoreV1().Pods(seen.Namespace)
	p, err := pods.Get(ctx, seen.Name, metav1.GetOptions{})
	if err != nil {
		if later, err := c.later(w, err); later {
			return err
		}
		return fmt.Errorf("read pod %s/%s: %w", seen.Namespace, seen.Name, err)
	}
	if p.UID != seen.UID {
		w.retry = c.Clock.Now().Add(tick) // the watch will show it
		return nil
	}
	if seq == 0 {
		seq, err = c.intend("k8s:create podtemplates", seen.Namespace+"/"+stashName(seen.Name),
			deed{Do: doStash, Owner: w.name, Object: stashName(seen.Name), UID: string(seen.UID)}, nil)
		if err != nil {
			return err
		}
	}
	if err := c.guard("k8s:create podtemplates", seen.Namespace+"/"+stashName(seen.Name)); err != nil {
		return err
	}
	templates := c.Kubernetes.CoreV1().PodTemplates(seen.Namespace)
	_, err = templates.Create(ctx, manifest(p), metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsAlreadyExists(err) {
		was, getErr := templates.Get(ctx, stashName(seen.Name), metav1.GetOptions{})
		switch {
		case getErr != nil:
			err = getErr
		case was.Annotations[recreateAnnotation] == string(p.UID):
			err = nil
		case was.Annotations[recreateAnnotation] != "":
			// Left by a run that was not resumed; that pod has lived since.
			fresh := manifest(p)
			fresh.ResourceVersion = was.ResourceVersion
			_, err = templates.Update(ctx, fresh, metav1.UpdateOptions{FieldManager: fieldManager})
		}
	}
	return c.sent(w, seq, answer{err: err, did: "its manifest is kept in PodTemplate " + stashName(seen.Name), what: "keep the manifest of",
		verb: "get, create, update and delete podtemplates"})
}

// manifest is the pod as it can be made again: without what the API server, the
// scheduler and the kubelet have filled in.
func manifest(p *corev1.Pod) *corev1.PodTemplate {
	t := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: stashName(p.Name),
		Annotations: map[string]string{recreateAnnotation: string(p.UID)}}}
	t.Template.Labels, t.Template.Annotations, t.Template.Finalizers = p.Labels, p.Annotations, p.Finalizers
	t.Template.Spec = *p.Spec.DeepCopy()
	s := &t.Template.Spec
	// The priority is worked out anew from the class; ephemeral containers are not for creation.
	s.NodeName, s.Priority, s.PreemptionPolicy, s.EphemeralContainers = "", nil, nil, nil
	return t
}

// evictBare evicts the old pod.
func (c *campaign) evictBare(ctx context.Context, w *work, p podView) (bool, error) {
	all := c.deeds(w.name, doEvict)
	for _, e := range all {
		switch {
		case e.UID == p.UID && e.open():
			return false, c.evict(ctx, w, e.Seq, p)
		case e.UID == p.UID && e.standing():
			return false, c.watchOver(ctx, w) // the watch does not show it yet
		}
	}
	seq, err := c.intend("k8s:create pods/eviction", podName(w, p), deed{Do: doEvict, Owner: w.name, Object: p.Name, UID: p.UID, Want: 1}, nil)
	if err != nil {
		return false, err
	}
	return false, c.evict(ctx, w, seq, p)
}

// create makes the pod again from the kept manifest.
func (c *campaign) create(ctx context.Context, w *work, open *entry) error {
	o := w.item.Owner
	t, err := c.Kubernetes.CoreV1().PodTemplates(o.Namespace).Get(ctx, stashName(o.Name), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return c.unkept(ctx, w)
	case err != nil:
		if later, err := c.later(w, err); later {
			return err
		}
		return fmt.Errorf("read the manifest of %s: %w", w.name, err)
	}
	seq := int64(0)
	if open != nil && open.open() {
		seq = open.Seq
	} else if seq, err = c.intend("k8s:create pods", o.Namespace+"/"+o.Name, deed{Do: doCreate, Owner: w.name, Object: o.Name}, nil); err != nil {
		return err
	}
	if err := c.guard("k8s:create pods", w.name); err != nil {
		return err
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, Labels: t.Template.Labels,
		Annotations: t.Template.Annotations, Finalizers: t.Template.Finalizers}, Spec: t.Template.Spec}
	_, err = c.Kubernetes.CoreV1().Pods(o.Namespace).Create(ctx, p, metav1.CreateOptions{FieldManager: fieldManager})
	switch {
	case apierrors.IsAlreadyExists(err):
		c.moved = true
		return c.settle(seq, state.Found, w.name+": it is there again", landed{})
	case ending(err), apierrors.IsNotFound(err): // the latter once the namespace is gone
		return c.dropped(w)
	}
	err = c.sent(w, seq, answer{err: err, did: "made again", what: "make again", verb: "create pods"})
	if stop, ok := asStop(err); ok && stop.Code == state.ExitBlocked {
		c.unmade[w.name] = true
		stop.Cure += "\nthe pod is away and its manifest kept in PodTemplate " + state.Clean(stashName(o.Name)) + "; by hand it is made again with\n  " + remakeByHand(o.Namespace, o.Name)
		return stop
	}
	return err
}

// unkept decides what becomes of a pod whose manifest is gone: with its namespace both go
// for good, and that is nobody's business here.
func (c *campaign) unkept(ctx context.Context, w *work) error {
	o := w.item.Owner
	ns, err := c.Kubernetes.CoreV1().Namespaces().Get(ctx, o.Namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && ns.DeletionTimestamp != nil:
		return c.dropped(w)
	case err != nil && !apierrors.IsForbidden(err):
		if later, err := c.later(w, err); later {
			return err
		}
		return fmt.Errorf("look whether the namespace of %s is being deleted: %w", w.name, err)
	}
	return c.stop(w, state.ExitBlocked, "the pod is gone, and so is PodTemplate "+stashName(o.Name)+" with its manifest",
		"make the pod again from where it came from, then run the same command again")
}

// dropped ends the recreation of a pod whose namespace is being deleted.
func (c *campaign) dropped(w *work) error {
	w.active, w.done, c.moved = false, true, true
	why := "namespace " + w.item.Owner.Namespace + " is being deleted: not made again"
	if err := c.close(w, state.Unknown, why); err != nil {
		return err
	}
	return c.record(state.RecordNote, w.name+": "+why)
}

// reborn waits until the new pod stands, and then drops the manifest.
func (c *campaign) reborn(ctx context.Context, w *work, p *corev1.Pod, create *entry) (bool, error) {
	v := c.mirror.podView(p)
	w.view.Pods = []podView{v}
	for _, e := range []*entry{create, c.newest(w.name, doEvict)} {
		if e != nil && e.open() {
			return true, c.settle(e.Seq, state.Found, w.name+": it is there again", landed{})
		}
	}
	switch {
	case v.Place == lagging:
		if err := c.close(w, state.Unknown, "made again on the old kubelet"); err != nil {
			return false, err
		}
		return false, c.stop(w, state.ExitBlocked, fmt.Sprintf("the new pod is on the old kubelet too (node %s)", v.Node),
			"wait until every API server is at the new version, then run the same command again")
	case v.Place != current || !v.Ready:
		return false, c.watchOver(ctx, w)
	}
	return false, c.unstash(ctx, w)
}

// unstash deletes the kept manifest, which ends the recreation.
func (c *campaign) unstash(ctx context.Context, w *work) error {
	o := w.item.Owner
	name := stashName(o.Name)
	if kept, err := c.kept(ctx, w); err != nil || !kept {
		return err
	}
	e := c.newest(w.name, doUnstash)
	seq := int64(0)
	var err error
	if e != nil && e.open() {
		seq = e.Seq
	} else if seq, err = c.intend("k8s:delete podtemplates", o.Namespace+"/"+name, deed{Do: doUnstash, Owner: w.name, Object: name}, nil); err != nil {
		return err
	}
	if err := c.guard("k8s:delete podtemplates", o.Namespace+"/"+name); err != nil {
		return err
	}
	err = c.Kubernetes.CoreV1().PodTemplates(o.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return c.sent(w, seq, answer{err: err, what: "drop the manifest of", verb: "delete podtemplates"})
	}
	w.active, w.done, c.moved = false, true, true
	if err := c.settle(seq, state.Succeeded, w.name+": its manifest is kept no longer", landed{}); err != nil {
		return err
	}
	return c.close(w, state.Succeeded, "")
}

// kept tells whether the manifest is there to be dropped. Where nobody knows if it was put
// away the API server is asked: another PodTemplate of that name is none of eksbg's.
func (c *campaign) kept(ctx context.Context, w *work) (bool, error) {
	s := c.newest(w.name, doStash)
	if s == nil || !s.open() {
		return true, nil
	}
	t, err := c.Kubernetes.CoreV1().PodTemplates(w.item.Owner.Namespace).Get(ctx, s.Object, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && t.Annotations[recreateAnnotation] != s.UID:
		w.active, w.done, c.moved = false, true, true
		return false, c.settle(s.Seq, state.Rejected, w.name+": its manifest was not kept", landed{})
	case err != nil:
		if later, err := c.later(w, err); later {
			return false, err
		}
		return false, fmt.Errorf("look whether the manifest of %s is kept: %w", w.name, err)
	}
	return true, c.settle(s.Seq, state.Found, w.name+": its manifest is kept in PodTemplate "+s.Object, landed{})
}

// close records what came in the end of all that was done to a bare pod. The stash is
// the last, for as long as it is owing the old pod is known by it. Without a text each
// outcome says what the change came to.
func (c *campaign) close(w *work, result state.Result, text string) error {
	all := slices.Clone(c.byOwner[w.name])
	slices.Reverse(all)
	for _, e := range all {
		if e.Do == doPending || !e.owing() {
			continue
		}
		came := text
		if came == "" {
			came = map[string]string{doStash: "its manifest was kept", doEvict: "the old pod is gone", doCreate: "made again, on " + c.minor}[e.Do]
		}
		if err := c.settle(e.Seq, result, w.name+": "+came, landed{}); err != nil {
			return err
		}
	}
	return nil
}
