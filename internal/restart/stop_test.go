package restart

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

// waiting makes a pod's only container wait.
func waiting(reason, message string, restarts int32) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool {
		p.Status.Phase = corev1.PodRunning
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", RestartCount: restarts,
			State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2, Reason: "Error", Message: "no\x1b[31m config"}}}}
		return false
	}
}

func TestBrokenPodsStopTheWave(t *testing.T) {
	tests := map[string]struct {
		pod  func(*corev1.Pod) bool
		code state.Exit
		says string
		// at least and at most, the time that it takes to be sure.
		least, most time.Duration
	}{
		"crash loop": {
			waiting("CrashLoopBackOff", "back-off 40s restarting failed container", 4), state.ExitBlocked,
			"CrashLoopBackOff of container app: back-off 40s restarting failed container; last exit code 2 Error no[31m config", 0, 20 * time.Second,
		},
		"first crashes get time": {
			waiting("CrashLoopBackOff", "back-off 10s", 1), state.ExitBlocked, "CrashLoopBackOff of container app: back-off 10s", DefaultGrace, time.Minute,
		},
		"image pull": {
			waiting("ImagePullBackOff", "Back-off pulling image \"shop/cart:9\"", 0), state.ExitBlocked,
			"ImagePullBackOff of container app: Back-off pulling image \"shop/cart:9\"", DefaultGrace, time.Minute,
		},
		"invalid image name": {waiting("InvalidImageName", "couldn't parse", 0), state.ExitBlocked, "InvalidImageName of container app: couldn't parse", 0, 20 * time.Second},
		"slow start is not broken": {
			waiting("ContainerCreating", "", 0), state.ExitResumable, "not done after 10m0s", 10 * time.Minute, 11 * time.Minute,
		},
		"no capacity": {
			func(p *corev1.Pod) bool {
				p.Spec.NodeName = ""
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable",
					Message: "Fargate capacity is unavailable at this time"}}
				return false
			}, state.ExitResumable, "Pending, Unschedulable: Fargate capacity is unavailable at this time", 10 * time.Minute, 11 * time.Minute,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.deps.MaxParallel, b.deps.Timeout = 1, 10*time.Minute
				b.deployment("shop", "cart", 2, oldKubelet)
				b.deployment("shop", "pay", 2, oldKubelet)
				b.deployment("shop", "web", 2, oldKubelet)
				b.pod[cart] = tt.pod
				stop := stopOf(t, b.drive(t.Context()))
				if stop.Code != tt.code || !strings.Contains(stop.Why, cart+": ") || !strings.Contains(stop.Why, tt.says) || stop.Cure == "" {
					t.Errorf("%+v", stop)
				}
				if !strings.Contains(stop.Why, "cart-") || !strings.Contains(stop.Why, "2 workloads not begun, untouched") {
					t.Errorf("names neither pod nor rest: %s", stop.Why)
				}
				if took := b.clock.Since(sent(b.journal)); took < tt.least || took > tt.most {
					t.Errorf("took %s, want %s to %s", took, tt.least, tt.most)
				}
				if got := len(b.order); got != 1 {
					t.Errorf("%d workloads begun: %v", got, b.order)
				}
			})
		})
	}
}

// sent is when the first patch was accepted.
func sent(j *memory) time.Time {
	for _, r := range j.Records("") {
		if r.Kind == state.RecordOutcome {
			return r.Time
		}
	}
	return time.Time{}
}

func TestProgressDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "cart", 1, oldKubelet)
		b.pod[cart] = func(*corev1.Pod) bool {
			obj, err := b.client.Tracker().Get(appsGVR["Deployment"], "shop", "cart")
			must(err)
			d := obj.(*appsv1.Deployment).DeepCopy()
			d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse,
				Reason: "ProgressDeadlineExceeded", Message: `ReplicaSet "cart-7" has timed out progressing.`}}
			b.put(appsGVR["Deployment"], d)
			return false
		}
		stop := stopOf(t, b.drive(t.Context()))
		if stop.Code != state.ExitBlocked || !strings.Contains(stop.Why, `ProgressDeadlineExceeded: ReplicaSet "cart-7" has timed out progressing.`) {
			t.Errorf("%+v", stop)
		}
		// The same command again may come right after somebody has mended it, and before the
		// controller has seen that.
		begin := b.clock.Now()
		stop = stopOf(t, b.drive(t.Context()))
		if took := b.clock.Since(begin); stop.Code != state.ExitBlocked || !strings.Contains(stop.Why, "ProgressDeadlineExceeded") || took < DefaultGrace || took > 2*DefaultGrace {
			t.Errorf("after %s: %+v", took, stop)
		}
	})
}

func TestLingeringPodIsNotDone(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "cart", 2, oldKubelet)
		b.linger[cart] = true
		b.deps.Timeout = 10 * time.Minute
		stop := stopOf(t, b.drive(t.Context()))
		if stop.Code != state.ExitResumable || !strings.Contains(stop.Why, "(terminating on the old kubelet)") {
			t.Errorf("%+v", stop)
		}
		if obs := b.observe(); obs.Status != state.Ready || obs.Reason != "2 pods still leaving" {
			t.Errorf("while they linger: %+v", obs)
		}
		pods := b.podsOfAll()
		for _, p := range pods {
			if p.DeletionTimestamp != nil {
				must(b.client.Tracker().Delete(podsGVR, p.Namespace, p.Name))
			}
		}
		if obs := b.observe(); obs.Status != state.Done {
			t.Errorf("when they are gone: %+v", obs)
		}
		if got := b.restarts(cart); len(got) != 1 {
			t.Errorf("stamps %v", got)
		}
	})
}

func (b *bench) podsOfAll() []corev1.Pod {
	l, err := b.client.Tracker().List(podsGVR, corev1.SchemeGroupVersion.WithKind("Pod"), "")
	must(err)
	return l.(*corev1.PodList).Items
}

func TestAllPendingIsNotDone(t *testing.T) {
	for name, kind := range map[string]string{"never restarted here": "", "a StatefulSet": "StatefulSet"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.deps.Timeout = 5 * time.Minute
				if kind == "" {
					b.deployment("shop", "cart", 2, "")
				} else {
					b.statefulSet("shop", "cart", 2, "")
				}
				b.deployment("shop", "web", 2, newKubelet)
				obs := b.observe()
				if obs.Status != state.Ready || !strings.HasPrefix(obs.Reason, "2 pods on no kubelet: shop/") {
					t.Errorf("%+v", obs)
				}
				stop := stopOf(t, b.drive(t.Context()))
				if stop.Code != state.ExitResumable || !strings.Contains(stop.Why, "(on no node)") || !strings.Contains(stop.Cure, "restart.skip") {
					t.Errorf("%+v", stop)
				}
				if len(b.order) != 0 {
					t.Errorf("restarted %v", b.order)
				}
				// Once the step was done, pods that an autoscaler adds do not bring it back.
				b.journal.add(state.Record{Kind: state.RecordDone})
				if obs := b.observe(); obs.Status != state.Done {
					t.Errorf("after the step was done: %+v", obs)
				}
			})
		})
	}
}

func TestPendingAfterItsRestartIsNotDone(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "cart", 2, oldKubelet)
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
		p := b.podsOfAll()[0].DeepCopy()
		p.Spec.NodeName = ""
		b.put(podsGVR, p)
		if obs := b.observe(); obs.Status != state.Ready || obs.Reason != "1 pod on no kubelet: "+cart {
			t.Errorf("%+v", obs)
		}
	})
}

func TestStuckOwnersBlockAfterTheRest(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "cart", 1, oldKubelet)
		halted := b.deployment("shop", "halted", 1, oldKubelet).DeepCopy()
		halted.Spec.Paused = true
		b.put(appsGVR["Deployment"], halted)
		b.addPod("shop", "debug", oldKubelet, nil)
		b.addPod("shop", "seed-x", oldKubelet, ref("batch/v1", "Job", "seed", "uid-seed"))
		b.addPod("shop", "api-x", oldKubelet, ref("autoscaling/v9", "Gauge", "api", "uid-api"))
		b.deps.Skips = []planfile.Skip{{Owner: "shop/Job/seed", Reason: "ends at 04:00", Until: planfile.Date{Time: start}}}

		stop := stopOf(t, b.drive(t.Context()))
		for _, line := range []string{"3 pods of 3 owners below 1.33 that no restart moves:",
			"\n  shop/Deployment/halted: 1 pod, paused Deployment; resume it, or",
			"\n  shop/Gauge/api: 1 pod, owner kind Gauge.autoscaling is unknown", "\n  shop/Pod/debug: 1 pod, bare pod: nothing would make it again; "} {
			if !strings.Contains(stop.Why, line) {
				t.Errorf("%q is not in %s", line, stop.Why)
			}
		}
		if stop.Code != state.ExitBlocked || !strings.Contains(stop.Cure, "restart.skip") {
			t.Errorf("got %d %s\n%s", stop.Code, stop.Why, stop.Cure)
		}
		if got := b.restarts(cart); len(got) != 1 {
			t.Errorf("the rest was not restarted: %v", got)
		}
		obs := b.observe()
		if obs.Status != state.Blocked || obs.Reason != flat.Replace(stop.Why) || strings.Contains(obs.Reason, ":;") || obs.Cure != stop.Cure {
			t.Errorf("%+v", obs)
		}
		for _, owner := range []string{"shop/Deployment/halted", "shop/Pod/debug", "shop/Gauge/api"} {
			b.deps.Skips = append(b.deps.Skips, planfile.Skip{Owner: owner, Reason: "later", Until: planfile.Date{Time: start}})
		}
		if obs := b.observe(); obs.Status != state.Done || !strings.Contains(obs.Reason, "4 below 1.33 that the plan file skips") {
			t.Errorf("skipped: %+v", obs)
		}
		b.clock.Sleep(24 * time.Hour)
		if obs := b.observe(); obs.Status != state.Ready || obs.Reason != "1 pod still leaving" {
			t.Errorf("a day later the Job is waited for: %+v", obs)
		}
	})
}

func TestPausedWhileItWaitsForItsTurn(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deps.MaxParallel = 1
		b.deployment("shop", "cart", 1, oldKubelet)
		pay := b.deployment("shop", "pay", 1, oldKubelet).DeepCopy()
		b.gate[cart] = make(chan struct{})
		end := b.held(t.Context())
		if len(b.restarts(cart)) != 1 {
			t.Fatal("not begun")
		}
		pay.Spec.Paused = true
		b.put(appsGVR["Deployment"], pay)
		synctest.Wait()
		close(b.gate[cart])
		stop := stopOf(t, <-end)
		if stop.Code != state.ExitBlocked || !strings.Contains(stop.Why, "shop/Deployment/pay: 1 pod, paused Deployment") {
			t.Errorf("%+v", stop)
		}
		if got := b.restarts("shop/Deployment/pay"); len(got) != 0 {
			t.Errorf("patched %v", got)
		}
	})
}

func TestControlPlaneBehind(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deps.Inventory = b.inventory("1.32")
		b.deployment("shop", "cart", 1, oldKubelet)
		if obs := b.observe(); obs.Status != state.Blocked || !strings.Contains(obs.Reason, "is at 1.32") {
			t.Errorf("%+v", obs)
		}
		if stop := stopOf(t, b.drive(t.Context())); stop.Code != state.ExitBlocked {
			t.Errorf("%+v", stop)
		}
		// A control plane that has gone on meanwhile asks nothing more of this step.
		b.deps.Inventory = b.inventory("1.34")
		b.deployment("shop", "web", 1, newKubelet)
		must(b.client.Tracker().Delete(appsGVR["Deployment"], "shop", "cart"))
		for _, p := range b.podsOfAll() {
			if strings.HasPrefix(p.Name, "cart") {
				must(b.client.Tracker().Delete(podsGVR, "shop", p.Name))
			}
		}
		if obs := b.observe(); obs.Status != state.Done {
			t.Errorf("%+v", obs)
		}
	})
}

func TestRefusedPatch(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "cart", 1, oldKubelet)
		denied := apierrors.NewForbidden(appsGVR["Deployment"].GroupResource(), "cart", errors.New("admission webhook \"policy\" denied the request"))
		b.before = once(denied)
		stop := stopOf(t, b.drive(t.Context()))
		if stop.Code != state.ExitBlocked || !strings.Contains(stop.Why, cart) || !strings.Contains(stop.Why, "denied the request") {
			t.Errorf("%+v", stop)
		}
		if got := b.journal.results(cart); len(got) != 1 || got[0] != state.Rejected {
			t.Errorf("results %v", got)
		}
		// Allowed again: a refused attempt changed nothing and does not count.
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if in := b.journal.intents(); len(in) != 2 || in[1].Attempt != 1 {
			t.Errorf("intents %+v", in)
		}
	})
}

func TestForbiddenWatch(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "cart", 1, oldKubelet)
		b.client.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
			return true, nil, apierrors.NewForbidden(podsGVR.GroupResource(), "", errors.New("no"))
		})
		lists := 0
		b.client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			if lists++; lists == 1 {
				return false, nil, nil // the inventory
			}
			return true, nil, apierrors.NewForbidden(podsGVR.GroupResource(), "", errors.New("no"))
		})
		stop := stopOf(t, b.drive(t.Context()))
		if stop.Code != state.ExitBlocked || !strings.Contains(stop.Why, "watch of pods: ") || !strings.Contains(stop.Cure, "list and watch pods") {
			t.Errorf("%+v", stop)
		}
	})
}

// An API server that has just started denies what it allows a moment later.
func TestWatchDeniedForAMoment(t *testing.T) {
	for name, denied := range map[string]error{
		"403": apierrors.NewForbidden(podsGVR.GroupResource(), "", errors.New("RBAC: not yet synced")), "401": apierrors.NewUnauthorized("not yet"),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.deployment("shop", "cart", 1, oldKubelet)
				b.gate[cart] = make(chan struct{})
				n := 0
				b.client.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
					if n++; n < mostDenied-1 {
						return true, nil, denied
					}
					return false, nil, nil
				})
				end := b.held(t.Context())
				b.clock.Sleep(2 * time.Minute)
				close(b.gate[cart])
				if err := <-end; err != nil {
					t.Fatal(err)
				}
				if last := b.journal.waits[len(b.journal.waits)-1]; strings.Contains(last, "watch of pods") {
					t.Errorf("still said when it works: %q", last)
				}
			})
		})
	}
}

func TestMirrorForgetsComplaints(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		m, err := openMirror(t.Context(), b.client, b.clock, "1.33", false)
		must(err)
		defer m.close()
		synctest.Wait()
		m.failed(m.pods, "pods", apierrors.NewInternalError(errors.New("etcd")))
		if text, fatal := m.trouble(); fatal != nil || !strings.Contains(text, "watch of pods: ") {
			t.Errorf("%q, %v", text, fatal)
		}
		b.addPod("shop", "new", newKubelet, nil)
		synctest.Wait()
		if text, _ := m.trouble(); text != "" {
			t.Errorf("still complains: %q", text)
		}
	})
}

func TestCancelledBeforeItBegins(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "cart", 1, oldKubelet)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.step().Act(ctx, b.journal); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if len(b.order) != 0 {
			t.Errorf("patched %v", b.order)
		}
	})
}
