package store

import (
	"errors"
	"sort"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Reader reads the store while it is locked by whoever handed it out.
type Reader struct{ s *Store }

// Get returns the object or nil.
func (r Reader) Get(gr schema.GroupResource, key string) Object {
	if b := r.s.buckets[gr]; b != nil {
		return b.objects[key]
	}
	return nil
}

// List lists the objects of a resource in a namespace ("" for all), by key.
func (r Reader) List(gr schema.GroupResource, namespace string) []Object {
	b := r.s.buckets[gr]
	if b == nil {
		return nil
	}
	keys := b.sorted
	if namespace != "" {
		from := sort.SearchStrings(keys, namespace+"/")
		to := sort.SearchStrings(keys, namespace+"0") // '0' follows '/'
		keys = keys[from:to]
	}
	out := make([]Object, len(keys))
	for i, k := range keys {
		out[i] = b.objects[k]
	}
	return out
}

// Owned lists the objects of a resource that name uid as an owner, by key.
func (r Reader) Owned(uid types.UID, gr schema.GroupResource) []Object {
	var out []Object
	for ref := range r.s.owned[uid] {
		if ref.Resource == gr {
			out = append(out, r.s.buckets[gr].objects[ref.Key])
		}
	}
	sort.Slice(out, func(i, j int) bool { return KeyOf(out[i]) < KeyOf(out[j]) })
	return out
}

// Dependents names everything that has uid as an owner.
func (r Reader) Dependents(uid types.UID) []Ref {
	out := make([]Ref, 0, len(r.s.owned[uid]))
	for ref := range r.s.owned[uid] {
		out = append(out, ref)
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].Resource != out[j].Resource {
			return out[i].Resource.String() < out[j].Resource.String()
		}
		return out[i].Key < out[j].Key
	})
	return out
}

// Find names the live object with that uid.
func (r Reader) Find(uid types.UID) (Ref, bool) {
	ref, ok := r.s.live[uid]
	return ref, ok
}

// Namespaced names everything in a namespace.
func (r Reader) Namespaced(namespace string) []Ref {
	var out []Ref
	for gr := range r.s.buckets {
		for _, o := range r.List(gr, namespace) {
			out = append(out, Ref{gr, KeyOf(o)})
		}
	}
	return out
}

// Tx is a set of writes that happen together or not at all.
type Tx struct {
	Reader
	writes []write
}

type write struct {
	ref  Ref
	prev Object
	next Object // nil deletes
}

// kept is an error that does not undo what was written before it.
type kept struct{ err error }

func (k kept) Error() string { return k.err.Error() }

// Keep marks an error that a transaction ends with although its writes are to stay.
func Keep(err error) error { return kept{err} }

// Update runs f with the store locked. The writes of f take effect when it returns nil,
// each with a revision of its own, and not at all when it returns an error, except one
// marked by Keep: Update returns the error within it then.
func (s *Store) Update(f func(*Tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	tx := &Tx{Reader: Reader{s}}
	err := f(tx)
	var keep kept
	if errors.As(err, &keep) {
		err = keep.err
	} else if err != nil {
		return err
	}
	for _, w := range tx.writes {
		s.apply(w)
	}
	return err
}

// Get returns the object as this transaction leaves it, or nil.
func (tx *Tx) Get(gr schema.GroupResource, key string) Object {
	for i := len(tx.writes) - 1; i >= 0; i-- {
		if w := tx.writes[i]; w.ref.Resource == gr && w.ref.Key == key {
			return w.next
		}
	}
	return tx.Reader.Get(gr, key)
}

// Put stores o, which then belongs to the store.
func (tx *Tx) Put(gr schema.GroupResource, o Object) {
	ref := Ref{gr, KeyOf(o)}
	tx.writes = append(tx.writes, write{ref: ref, prev: tx.Get(gr, ref.Key), next: o})
}

// Delete removes an object that is there.
func (tx *Tx) Delete(gr schema.GroupResource, key string) {
	if prev := tx.Get(gr, key); prev != nil {
		tx.writes = append(tx.writes, write{ref: Ref{gr, key}, prev: prev})
	}
}

// apply makes one write the newest revision.
func (s *Store) apply(w write) {
	s.rev++
	b := s.bucket(w.ref.Resource)
	e := Event{Rev: s.rev, Resource: w.ref.Resource, Prev: w.prev, Object: w.next}
	switch {
	case w.next == nil:
		e.Type = Deleted
		e.Object = w.prev.DeepCopyObject().(Object)
		delete(b.objects, w.ref.Key)
		b.removeKey(w.ref.Key)
	case w.prev == nil:
		e.Type = Added
		b.objects[w.ref.Key] = w.next
		b.insertKey(w.ref.Key)
	default:
		e.Type = Modified
		b.objects[w.ref.Key] = w.next
	}
	e.Object.SetResourceVersion(FormatRev(s.rev))
	s.index(w)
	b.log = append(b.log, e)
	if len(b.log) > 2*s.window {
		cut := len(b.log) - s.window
		b.dropped = b.log[cut-1].Rev
		b.log = append(make([]Event, 0, 2*s.window+1), b.log[cut:]...)
	}
	b.wake()
	for _, h := range s.hooks {
		h(Reader{s}, e)
	}
}

func (b *bucket) insertKey(key string) {
	i := sort.SearchStrings(b.sorted, key)
	b.sorted = append(b.sorted, "")
	copy(b.sorted[i+1:], b.sorted[i:])
	b.sorted[i] = key
}

func (b *bucket) removeKey(key string) {
	if i := sort.SearchStrings(b.sorted, key); i < len(b.sorted) && b.sorted[i] == key {
		b.sorted = append(b.sorted[:i], b.sorted[i+1:]...)
	}
}

// index keeps the owners and the live uids in step with a write.
func (s *Store) index(w write) {
	b := s.bucket(w.ref.Resource)
	if w.next != nil && metav1.GetControllerOfNoCopy(w.next) == nil {
		b.orphans[w.ref.Key] = struct{}{}
	} else {
		delete(b.orphans, w.ref.Key)
	}
	if w.prev != nil {
		delete(s.live, w.prev.GetUID())
		for _, o := range w.prev.GetOwnerReferences() {
			s.disown(o, w.ref)
		}
	}
	if w.next == nil {
		return
	}
	s.live[w.next.GetUID()] = w.ref
	for _, o := range w.next.GetOwnerReferences() {
		if s.owned[o.UID] == nil {
			s.owned[o.UID] = map[Ref]struct{}{}
		}
		s.owned[o.UID][w.ref] = struct{}{}
	}
}

func (s *Store) disown(o metav1.OwnerReference, ref Ref) {
	delete(s.owned[o.UID], ref)
	if len(s.owned[o.UID]) == 0 {
		delete(s.owned, o.UID)
	}
}
