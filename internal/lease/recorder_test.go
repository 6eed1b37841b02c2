package lease_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eksbg/eksbg/internal/lease"
	"github.com/eksbg/eksbg/internal/state"
)

// paper is a recorder that counts.
type paper struct {
	intents int
	waits   []string
}

func (p *paper) Intent(string, string, any, any) (int64, error) {
	p.intents++
	return int64(p.intents), nil
}
func (*paper) Outcome(int64, state.Result, string, any) error { return nil }
func (*paper) Record(state.Record) error                      { return nil }
func (p *paper) Waiting(text string)                          { p.waits = append(p.waits, text) }

func TestIntentsAreWrittenUnderTheLockAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m := newMachine("ops", s)
		l := m.take(t)
		journal := &paper{}
		rec := l.Recorder(t.Context(), journal)
		if seq, err := rec.Intent("k8s:patch deployments", "shop/Deployment/cart", nil, nil); err != nil || seq != 1 {
			t.Fatalf("%d, %v", seq, err)
		}
		other := newMachine("dev", s)
		other.opt.Dead = func(lease.Holder) bool { return true }
		l2 := other.take(t)
		after(21 * time.Second)
		_, err := rec.Intent("k8s:patch deployments", "shop/Deployment/web", nil, nil)
		var withheld *state.Withheld
		if !errors.As(err, &withheld) || withheld.Change != "k8s:patch deployments on shop/Deployment/web" {
			t.Errorf("got %v", err)
		}
		exit(t, err, state.ExitLocked)
		if journal.intents != 1 {
			t.Errorf("%d intents in the journal", journal.intents)
		}

		// What puts back needs no lock.
		if _, err := state.Unguarded(rec).Intent("route53:ChangeResourceRecordSets", "zone", nil, nil); err != nil || journal.intents != 2 {
			t.Errorf("put-back: %v", err)
		}
		if state.Unguarded(journal) != state.Recorder(journal) {
			t.Error("a recorder without a guard is another one")
		}
		release(t, l)
		release(t, l2)
	})
}

func TestAWithheldIntentSaysWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine("ops", &server{})
		l := m.take(t)
		m.lines[0].cut(errAway)
		after(21 * time.Second)
		go func() {
			time.Sleep(time.Minute)
			m.lines[0].cut(nil)
		}()
		journal := &paper{}
		if _, err := l.Recorder(t.Context(), journal).Intent("eks:UpdateAddon", "cluster a", nil, nil); err != nil {
			t.Fatal(err)
		}
		mentions(t, journal.waits, "no change before the lock in cluster a is renewed again", "connection refused")
		release(t, l)
	})
}

// A request must be off the wire before anybody else can take the first of the Leases.
func TestARequestMayBeOnTheWireUntilTheLeaseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine("ops", &server{}, &server{})
		l := m.take(t)
		defer release(t, l)
		began := time.Now()
		for _, at := range []time.Duration{0, 5 * time.Second, 19 * time.Second} {
			after(at - time.Since(began))
			d, err := l.Allow(t.Context())
			if err != nil || d <= lease.Term/4 || at+d >= lease.Term {
				t.Errorf("after %s: %s, %v", at, d, err)
			}
		}
	})
}
