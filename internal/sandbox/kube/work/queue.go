// Package work runs the controllers of a simulated cluster: queues of keys that are
// driven by events and timers alone, and that know together when nothing is left to do.
package work

import (
	"context"
	"sync"
	"time"
)

// Tracker counts what is queued or being worked on in several queues.
type Tracker struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed while n is 0
}

// NewTracker makes an idle tracker.
func NewTracker() *Tracker {
	idle := make(chan struct{})
	close(idle)
	return &Tracker{idle: idle}
}

func (t *Tracker) add(d int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == 0 && d > 0 {
		t.idle = make(chan struct{})
	}
	t.n += d
	if t.n == 0 && d < 0 {
		close(t.idle)
	}
}

// Wait returns when nothing is queued or being worked on. Keys that wait for a timer do
// not count.
func (t *Tracker) Wait(ctx context.Context) error {
	t.mu.Lock()
	idle := t.idle
	t.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Queue hands out keys: each at most once at a time, and again when it was added while
// it was being worked on.
type Queue[K comparable] struct {
	tracker *Tracker

	mu      sync.Mutex
	wake    chan struct{}
	order   []K
	queued  map[K]bool
	running map[K]bool
	later   map[K]*timer
	fails   map[K]int
	closed  bool
}

type timer struct {
	at time.Time
	t  *time.Timer
}

// NewQueue makes a queue that counts in t.
func NewQueue[K comparable](t *Tracker) *Queue[K] {
	return &Queue[K]{
		tracker: t,
		wake:    make(chan struct{}, 1),
		queued:  map[K]bool{},
		running: map[K]bool{},
		later:   map[K]*timer{},
		fails:   map[K]int{},
	}
}

// Add queues a key now.
func (q *Queue[K]) Add(k K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(k)
}

func (q *Queue[K]) add(k K) {
	if q.closed || q.queued[k] {
		return
	}
	q.queued[k] = true
	q.tracker.add(1)
	if !q.running[k] {
		q.order = append(q.order, k)
		q.signal()
	}
}

func (q *Queue[K]) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// AddAfter queues a key when d has passed. Of several timers of a key the earliest stays.
func (q *Queue[K]) AddAfter(k K, d time.Duration) {
	if d <= 0 {
		q.Add(k)
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	at := time.Now().Add(d)
	if old := q.later[k]; old != nil {
		if !old.at.After(at) {
			return
		}
		old.t.Stop()
	}
	tm := &timer{at: at}
	tm.t = time.AfterFunc(d, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.later[k] == tm {
			delete(q.later, k)
			q.add(k)
		}
	})
	q.later[k] = tm
}

// Flush queues every key that waits for a timer now.
func (q *Queue[K]) Flush() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for k, tm := range q.later {
		tm.t.Stop()
		delete(q.later, k)
		q.add(k)
	}
}

// Run works keys off one by one until ctx ends; several Runs may share a queue. A key
// whose work fails is tried again, later each time; one for which again says so at once.
func (q *Queue[K]) Run(ctx context.Context, f func(context.Context, K) error, again func(error) bool) {
	for {
		k, ok := q.next(ctx)
		if !ok {
			return
		}
		err := f(ctx, k)
		q.done(k, err, err != nil && again(err))
	}
}

func (q *Queue[K]) next(ctx context.Context) (k K, ok bool) {
	for {
		if ctx.Err() != nil {
			return k, false
		}
		q.mu.Lock()
		if len(q.order) > 0 {
			k = q.order[0]
			q.order = q.order[1:]
			delete(q.queued, k)
			q.running[k] = true
			if len(q.order) > 0 {
				q.signal()
			}
			q.mu.Unlock()
			return k, true
		}
		q.mu.Unlock()
		select {
		case <-q.wake:
		case <-ctx.Done():
			return k, false
		}
	}
}

// done ends the work on a key. What it was queued for meanwhile comes next.
func (q *Queue[K]) done(k K, err error, again bool) {
	q.mu.Lock()
	delete(q.running, k)
	if q.queued[k] {
		q.order = append(q.order, k)
		q.signal()
	}
	var wait time.Duration
	switch {
	case err == nil:
		delete(q.fails, k)
	case again:
		q.add(k)
	default:
		q.fails[k]++
		wait = min(5*time.Millisecond<<min(q.fails[k], 8), time.Second)
	}
	q.mu.Unlock()
	if wait > 0 {
		q.AddAfter(k, wait)
	}
	q.tracker.add(-1)
}

// Close drops what is queued and stops the timers. It comes after every Run has ended.
func (q *Queue[K]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for k, tm := range q.later {
		tm.t.Stop()
		delete(q.later, k)
	}
	q.tracker.add(-len(q.queued))
	clear(q.queued)
	q.order = nil
}
