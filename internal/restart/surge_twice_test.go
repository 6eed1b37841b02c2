package restart

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eksbg/eksbg/internal/state"
)

// A surge whose answer was lost is sent again, and its own resourceVersion refuses it then:
// it has landed all the same, and is put back.
func TestSurgeThatWasSentTwice(t *testing.T) {
	const one = "shop/ReplicaSet/one"
	for _, interrupted := range []bool{false, true} {
		t.Run(fmt.Sprint(interrupted), func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.bareSet("shop", "one", 1, oldKubelet)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				patches := 0
				b.after = func(owner, _ string) error {
					if !strings.Contains(owner, "replicasets") {
						return nil
					}
					if patches++; patches > 1 {
						return nil
					}
					if interrupted {
						cancel()
					}
					return apierrors.NewConflict(replicaSetsGVR.GroupResource(), "one", errors.New("the object has been modified"))
				}
				err := b.drive(ctx)
				if interrupted != errors.Is(err, context.Canceled) || !interrupted && err != nil {
					t.Fatal(err)
				}
				if rs := b.set("one"); *rs.Spec.Replicas != 1 || len(rs.Annotations) != 0 {
					t.Errorf("%d replicas, %v", *rs.Spec.Replicas, rs.Annotations)
				}
				if got := b.journal.results(one); !slices.Equal(got, []state.Result{state.Found, state.Succeeded}) {
					t.Errorf("results %v", got)
				}
				if interrupted {
					return
				}
				for _, a := range b.client.Actions() {
					if a.GetSubresource() == "eviction" {
						t.Error("evicted")
					}
				}
			})
		})
	}
}

// Somebody who changed it at the same moment has refused the surge, which is tried anew.
func TestSurgeThatSomebodyElseRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.bareSet("shop", "one", 1, oldKubelet)
		b.before = once(apierrors.NewConflict(replicaSetsGVR.GroupResource(), "one", errors.New("the object has been modified")))
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := []state.Result{state.Rejected, state.Accepted, state.Succeeded}
		if got := b.journal.results("shop/ReplicaSet/one"); !slices.Equal(got, want) || *b.set("one").Spec.Replicas != 1 {
			t.Errorf("results %v, want %v", got, want)
		}
	})
}

// An interrupt uses up no attempt of a surge either when the answer to its put-back is lost.
func TestEarlyPutBackThatWasSentTwice(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.bareSet("shop", "one", 1, oldKubelet)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		b.journal.onIntent = func(int) { cancel() }
		patches := 0
		b.after = func(string, string) error {
			if patches++; patches == 2 {
				return apierrors.NewConflict(replicaSetsGVR.GroupResource(), "one", errors.New("the object has been modified"))
			}
			return nil
		}
		if err := b.drive(ctx); !errors.Is(err, context.Canceled) || *b.set("one").Spec.Replicas != 1 {
			t.Fatalf("%v, %d replicas", err, *b.set("one").Spec.Replicas)
		}
		if n := surges(readLedger(b.journal.Records(""), nil).deeds("shop/ReplicaSet/one", doSurge)); n != 0 {
			t.Errorf("%d attempts used up", n)
		}
		if got := b.journal.results("shop/ReplicaSet/one"); got[len(got)-1] != state.Succeeded {
			t.Errorf("results %v", got)
		}
	})
}
