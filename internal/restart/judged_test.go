package restart

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/state"
)

const pay = "shop/Deployment/pay"

// change applies a change of somebody else to a Deployment of namespace shop.
func (b *bench) change(name string, do func(*appsv1.Deployment)) {
	obj, err := b.client.Tracker().Get(appsGVR["Deployment"], "shop", name)
	must(err)
	d := obj.(*appsv1.Deployment).DeepCopy()
	do(d)
	d.Generation++
	d.Status.ObservedGeneration = d.Generation
	b.put(appsGVR["Deployment"], d)
}

// scaleBack is what becomes of a Deployment scaled from two pods to one.
func (b *bench) scaleBack(d *appsv1.Deployment) {
	d.Spec.Replicas = new(int32(1))
	d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.ReadyReplicas = 1, 1, 1
	sets := b.setsOf(d)
	for _, p := range b.podsOfAll() {
		if len(p.OwnerReferences) == 1 && sets[p.OwnerReferences[0].UID] {
			must(b.client.Tracker().Delete(podsGVR, p.Namespace, p.Name))
			return
		}
	}
}

// What changes while others roll is judged anew before anything is done to it: a wave
// takes as long as all that is in it.
func TestChangedWhileItWaitsForItsTurn(t *testing.T) {
	fence := func(surge, unavailable int) appsv1.DeploymentStrategy {
		up, down := intstr.FromInt(surge), intstr.FromInt(unavailable)
		return appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &up, MaxUnavailable: &down}}
	}
	for name, tt := range map[string]struct {
		strategy appsv1.DeploymentStrategy
		change   func(*bench)
		says     string
		restarts int
		evicted  int
	}{
		"nothing": {fence(0, 1), func(*bench) {}, "", 1, 0},
		"a budget that never allows it": {fence(0, 1), func(b *bench) { b.budget("shop", "late", 0, 2, 2, 2) },
			"PodDisruptionBudget shop/late never allows 1 pod to go at once", 0, 0},
		"scaled to one, the cluster live": {fence(0, 1), func(b *bench) { b.change("pay", b.scaleBack) },
			"its only pod goes before the new one is ready, and the cluster has the traffic", 0, 0},
		"now Recreate": {fence(1, 0), func(b *bench) {
			b.change("pay", func(d *appsv1.Deployment) {
				d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
			})
		}, "", 0, 2},
		"now all at once": {fence(1, 0), func(b *bench) {
			b.change("pay", func(d *appsv1.Deployment) { d.Spec.Strategy = fence(0, 2) })
		}, "", 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.deps.MaxParallel, b.deps.Live = 1, true
				b.deployment("shop", "cart", 2, oldKubelet)
				b.put(appsGVR["Deployment"], func() *appsv1.Deployment {
					d := b.deployment("shop", "pay", 2, oldKubelet).DeepCopy()
					d.Spec.Strategy = tt.strategy
					return d
				}())
				b.gate[cart] = make(chan struct{})
				end := b.held(t.Context())
				if !slices.Equal(b.order, []string{cart}) {
					t.Fatalf("begun %v", b.order)
				}
				tt.change(b)
				synctest.Wait()
				close(b.gate[cart])
				err := <-end
				if tt.says == "" && err != nil {
					t.Fatal(err)
				}
				if tt.says != "" {
					if stop := stopOf(t, err); stop.Code != state.ExitBlocked || !strings.Contains(stop.Why, tt.says) {
						t.Errorf("%+v", stop)
					}
				}
				if got := b.restarts(pay); len(got) != tt.restarts || len(b.taken(pay)) != tt.evicted {
					t.Errorf("restarted with %v, took %v", got, b.taken(pay))
				}
			})
		})
	}
}

// CoreDNS that has changed goes first all the same.
func TestChangedCoreDNSStillGoesFirst(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		dns := b.deployment("kube-system", "coredns", 2, oldKubelet)
		b.deployment("shop", "cart", 2, oldKubelet)
		read, first := b.deps.Inventory, true
		b.deps.Inventory = func(ctx context.Context) (*cluster.Inventory, error) {
			inv, err := read(ctx)
			if first { // right after the look
				first = false
				b.budget("kube-system", "late", 1, 2, 1, 2)
			}
			return inv, err
		}
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want := []string{"kube-system/Deployment/" + dns.Name, cart}; !slices.Equal(b.order, want) || !noted(b.journal, want[0]+" is not as it was judged (other PodDisruptionBudgets in its namespace)") {
			t.Errorf("begun %v", b.order)
		}
	})
}
