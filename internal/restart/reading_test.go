package restart

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eksbg/eksbg/internal/fargate"
	"github.com/eksbg/eksbg/internal/state"
)

// rolls makes Deployments whose rollouts take a time each, one after the other.
func (b *bench) rolls(n int, each time.Duration) {
	b.deps.MaxParallel = 1
	for i := range n {
		name := fmt.Sprintf("d%02d", i)
		b.deployment("shop", name, 1, oldKubelet)
		b.gate["shop/Deployment/"+name] = make(chan struct{})
	}
	b.after = func(owner, _ string) error {
		time.AfterFunc(each, func() { close(b.gate[owner]) })
		return nil
	}
}

func silent() fargate.Room {
	return fargate.Room{MilliCPU: fargate.Unknown, Burst: fargate.Unknown, PerSecond: fargate.Unknown, Missing: []string{"ec2:DescribeSubnets did not answer"}}
}

// Nothing begins before the first read has ended, and the wave waits for no other one.
func TestASlowReadOfTheRoomHoldsUpTheFirstOnly(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.rolls(12, 10*time.Second)
		reads := 0
		var ended time.Time
		b.deps.Room = func(context.Context, Use) (fargate.Room, error) {
			if reads++; reads > 1 && b.clock.Since(ended) < roomEvery {
				t.Errorf("read again %s after the last read", b.clock.Since(ended))
			}
			defer func() { ended = b.clock.Now() }()
			time.Sleep(20 * time.Second)
			if reads == 1 && b.begun() != 0 {
				t.Errorf("begun before the first read had ended: %v", b.order)
			}
			return room(9), nil
		}
		begin := b.clock.Now()
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
		// Twelve rollouts of 10 s, the first read, and what the simulated controllers take.
		if took := b.clock.Since(begin); took > 20*time.Second+12*12*time.Second || reads < 3 {
			t.Errorf("took %s with %d reads", took, reads)
		}
	})
}

// The half minute between two reads counts from the end of the first, and grows for as
// long as a read tells nothing.
func TestReadsThatTellNothingBecomeSeldom(t *testing.T) {
	for name, tt := range map[string]struct {
		room fargate.Room
		want []time.Duration
	}{
		"nothing": {silent(), []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute}},
		"something": {func() fargate.Room { r := room(9); r.Missing = silent().Missing; return r }(),
			slices.Repeat([]time.Duration{30 * time.Second}, 7)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.rolls(2, 50*time.Minute)
				var pauses []time.Duration
				var ended time.Time
				b.deps.Room = func(context.Context, Use) (fargate.Room, error) {
					if !ended.IsZero() {
						pauses = append(pauses, b.clock.Since(ended))
					}
					time.Sleep(20 * time.Second)
					ended = b.clock.Now()
					return tt.room, nil
				}
				if err := b.drive(t.Context()); err != nil {
					t.Fatal(err)
				}
				if len(pauses) < len(tt.want) {
					t.Fatalf("read again after %s only", pauses)
				}
				for i, want := range tt.want {
					// Admission is tried every half minute.
					if got := pauses[i]; got < want || got > want+roomEvery {
						t.Errorf("pause %d is %s, want %s", i, got, want)
					}
				}
			})
		})
	}
}

// A read without an end bounds nothing after a while, and ends with the restart.
func TestAReadWithoutAnEnd(t *testing.T) {
	ended := false
	never := func(ctx context.Context, _ Use) (fargate.Room, error) {
		<-ctx.Done()
		ended = true
		return fargate.Room{}, ctx.Err()
	}
	bubble(t, func(t *testing.T, b *bench) {
		b.rolls(1, time.Second)
		b.deps.Room = never
		if err := b.drive(t.Context()); err != nil || !ended {
			t.Fatalf("%v, the read has ended: %t", err, ended)
		}
		if !slices.ContainsFunc(b.journal.Records(""), func(r state.Record) bool {
			return r.Kind == state.RecordWarning && strings.Contains(r.Text, "do not bound this restart: no answer within 1m30s")
		}) {
			t.Errorf("not said: %+v", b.journal.Records(""))
		}
		if !slices.ContainsFunc(b.journal.waits, func(s string) bool { return strings.Contains(s, "what Fargate has room for is being read") }) {
			t.Errorf("not said meanwhile: %q", b.journal.waits)
		}
	})
	bubble(t, func(t *testing.T, b *bench) {
		b.rolls(1, time.Second)
		b.deps.Room = never
		ctx, stop := context.WithCancelCause(t.Context())
		end := b.held(ctx)
		cause := errors.New("stopped")
		stop(cause)
		if err := <-end; !errors.Is(err, cause) || b.begun() != 0 {
			t.Errorf("%v, begun %v", err, b.order)
		}
	})
}

// What has begun before goes on while the first read is under way.
func TestWhatIsUnderWayDoesNotWaitForTheRoom(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.bareSet("shop", "web", 2, oldKubelet)
		ctx, stop := context.WithCancelCause(t.Context())
		b.journal.onIntent = func(int) { stop(errors.New("stopped")) }
		if err := b.drive(ctx); err == nil {
			t.Fatal("not stopped")
		}
		b.journal.onIntent = nil
		before := b.journal.intended
		answer := make(chan struct{})
		b.deps.Room = func(context.Context, Use) (fargate.Room, error) { <-answer; return room(9), nil }
		b.deployment("shop", "cart", 2, oldKubelet)
		end := b.held(t.Context())
		time.Sleep(time.Minute)
		synctest.Wait()
		if b.journal.intended == before {
			t.Error("what was under way stands still")
		}
		if len(b.restarts(cart)) != 0 {
			t.Error("something began before the room was read")
		}
		close(answer)
		if err := <-end; err != nil {
			t.Fatal(err)
		}
	})
}

// What the cluster uses of the quota is told as it is now, finished pods too and without
// the pods that admission counts itself; and whether the quota is what others wait for.
func TestWhatTheClusterUsesIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		const pay = "shop/Deployment/pay"
		b.deps.MaxParallel = 2
		b.size = "0.25vCPU 0.5GB"
		b.deployment("shop", "cart", 2, oldKubelet)
		b.deployment("shop", "pay", 2, oldKubelet)
		b.deployment("shop", "zoo", 2, oldKubelet)
		gate := make(chan struct{})
		b.pod[cart] = func(*corev1.Pod) bool { <-gate; return true }
		b.pod[pay] = b.pod[cart]
		b.profiled()
		var uses []Use
		var left atomic.Int64
		left.Store(500) // room for two of 0.25 is asked for
		b.deps.Room = func(_ context.Context, use Use) (fargate.Room, error) {
			uses = append(uses, use)
			r := room(99)
			r.MilliCPU = int(left.Load())
			return r, nil
		}
		end := b.held(t.Context())
		pods, err := b.client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
		must(err)
		if len(b.restarts(pay)) != 0 || len(b.restarts(cart)) != 1 || len(pods.Items) != 7 {
			t.Fatalf("begun are %v, %d pods", b.order, len(pods.Items))
		}
		done := b.addPod("shop", "done", "", nil).DeepCopy()
		done.Status.Phase = corev1.PodSucceeded
		b.put(podsGVR, done)
		time.Sleep(roomEvery + time.Second)
		left.Store(9000)
		time.Sleep(roomEvery)
		time.Sleep(roomEvery)
		synctest.Wait()
		if want := []Use{{MilliCPU: 1500}, {MilliCPU: 1750, Short: true}, {MilliCPU: 1750, Short: true}, {MilliCPU: 1750}}; !slices.Equal(uses, want) {
			t.Errorf("told %+v, want %+v", uses, want)
		}
		if len(b.restarts(pay)) != 1 {
			t.Error("what came free was not used")
		}
		close(gate)
		if err := <-end; err != nil {
			t.Fatal(err)
		}
	})
}
