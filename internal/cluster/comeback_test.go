package cluster_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// jumping is a clock that goes ahead when it is told to; its timers are real ones.
type jumping struct {
	clock.RealClock
	ahead atomic.Int64
}

func (j *jumping) Now() time.Time                  { return j.RealClock.Now().Add(time.Duration(j.ahead.Load())) }
func (j *jumping) Since(t time.Time) time.Duration { return j.Now().Sub(t) }

// denying lets the first answers of the API server be what they are, and denies the next.
func denying(first func(http.ResponseWriter), denials int) func(int, http.ResponseWriter, *http.Request) bool {
	n := 0
	return func(_ int, rw http.ResponseWriter, _ *http.Request) bool {
		switch n++; {
		case n == 1 && first != nil:
			first(rw)
		case n <= 1+denials:
			status(rw, http.StatusForbidden, metav1.StatusReasonForbidden)
		default:
			return false
		}
		return true
	}
}

// A kube-apiserver that has just started denies everything until its RBAC rules are loaded.
func TestDenialsOfAnAPIServerThatHasJustComeBack(t *testing.T) {
	w := newWorld(t)
	w.fill()
	c := w.open(t)
	w.api.before = denying(reset, 4)
	_, err := c.Kubernetes().AppsV1().Deployments("shop").Patch(t.Context(), "api", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
	if apierrors.IsForbidden(err) {
		t.Fatalf("the denial is taken for one: %v", err)
	}
	w.api.before = denying(reset, 4)
	if _, err := c.Inventory(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Another resource that is out of reach for ever keeps nobody from believing a denial.
func TestDenialsBesideResets(t *testing.T) {
	w := newWorld(t)
	w.fill()
	clk := &jumping{}
	w.opts.Clock = clk
	c := w.open(t)
	w.api.before = func(_ int, rw http.ResponseWriter, r *http.Request) bool {
		clk.ahead.Add(int64(time.Second))
		if strings.Contains(r.URL.Path, "/pods/") {
			status(rw, http.StatusForbidden, metav1.StatusReasonForbidden)
		} else {
			reset(rw)
		}
		return true
	}
	ctx, stop := context.WithCancel(t.Context())
	var other sync.WaitGroup
	other.Go(func() {
		for ctx.Err() == nil {
			_, _ = c.Kubernetes().CoreV1().Nodes().List(ctx, metav1.ListOptions{}) // never answered
		}
	})
	_, err := c.Kubernetes().CoreV1().Pods("shop").Get(t.Context(), "api", metav1.GetOptions{})
	stop()
	other.Wait()
	if !apierrors.IsForbidden(err) {
		t.Fatalf("got %v", err)
	}
}

// awayThenDenying cuts off or refuses what away is true of, and denies all else that often.
func awayThenDenying(refuse func(http.ResponseWriter), away func(*http.Request) bool, denials int) func(int, http.ResponseWriter, *http.Request) bool {
	n := 0
	return func(_ int, rw http.ResponseWriter, r *http.Request) bool {
		if away(r) {
			refuse(rw)
			return true
		}
		if n++; n <= denials {
			status(rw, http.StatusForbidden, metav1.StatusReasonForbidden)
		}
		return n <= denials
	}
}

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") == "true" }

// firstWatches is true of the first two watches: net/http asks again by itself after one on a
// kept connection, and client-go ten times when all are cut off.
func firstWatches() func(*http.Request) bool {
	seen := 0
	return func(r *http.Request) bool {
		if isWatch(r) {
			seen++
		}
		return isWatch(r) && seen <= 2
	}
}

// A watch is mostly the first to see that an API server is away, and is not repeated.
func TestAWatchThatIsRefusedCastsDoubtOnDenials(t *testing.T) {
	w := newWorld(t)
	w.fill()
	c := w.open(t)
	w.api.before = awayThenDenying(reset, firstWatches(), 4)
	if _, err := c.Kubernetes().CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{}); err == nil {
		t.Fatal("the watch was not refused")
	}
	if _, err := c.Kubernetes().CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("the denial is taken for one: %v", err)
	}
}

// A port-forward is one attempt; what it says of a denial decides whether its caller dials
// again.
func TestAPortForwardDoubtsDenialsToo(t *testing.T) {
	first := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/first/portforward") }
	for name, tt := range map[string]struct {
		refuse func(http.ResponseWriter)
		away   func(*http.Request) bool
	}{"a watch saw a reset": {reset, firstWatches()}, "it saw one itself": {reset, first}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			clk := &jumping{}
			w.opts.Clock = clk
			c := w.open(t)
			w.api.before = awayThenDenying(tt.refuse, tt.away, 1<<30)
			dial := func(pod string) error {
				_, err := c.DialPod(t.Context(), "kube-system", pod, 53)
				return err
			}
			if err := dial("second"); !apierrors.IsForbidden(err) {
				t.Fatalf("denied by one that was there all the time: %v", err)
			}
			if _, err := c.Kubernetes().CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{}); err == nil {
				t.Fatal("the watch was not refused")
			}
			_ = dial("first")
			if err := dial("second"); err == nil || apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "away until a moment ago") {
				t.Errorf("a moment later: %v", err)
			}
			clk.ahead.Add(int64(time.Minute))
			if err := dial("second"); !apierrors.IsForbidden(err) {
				t.Errorf("a minute later: %v", err)
			}
		})
	}
}

// One that was there all the time means it, and so does one that goes on denying.
func TestDenialsThatAreMeant(t *testing.T) {
	for name, first := range map[string]func(http.ResponseWriter){"at once": nil, "after a reset": reset,
		"after an API that is away":  func(w http.ResponseWriter) { w.WriteHeader(503) },
		"after a webhook that fails": func(w http.ResponseWriter) { status(w, 500, metav1.StatusReasonInternalError) }} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.fill()
			clk := &jumping{}
			w.opts.Clock = clk
			c := w.open(t)
			n := 0
			deny := denying(first, 1<<30)
			w.api.before = func(i int, rw http.ResponseWriter, r *http.Request) bool {
				n++
				clk.ahead.Add(int64(5 * time.Second))
				return deny(i, rw, r)
			}
			began := clk.Now()
			_, err := c.Kubernetes().CoreV1().Pods("shop").Get(t.Context(), "api", metav1.GetOptions{})
			if !apierrors.IsForbidden(err) {
				t.Fatalf("got %v", err)
			}
			if took := clk.Since(began); took > time.Minute || name != "after a reset" && n > 2 {
				t.Errorf("asked %d times over %s", n, took)
			}
		})
	}
}
