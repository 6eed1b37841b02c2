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
