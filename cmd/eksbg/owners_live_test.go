package main

import (
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eksbg/eksbg/internal/sandbox"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// kubeOf is a client of its own for the API server of a side.
func kubeOf(t *testing.T, box *sandbox.Sandbox, side string) kubernetes.Interface {
	t.Helper()
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{ExplicitPath: box.Kubeconfig()},
		&clientcmd.ConfigOverrides{CurrentContext: side}).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	k, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// A restart of every kind of owner is interrupted again and again, each time a change
// later, and gone on with each time: whatever it is in the middle of, it leaves nothing
// otherwise than it was but what a controller finishes, and replaces no pod twice. Some
// of its changes are put back when it is stopped, so that one that is always interrupted
// early would never end.
func TestARestartOfEveryOwnerInterruptedAgainAndAgain(t *testing.T) {
	t.Parallel()
	const most = 60 // many more runs than it takes
	box := ownersBox(t, func(sc *sandbox.Scenario) {
		for i := range sc.Clusters.Green.Workloads {
			if w := &sc.Clusters.Green.Workloads[i]; w.Name == "migration" {
				w.Runs = time.Minute // nobody waits for it here
			}
		}
	})
	green := kubeOf(t, box, sandbox.Green)
	var victim atomic.Pointer[os.Process]
	var left atomic.Int64
	box.Log().Watch(func(e wire.Entry) {
		if !ownChange(e) {
			return
		}
		if p := victim.Load(); p != nil && left.Add(-1) == 0 {
			_ = p.Signal(syscall.SIGINT) // one that has ended is fine
		}
	})
	interrupted := 0
	for {
		p := begin(t, box, restartArgs(box)...)
		left.Store(int64(3 + interrupted%10))
		victim.Store(p.cmd.Process)
		exit := p.exit()
		victim.Store(nil)
		if wrong := leftOtherwise(t, green); wrong != "" {
			t.Fatalf("after %d interrupts, exit %d: %s\n%s", interrupted, exit, wrong, p.out.String())
		}
		if exit == 0 {
			break
		}
		if interrupted++; exit != 130 || interrupted == most {
			t.Fatalf("exit %d after %d interrupts\n%s", exit, interrupted, p.out.String())
		}
	}
	if interrupted < 5 {
		t.Errorf("interrupted %d times only", interrupted)
	}
	taken := map[string]int{}
	for _, e := range requests(t, box) {
		if ownChange(e) && e.Call == "k8s:create pods/eviction" {
			taken[e.Object]++
		}
	}
	for pod, n := range taken {
		if n > 1 && pod != "batch/shell" || n != 1 && pod == "batch/shell" {
			t.Errorf("%s was evicted %d times", pod, n)
		}
	}
	if len(taken) < 8 {
		t.Errorf("evicted %v", taken)
	}
}

// ownChange tells whether a request changed something in a cluster that is not the lock.
func ownChange(e wire.Entry) bool {
	return e.Changing && e.Accepted && strings.HasPrefix(e.Call, "k8s:") && !strings.HasSuffix(e.Call, " leases") && !strings.Contains(e.Call, "reviews")
}

// leftOtherwise says what a restart that has ended, however it did, has left otherwise than
// it was: a bare pod that is away, replicas, CronJobs.
func leftOtherwise(t *testing.T, green kubernetes.Interface) string {
	t.Helper()
	if p, err := green.CoreV1().Pods("batch").Get(t.Context(), "shell", metav1.GetOptions{}); apierrors.IsNotFound(err) || err == nil && p.DeletionTimestamp != nil {
		return "the bare pod is away"
	} else if err != nil {
		t.Fatal(err)
	}
	rs, err := green.AppsV1().ReplicaSets("legacy").Get(t.Context(), "solo", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if *rs.Spec.Replicas != 1 {
		return "solo is left with two replicas"
	}
	for name, want := range map[string]bool{"nightly": false, "quarterly": true} {
		cj, err := green.BatchV1().CronJobs("batch").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if *cj.Spec.Suspend != want {
			return "CronJob " + name + " is not as it was"
		}
	}
	return ""
}
