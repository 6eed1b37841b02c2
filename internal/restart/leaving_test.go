package restart

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eksbg/eksbg/internal/fargate"
)

// Old pods may terminate for as long as their grace period: the next workload does not
// wait for that, the end of the restart does.
func TestTerminatingPodsMakeRoomForTheNext(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deps.MaxParallel = 1
		b.deployment("shop", "cart", 2, oldKubelet)
		b.deployment("shop", "pay", 2, oldKubelet)
		b.linger[cart] = true
		end := b.held(t.Context())
		if len(b.restarts(cart)) != 1 || len(b.restarts("shop/Deployment/pay")) != 1 {
			t.Fatalf("restarted: %v", b.stamps)
		}
		b.clock.Sleep(2 * tick) // no line of progress comes sooner
		synctest.Wait()
		if !slices.ContainsFunc(b.journal.waits, func(s string) bool { return strings.Contains(s, "old pods of 1 workload terminate") }) {
			t.Errorf("not said: %q", b.journal.waits)
		}
		b.leave(cart)
		if err := <-end; err != nil {
			t.Fatal(err)
		}
		if len(b.restarts(cart)) != 1 || len(b.restarts("shop/Deployment/pay")) != 1 {
			t.Errorf("restarted: %v", b.stamps)
		}
	})
}

// Terminating pods still have their addresses.
func TestTerminatingPodsKeepTheirAddresses(t *testing.T) {
	for free, want := range map[int]int{5: 0, 6: 1} {
		bubble(t, func(t *testing.T, b *bench) {
			b.deps.MaxParallel = 1
			b.deployment("shop", "cart", 2, oldKubelet) // 25 %: one more, none fewer, so up to two that terminate
			b.deployment("shop", "pay", 2, oldKubelet)
			b.deployment("shop", "late", 2, oldKubelet)
			b.linger[cart], b.linger["shop/Deployment/late"] = true, true
			b.profiled()
			b.deps.Room = func(context.Context) (fargate.Room, error) { return room(free), nil }
			end := b.held(t.Context())
			if n := len(b.restarts("shop/Deployment/pay")); len(b.restarts("shop/Deployment/late")) != 1 || n != want {
				t.Errorf("%d free addresses: pay begun %d times, want %d", free, n, want)
			}
			b.leave(cart)
			b.leave("shop/Deployment/late")
			synctest.Wait()
			if err := <-end; err != nil {
				t.Fatal(err)
			}
		})
	}
}

// leave lets the terminating pods of an owner end.
func (b *bench) leave(owner string) {
	b.Helper()
	b.linger[owner] = false
	l, err := b.client.Tracker().List(podsGVR, schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, "shop")
	must(err)
	for i := range l.(*corev1.PodList).Items {
		if p := &l.(*corev1.PodList).Items[i]; p.DeletionTimestamp != nil && b.topOf(p) == owner {
			b.remove(owner, p)
		}
	}
}
