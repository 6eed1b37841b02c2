package restart

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/eksbg/eksbg/internal/state"
)

var errWebhook = apierrors.NewInternalError(errors.New(`failed calling webhook "policy": connection refused`))

// webhooked lets a webhook that fails answer what the object with that name is asked for.
func (b *bench) webhooked(object string, fails func() bool) {
	b.before = func(name, _ string) error {
		if strings.Contains(name, object) && fails() {
			return errWebhook
		}
		return nil
	}
}

// A CronJob whose suspension the API server does not take for now is waited for, and for
// restart.timeout at most.
func TestSuspensionWaitsForAWebhook(t *testing.T) {
	for name, always := range map[string]bool{"that comes back": false, "that stays away": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.deployment("shop", "cart", 1, oldKubelet)
				b.cronJob("shop", "nightly", false)
				b.deps.CronJobs, b.deps.Timeout = suspendAll, 10*time.Minute
				n := 0
				b.webhooked("cronjobs/nightly", func() bool { n++; return always || n < 4 })
				err := b.drive(t.Context())
				if !always {
					if err != nil || n < 5 || suspended(b.cron("nightly")) || b.clock.Since(start) > 2*time.Minute {
						t.Errorf("%v after %d patches and %s", err, n, b.clock.Since(start))
					}
					return
				}
				stop := stopOf(t, err)
				if stop.Code != state.ExitResumable || !strings.Contains(stop.Why, "shop/CronJob/nightly: the API server has not taken it for 10m0s") ||
					!strings.Contains(stop.Why, "failed calling webhook") {
					t.Errorf("%+v", stop)
				}
				if took := b.clock.Since(start); took < b.deps.Timeout || took > b.deps.Timeout+time.Minute {
					t.Errorf("took %s", took)
				}
				if len(b.restarts(cart)) != 0 || len(b.journal.open()) != 0 {
					t.Errorf("restarted %v, open %v", b.restarts(cart), b.journal.open())
				}
			})
		})
	}
}

// An interrupt ends that wait.
func TestInterruptedWhileAWebhookKeepsASuspension(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "cart", 1, oldKubelet)
		b.cronJob("shop", "nightly", false)
		b.deps.CronJobs = suspendAll
		b.webhooked("cronjobs/nightly", func() bool { return true })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		b.expectWatches()
		go func() { done <- b.step().Act(ctx, b.journal) }()
		b.clock.Sleep(time.Minute)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) || suspended(b.cron("nightly")) || len(b.journal.open()) != 0 {
			t.Errorf("%v, suspended %v, open %v", err, suspended(b.cron("nightly")), b.journal.open())
		}
	})
}

// The same holds for the look at a suspension that nobody knows the outcome of.
func TestLookAtASuspensionWaits(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "cart", 1, oldKubelet)
		b.cronJob("shop", "nightly", false)
		b.deps.CronJobs = suspendAll
		b.journal.killAt = 2 // the outcome is not written
		if err := b.drive(t.Context()); !errors.Is(err, errKilled) || !suspended(b.cron("nightly")) {
			t.Fatal(err)
		}
		b.journal.dead = false
		n := 0
		b.client.PrependReactor("get", "cronjobs", func(clienttesting.Action) (bool, runtime.Object, error) {
			if n++; n < 4 {
				return true, nil, errWebhook
			}
			return false, nil, nil
		})
		if err := b.drive(t.Context()); err != nil || suspended(b.cron("nightly")) || len(b.journal.open()) != 0 {
			t.Errorf("%v, suspended %v, open %v", err, suspended(b.cron("nightly")), b.journal.open())
		}
	})
}

// What another run has left is put back when the API server takes it.
func TestOrphanedMarksWaitForAWebhook(t *testing.T) {
	for name, object := range map[string]string{"a CronJob": "cronjobs/nightly", "a surge": "replicasets/one"} {
		for _, always := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T, b *bench) {
					rs := b.bareSet("shop", "one", 2, newKubelet).DeepCopy()
					rs.Annotations = map[string]string{surgeAnnotation: "20000101T000000Z.1"}
					b.put(replicaSetsGVR, rs)
					b.cronJob("shop", "nightly", true)
					cj := b.cron("nightly").DeepCopy()
					cj.Annotations = map[string]string{suspendAnnotation: "1999-12-31T00:00:00Z"}
					b.put(cronJobsGVR, cj)
					n := 0
					b.webhooked(object, func() bool { n++; return always || n <= releases })
					b.deps.Timeout = 10 * time.Minute
					err := b.drive(t.Context())
					if always {
						if stop := stopOf(t, err); stop.Code != state.ExitResumable || !strings.Contains(stop.Why, "has not taken it for 10m0s") ||
							!strings.Contains(stop.Why, "not put back: ") || !strings.Contains(stop.Cure, "kubectl ") {
							t.Errorf("%+v", stop)
						}
						return
					}
					if err != nil || suspended(b.cron("nightly")) || *b.set("one").Spec.Replicas != 1 {
						t.Errorf("%v, suspended %v, %d replicas", err, suspended(b.cron("nightly")), *b.set("one").Spec.Replicas)
					}
				})
			})
		}
	}
}

// The lock is asked for again before each try of that.
func TestOrphanedMarksAreNotTriedOnWithoutTheLock(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.cronJob("shop", "nightly", true)
		cj := b.cron("nightly").DeepCopy()
		cj.Annotations = map[string]string{suspendAnnotation: "1999-12-31T00:00:00Z"}
		b.put(cronJobsGVR, cj)
		tries := 0
		b.webhooked("cronjobs/nightly", func() bool {
			if tries++; tries == 2 {
				b.journal.refuse = &state.Withheld{Change: "any", Err: errWebhook}
			}
			return tries <= 2
		})
		err := b.drive(t.Context())
		if w := (*state.Withheld)(nil); !errors.As(err, &w) || tries != 3 { // the third one is the put-back
			t.Errorf("%v after %d tries", err, tries)
		}
	})
}
