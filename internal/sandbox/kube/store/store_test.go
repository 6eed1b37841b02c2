package store_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

var maps1 = schema.GroupResource{Resource: "configmaps"}

func object(ns, name, value string, owners ...types.UID) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(ns + "/" + name)}, Data: map[string]string{"v": value}}
	for _, o := range owners {
		c.OwnerReferences = append(c.OwnerReferences, metav1.OwnerReference{UID: o})
	}
	return c
}

func state(items []store.Object) map[string]string {
	out := map[string]string{}
	for _, o := range items {
		out[store.KeyOf(o)] = o.(*corev1.ConfigMap).Data["v"]
	}
	return out
}

// TestHistory makes random changes and holds every revision that the store still
// remembers against a model: lists at a revision, and the state that a watch from it
// arrives at.
func TestHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.IntRange(1, 8).Draw(t, "window")
		s := store.New(window)
		model := map[uint64]map[string]string{s.Rev(): {}}
		owners := map[string]types.UID{}
		for i := range rapid.IntRange(1, 40).Draw(t, "changes") {
			ns := rapid.SampledFrom([]string{"a", "a-b", "b"}).Draw(t, "ns")
			name := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "name")
			now := maps.Clone(model[s.Rev()])
			key := store.Key(ns, name)
			drop := rapid.Bool().Draw(t, "delete")
			err := s.Update(func(tx *store.Tx) error {
				if drop {
					tx.Delete(maps1, key)
					return nil
				}
				owner := types.UID(rapid.SampledFrom([]string{"p", "q"}).Draw(t, "owner"))
				owners[key] = owner
				tx.Put(maps1, object(ns, name, fmt.Sprint(i), owner))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if drop {
				delete(now, key)
				delete(owners, key)
			} else {
				now[key] = fmt.Sprint(i)
			}
			model[s.Rev()] = now
			if rapid.IntRange(0, 19).Draw(t, "compact") == 0 {
				s.Compact(s.Rev())
			}
		}
		for rev, want := range model {
			checkRevision(t, s, rev, want)
		}
		if _, err := s.ListAt(maps1, "", s.Rev()); err != nil {
			t.Errorf("the present revision is %v", err)
		}
		if _, err := s.ListAt(maps1, "", s.Rev()+1); !errors.Is(err, store.ErrTooNew) {
			t.Errorf("a revision to come: %v", err)
		}
		checkOwners(t, s, owners)
	})
}

func checkRevision(t *rapid.T, s *store.Store, rev uint64, want map[string]string) {
	items, err := s.ListAt(maps1, "", rev)
	events, _, _, since := s.Since(maps1, rev)
	if errors.Is(err, store.ErrTooOld) != errors.Is(since, store.ErrTooOld) {
		t.Fatalf("at %d the list says %v and the watch %v", rev, err, since)
	}
	if err != nil {
		return
	}
	if got := state(items); !maps.Equal(got, want) {
		t.Fatalf("at %d there was %v, want %v", rev, got, want)
	}
	var keys []string
	for _, o := range items {
		keys = append(keys, store.KeyOf(o))
	}
	if !slices.IsSorted(keys) {
		t.Fatalf("the list at %d is not in order: %v", rev, keys)
	}
	one, err := s.ListAt(maps1, "a", rev)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range one {
		if o.GetNamespace() != "a" {
			t.Fatalf("the list of namespace a holds %s", store.KeyOf(o))
		}
	}
	got := maps.Clone(want)
	for _, e := range events {
		if e.Type == store.Deleted {
			delete(got, store.KeyOf(e.Object))
		} else {
			got[store.KeyOf(e.Object)] = e.Object.(*corev1.ConfigMap).Data["v"]
		}
		if e.Object.GetResourceVersion() != store.FormatRev(e.Rev) {
			t.Fatalf("an event of %d carries version %s", e.Rev, e.Object.GetResourceVersion())
		}
	}
	present, _ := s.List(maps1, "")
	if !maps.Equal(got, state(present)) {
		t.Fatalf("a watch from %d arrives at %v, want %v", rev, got, state(present))
	}
}

func checkOwners(t *rapid.T, s *store.Store, owners map[string]types.UID) {
	for _, uid := range []types.UID{"p", "q"} {
		var want, got []string
		for k, o := range owners {
			if o == uid {
				want = append(want, k)
			}
		}
		for _, o := range s.Owned(uid, maps1) {
			got = append(got, store.KeyOf(o))
		}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("%s owns %v, want %v", uid, got, want)
		}
	}
}

// TestTransaction checks that writes are seen inside of their transaction and that none
// happens when it fails.
func TestTransaction(t *testing.T) {
	s := store.New(10)
	var hooked []store.Type
	s.Hook(func(r store.Reader, e store.Event) { hooked = append(hooked, e.Type) })
	stop := errors.New("stop")
	err := s.Update(func(tx *store.Tx) error {
		tx.Put(maps1, object("a", "x", "1"))
		if tx.Get(maps1, "a/x") == nil {
			t.Error("a write is not seen in its own transaction")
		}
		return stop
	})
	if !errors.Is(err, stop) || s.Get(maps1, "a/x") != nil || s.Rev() != 1 || hooked != nil {
		t.Errorf("after a failed transaction: %v, %v, revision %d, hooks %v", err, s.Get(maps1, "a/x"), s.Rev(), hooked)
	}
	_ = s.Update(func(tx *store.Tx) error {
		tx.Put(maps1, object("a", "x", "1"))
		tx.Put(maps1, object("a", "x", "2"))
		tx.Delete(maps1, "a/x")
		return nil
	})
	if want := []store.Type{store.Added, store.Modified, store.Deleted}; !slices.Equal(hooked, want) || s.Rev() != 4 {
		t.Errorf("hooks %v at revision %d, want %v at 4", hooked, s.Rev(), want)
	}
}

// TestChanged checks that waiting for a change misses none.
func TestChanged(t *testing.T) {
	s := store.New(10)
	_, upto, changed, err := s.Since(maps1, s.Rev())
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
		t.Fatal("told of a change that was none")
	default:
	}
	_ = s.Update(func(tx *store.Tx) error { tx.Put(maps1, object("a", "x", "1")); return nil })
	<-changed
	if events, _, _, _ := s.Since(maps1, upto); len(events) != 1 {
		t.Errorf("%d events, want 1", len(events))
	}
}
