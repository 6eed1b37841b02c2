package restart

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
)

// stampedNode is a node that was made and last written by its kubelet at those times.
func stampedNode(made, written time.Time) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(made)}}
	n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", Time: new(metav1.NewTime(written))}, {Manager: "forgotten"}}
	return n
}

func TestServerTimes(t *testing.T) {
	clk := testclock.NewFakePassiveClock(start)
	s := &serverTimes{clk: clk}
	server := start.Add(-time.Hour) // the clock here is an hour ahead
	if got := s.age(server); got != 0 {
		t.Errorf("an age of %s before anything was seen", got)
	}
	s.see(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(server.Add(-10 * time.Minute)),
		ManagedFields: []metav1.ManagedFieldsEntry{{Time: new(metav1.NewTime(server.Add(time.Hour)))}}}}) // whoever sent it may have written that
	if got := s.age(server.Add(-10 * time.Minute)); got != 0 {
		t.Errorf("the only thing that was seen is %s old", got)
	}
	s.see(stampedNode(server.Add(-20*time.Minute), server.Add(-time.Minute)))
	if got := s.age(server.Add(-10 * time.Minute)); got != 9*time.Minute {
		t.Errorf("%s old, a node reported nine minutes later", got)
	}
	clk.SetTime(start.Add(2 * time.Minute))
	if got := s.age(server.Add(-10 * time.Minute)); got != 11*time.Minute {
		t.Errorf("%s old two minutes later", got)
	}
	s.see(stampedNode(server, server)) // older than what is known
	if got := s.age(server.Add(-10 * time.Minute)); got != 11*time.Minute {
		t.Errorf("%s old", got)
	}
	if s.age(time.Time{}) != 0 || s.age(server.Add(time.Hour)) != 0 {
		t.Error("ages of nothing, or of what is yet to come")
	}
}

// Whatever the clock here says, and however late things are seen, nothing looks older
// than it is.
func TestServerTimesProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		skew := time.Duration(rapid.Int64Range(-int64(48*time.Hour), int64(48*time.Hour)).Draw(t, "skew"))
		now := start // the server's
		clk := testclock.NewFakePassiveClock(now.Add(skew))
		s := &serverTimes{clk: clk}
		var made []time.Time
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			pass := time.Duration(rapid.Int64Range(0, int64(10*time.Minute)).Draw(t, "pass"))
			now = now.Add(pass)
			clk.SetTime(clk.Now().Add(pass))
			ago := func() time.Time { // to the second, as metav1.Time is sent
				return now.Add(-time.Duration(rapid.Int64Range(0, int64(20*time.Minute)).Draw(t, "ago"))).Truncate(time.Second)
			}
			switch n := stampedNode(ago(), ago()); {
			case rapid.Bool().Draw(t, "a pod"):
				made = append(made, n.CreationTimestamp.Time)
				s.see(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: n.CreationTimestamp}})
			default:
				s.see(n)
			}
			for _, m := range made {
				if age := s.age(m); age > now.Sub(m) || age < 0 {
					t.Fatalf("%s old, it is %s", age, now.Sub(m))
				}
			}
		}
	})
}

// A pod that Fargate has left Pending is as old to the next process as it is, whatever the
// time is here; a young one is not.
func TestPendingGoesOnOverProcesses(t *testing.T) {
	for _, skew := range []time.Duration{0, time.Hour, -time.Hour} {
		for name, tt := range map[string]struct {
			// before is how long the pod waits before the process begins, most and least how
			// long it is left then.
			before, least, most time.Duration
			// seen is true where something in the cluster shows that time.
			seen bool
		}{
			"just made":          {0, 5 * time.Minute, 5*time.Minute + 2*time.Second, true},
			"three minutes old":  {3 * time.Minute, 2 * time.Minute, 2*time.Minute + 2*time.Second, true},
			"an hour old":        {time.Hour, leastSeen, leastSeen + 2*time.Second, true},
			"nothing shows that": {time.Hour, 5 * time.Minute, 5*time.Minute + 2*time.Second, false},
		} {
			t.Run(fmt.Sprint(name, skew), func(t *testing.T) {
				bubble(t, func(t *testing.T, b *bench) {
					b.skew = skew
					b.deployment("shop", "cart", 1, newKubelet)
					b.deps.Pending = 5 * time.Minute
					var of *metav1.OwnerReference
					for _, p := range b.podsOfAll() {
						of = metav1.GetControllerOf(&p)
					}
					b.forgotten("cart-forgotten", corev1.RestartPolicyAlways, of)
					b.clock.Sleep(tt.before)
					if tt.seen {
						b.put(nodesGVR, stampedNodeNamed("beat", b.clock.Now().Add(b.skew)))
					}
					begin := b.clock.Now()
					ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
					defer cancel()
					done := make(chan error, 1)
					go func() { b.expectWatches(); done <- b.step().Act(ctx, b.journal) }()
					for len(b.taken(cart)) == 0 && b.clock.Since(begin) < 10*time.Minute {
						b.clock.Sleep(time.Second)
					}
					if took := b.clock.Since(begin); took < tt.least || took > tt.most {
						t.Errorf("deleted after %s, want %s to %s", took, tt.least, tt.most)
					}
					cancel()
					<-done
				})
			})
		}
	}
}

func stampedNodeNamed(name string, at time.Time) *corev1.Node {
	n := stampedNode(at, at)
	n.Name, n.UID, n.ResourceVersion = name, "uid-beat", "1"
	n.Status.NodeInfo.KubeletVersion = newKubelet
	return n
}
