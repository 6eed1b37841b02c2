package restart

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
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
	// 25 %: one more and none fewer, so room for two is asked for; three terminate of each.
	for free, want := range map[int]int{7: 0, 8: 1} {
		bubble(t, func(t *testing.T, b *bench) {
			b.deps.MaxParallel = 1
			b.deployment("shop", "cart", 3, oldKubelet)
			b.deployment("shop", "pay", 2, oldKubelet)
			b.deployment("shop", "late", 3, oldKubelet)
			b.linger[cart], b.linger["shop/Deployment/late"] = true, true
			b.profiled()
			b.deps.Room = func(context.Context, Use) (fargate.Room, error) { return room(free), nil }
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

// A new pod may turn unready while the old ones terminate: its owner counts again, and
// nothing begins until it stands.
func TestWhatOnlyTerminatedComesBack(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		const pay, late = "shop/Deployment/pay", "shop/Deployment/late"
		b.deps.MaxParallel = 1
		b.deployment("shop", "cart", 2, oldKubelet)
		b.deployment("shop", "pay", 2, oldKubelet)
		b.deployment("shop", "late", 2, oldKubelet)
		b.linger[cart] = true
		gate := make(chan struct{})
		b.gate[late] = gate
		end := b.held(t.Context())
		if len(b.restarts(late)) != 1 || len(b.restarts(pay)) != 0 {
			t.Fatalf("restarted: %v", b.stamps)
		}
		b.status("cart", func(s *appsv1.DeploymentStatus) { s.ReadyReplicas = 1 })
		synctest.Wait()
		close(gate)
		synctest.Wait()
		if len(b.restarts(pay)) != 0 {
			t.Error("pay begins beside cart, which is under way again")
		}
		b.status("cart", func(s *appsv1.DeploymentStatus) { s.ReadyReplicas = 2 })
		synctest.Wait()
		if len(b.restarts(pay)) != 1 {
			t.Error("pay does not begin though cart only terminates")
		}
		b.leave(cart)
		if err := <-end; err != nil {
			t.Fatal(err)
		}
	})
}

// status changes what the controller of a Deployment says of it.
func (b *bench) status(name string, do func(*appsv1.DeploymentStatus)) {
	obj, err := b.client.Tracker().Get(appsGVR["Deployment"], "shop", name)
	must(err)
	d := obj.(*appsv1.Deployment).DeepCopy()
	do(&d.Status)
	b.put(appsGVR["Deployment"], d)
}

func TestLeaving(t *testing.T) {
	base := view{Found: true, Kind: "Deployment", UID: "u", Generation: 4, Observed: 4, Desired: 2, Replicas: 2, Updated: 2, Ready: 2}
	stays, goes := podView{Place: current, Ready: true}, podView{Place: lagging, Terminating: true}
	unready, gone := base, base
	unready.Ready, gone.Found = 1, false
	for name, tt := range map[string]struct {
		v    view
		pods []podView
		want int
	}{
		"two terminate":                {base, []podView{stays, goes, stays, goes}, 2},
		"none terminates":              {base, []podView{stays, stays}, 0},
		"a new pod is not in sight":    {base, []podView{stays, goes}, 0},
		"a new pod is on an old node":  {base, []podView{stays, goes, stays, {Place: lagging}}, 0},
		"a new pod is on no node":      {base, []podView{stays, goes, stays, {Place: nowhere}}, 0},
		"a new pod is not ready":       {unready, []podView{stays, goes, stays}, 0},
		"it is gone, and its pods too": {gone, []podView{stays, stays, goes}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			tt.v.Pods = tt.pods
			if got := tt.v.leaving(); got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
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
