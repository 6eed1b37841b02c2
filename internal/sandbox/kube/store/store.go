// Package store keeps the objects of a simulated cluster: one revision counter for all
// of them, as etcd has it, a window of past changes for watches and for lists at an
// older revision, and an index of owners.
package store

import (
	"errors"
	"sort"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Object is an API object. What is in the store is never changed in place: readers may
// keep it, writers put a copy.
type Object interface {
	runtime.Object
	metav1.Object
}

// ErrTooOld says that a revision is older than the window of past changes.
var ErrTooOld = errors.New("resource version is too old")

// ErrTooNew says that a revision has not been reached yet.
var ErrTooNew = errors.New("resource version is too large")

// Type says what a change did.
type Type string

// The types of change, spelled as in watch events.
const (
	Added    Type = "ADDED"
	Modified Type = "MODIFIED"
	Deleted  Type = "DELETED"
)

// Event is one change of one object. Prev is nil for Added; Object of Deleted is the
// last state, with the revision of the deletion.
type Event struct {
	Rev          uint64
	Type         Type
	Resource     schema.GroupResource
	Prev, Object Object
}

// Ref names a stored object.
type Ref struct {
	Resource schema.GroupResource
	Key      string
}

// Key is how an object is stored within its resource: namespace/name, or the name alone
// where there is no namespace. It sorts as etcd's keys do.
func Key(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// KeyOf is the key of an object.
func KeyOf(o metav1.Object) string { return Key(o.GetNamespace(), o.GetName()) }

// Split is the inverse of Key.
func Split(key string) (namespace, name string) {
	if ns, n, ok := strings.Cut(key, "/"); ok {
		return ns, n
	}
	return "", key
}

// Store holds all objects. The zero value is not usable; see New.
type Store struct {
	mu      sync.RWMutex
	window  int
	rev     uint64
	buckets map[schema.GroupResource]*bucket
	owned   map[types.UID]map[Ref]struct{}
	live    map[types.UID]Ref
	hooks   []func(Reader, Event)
}

// bucket holds one resource.
type bucket struct {
	objects map[string]Object
	sorted  []string // keys in order
	log     []Event  // past changes, oldest first
	dropped uint64   // revision of the newest change that is no longer in log
	changed chan struct{}
	orphans map[string]struct{} // keys of the objects that no controller owns
}

// New makes an empty store that remembers at least window changes per resource.
func New(window int) *Store {
	return &Store{
		window:  window,
		rev:     1,
		buckets: map[schema.GroupResource]*bucket{},
		owned:   map[types.UID]map[Ref]struct{}{},
		live:    map[types.UID]Ref{},
	}
}

// Hook registers f to be told every change, in order, while the store is locked: f must
// be quick and must read through the Reader only. Hooks are registered before use.
func (s *Store) Hook(f func(Reader, Event)) { s.hooks = append(s.hooks, f) }

func (s *Store) bucket(gr schema.GroupResource) *bucket {
	b := s.buckets[gr]
	if b == nil {
		b = &bucket{objects: map[string]Object{}, orphans: map[string]struct{}{}, changed: make(chan struct{})}
		s.buckets[gr] = b
	}
	return b
}

// Rev is the present revision.
func (s *Store) Rev() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.rev
}

// View runs f with a consistent view of everything; f must not write.
func (s *Store) View(f func(Reader)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	f(Reader{s})
}

// Get returns the object or nil.
func (s *Store) Get(gr schema.GroupResource, key string) Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return Reader{s}.Get(gr, key)
}

// Owned lists the objects of a resource that name uid as an owner, by key.
func (s *Store) Owned(uid types.UID, gr schema.GroupResource) []Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return Reader{s}.Owned(uid, gr)
}

// Orphans lists the objects of a resource in a namespace that no controller owns, by key.
func (s *Store) Orphans(gr schema.GroupResource, namespace string) []Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	b := s.buckets[gr]
	if b == nil {
		return nil
	}
	var out []Object
	for key := range b.orphans {
		if o := b.objects[key]; o.GetNamespace() == namespace {
			out = append(out, o)
		}
	}
	sort.Slice(out, func(i, j int) bool { return KeyOf(out[i]) < KeyOf(out[j]) })
	return out
}

// List lists the objects of a resource in a namespace ("" for all), by key, as they are now.
func (s *Store) List(gr schema.GroupResource, namespace string) ([]Object, uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return Reader{s}.List(gr, namespace), s.rev
}

// ListAt lists as List, as it was at rev. It fails with ErrTooOld or ErrTooNew.
func (s *Store) ListAt(gr schema.GroupResource, namespace string, rev uint64) ([]Object, error) {
	s.mu.Lock()
	b := s.bucket(gr)
	if rev > s.rev {
		s.mu.Unlock()
		return nil, ErrTooNew
	}
	if rev < b.dropped {
		s.mu.Unlock()
		return nil, ErrTooOld
	}
	now := Reader{s}.List(gr, namespace)
	undo := map[string]Object{}
	for i := len(b.log) - 1; i >= 0 && b.log[i].Rev > rev; i-- {
		e := b.log[i]
		if namespace == "" || e.Object.GetNamespace() == namespace {
			undo[KeyOf(e.Object)] = e.Prev
		}
	}
	s.mu.Unlock()
	if len(undo) == 0 {
		return now, nil
	}
	then := make([]Object, 0, len(now))
	for _, o := range now {
		if _, changed := undo[KeyOf(o)]; !changed {
			then = append(then, o)
		}
	}
	for _, o := range undo {
		if o != nil {
			then = append(then, o)
		}
	}
	sort.Slice(then, func(i, j int) bool { return KeyOf(then[i]) < KeyOf(then[j]) })
	return then, nil
}

// Since returns the changes of a resource after rev, the revision up to which that is
// everything, and a channel that is closed at the next change. It fails with ErrTooOld.
func (s *Store) Since(gr schema.GroupResource, rev uint64) ([]Event, uint64, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.bucket(gr)
	if rev < b.dropped {
		return nil, 0, nil, ErrTooOld
	}
	i := sort.Search(len(b.log), func(i int) bool { return b.log[i].Rev > rev })
	return b.log[i:len(b.log):len(b.log)], s.rev, b.changed, nil
}

// Compact forgets every change up to rev, as etcd does it every five minutes.
func (s *Store) Compact(rev uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rev = min(rev, s.rev)
	for _, b := range s.buckets {
		i := sort.Search(len(b.log), func(i int) bool { return b.log[i].Rev > rev })
		b.log = append([]Event(nil), b.log[i:]...)
		b.dropped = max(b.dropped, rev)
		b.wake()
	}
}

// wake tells everybody who waits for a change.
func (b *bucket) wake() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// FormatRev spells a revision as metadata.resourceVersion does.
func FormatRev(rev uint64) string { return strconv.FormatUint(rev, 10) }
