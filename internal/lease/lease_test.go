package lease_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/smithy-go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/eksbg/eksbg/internal/aws"
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
		m.opt.Seen = nil
		l := m.take(t)
		defer release(t, l)
		if l.Undisturbed() {
			t.Error("never looked at, and undisturbed")
		}
	})
}

func TestAwayIsNotLost(t *testing.T) {
	for name, err := range map[string]error{
		"unreachable":   errAway,
		"unavailable":   apierrors.NewServiceUnavailable("rolling"),
		"not permitted": apierrors.NewForbidden(leases, lease.Name, errors.New("the authorizer rolls")),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				blue, green := &server{}, &server{}
				m := newMachine("ops", blue, green)
				l := m.take(t)
				defer release(t, l)
				m.lines[1].cut(err)
				after(25 * time.Second) // one renewal is due
				began := time.Now()
				go func() {
					time.Sleep(5 * time.Minute)
					m.lines[1].cut(nil)
				}()
				if err := l.Guard(t.Context(), func(s string) { m.add(&m.guarded, s) }); err != nil {
					t.Fatal(err)
				}
				if d := time.Since(began); d < 5*time.Minute || d > 5*time.Minute+10*time.Second {
					t.Errorf("the change began after %s", d)
				}
				mentions(t, m.heard(&m.guarded), "no change before the lock in cluster b is renewed again")
				mentions(t, m.heard(&m.notes), "cluster b is renewed again after 5m")
				if m.lost() != nil {
					t.Error("lost")
				}
			})
		})
	}
}

func TestAWaitForARenewalEnds(t *testing.T) {
	expired := &smithy.GenericAPIError{Code: "ExpiredTokenException", Message: "over"}
	tests := map[string]struct {
		err   error
		ctx   func(context.Context) (context.Context, context.CancelFunc)
		after time.Duration
		is    func(error) bool
	}{
		"credentials are over": {err: expired, is: aws.IsExpired},
		"the token is refused": {err: apierrors.NewUnauthorized("no"), is: apierrors.IsUnauthorized},
		"nothing for minutes":  {err: errAway, after: 10 * time.Minute, is: aws.IsUnavailable},
		"an interrupt": {err: errAway, after: time.Minute, is: func(err error) bool { return errors.Is(err, context.DeadlineExceeded) },
			ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, time.Minute)
			}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine("ops", &server{})
				l := m.take(t)
				m.lines[0].cut(tt.err)
				after(21 * time.Second)
				ctx := t.Context()
				if tt.ctx != nil {
					var cancel context.CancelFunc
					ctx, cancel = tt.ctx(ctx)
					defer cancel()
				}
				began := time.Now()
				err := l.Guard(ctx, nil)
				if err == nil || !tt.is(err) {
					t.Errorf("got %v", err)
				}
				if d := time.Since(began).Truncate(10 * time.Second); d != tt.after {
					t.Errorf("after %s, want %s", d, tt.after)
				}
				var withheld *state.Withheld
				if _, err := l.Recorder(ctx, &paper{}).Intent("eks:UpdateClusterVersion", "cluster a", nil, nil); tt.after < time.Minute && !errors.As(err, &withheld) {
					t.Errorf("the intent gives %v", err)
				}
				if err := l.Release(ctx); err == nil {
					t.Error("Release says nothing of a Lease that it could not give back")
				}
			})
		})
	}
}

// An interrupt does not keep the work that it leaves to do from being done under the
// lock.
func TestAnInterruptedRunHasItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		ctx, cancel := context.WithCancel(t.Context())
		m := newMachine("ops", s)
		l, err := lease.Take(ctx, m.opt)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		after(2 * lease.Term)
		if err := l.Guard(ctx, nil); err != nil {
			t.Error(err)
		}
		if err := l.Release(ctx); err != nil {
			t.Error(err)
		}
		if s.holder() != "" {
			t.Error("not given back")
		}
	})
}

func TestInterruptedWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		l := newMachine("ops", s).take(t)
		defer release(t, l)
		why := errors.New("interrupted")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			time.Sleep(5 * time.Second)
			cancel(why)
		}()
		if _, err := lease.Take(ctx, newMachine("dev", s).opt); !errors.Is(err, why) {
			t.Errorf("got %v", err)
		}
	})
}

func TestARemovedLeaseIsTakenAgain(t *testing.T) {
	for name, remove := range map[string]func(*server){
		"deleted": func(s *server) { s.remove() },
		"cleared": func(s *server) {
			l, _ := s.get()
			l.Spec.HolderIdentity = ptr.To("")
			_, _ = s.update(l)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				m := newMachine("ops", s)
				l := m.take(t)
				defer release(t, l)
				remove(s)
				after(21 * time.Second)
				if s.holder() != "ops_1_0" || m.lost() != nil {
					t.Errorf("held by %q, lost %v", s.holder(), m.lost())
				}
				mentions(t, m.heard(&m.notes), "had been removed and was taken again")
			})
		})
	}
}

// A machine that slept while another one took the lock, changed the pair and gave the
// lock back must not go on, although the Lease is free.
func TestALockThatAnotherOneHadMeanwhileIsLost(t *testing.T) {
	for name, anew := range map[string]bool{"the same Lease": false, "a Lease made anew": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				first, second := newMachine("ops", s), newMachine("dev", s)
				l := first.take(t)
				if anew {
					s.remove()
				} else {
					second.opt.Dead = func(lease.Holder) bool { return true }
				}
				release(t, second.take(t))
				after(21 * time.Second)
				lost := first.lost()
				if len(lost) != 1 || lost[0].Holder.Who.User != "dev" {
					t.Fatalf("lost: %v", lost)
				}
				exit(t, l.Guard(t.Context(), nil), state.ExitLocked)
				release(t, l)
			})
		})
	}
}

func TestALostAnswerIsNoOtherHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m := newMachine("ops", s)
		l := m.take(t)
		m.lines[0].loseAnswers(errAway)
		after(22 * time.Second)
		m.lines[0].cut(nil)
		if err := l.Guard(t.Context(), nil); err != nil {
			t.Error(err)
		}
		release(t, l)
		if m.lost() != nil || s.holder() != "" {
			t.Errorf("lost %v, held by %q", m.lost(), s.holder())
		}
	})
}

// Somebody edits the Lease: that is a conflict and no other holder.
func TestEditsDoNoHarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m := newMachine("ops", s)
		l := m.take(t)
		edit, _ := s.get()
		edit.Annotations["note"] = "hands off"
		if _, err := s.update(edit); err != nil {
			t.Fatal(err)
		}
		after(21 * time.Second)
		if got, _ := s.get(); got.Annotations["note"] != "hands off" || s.holder() != "ops_1_0" {
			t.Errorf("%v, held by %q", got.Annotations, s.holder())
		}
		if _, err := s.update(edit); err == nil {
			t.Fatal("the edit is not stale") // conflicts with the release's own version
		}
		release(t, l)
		if s.holder() != "" {
			t.Error("not given back")
		}
	})
}

func TestNotAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine("ops", &server{})
		m.lines[0].cut(apierrors.NewForbidden(leases, lease.Name, errors.New("no")))
		_, err := lease.Take(t.Context(), m.opt)
		exit(t, err, state.ExitBlocked)
		var stop *state.Stop
		if errors.As(err, &stop) && !strings.Contains(stop.Cure, "get, create and update leases") {
			t.Errorf("cure %q", stop.Cure)
		}
	})
}

// Traffic that is on its way is watched although an API server is away; no change is
// made before its Lease is taken.
func TestTolerated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m := newMachine("ops", s)
		m.lines[0].cut(errAway)
		m.opt.Tolerate = func(err error) bool { return errors.Is(err, errAway) }
		l := m.take(t)
		began := time.Now()
		go func() {
			time.Sleep(time.Minute)
			m.lines[0].cut(nil)
		}()
		if err := l.Guard(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d < time.Minute || s.holder() != "ops_1_0" {
			t.Errorf("a change began after %s, held by %q", d, s.holder())
		}
		release(t, l)

		// Somebody else has it when it can be read again.
		m.lines[0].cut(errAway)
		l = m.take(t)
		other := newMachine("dev", s).take(t)
		m.lines[0].cut(nil)
		after(lease.Term)
		if lost := m.lost(); len(lost) != 1 || lost[0].Holder.Who.User != "dev" {
			t.Errorf("lost: %v", lost)
		}
		release(t, l)
		release(t, other)
	})
}

func TestAMachineThatSleptRenewsBeforeAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m := newMachine("ops", s)
		clk := &sleeper{}
		m.opt.Clock = clk
		l := m.take(t)
		defer release(t, l)
		for _, d := range []time.Duration{2 * time.Hour, -time.Hour} {
			clk.sleep(d)
			before := s.written()
			if err := l.Guard(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if s.written() == before {
				t.Errorf("clock moved by %s, and the change began without a renewal", d)
			}
		}
	})
}

func TestIdentitiesDiffer(t *testing.T) {
	who := state.Who{Host: "bastion", PID: 4711}
	a, err := lease.NewIdentity(who, bytes.NewReader([]byte{1, 2, 3, 4, 5, 6}))
	if err != nil || a != "bastion_4711_010203040506" {
		t.Errorf("%q, %v", a, err)
	}
	if _, err := lease.NewIdentity(who, bytes.NewReader(nil)); err == nil {
		t.Error("an identity without randomness")
	}
}
