package restart

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	case now != nil && string(now.UID) == old && c.mirror.place(now.Spec.NodeName) == nowhere:
		return false, c.watchOver(ctx, w)
	case now != nil && string(now.UID) == old && c.mirror.place(now.Spec.NodeName) == current:
		w.active, w.done = false, true // it stands where it should
		return false, c.close(w, state.Succeeded, "on "+c.minor)
	case now != nil && string(now.UID) == old && (stash == nil || !stash.standing()):
		return c.again(w, c.stash(ctx, w, now, stash))
	case now != nil && string(now.UID) == old:
		return c.evictBare(ctx, w, c.mirror.podView(now))
	case now != nil:
		return c.reborn(ctx, w, now, create)
	case stash == nil || !stash.owing():
		w.active, w.done = false, true // it went without eksbg's doing
		return false, nil
	case !c.took(w, old):
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

// took tells whether this step may have evicted the pod.
func (c *campaign) took(w *work, uid string) bool {
	for _, e := range c.deeds(w.name, doEvict) {
		if e.UID == uid && e.Result != state.Rejected {
			return true
		}
	}
	return false
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
		return c.stop(w, state.ExitBlocked, "the pod is gone, and so is PodTemplate "+stashName(o.Name)+" with its manifest",
			"make the pod again from where it came from, then run the same command again")
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
	if apierrors.IsAlreadyExists(err) {
		c.moved = true
		return c.settle(seq, state.Found, w.name+": it is there again", landed{})
	}
	err = c.sent(w, seq, answer{err: err, did: "made again", what: "make again", verb: "create pods"})
	if stop, ok := asStop(err); ok && stop.Code == state.ExitBlocked {
		stop.Cure = fmt.Sprintf("its manifest is in PodTemplate %s (kubectl get podtemplate -n %s %s -o yaml);\n%s", stashName(o.Name), o.Namespace, stashName(o.Name), stop.Cure)
		return stop
	}
	return err
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

// close records what came in the end of all that was done to a bare pod. The stash is
// the last, for as long as it is owing the old pod is known by it. Without a text each
// outcome says what the change came to.
func (c *campaign) close(w *work, result state.Result, text string) error {
	all := slices.Clone(c.byOwner[w.name])
	slices.Reverse(all)
	for _, e := range all {
		if e.Do == doPending || !e.standing() && e.Result != state.Failed {
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
