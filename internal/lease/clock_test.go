package lease_test

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// sleeper is a clock whose machine sleeps: the time of day goes on, timers do not.
type sleeper struct {
	clock.RealClock

	mu  sync.Mutex
	off time.Duration
}

func (s *sleeper) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.RealClock.Now().Add(s.off)
}

func (s *sleeper) sleep(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.off += d
}
