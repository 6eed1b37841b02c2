package restart

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/state"
)

// unrenewed is a guard whose lock cannot be renewed: it waits until it is lost, or ctx ends.
func unrenewed(lost <-chan struct{}) aws.Guard {
	return func(ctx context.Context) (time.Duration, error) {
		select {
		case <-lost:
			return 0, lockTaken{}
		default:
		}
		select {
		case <-lost:
			return 0, lockTaken{}
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// surgeAndCronJob is a cluster of which a restart, once it waits, owes one thing of each kind.
func (b *bench) surgeAndCronJob() {
	b.bareSet("shop", "one", 1, oldKubelet)
	b.cronJob("shop", "nightly", false)
	b.deps.CronJobs = suspendAll
	b.pod["shop/ReplicaSet/one"] = func(*corev1.Pod) bool { return false }
}

// A lock that cannot be renewed, since the other cluster's API server is away, keeps
// nothing from going back.
func TestPutBackWaitsForNoLock(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.surgeAndCronJob()
		ctx, cancel := context.WithCancel(aws.WithGuard(t.Context(), unrenewed(nil)))
		defer cancel()
		end := b.held(ctx)
		begin := b.clock.Now()
		cancel()
		if err := <-end; !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "not put back") {
			t.Error(err)
		}
		if took := b.clock.Since(begin); took > 0 {
			t.Errorf("waited %s", took)
		}
		if suspended(b.cron("nightly")) || *b.set("one").Spec.Replicas != 1 || len(b.set("one").Annotations) != 0 {
			t.Errorf("suspended %v, %d replicas", suspended(b.cron("nightly")), *b.set("one").Spec.Replicas)
		}
	})
}

// The lock is taken while the first thing goes back: the second one stays, with its command.
func TestLockIsTakenDuringThePutBack(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.surgeAndCronJob()
		lost := make(chan struct{})
		ctx, cancel := context.WithCancel(aws.WithGuard(t.Context(), unrenewed(lost)))
		defer cancel()
		end := b.held(ctx)
		b.after = func(owner, _ string) error {
			if strings.Contains(owner, "cronjobs") {
				close(lost)
			}
			return nil
		}
		cancel()
		if err := <-end; !state.LockLost(err) || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if suspended(b.cron("nightly")) || *b.set("one").Spec.Replicas != 2 {
			t.Errorf("suspended %v, %d replicas", suspended(b.cron("nightly")), *b.set("one").Spec.Replicas)
		}
		warning, _ := state.LastOf(b.journal.Records(""), state.RecordWarning)
		if !strings.Contains(warning.Text, "kubectl scale replicaset -n shop one --replicas=1") || strings.Contains(warning.Text, "nightly") {
			t.Errorf("%+v", warning)
		}
	})
}

// Who has taken the lock comes first in what is said, and what ended the restart is not lost.
func TestStopOfALostLockKeepsWhatEndedTheRestart(t *testing.T) {
	lost := &state.Stop{Code: state.ExitLocked, Why: "the lock was lost", Cure: "talk to them"}
	for want, cause := range map[string]error{"the lock was lost": nil, "the lock was lost\na crash loop": errors.New("a crash loop")} {
		if stop := stopOf(t, lostMeanwhile(lost, cause)); stop.Code != state.ExitLocked || stop.Error() != want || stop.Cure != lost.Cure {
			t.Errorf("%+v", stop)
		}
	}
}

// noSurge is a recorder that lets no surge begin; seen is told of one.
type noSurge struct {
	*memory
	seen func()
}

func (n noSurge) Intent(call, object string, detail, undo any) (int64, error) {
	if call != "k8s:patch replicasets" {
		return n.memory.Intent(call, object, detail, undo)
	}
	n.seen()
	return 0, &state.Withheld{Change: call, Err: errors.New("the lock cannot be renewed")}
}

// What ended the restart is said before what is not put back, and a change that an
// interrupt withheld not at all.
func TestWhatIsNotPutBackIsSaidLast(t *testing.T) {
	for name, tt := range map[string]struct {
		interrupt bool
		code      state.Exit
		begins    string
	}{
		"interrupted": {true, state.ExitInterrupted, "interrupted during green/restart/1; not put back: put shop/CronJob/nightly back: "},
		"withheld":    {false, state.ExitResumable, "write to the journal what is about to be done to shop/ReplicaSet/one: k8s:patch replicasets is withheld: "},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.surgeAndCronJob()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				b.before = func(owner, _ string) error {
					if !strings.Contains(owner, "cronjobs") || !suspended(b.cron("nightly")) {
						return nil
					}
					return apierrors.NewForbidden(cronJobsGVR.GroupResource(), "nightly", errors.New("no"))
				}
				b.expectWatches()
				err := b.step().Act(ctx, noSurge{b.journal, func() {
					if tt.interrupt {
						cancel()
					}
				}})
				stop := stopOf(t, err)
				if stop.Code != tt.code || !strings.HasPrefix(err.Error(), tt.begins) || !strings.Contains(err.Error(), "not put back: ") ||
					tt.interrupt && strings.Contains(err.Error(), "withheld") {
					t.Errorf("%d %v", stop.Code, err)
				}
			})
		})
	}
}
