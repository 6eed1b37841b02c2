package lease_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/eksbg/eksbg/internal/lease"
	"github.com/eksbg/eksbg/internal/state"
)

// A write whose answer is lost is sent again and answered with a conflict. What is read
// back then is our own: it is taken, renewed, given back.
func TestTheAnswerOfEveryWriteIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		for round, how := range []string{"created", "taken"} {
			m := newMachine("ops", s)
			m.lines[0].twice = true
			seen, err := lease.Look(t.Context(), m.opt.Clusters, nil)
			if err != nil {
				t.Fatal(err)
			}
			m.opt.Seen = seen
			before := s.written()
			l := m.take(t)
			if n := s.written() - before; n != 1 || !l.Undisturbed() {
				t.Errorf("%s with %d writes, undisturbed: %t", how, n, l.Undisturbed())
			}
			after(2*lease.Term + time.Second)
			if n := s.written() - before; n != 7 {
				t.Errorf("round %d: %d writes in two terms, want one and a renewal every 20 s", round, n)
			}
			if err := l.Guard(t.Context(), nil); err != nil || m.lost() != nil {
				t.Errorf("guard: %v, lost %v", err, m.lost())
			}
			release(t, l)
			if s.holder() != "" {
				t.Error("not given back")
			}
			if notes := m.heard(&m.notes); len(notes) > 0 {
				t.Errorf("notes %q", notes)
			}
		}
	})
}

// Cleared is cleared, though its answer was lost.
func TestTheAnswerOfClearIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		a, b := newMachine("a", s), newMachine("b", s)
		l := a.take(t)
		defer func() { _ = l.Release(context.Background()) }()
		b.lines[0].twice = true
		found, err := lease.Inspect(t.Context(), b.opt.Clusters[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := found.Clear(t.Context(), b.opt.Holder, clock.RealClock{}); err != nil || s.holder() != "" {
			t.Errorf("%v; held by %q", err, s.holder())
		}
		after(time.Second)
		if err := found.Clear(t.Context(), b.opt.Holder, clock.RealClock{}); !errors.Is(err, lease.ErrMoved) {
			t.Errorf("cleared what was not shown: %v", err)
		}
	})
}

// What changes all the time without being held by anybody is nobody's lock: the run can
// go on later.
func TestALeaseThatKeepsChanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m := newMachine("ops", s)
		release(t, m.take(t))
		m.lines[0].between = func() {
			got, err := s.get()
			if err != nil {
				t.Error(err)
				return
			}
			got.Spec.LeaseDurationSeconds = ptr.To(*got.Spec.LeaseDurationSeconds + 1)
			if _, err := s.update(got); err != nil {
				t.Error(err)
			}
		}
		_, err := lease.Take(t.Context(), m.opt)
		exit(t, err, state.ExitResumable)
		var stop *state.Stop
		if errors.As(err, &stop) && (!strings.Contains(stop.Why, "changed between each") || stop.Cure == "") {
			t.Errorf("%+v", stop)
		}
	})
}
