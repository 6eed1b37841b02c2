package lease_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/eksbg/eksbg/internal/lease"
	"github.com/eksbg/eksbg/internal/state"
)

func inspect(t *testing.T, m *machine) *lease.Found {
	t.Helper()
	f, err := lease.Inspect(t.Context(), m.opt.Clusters[0])
	if err != nil {
		t.Fatal(err)
	}
	return f
}

var unlocker = lease.Holder{Who: state.Who{User: "boss", Host: "desk"}, Operation: "unlock", Pair: "shop"}

func TestUnlockTakesOnlyWhatItShowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m, other := newMachine("ops", s), newMachine("dev", s)
		if f := inspect(t, other); f.Held || f.Holder != (lease.Holder{}) {
			t.Errorf("without a Lease: %+v", f)
		}
		l := m.take(t)
		f := inspect(t, other)
		if !f.Held || f.Holder.Who.User != "ops" || f.Holder.Operation != "apply" || f.Holder.Since.IsZero() {
			t.Errorf("found %+v", f.Holder)
		}
		after(21 * time.Second) // its holder renews it: it is not what was shown
		if err := f.Clear(t.Context(), unlocker, clock.RealClock{}); !errors.Is(err, lease.ErrMoved) {
			t.Errorf("got %v", err)
		}
		if s.holder() != "ops_1_0" {
			t.Fatal("cleared all the same")
		}
		if err := inspect(t, other).Clear(t.Context(), unlocker, clock.RealClock{}); err != nil {
			t.Fatal(err)
		}
		if f := inspect(t, other); f.Held || f.Holder.Who.User != "boss" {
			t.Errorf("after unlock: %+v", f)
		}

		// The holder lived after all: it reads who took the lock, and stops.
		after(21 * time.Second)
		lost := m.lost()
		if len(lost) != 1 || !strings.Contains(lost[0].Error(), "boss on desk (unlock of shop") {
			t.Fatalf("lost: %v", lost)
		}
		exit(t, l.Guard(t.Context(), nil), state.ExitLocked)
		release(t, l)
		l2 := other.take(t)
		release(t, l2)
		if f := inspect(t, m); f.Held || f.Holder.Who.User != "dev" {
			t.Errorf("the last holder is %s", f.Holder)
		}
		if err := inspect(t, m).Clear(t.Context(), unlocker, clock.RealClock{}); err != nil {
			t.Errorf("nothing to clear: %v", err)
		}
	})
}

// Whoever may write Leases may write anything into them.
func TestForeignTextIsCleaned(t *testing.T) {
	s := &server{}
	if _, err := s.create(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: lease.Name, Annotations: map[string]string{
			"eksbg.dev/user": "o\x1b[31mps\n", "eksbg.dev/pid": "many", "eksbg.dev/run": strings.Repeat("x", 5000)}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("a\u202eb")},
	}); err != nil {
		t.Fatal(err)
	}
	h := inspect(t, newMachine("dev", s)).Holder
	if h.Who.User != "o[31mps" || h.Identity != "ab" || h.Who.PID != 0 || len(h.Run) > 300 {
		t.Errorf("%+v", h)
	}
}

func TestHolderInWords(t *testing.T) {
	at := time.Date(2026, 11, 30, 1, 2, 11, 0, time.UTC)
	for want, h := range map[string]lease.Holder{
		"ops on bastion, pid 4711 (apply of shop, run r1, since 2026-11-30 01:02:11 UTC)": {
			Identity: "x", Who: state.Who{ARN: "arn:aws:sts::1:assumed-role/ops", User: "ops", Host: "bastion", PID: 4711}, Pair: "shop", Run: "r1", Operation: "apply", Since: at},
		"somebody-else":             {Identity: "somebody-else"},
		"another process":           {},
		"somebody on ci-7 (unlock)": {Who: state.Who{Host: "ci-7"}, Operation: "unlock"},
	} {
		if got := h.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
