package work_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/eksbg/eksbg/internal/sandbox/kube/work"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errAgain = errors.New("again")

// run works a queue until the test ends.
func run(t *testing.T, q *work.Queue[string], workers int, f func(string) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			q.Run(ctx, func(_ context.Context, k string) error { return f(k) }, func(err error) bool { return errors.Is(err, errAgain) })
		})
	}
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		q.Close()
	})
}

// TestQueue adds keys while they are worked on: none is worked on twice at a time, none
// is lost, and the tracker knows when all is done.
func TestQueue(t *testing.T) {
	tr := work.NewTracker()
	q := work.NewQueue[string](tr)
	var mu sync.Mutex
	busy, done := map[string]bool{}, map[string]int{}
	run(t, q, 4, func(k string) error {
		mu.Lock()
		defer mu.Unlock()
		if busy[k] {
			t.Errorf("%s is worked on twice at a time", k)
		}
		busy[k] = true
		mu.Unlock()
		if k != "echo" {
			q.Add("echo")
		}
		mu.Lock()
		busy[k] = false
		if done[k]++; done[k] < 50 && k != "echo" {
			q.Add(k)
		}
		return nil
	})
	for _, k := range []string{"a", "b", "c"} {
		q.Add(k)
		q.Add(k)
	}
	if err := tr.Wait(context.Background()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, k := range []string{"a", "b", "c"} {
		if n := done[k]; n < 50 || n > 51 {
			t.Errorf("%s was worked on %d times, want 50, or one more for the second Add", k, n)
		}
	}
	if done["echo"] == 0 {
		t.Error("what was added from inside got lost")
	}
}

// TestRetry tries failures again: at once where the error says so, later otherwise.
func TestRetry(t *testing.T) {
	tr := work.NewTracker()
	q := work.NewQueue[string](tr)
	var at atomic.Int32
	later := make(chan int32, 10)
	run(t, q, 1, func(k string) error {
		n := at.Add(1)
		switch {
		case k == "at once" && n < 4:
			return errAgain
		case k == "later":
			later <- n
			if n == 1 {
				return errors.New("not yet")
			}
		}
		return nil
	})
	q.Add("at once")
	if err := tr.Wait(context.Background()); err != nil || at.Load() != 4 {
		t.Errorf("idle after %d tries (%v), want 4", at.Load(), err)
	}
	at.Store(0)
	q.Add("later")
	if a, b := <-later, <-later; a != 1 || b != 2 {
		t.Errorf("tries %d and %d", a, b)
	}
}

// TestTimers keeps the earliest timer of a key; Flush does not wait for it, and Close
// drops it.
func TestTimers(t *testing.T) {
	tr := work.NewTracker()
	q := work.NewQueue[string](tr)
	got := make(chan string, 10)
	run(t, q, 1, func(k string) error { got <- k; return nil })
	q.AddAfter("k", time.Hour)
	q.AddAfter("k", time.Millisecond)
	q.AddAfter("k", time.Hour)
	if k := <-got; k != "k" {
		t.Errorf("got %s", k)
	}
	q.AddAfter("flushed", time.Hour)
	if err := tr.Wait(context.Background()); err != nil {
		t.Errorf("a timer counts as work: %v", err)
	}
	q.Flush()
	if k := <-got; k != "flushed" {
		t.Errorf("got %s", k)
	}
	q.AddAfter("never", time.Hour)
}

// TestWaitEnds gives up with its context.
func TestWaitEnds(t *testing.T) {
	tr := work.NewTracker()
	q := work.NewQueue[string](tr)
	q.Add("nobody works on this")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errAgain)
	if err := tr.Wait(ctx); !errors.Is(err, errAgain) {
		t.Errorf("Wait: %v", err)
	}
	q.Close()
	if err := tr.Wait(context.Background()); err != nil {
		t.Errorf("a closed queue counts as work: %v", err)
	}
}
