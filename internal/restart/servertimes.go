package restart

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
)

// serverTimes is the API server's clock as far as the objects show it: the newest time
// that the server itself has written into one, and what has passed here since that was
// seen. It is never ahead of the server's, whatever the time is here.
type serverTimes struct {
	clk clock.PassiveClock

	mu       sync.Mutex
	newest   time.Time
	newestAt time.Time
}

// slim is the transform of the watches, which looks at the times on the way.
func (s *serverTimes) slim(obj any) (any, error) {
	s.see(obj)
	return slim(obj)
}

// see takes the server's times in an object: that of its creation, and of a node, whose
// kubelet reports every five minutes at least (nodeStatusReportFrequency), those of the
// last writes (managedFields). Every other object may have been sent with old ones.
func (s *serverTimes) see(obj any) {
	o, ok := obj.(metav1.Object)
	if !ok {
		return
	}
	at := o.GetCreationTimestamp().Time
	if n, isNode := obj.(*corev1.Node); isNode {
		for i := range n.ManagedFields {
			if t := n.ManagedFields[i].Time; t != nil {
				at = latest(at, t.Time)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.clk.Now(); s.newest.IsZero() || at.After(s.newest.Add(now.Sub(s.newestAt))) {
		s.newest, s.newestAt = at, now
	}
}

// age is how old something is that the server has made at that time, at the least.
func (s *serverTimes) age(made time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if made.IsZero() || s.newest.IsZero() {
		return 0
	}
	return max(0, s.newest.Add(s.clk.Since(s.newestAt)).Sub(made))
}
