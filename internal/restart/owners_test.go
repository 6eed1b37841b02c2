package restart

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

func pendingPod(n *int, times int) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool {
		if *n++; *n > times {
			return true
		}
		p.Spec.NodeName, p.Spec.SchedulerName = "", fargateScheduler
		p.Status.Phase = corev1.PodPending
		return false
	}
}

func TestForgottenPodsAreMadeAnew(t *testing.T) {
	for name, tt := range map[string]struct {
		times, deleted int
		exit           state.Exit
	}{
		"once":     {1, 1, 0},
		"thrice":   {3, 3, 0},
		"for ever": {9, 3, state.ExitResumable},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.bareSet("shop", "web", 2, oldKubelet)
				b.deps.Pending, b.deps.Timeout = 2*time.Minute, 15*time.Minute
				n := 0
				b.pod[set] = pendingPod(&n, tt.times)
				err := b.drive(t.Context())
				if tt.exit == 0 && err != nil {
					t.Fatal(err)
				}
				if tt.exit != 0 {
					if stop := stopOf(t, err); stop.Code != tt.exit || !strings.Contains(stop.Why, "a pod that stayed Pending was made anew 3 times") {
						t.Errorf("%+v", stop)
					}
				}
				if got := prefixed(b.calls, "delete pods"); got != tt.deleted {
					t.Errorf("deleted %d", got)
				}
			})
		})
	}
}

func TestRunningJobs(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.addPod("shop", "seed-x", oldKubelet, ref("batch/v1", "Job", "seed", "uid-seed"))
		b.deployment("shop", "cart", 1, oldKubelet)
		b.deps.JobTimeout = 30 * time.Minute
		stop := stopOf(t, b.drive(t.Context()))
		if stop.Code != state.ExitResumable || !strings.Contains(stop.Why, "shop/Job/seed: Job still running after 30m0s") || !strings.Contains(stop.Cure, "restart.jobTimeout") {
			t.Errorf("%+v", stop)
		}
		if len(b.restarts(cart)) != 1 {
			t.Error("a running Job held up the rest")
		}
		end := b.held(t.Context())
		p := b.podsOfAll()[slices.IndexFunc(b.podsOfAll(), func(p corev1.Pod) bool { return p.Name == "seed-x" })].DeepCopy()
		p.Status.Phase = corev1.PodSucceeded
		b.put(podsGVR, p)
		if err := <-end; err != nil {
			t.Fatal(err)
		}
	})
}

func TestGitOps(t *testing.T) {
	for name, allowed := range map[string]bool{"evict is allowed": true, "it is not": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.deployment("shop", "cart", 2, oldKubelet)
				b.deployment("shop", "pay", 1, oldKubelet)
				b.deps.MaxParallel = 1
				if allowed {
					b.deps.Allow = []planfile.Allow{{Owner: cart, Action: planfile.ActionEvict, Reason: "agreed"}}
				}
				b.after = b.reverting(start.Add(time.Minute))
				err := b.drive(t.Context())
				if got := b.restarts("shop/Deployment/pay"); len(got) != 1 {
					t.Errorf("the rest: %v", got)
				}
				if allowed {
					if err != nil || len(b.taken(cart)) != 2 {
						t.Errorf("%v, took %v", err, b.taken(cart))
					}
					return
				}
				stop := stopOf(t, err)
				if stop.Code != state.ExitBlocked || !strings.Contains(stop.Why, cart+": 2 pods, the restart is reverted: argocd-controller at 2000-01-01T00:01:00Z took kubectl.kubernetes.io/restartedAt away again") ||
					!strings.Contains(stop.Why, "restart.allow {owner: shop/Deployment/cart, action: evict") || len(b.taken(cart)) != 0 {
					t.Errorf("%+v", stop)
				}
				// Allowed now, it goes on with evictions and tries no third restart.
				b.deps.Allow = []planfile.Allow{{Owner: cart, Action: planfile.ActionEvict, Reason: "agreed"}}
				n := len(b.restarts(cart))
				if err := b.drive(t.Context()); err != nil || len(b.taken(cart)) != 2 || len(b.restarts(cart)) != n {
					t.Errorf("%v, took %v, restarts %v", err, b.taken(cart), b.restarts(cart))
				}
			})
		})
	}
}

// What was reverted is restarted anew once somebody has seen to that, and called reverted
// again only when the new stamp goes too; the attempts bound it.
func TestGitOpsCured(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "cart", 2, oldKubelet)
		b.after = b.reverting(start.Add(time.Minute))
		if stop := stopOf(t, b.drive(t.Context())); !strings.Contains(stop.Why, "argocd-controller at 2000-01-01T00:01:00Z") {
			t.Fatalf("%+v", stop)
		}
		b.clock.Sleep(time.Hour)
		b.after = b.reverting(start.Add(2 * time.Hour))
		if stop := stopOf(t, b.drive(t.Context())); !strings.Contains(stop.Why, "argocd-controller at 2000-01-01T02:00:00Z") {
			t.Errorf("the second time: %+v", stop)
		}
		b.clock.Sleep(time.Hour)
		b.after, b.noRoll = nil, false // the annotation is ignored by now
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := b.restarts(cart); len(got) != 3 || !newer(got[2], got[1]) || !newer(got[1], got[0]) || len(b.taken(cart)) != 0 {
			t.Errorf("restarted with %v", got)
		}
	})
}

// A rollout that did not come up and was undone by hand is no work of a GitOps controller.
func TestUndoneAfterAFailure(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "cart", 1, oldKubelet)
		b.pod[cart] = waiting("InvalidImageName", "couldn't parse", 0)
		if stop := stopOf(t, b.drive(t.Context())); !strings.Contains(stop.Why, "InvalidImageName") {
			t.Fatalf("%+v", stop)
		}
		b.pod[cart] = nil
		b.change("cart", func(d *appsv1.Deployment) {
			d.Spec.Template.Annotations = nil
			d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.ReadyReplicas = 1, 1, 1
		})
		for _, p := range b.podsOfAll() {
			if c := podCondition(&p, corev1.PodReady); c == nil {
				must(b.client.Tracker().Delete(podsGVR, p.Namespace, p.Name))
			}
		}
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := b.restarts(cart); len(got) != 2 {
			t.Errorf("restarted with %v", got)
		}
	})
}

// reverting takes the stamp of shop/cart away again before anything rolls, as a GitOps
// controller does that applies the whole template.
func (b *bench) reverting(at time.Time) func(string, string) error {
	b.sim.mu.Lock()
	b.noRoll = true // before the patch: its rollout begins at once where all watches stand
	b.sim.mu.Unlock()
	return func(owner, _ string) error {
		if owner != cart {
			return nil
		}
		obj, err := b.client.Tracker().Get(appsGVR["Deployment"], "shop", "cart")
		must(err)
		d := obj.(*appsv1.Deployment).DeepCopy()
		d.Spec.Template.Annotations = nil
		d.Generation++
		d.Status.ObservedGeneration, d.Status.UpdatedReplicas = d.Generation, *d.Spec.Replicas
		d.ManagedFields = []metav1.ManagedFieldsEntry{
			{Manager: "eksbg", Operation: metav1.ManagedFieldsOperationUpdate, Time: new(metav1.NewTime(at.Add(time.Hour))), FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:template":{"f:metadata":{"f:annotations":{}}}}}`)},
			{Manager: "kube-controller-manager", Subresource: "status", Operation: metav1.ManagedFieldsOperationUpdate, Time: new(metav1.NewTime(at.Add(time.Hour))), FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`)},
			{Manager: "argocd-controller", Operation: metav1.ManagedFieldsOperationApply, Time: new(metav1.NewTime(at)), FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:template":{"f:spec":{}}}}`)},
			{Manager: "helm", Operation: metav1.ManagedFieldsOperationUpdate, Time: new(metav1.NewTime(at.Add(-time.Hour))), FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:template":{"f:spec":{}}}}`)},
		}
		b.put(appsGVR["Deployment"], d)
		return nil
	}
}
