package registry

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

// maxEvents is how many Events are kept; the oldest go first. A real API server drops
// them after an hour instead.
const maxEvents = 2000

// Recorder writes Events, counting repeated ones in place as client-go's recorder does.
// It is for one goroutine.
type Recorder struct {
	reg       *Registry
	component string
	seen      map[eventKey]string
	order     []string
}

type eventKey struct {
	uid             types.UID
	reason, message string
}

// Recorder makes a recorder for a component ("fargate-scheduler").
func (r *Registry) Recorder(component string) *Recorder {
	return &Recorder{reg: r, component: component, seen: map[eventKey]string{}}
}

// Event records that something happened to an object. Failures are ignored: an event
// more or less changes nothing.
func (rec *Recorder) Event(about store.Object, kind, reason, format string, args ...any) {
	res := For(about)
	msg := fmt.Sprintf(format, args...)
	ns := about.GetNamespace()
	if ns == "" {
		ns = metav1.NamespaceDefault
	}
	now := rec.reg.Now()
	k := eventKey{about.GetUID(), reason, msg}
	if name, ok := rec.seen[k]; ok && rec.again(ns, name, now) {
		return
	}
	var tail uint64
	rec.reg.Draw(func(src *rand.Rand) { tail = src.Uint64() })
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("%s.%016x", about.GetName(), tail)},
		InvolvedObject: corev1.ObjectReference{
			Kind: res.Kind, APIVersion: res.GroupVersion().String(), Namespace: about.GetNamespace(),
			Name: about.GetName(), UID: about.GetUID(), ResourceVersion: about.GetResourceVersion(),
		},
		Reason: reason, Message: msg, Type: kind, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: rec.component}, ReportingController: rec.component,
	}
	if _, err := rec.reg.Create(Events, e, false); err != nil {
		return
	}
	rec.seen[k] = e.Name
	rec.order = append(rec.order, store.KeyOf(e))
	if len(rec.order) > maxEvents {
		rec.forget()
	}
}

// again counts an event once more; false when it is no longer there.
func (rec *Recorder) again(ns, name string, now metav1.Time) bool {
	_, err := rec.reg.Change(Events, ns, name, Whole, false, func(old store.Object) (store.Object, error) {
		e := old.DeepCopyObject().(*corev1.Event)
		e.Count++
		e.LastTimestamp = now
		return e, nil
	})
	return err == nil
}

// forget drops the older half of what this recorder wrote.
func (rec *Recorder) forget() {
	for _, key := range rec.order[:maxEvents/2] {
		ns, name := store.Split(key)
		_, _, _ = rec.reg.Delete(Events, ns, name, metav1.DeleteOptions{}) // gone already is fine
	}
	rec.order = append([]string(nil), rec.order[maxEvents/2:]...)
	clear(rec.seen)
}
