package restart

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The first word of a process, be it the first or the one that goes on, counts all pods
// and only what is restarted: no CronJob that is held meanwhile.
func TestTheFirstProgressCountsEverything(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		const names = 8
		for i := range names {
			b.deployment("shop", fmt.Sprint("cart", i), 20, oldKubelet)
		}
		b.cronJob("shop", "nightly", false)
		b.deps.CronJobs, b.deps.MaxParallel = suspendAll, 1
		b.gate["shop/Deployment/cart0"] = make(chan struct{})
		for process := range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			said := len(b.journal.waits)
			end := b.held(ctx)
			pods, err := b.client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("0 of %d workloads, 0 of %d pods on 1.33; rolling shop/Deployment/cart0", names, len(pods.Items))
			if got := b.journal.waits[said]; !strings.HasPrefix(got, want) {
				t.Errorf("process %d begins with %q, want %q", process, got, want)
			}
			cancel()
			if <-end == nil {
				t.Error("it was interrupted")
			}
		}
	})
}
