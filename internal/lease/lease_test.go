package lease_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eksbg/eksbg/internal/lease"
	"github.com/eksbg/eksbg/internal/state"
)

var errAway = &net.OpError{Op: "dial", Err: errors.New("connection refused")}

// mentions fails when no line holds all of the parts.
func mentions(t *testing.T, lines []string, parts ...string) {
	t.Helper()
	for _, l := range lines {
		all := true
		for _, p := range parts {
			all = all && strings.Contains(l, p)
		}
		if all {
			return
		}
	}
	t.Errorf("no line says %q: %q", parts, lines)
}

func exit(t *testing.T, err error, want state.Exit) {
	t.Helper()
	var stop *state.Stop
	if !errors.As(err, &stop) || stop.Code != want {
		t.Errorf("%v: want a stop with exit %d", err, want)
	}
}

func TestTakenRenewedAndGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blue, green := &server{}, &server{}
		m := newMachine("ops", blue, green)
		l := m.take(t)
		for _, s := range []*server{blue, green} {
			got, err := s.get()
			if err != nil {
				t.Fatal(err)
			}
			if s.holder() != "ops_1_0" || *got.Spec.LeaseDurationSeconds != 60 {
				t.Errorf("held by %q for %d s", s.holder(), *got.Spec.LeaseDurationSeconds)
			}
			for key, want := range map[string]string{"user": "ops", "host": "host-ops", "pid": "1", "run": "run-ops", "operation": "apply", "pair": "shop"} {
				if got.Annotations["eksbg.dev/"+key] != want {
					t.Errorf("annotation %s is %q, want %q", key, got.Annotations["eksbg.dev/"+key], want)
				}
			}
		}
		before := blue.written()
		after(lease.Term + time.Second)
		if got := blue.written() - before; got != 3 {
			t.Errorf("%d renewals in a term, want 3", got)
		}
		if err := l.Guard(t.Context(), nil); err != nil {
			t.Error(err)
		}
		release(t, l)
		release(t, l)
		if blue.holder() != "" || green.holder() != "" {
			t.Error("still held after Release")
		}
		if err := l.Guard(t.Context(), nil); err == nil {
			t.Error("a change may begin after Release")
		}
	})
}

func TestARenewedLockIsHeldBySomebodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blue, green := &server{}, &server{}
		first, second := newMachine("ops", blue, green), newMachine("dev", blue, green)
		l := first.take(t)
		defer release(t, l)
		_, err := lease.Take(t.Context(), second.opt)
		var held *lease.Held
		if !errors.As(err, &held) || held.Holder.Who.User != "ops" || held.Holder.Run != "run-ops" {
			t.Fatalf("got %v, want the holder", err)
		}
		exit(t, err, state.ExitLocked)
		mentions(t, second.heard(&second.waits), "waiting for the lock in cluster a", "ops on host-ops", "free in 1m0s")
		if green.holder() != "ops_1_0" || first.lost() != nil {
			t.Error("the attempt did harm")
		}
	})
}

// The second of two clusters is held: the first is given back.
func TestNothingStaysTakenWhenOneIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blue, green := &server{}, &server{}
		l := newMachine("ops", green).take(t)
		defer release(t, l)
		if _, err := lease.Take(t.Context(), newMachine("dev", blue, green).opt); err == nil {
			t.Fatal("taken")
		}
		if blue.holder() != "" {
			t.Errorf("the first cluster is still held by %s", blue.holder())
		}
	})
}

func TestTheLockOfACrashedHolderIsTakenOverAfterItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		first, second := newMachine("ops", s), newMachine("dev", s)
		l := first.take(t)
		first.lines[0].cut(errAway)     // crashed, as far as the server can tell
		after(lease.Term - time.Second) // what passed before anybody looked does not count
		began := time.Now()
		l2 := second.take(t)
		if d := time.Since(began); d < lease.Term || d > lease.Term+5*time.Second {
			t.Errorf("taken over after %s", d)
		}
		mentions(t, second.heard(&second.notes), "took over the lock in cluster a of ops on host-ops", "did not renew")
		if l2.Undisturbed() {
			t.Error("what was planned before the takeover counts as undisturbed")
		}

		// The first one comes back, and reads whose it is.
		first.lines[0].cut(nil)
		after(30 * time.Second)
		lost := first.lost()
		if len(lost) != 1 || lost[0].Holder.Who.User != "dev" {
			t.Fatalf("lost to %v", lost)
		}
		err := l.Guard(t.Context(), nil)
		exit(t, err, state.ExitLocked)
		if !errors.Is(err, lost[0]) || l.Lost() != lost[0] {
			t.Errorf("Guard says %v", err)
		}
		release(t, l)
		if s.holder() != "dev_1_0" {
			t.Error("the loser took the lock away")
		}
		release(t, l2)
	})
}

func TestAGoneProcessIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		first, second := newMachine("ops", s), newMachine("dev", s)
		l := first.take(t)
		first.lines[0].cut(errAway)
		second.opt.Dead = func(h lease.Holder) bool { return h.Who.Host == "host-ops" && h.Who.PID == 1 }
		began := time.Now()
		l2 := second.take(t)
		if time.Since(began) != 0 {
			t.Errorf("waited %s", time.Since(began))
		}
		mentions(t, second.heard(&second.notes), "whose process is gone")
		_ = l.Release(t.Context())
		release(t, l2)
	})
}

func TestAGivenBackLockIsTakenByWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		first, second := newMachine("ops", s), newMachine("dev", s)
		second.opt.Seen, _ = lease.Look(t.Context(), second.opt.Clusters, nil) // free, and then not
		l := first.take(t)
		go func() {
			time.Sleep(5 * time.Second)
			release(t, l)
		}()
		l2 := second.take(t)
		if l2.Undisturbed() {
			t.Error("another one held it in between")
		}
		release(t, l2)
	})
}

func TestUndisturbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m := newMachine("ops", s)
		check := func(name string, want bool, between func()) {
			t.Helper()
			m.opt.Seen, _ = lease.Look(t.Context(), m.opt.Clusters, nil)
			between()
			l := m.take(t)
			if l.Undisturbed() != want {
				t.Errorf("%s: %v", name, !want)
			}
			release(t, l)
		}
		other := newMachine("dev", s)
		held := func() { release(t, other.take(t)) }
		check("no Lease yet", true, func() {})
		check("a free Lease", true, func() {})
		check("held by another one in between", false, held)
		s.remove()
		check("made by another one in between", false, held)
		m.lines[0].cut(errAway)
		check("not seen", false, func() { m.lines[0].cut(nil) })
		// A process that lived when it was looked at, and died before it renewed its lock,
		// may have changed the pair in between.
		dying := other.take(t)
		m.opt.Seen, _ = lease.Look(t.Context(), m.opt.Clusters, nil)
		m.opt.Dead = func(lease.Holder) bool { return true }
		l := m.take(t)
		if l.Undisturbed() {
			t.Error("held by another one when it was seen")
		}
		release(t, l)
		_ = dying.Release(t.Context())
		m.opt.Seen = nil
		l = m.take(t)
		defer release(t, l)
		if l.Undisturbed() {
			t.Error("never looked at, and undisturbed")
		}
	})
}
