package restart

import (
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eksbg/eksbg/internal/state"
)

func TestBudgetForbidsAndThenAllows(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.bareSet("shop", "web", 3, oldKubelet)
		b.budget("shop", "most", 1, 3, 2, 3)
		refused := 0
		b.refuse = func(string, string) error {
			if refused++; refused%4 != 0 {
				return disruption("most", "needs 2 healthy pods and has 2 currently")
			}
			return nil
		}
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := b.taken(set); len(got) != 3 || refused != 12 {
			t.Errorf("took %v after %d tries", got, refused)
		}
		if n := len(b.journal.Records("")); n > 3*3+4 {
			t.Errorf("%d records: a refusal is no new intent", n)
		}
	})
}

func TestBudgetThatForbidsForGood(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.bareSet("shop", "web", 3, oldKubelet)
		b.budget("shop", "most", 1, 2, 2, 3)
		b.deps.Timeout = 10 * time.Minute
		b.refuse = func(string, string) error { return disruption("most", "needs 2 healthy pods and has 2 currently") }
		stop := stopOf(t, b.drive(t.Context()))
		for _, text := range []string{set + ": not done after 10m0s: eviction of pod web-", "PodDisruptionBudget shop/most allows 1 (2 healthy, 2 desired)",
			"The disruption budget most needs 2 healthy pods and has 2 currently"} {
			if !strings.Contains(stop.Why, text) {
				t.Errorf("%q is not in %s", text, stop.Why)
			}
		}
		if stop.Code != state.ExitResumable || len(b.taken(set)) != 0 || len(b.journal.open()) != 0 {
			t.Errorf("%d, took %v, open %v", stop.Code, b.taken(set), b.journal.open())
		}
		if n := prefixed(b.calls, "create pods"); n < 15 || n > 40 {
			t.Errorf("asked %d times in ten minutes", n)
		}
		b.refuse = nil
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestTwoBudgetsOverOnePod(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.bareSet("shop", "web", 2, oldKubelet)
		b.refuse = func(string, string) error {
			return apierrors.NewInternalError(errors.New("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."))
		}
		stop := stopOf(t, b.drive(t.Context()))
		if stop.Code != state.ExitBlocked || !strings.Contains(stop.Why, "more than one PodDisruptionBudget") || len(b.journal.open()) != 0 {
			t.Errorf("%+v", stop)
		}
	})
}
