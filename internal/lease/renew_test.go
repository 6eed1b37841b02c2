package lease_test

import (
	"bytes"
	"context"
	"errors"
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

// A Lease that is lost is told at once, also where another one cannot be renewed meanwhile.
func TestALostLeaseIsToldBeforeOneThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m := newMachine("ops", &server{}, s)
		l := m.take(t)
		m.lines[0].cut(errAway)
		other := newMachine("dev", s)
		other.opt.Dead = func(lease.Holder) bool { return true }
		second := other.take(t)
		after(21 * time.Second)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Guard(over, nil); !state.LockLost(err) {
			t.Errorf("got %v", err)
		}
		release(t, second)
		if err := l.Release(t.Context()); err == nil {
			t.Error("Release says nothing of a Lease that it could not give back")
		}
	})
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
