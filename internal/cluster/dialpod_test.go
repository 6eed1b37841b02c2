package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// forwarder answers port-forwards as a kubelet does: one error and one data stream a
// connection. On port 7 it echoes, port 9 takes and never answers, all others refuse.
type forwarder struct {
	mu   sync.Mutex
	path string
	// open counts connections that are served.
	open sync.WaitGroup
}

func (f *forwarder) serve(_ int, w http.ResponseWriter, r *http.Request) bool {
	if !strings.HasSuffix(r.URL.Path, "/portforward") {
		return false
	}
	f.mu.Lock()
	f.path = r.Method + " " + r.URL.Path
	f.mu.Unlock()
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return true
	}
	streams := make(chan httpstream.Stream, 2)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		streams <- s
		return nil
	})
	if conn == nil {
		return true
	}
	f.open.Go(func() {
		defer func() { _ = conn.Close() }()
		f.forward(conn, streams)
	})
	return true
}

func (f *forwarder) forward(conn httpstream.Connection, streams <-chan httpstream.Stream) {
	byType := map[string]httpstream.Stream{}
	for len(byType) < 2 {
		select {
		case s := <-streams:
			byType[s.Headers().Get(corev1.StreamType)] = s
		case <-conn.CloseChan():
			return
		}
	}
	failures, data := byType[corev1.StreamTypeError], byType[corev1.StreamTypeData]
	switch port := data.Headers().Get(corev1.PortHeader); port {
	case "7":
		_, _ = io.Copy(data, data)
	case "9":
		<-conn.CloseChan()
	default:
		_, _ = fmt.Fprintf(failures, "an error occurred forwarding %s: connection refused", port)
	}
	_ = failures.Close()
	_ = data.Close()
	<-conn.CloseChan()
}

// forwarding is a world whose pods can be connected to.
func forwarding(t *testing.T) (*world, *forwarder) {
	t.Helper()
	w, f := newWorld(t), &forwarder{}
	w.api.before = f.serve
	t.Cleanup(f.open.Wait)
	return w, f
}

func TestDialPod(t *testing.T) {
	w, f := forwarding(t)
	c := w.open(t)
	for range 3 {
		conn, err := c.DialPod(context.Background(), "kube-system", "coredns-1", 7)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Repeat("what is kubernetes.default.svc? ", 3000)
		go func() { _, _ = io.WriteString(conn, text) }()
		got := make([]byte, len(text))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != text {
			t.Fatalf("%v after %d bytes", err, len(got))
		}
		if !strings.Contains(conn.RemoteAddr().String(), "kube-system/coredns-1") {
			t.Errorf("connected to %s", conn.RemoteAddr())
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if _, err := conn.Read(got); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("read after the end: %v", err)
		}
	}
	if want := "POST /api/v1/namespaces/kube-system/pods/coredns-1/portforward"; f.path != want {
		t.Errorf("asked %s, want %s", f.path, want)
	}
	if token := w.api.tokens[len(w.api.tokens)-1]; !strings.HasPrefix(token, "k8s-aws-v1.") {
		t.Error("asked without a token")
	}
}

func TestDialPodToAClosedPortSaysSo(t *testing.T) {
	w, _ := forwarding(t)
	conn, err := w.open(t).DialPod(context.Background(), "shop", "cart", 53)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "forwarding 53: connection refused") {
		t.Errorf("got %v", err)
	}
}

func TestDialPodEndsWithItsContextAndItsDeadline(t *testing.T) {
	w, _ := forwarding(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	conn, err := w.open(t).DialPod(ctx, "shop", "cart", 9)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("past the deadline: %v", err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	read := make(chan error)
	go func() {
		_, err := conn.Read(make([]byte, 1))
		read <- err
	}()
	stopped := errors.New("stopped")
	cancel(stopped)
	if err := <-read; !errors.Is(err, stopped) {
		t.Errorf("after the context: %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if _, err := w.open(t).DialPod(ctx, "shop", "cart", 7); !errors.Is(err, stopped) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

func TestDialPodWhileTheServerIsSilentEndsWithTheContext(t *testing.T) {
	for name, hang := range map[string]func(w http.ResponseWriter, r *http.Request, until <-chan struct{}){
		"before the upgrade": func(_ http.ResponseWriter, _ *http.Request, until <-chan struct{}) { <-until },
		"after it": func(w http.ResponseWriter, _ *http.Request, until <-chan struct{}) {
			conn, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				panic(err)
			}
			_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: portforward.k8s.io\r\n\r\n")
			_ = rw.Flush()
			<-until
			_ = conn.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := w.open(t)
			asked, until := make(chan struct{}), make(chan struct{})
			w.api.before = func(_ int, rw http.ResponseWriter, r *http.Request) bool {
				close(asked)
				hang(rw, r, until)
				return true
			}
			ctx, cancel := context.WithCancel(context.Background())
			failed := make(chan error)
			go func() {
				_, err := c.DialPod(ctx, "shop", "cart", 7)
				failed <- err
			}()
			<-asked
			cancel()
			if err := <-failed; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			close(until)
		})
	}
}

func TestDialPodRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		answer func(http.ResponseWriter)
		is     func(error) bool
		want   string
	}{
		"forbidden": {func(w http.ResponseWriter) { status(w, 403, metav1.StatusReasonForbidden) }, apierrors.IsForbidden, "verb create on pods/portforward in namespace shop ("},
		"no pod":    {func(w http.ResponseWriter) { status(w, 404, metav1.StatusReasonNotFound) }, apierrors.IsNotFound, "port 53 of pod shop/cart in cluster shop-green"},
		"proxy":     {func(w http.ResponseWriter) { http.Error(w, "no upgrades here", http.StatusBadGateway) }, func(error) bool { return true }, "502 Bad Gateway: no upgrades here"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := w.open(t)
			w.api.before = func(_ int, rw http.ResponseWriter, _ *http.Request) bool {
				tc.answer(rw)
				return true
			}
			_, err := c.DialPod(context.Background(), "shop", "cart", 53)
			if err == nil || !tc.is(err) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v", err)
			}
			w.noSecret(t, fmt.Sprint(err))
		})
	}
}

func TestDialPodLearnsARotatedAuthority(t *testing.T) {
	w, _ := forwarding(t)
	w.eks.cas = []string{otherCA(t), w.api.ca()}
	conn, err := w.open(t).DialPod(context.Background(), "shop", "cart", 7)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

func TestDynamicSharesTheTransport(t *testing.T) {
	w := newWorld(t)
	c := w.open(t)
	asked := 0
	w.api.before = func(_ int, rw http.ResponseWriter, r *http.Request) bool {
		if asked++; asked == 1 {
			rw.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		rw.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(rw, `{"apiVersion":"argoproj.io/v1alpha1","kind":"Rollout","metadata":{"name":%q,"namespace":"shop"},"spec":{"replicas":3}}`, r.URL.Path)
		return true
	}
	rollouts := schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "rollouts"}
	got, err := c.Dynamic().Resource(rollouts).Namespace("shop").Get(context.Background(), "canary", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n, _, _ := unstructured.NestedInt64(got.Object, "spec", "replicas")
	if got.GetName() != "/apis/argoproj.io/v1alpha1/namespaces/shop/rollouts/canary" || n != 3 || asked != 2 {
		t.Errorf("%v after %d requests", got, asked)
	}
	if !strings.Contains(w.api.accept, "application/json") || strings.Contains(w.api.accept, "protobuf") {
		t.Errorf("asks for %s", w.api.accept)
	}
}
