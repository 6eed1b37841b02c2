package restart

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

// place puts a pod on a node with the kubelet, where it gets ready.
func (b *bench) place(p corev1.Pod, kubelet string) {
	up := p.DeepCopy()
	b.schedule(up, kubelet)
	ready(up)
	b.put(podsGVR, up)
}

// The step ends when all pods are on a kubelet of the minor: on none is not enough,
// whatever owns them.
func TestPodsOnNoKubeletAreNotDone(t *testing.T) {
	for name, tt := range map[string]struct {
		owner string
		make  func(*bench)
	}{
		"a ReplicaSet":   {set, func(b *bench) { b.bareSet("shop", "web", 2, "") }},
		"one of several": {cart, func(b *bench) { b.deployment("shop", "cart", 2, newKubelet); b.addTo(cart) }},
		"a custom owner on a node that is gone": {"shop/Gizmo/web", func(b *bench) {
			p := b.addPod("shop", "web-0", newKubelet, ref("example.com/v1", "Gizmo", "web", "uid-gizmo"))
			must(b.client.Tracker().Delete(nodesGVR, "", p.Spec.NodeName))
		}},
		"a node that states no version": {"shop/Gizmo/web", func(b *bench) {
			p := b.addPod("shop", "web-0", newKubelet, ref("example.com/v1", "Gizmo", "web", "uid-gizmo"))
			n := &corev1.Node{ObjectMeta: b.meta("", p.Spec.NodeName, nil)}
			b.put(nodesGVR, n)
		}},
		"a bare pod": {"shop/Pod/tool", func(b *bench) { b.addPod("shop", "tool", "", nil) }},
		"a Job":      {"shop/Job/seed", func(b *bench) { b.addPod("shop", "seed-x", "", ref("batch/v1", "Job", "seed", "uid-seed")) }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				tt.make(b)
				obs := b.observe()
				if obs.Status != state.Ready || !strings.Contains(obs.Reason, "on no kubelet: "+tt.owner) {
					t.Fatalf("%+v", obs)
				}
				b.deps.Timeout, b.deps.JobTimeout = 10*time.Minute, 20*time.Minute
				begin := b.clock.Now()
				stop := stopOf(t, b.drive(t.Context()))
				if stop.Code != state.ExitResumable || !strings.Contains(stop.Why, tt.owner+": ") || !strings.Contains(stop.Why, "(on no node)") {
					t.Errorf("%+v", stop)
				}
				if took := b.clock.Since(begin); (name == "a Job") != (took > 15*time.Minute) {
					t.Errorf("given up after %s", took)
				}
				if len(b.order) != 0 || prefixed(b.calls, "delete") != 0 {
					t.Errorf("begun %v, calls %v", b.order, b.calls)
				}
				skips := []planfile.Skip{{Owner: tt.owner, Reason: "later", Until: planfile.Date{Time: start}}}
				b.deps.Skips = skips
				if obs := b.observe(); obs.Status != state.Done {
					t.Errorf("skipped: %+v", obs)
				}
				b.deps.Skips = nil
				end := b.held(t.Context())
				for _, p := range b.podsOfAll() {
					b.place(p, newKubelet)
				}
				if err := <-end; err != nil {
					t.Fatal(err)
				}
				if obs := b.observe(); obs.Status != state.Done {
					t.Errorf("placed: %+v", obs)
				}
			})
		})
	}
}

// addTo gives a Deployment's ReplicaSet a pod more, Pending.
func (b *bench) addTo(owner string) {
	for _, p := range b.podsOfAll() {
		if b.topOf(&p) == owner {
			b.addPod(p.Namespace, p.Name+"-more", "", metav1.GetControllerOf(&p))
			return
		}
	}
}

// What waits for the Fargate scheduler is deleted only where somebody makes another one.
func TestForgottenPodsThatNobodyMakesAgain(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deps.Timeout, b.deps.Pending, b.deps.JobTimeout = 10*time.Minute, time.Minute, 20*time.Minute
		for _, of := range []*metav1.OwnerReference{nil, ref("batch/v1", "Job", "seed", "uid-seed")} {
			p := b.addPod("shop", "tool", "", of)
			p.Spec.SchedulerName = fargateScheduler
			b.put(podsGVR, p)
			stopOf(t, b.drive(t.Context()))
			must(b.client.Tracker().Delete(podsGVR, "shop", "tool"))
		}
		if n := prefixed(b.calls, "delete pods"); n != 0 {
			t.Errorf("deleted %d", n)
		}
	})
}

// Killed between the stamp of an Argo Rollout and its new pods, the restart is not done.
func TestRestartAtIsFollowedAfterAResume(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.rollout("shop", "api", 2, oldKubelet)
		b.pod["shop/Rollout/api"] = func(p *corev1.Pod) bool { p.Spec.NodeName = ""; return true }
		b.journal.killAt = 2 // with the outcome of the stamp on the disk
		b.journal.killAfter = true
		if err := b.drive(t.Context()); err == nil {
			t.Fatal("not killed")
		}
		b.journal.dead = false
		b.clock.Sleep(time.Minute)
		synctest.Wait()
		for _, p := range b.podsOfAll() {
			if p.Spec.NodeName != "" || p.DeletionTimestamp != nil {
				t.Fatalf("%s on %q", p.Name, p.Spec.NodeName)
			}
		}
		if obs := b.observe(); obs.Status != state.Ready {
			t.Errorf("all Pending: %+v", obs)
		}
		end := b.held(t.Context())
		pods := b.podsOfAll()
		b.place(pods[0], newKubelet)
		up := pods[1].DeepCopy()
		b.schedule(up, newKubelet)
		up.Status.Conditions = nil
		b.put(podsGVR, up)
		if obs := b.observe(); obs.Status != state.Ready {
			t.Errorf("one not ready: %+v", obs)
		}
		synctest.Wait()
		ready(up)
		b.put(podsGVR, up)
		if err := <-end; err != nil {
			t.Fatal(err)
		}
		if got := b.journal.results("shop/Rollout/api"); !slices.Equal(got, []state.Result{state.Accepted, state.Succeeded}) || len(b.restarts("shop/Rollout/api")) != 1 {
			t.Errorf("%v, %v", got, b.restarts("shop/Rollout/api"))
		}
	})
}

// The last pod of a custom owner is gone at the moment of the resume, and comes back.
func TestCustomOwnerWithoutAPodOnResume(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.custom(1)
		b.gate["shop/Gizmo/web"] = make(chan struct{})
		b.journal.killAt, b.journal.killAfter = 2, true
		if err := b.drive(t.Context()); err == nil {
			t.Fatal("not killed")
		}
		b.journal.dead = false
		old := b.podsOfAll()[0]
		must(b.client.Tracker().Delete(podsGVR, "shop", old.Name))
		end := b.held(t.Context())
		b.addPod("shop", "web-again", newKubelet, ref("example.com/v1", "Gizmo", "web", "uid-gizmo"))
		if err := <-end; err != nil {
			t.Fatal(err)
		}
		if took := b.clock.Since(start); took > time.Minute {
			t.Errorf("took %s", took)
		}
	})
}

// Consent that is taken back between two processes holds: the pod that was taken is
// waited for, and no other one goes.
func TestConsentTakenBack(t *testing.T) {
	for name, tt := range map[string]struct {
		make  func(*bench)
		owner string
		then  func(*bench)
	}{
		"a partition": {func(b *bench) { b.partitioned(3) }, ledgerS, func(b *bench) { b.deps.Allow = nil }},
		"paused":      {func(b *bench) { b.paused(3) }, cart, func(b *bench) { b.deps.Allow = nil }},
		"two budgets": {func(b *bench) { b.onDelete(3) }, ledgerS, func(b *bench) {
			b.budget("data", "a", 1, 3, 2, 3)
			b.budget("data", "b", 1, 3, 2, 3)
		}},
	} {
		for _, open := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T, b *bench) {
					tt.make(b)
					b.deps.Allow = []planfile.Allow{{Owner: cart, Action: planfile.ActionEvict, Reason: "agreed"}, {Owner: ledgerS, Action: planfile.ActionEvict, Reason: "agreed"}}
					b.gate[tt.owner] = make(chan struct{})
					b.journal.killAt, b.journal.killAfter = 2, true
					want := 1
					if open {
						b.journal.killAt, want = 1, 0 // the eviction is not sent
					}
					if err := b.drive(t.Context()); err == nil {
						t.Fatal("not killed")
					}
					b.journal.dead = false
					tt.then(b)
					if obs := b.observe(); obs.Status != state.Ready {
						t.Errorf("%+v", obs)
					}
					close(b.gate[tt.owner])
					stop := stopOf(t, b.drive(t.Context()))
					if stop.Code != state.ExitBlocked || !strings.Contains(stop.Why, tt.owner) || len(b.taken(tt.owner)) != want || len(b.podsReady()) != 3 {
						t.Errorf("%+v, took %v, %d ready", stop, b.taken(tt.owner), len(b.podsReady()))
					}
					if n := len(b.journal.open()); n != 0 {
						t.Errorf("%d intents open", n)
					}
				})
			})
		}
	}
}

// CoreDNS stays alone when the process ends while its last new pod is on its way.
func TestCoreDNSIsAloneAfterAResume(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		dns := "kube-system/Deployment/coredns"
		b.deployment("kube-system", "coredns", 2, oldKubelet)
		b.deployment("shop", "cart", 2, oldKubelet)
		n := 0
		b.pod[dns] = func(*corev1.Pod) bool { n++; return n < 2 }
		ctx, cancel := context.WithCancel(t.Context())
		end := b.held(ctx)
		cancel()
		if err := <-end; !errors.Is(err, context.Canceled) || len(b.taken(dns)) != 2 {
			t.Fatalf("%v, took %v", err, b.taken(dns))
		}
		end = b.held(t.Context())
		if got := b.restarts(cart); len(got) != 0 {
			t.Errorf("cart restarted beside CoreDNS")
		}
		for _, p := range b.podsOfAll() {
			if podCondition(&p, corev1.PodReady) == nil {
				up := p.DeepCopy()
				ready(up)
				b.put(podsGVR, up)
			}
		}
		if err := <-end; err != nil {
			t.Fatal(err)
		}
		if len(b.restarts(cart)) != 1 {
			t.Error("cart is not restarted")
		}
	})
}

// An Argo Rollout that is scaled while it restarts is done when it has what it wants now.
func TestRestartAtOfWhatIsScaled(t *testing.T) {
	for _, want := range []int64{0, 1} {
		bubble(t, func(t *testing.T, b *bench) {
			b.rollout("shop", "api", 2, oldKubelet)
			b.gate["shop/Rollout/api"] = make(chan struct{})
			end := b.held(t.Context())
			b.clock.Sleep(2 * time.Second)
			obj, err := b.dynamic.Tracker().Get(rolloutsGVR, "shop", "api")
			must(err)
			ro := obj.DeepCopyObject().(*unstructured.Unstructured)
			must(unstructured.SetNestedField(ro.Object, want, "spec", "replicas"))
			must(b.dynamic.Tracker().Update(rolloutsGVR, ro, "shop"))
			for i, p := range b.podsOfAll() {
				if int64(i) >= want {
					b.remove("shop/Rollout/api", &p)
				}
			}
			close(b.gate["shop/Rollout/api"])
			if err := <-end; err != nil {
				t.Fatal(err)
			}
			if got := b.journal.results("shop/Rollout/api"); !slices.Equal(got, []state.Result{state.Accepted, state.Succeeded}) || b.clock.Since(start) > time.Minute {
				t.Errorf("%v after %s", got, b.clock.Since(start))
			}
		})
	}
}

// Each outcome of a recreation says what that change came to.
func TestRecreationSaysEachThingOnce(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.barePod("shop", "tool", oldKubelet)
		b.deps.Allow = []planfile.Allow{{Owner: "shop/Pod/tool", Action: planfile.ActionRecreate, Reason: "agreed"}}
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
		said := map[string]bool{}
		for _, r := range b.journal.Records("") {
			if r.Kind == state.RecordOutcome && said[r.Text] {
				t.Errorf("said twice: %s", r.Text)
			}
			said[r.Text] = true
		}
		if !said["shop/Pod/tool: made again, on 1.33"] {
			t.Error(said)
		}
	})
}
