package restart

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/state"
)

// A first list from before the surge does not lose the number of replicas.
func TestStaleListAfterASurge(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.bareSet("shop", "one", 1, oldKubelet)
		before := b.set("one").DeepCopy()
		b.journal.killAt, b.journal.killAfter = 2, true
		if err := b.drive(t.Context()); !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		b.journal.dead = false
		b.sim.mu.Lock()
		b.wanted = 0 // the new pod comes while nobody watches
		b.cond.Broadcast()
		b.sim.mu.Unlock()
		synctest.Wait()
		stale := 0
		b.client.PrependReactor("list", "replicasets", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if o := a.(clienttesting.ListActionImpl).ListOptions; o.ResourceVersion != "0" || stale > 0 {
				return false, nil, nil
			}
			stale++
			return true, &appsv1.ReplicaSetList{Items: []appsv1.ReplicaSet{*before}}, nil
		})
		mute := watch.NewFake()
		muted := false
		b.client.PrependWatchReactor("replicasets", func(clienttesting.Action) (bool, watch.Interface, error) {
			if muted {
				return false, nil, nil
			}
			muted = true
			b.sim.mu.Lock()
			b.watches++
			b.cond.Broadcast()
			b.sim.mu.Unlock()
			return true, mute, nil
		})
		end := b.held(t.Context())
		if stale == 0 {
			t.Fatal("nothing was stale")
		}
		mute.Stop()
		b.clock.Sleep(time.Minute) // it is watched again
		synctest.Wait()
		now := b.set("one").DeepCopy()
		now.ResourceVersion = fmt.Sprint(b.next())
		b.put(replicaSetsGVR, now)
		if err := <-end; err != nil {
			t.Fatal(err)
		}
		if rs := b.set("one"); *rs.Spec.Replicas != 1 || len(rs.Annotations) != 0 {
			t.Errorf("%d replicas, %v", *rs.Spec.Replicas, rs.Annotations)
		}
	})
}

// A CronJob that is made anew, or written by somebody else, between the list and the patch
// is held all the same.
func TestCronJobsThatChangeMeanwhile(t *testing.T) {
	for name, tt := range map[string]struct {
		change  func(*bench)
		results []state.Result
		// theirs: somebody else holds it, and does so after the restart.
		theirs bool
	}{
		"made anew": {func(b *bench) {
			cj := b.cron("nightly").DeepCopy()
			cj.UID = types.UID(fmt.Sprint("uid-", b.next()))
			must(b.client.Tracker().Delete(cronJobsGVR, "shop", "nightly"))
			b.put(cronJobsGVR, cj)
		}, []state.Result{state.Rejected, state.Accepted, state.Succeeded}, false},
		"suspended by somebody else": {func(b *bench) {
			cj := b.cron("nightly").DeepCopy()
			cj.ResourceVersion, cj.Spec.Suspend = fmt.Sprint(b.next()), new(true)
			b.put(cronJobsGVR, cj)
		}, []state.Result{state.Rejected}, true},
		"run meanwhile": {func(b *bench) {
			cj := b.cron("nightly").DeepCopy()
			cj.ResourceVersion = fmt.Sprint(b.next())
			b.put(cronJobsGVR, cj)
		}, []state.Result{state.Accepted, state.Succeeded}, false},
		"written at the same moment": {func(b *bench) {
			n := 0
			b.before = func(owner, _ string) error {
				if n++; strings.Contains(owner, "cronjobs") && n < 3 {
					return apierrors.NewConflict(cronJobsGVR.GroupResource(), "nightly", errors.New("the object has been modified"))
				}
				return nil
			}
		}, []state.Result{state.Accepted, state.Succeeded}, false},
		"put back, and the answer is lost": {func(b *bench) {
			n := 0
			b.after = func(owner, _ string) error {
				if strings.Contains(owner, "cronjobs") {
					n++
				}
				if n == 2 && strings.Contains(owner, "cronjobs") {
					return apierrors.NewConflict(cronJobsGVR.GroupResource(), "nightly", errors.New("the object has been modified"))
				}
				return nil
			}
		}, []state.Result{state.Accepted, state.Succeeded}, false},
		"gone": {func(b *bench) { must(b.client.Tracker().Delete(cronJobsGVR, "shop", "nightly")) }, []state.Result{state.Rejected}, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.deployment("shop", "cart", 1, oldKubelet)
				b.cronJob("shop", "nightly", false)
				b.deps.CronJobs = "suspend"
				b.gate[cart] = make(chan struct{})
				read, reads := b.deps.Inventory, 0
				b.deps.Inventory = func(ctx context.Context) (*cluster.Inventory, error) {
					inv, err := read(ctx)
					if reads++; reads == 1 {
						tt.change(b)
					}
					return inv, err
				}
				end := b.held(t.Context())
				if name != "gone" && !suspended(b.cron("nightly")) {
					t.Error("it runs on")
				}
				close(b.gate[cart])
				if err := <-end; err != nil {
					t.Fatal(err)
				}
				if name != "gone" && (suspended(b.cron("nightly")) != tt.theirs || len(b.cron("nightly").Annotations) > 0) {
					t.Errorf("left with %v", b.cron("nightly").Annotations)
				}
				if got := b.journal.results("shop/CronJob/nightly"); !slices.Equal(got, tt.results) {
					t.Errorf("results %v, want %v", got, tt.results)
				}
			})
		})
	}
}

// What a run that is not resumed has left marked is put back, and told of.
func TestOrphanedMarks(t *testing.T) {
	for _, lags := range []bool{false, true} {
		bubble(t, func(t *testing.T, b *bench) {
			kubelet := newKubelet
			if lags {
				kubelet = oldKubelet
			}
			rs := b.bareSet("shop", "one", 2, kubelet).DeepCopy()
			rs.Annotations = map[string]string{surgeAnnotation: "20000101T000000Z.1"}
			b.put(replicaSetsGVR, rs)
			b.cronJob("shop", "nightly", true)
			cj := b.cron("nightly").DeepCopy()
			cj.Annotations = map[string]string{suspendAnnotation: "1999-12-31T00:00:00Z"}
			b.put(cronJobsGVR, cj)
			b.cronJob("shop", "held", true)
			kept := &corev1.PodTemplate{ObjectMeta: b.meta("shop", "eksbg-tool", nil)}
			kept.Annotations = map[string]string{recreateAnnotation: "uid-gone"}
			b.put(schema.GroupVersionResource{Version: "v1", Resource: "podtemplates"}, kept)
			if obs := b.observe(); obs.Status != state.Ready || !strings.Contains(obs.Reason, "2 changes to be put back") {
				t.Errorf("%+v", obs)
			}
			if err := b.drive(t.Context()); err != nil {
				t.Fatal(err)
			}
			if rs := b.set("one"); *rs.Spec.Replicas != 1 || len(rs.Annotations) != 0 {
				t.Errorf("%d replicas, %v", *rs.Spec.Replicas, rs.Annotations)
			}
			if suspended(b.cron("nightly")) || len(b.cron("nightly").Annotations) != 0 || !suspended(b.cron("held")) {
				t.Error("the CronJobs are not as they were")
			}
			var told []string
			for _, r := range b.journal.Records("") {
				if r.Kind == state.RecordWarning {
					told = append(told, r.Text)
				}
			}
			all := strings.Join(told, "\n")
			for _, text := range []string{"kubectl scale replicaset -n shop one --replicas=1", "kubectl patch cronjob -n shop nightly", remakeByHand("shop", "tool")} {
				if !strings.Contains(all, text) || len(told) != 3 {
					t.Errorf("%q is not in %q", text, told)
				}
			}
			if obs := b.observe(); obs.Status != state.Done || len(b.journal.open()) != 0 {
				t.Errorf("%+v", obs)
			}
		})
	}
}

type lockTaken struct{}

func (lockTaken) Error() string { return "the lock is somebody else's now" }
func (lockTaken) LockLost()     {}

// Who has lost the lock puts nothing back: the other run finds the marks, and works
// with what is suspended.
func TestNothingIsPutBackWithoutTheLock(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "cart", 1, oldKubelet)
		b.cronJob("shop", "nightly", false)
		b.deps.CronJobs = "suspend"
		b.pod["shop/Deployment/cart"] = func(*corev1.Pod) bool { return false }
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		end := b.held(ctx)
		cancel(lockTaken{})
		if err := <-end; !state.LockLost(err) {
			t.Errorf("%v", err)
		}
		if !suspended(b.cron("nightly")) {
			t.Error("put back under somebody else's lock")
		}
		warning, _ := state.LastOf(b.journal.Records(""), state.RecordWarning)
		if !strings.Contains(warning.Text, `kubectl patch cronjob -n shop nightly -p '{"spec":{"suspend":false}}'`) {
			t.Errorf("%+v", warning)
		}
	})
}
