package cluster_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/eksbg/eksbg/internal/aws"
)

var errLost = errors.New("the lock was lost")

// held is a guard that lets n attempts through, each for d on the wire, and has the lock
// lost then.
func held(n int, d time.Duration) (aws.Guard, *int) {
	asked := 0
	return func(context.Context) (time.Duration, error) {
		if asked++; asked > n {
			return 0, errLost
		}
		return d, nil
	}, &asked
}

var kubeChanges = map[string]func(context.Context, kubernetes.Interface) error{
	"patch": func(ctx context.Context, k kubernetes.Interface) error {
		_, err := k.AppsV1().Deployments("shop").Patch(ctx, "cart", types.StrategicMergePatchType, []byte(`{}`), metav1.PatchOptions{})
		return err
	},
	"evict": func(ctx context.Context, k kubernetes.Interface) error {
		return k.PolicyV1().Evictions("shop").Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart-1"}})
	},
	"delete": func(ctx context.Context, k kubernetes.Interface) error {
		return k.BatchV1().Jobs("shop").Delete(ctx, "import", metav1.DeleteOptions{})
	},
}

// The API server refuses a change for a while; the lock is lost meanwhile: the change is
// not sent again, although the server would take it now.
func TestAChangeIsNotRepeatedWithoutTheLock(t *testing.T) {
	for name, do := range kubeChanges {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := w.open(t)
			w.api.requests()
			w.api.before = func(n int, rw http.ResponseWriter, _ *http.Request) bool {
				rw.WriteHeader(503)
				return true
			}
			guard, asked := held(2, time.Minute)
			if err := do(aws.WithGuard(context.Background(), guard), c.Kubernetes()); !errors.Is(err, errLost) || *asked != 3 {
				t.Errorf("%v, asked %d times", err, *asked)
			}
			if got := w.api.requests(); len(got) != 2 {
				t.Errorf("sent %v", got)
			}
		})
	}
}

// The API server holds a change until somebody else has the lock: nobody waits for its
// answer any more then, and it is not sent again.
func TestAChangeIsOnTheWireForAsLongAsTheLockStands(t *testing.T) {
	w := newWorld(t)
	w.opts.Retry.Attempt = time.Hour
	c := w.open(t)
	w.api.requests()
	w.api.before = func(_ int, _ http.ResponseWriter, r *http.Request) bool {
		_, _ = io.ReadAll(r.Body)
		<-r.Context().Done() // the client hangs up
		return true
	}
	guard, _ := held(1, 20*time.Millisecond)
	if err := kubeChanges["patch"](aws.WithGuard(context.Background(), guard), c.Kubernetes()); !errors.Is(err, errLost) {
		t.Errorf("got %v", err)
	}
	if got := w.api.requests(); len(got) > 1 {
		t.Errorf("sent %v", got)
	}
}

// What only reads asks nobody.
func TestReadsAskNoGuard(t *testing.T) {
	w := newWorld(t)
	w.fill()
	c := w.open(t)
	guard, asked := held(0, 0)
	if _, err := c.Inventory(aws.WithGuard(context.Background(), guard)); err != nil || *asked != 0 {
		t.Errorf("%v, asked %d times", err, *asked)
	}
}
