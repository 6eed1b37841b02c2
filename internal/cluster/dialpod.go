package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

const (
	// forwardProtocol is what the streams of a port-forward speak
	// (client-go/tools/portforward/portforward.go).
	forwardProtocol = "portforward.k8s.io"
	// mostRefusal bounds what is read of the words of a refusal.
	mostRefusal = 64 << 10
)

// DialPod opens a connection to a TCP port of a pod through the API server, as
// `kubectl port-forward` does; the caller needs the verb create on pods/portforward.
// It is one attempt: a caller that wants more dials again. The connection ends with
// ctx, its reads then give ctx's cause, and Close leaves nothing behind. Nobody has
// spoken to the pod when DialPod returns: that its port is closed is what the first
// read says. A refusal of the API server is an apierrors.APIStatus.
func (c *Client) DialPod(ctx context.Context, namespace, pod string, port int) (net.Conn, error) {
	what := fmt.Sprintf("port %d of pod %s/%s in cluster %s", port, namespace, pod, c.name)
	wire, err := c.upgrade(ctx, namespace, pod)
	if err != nil {
		if apierrors.IsForbidden(err) && c.back.recent() {
			return nil, fmt.Errorf("connect to %s: %w", what, errLoading)
		}
		if apierrors.IsForbidden(err) {
			return nil, forbidden("create", "pods/portforward", namespace, c.name, err)
		}
		return nil, fmt.Errorf("connect to %s: %w", what, err)
	}
	conn, err := newPodConn(ctx, wire, podAddr(what), port)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", what, err)
	}
	return conn, nil
}

// upgrade asks the API server for a port-forward and gives the connection that the
// answer leaves open.
func (c *Client) upgrade(ctx context.Context, namespace, pod string) (io.ReadWriteCloser, error) {
	to := c.endpoint.JoinPath("api/v1/namespaces", url.PathEscape(namespace), "pods", url.PathEscape(pod), "portforward")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	for key, value := range map[string]string{
		httpstream.HeaderConnection: httpstream.HeaderUpgrade, httpstream.HeaderUpgrade: spdy.HeaderSpdy31,
		httpstream.HeaderProtocolVersion: forwardProtocol, "Accept": runtime.ContentTypeJSON, "User-Agent": userAgent,
	} {
		req.Header.Set(key, value)
	}
	resp, err := c.upgrades.RoundTrip(req)
	if away, _ := judge(req, resp, err, 1); away {
		c.back.see(err)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	if wire, ok := resp.Body.(io.ReadWriteCloser); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		return wire, nil
	}
	defer func() { _ = resp.Body.Close() }()
	return nil, refusal(resp)
}

// refusal is what an API server says instead of switching protocols.
func refusal(resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostRefusal))
	if err != nil {
		return fmt.Errorf("the API server answers %s; read why: %w", resp.Status, err)
	}
	if obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil); err == nil {
		if status, ok := obj.(*metav1.Status); ok {
			return &apierrors.StatusError{ErrStatus: *status}
		}
	}
	return fmt.Errorf("the API server answers %s: %s", resp.Status, strings.TrimSpace(string(body)))
}

// podConn is the near end of a connection to a pod: a pipe, which knows deadlines,
// pumped through two streams of one SPDY connection.
type podConn struct {
	net.Conn
	far    net.Conn
	ctx    context.Context
	remote net.Addr
	wire   io.Closer
	spdy   httpstream.Connection
	stop   func() bool
	pumps  sync.WaitGroup

	mu sync.Mutex
	// refused is what the node said on the error stream.
	refused error
}

func newPodConn(ctx context.Context, wire io.ReadWriteCloser, remote net.Addr, port int) (*podConn, error) {
	below := &switched{ReadWriteCloser: wire, remote: remote}
	mux, err := spdy.NewClientConnection(below)
	if err != nil {
		_ = below.Close()
		return nil, fmt.Errorf("begin to speak SPDY: %w", err)
	}
	near, far := net.Pipe()
	c := &podConn{Conn: near, far: far, ctx: ctx, remote: remote, wire: below, spdy: mux}
	// The deadline holds for the opening of the streams as well.
	c.stop = context.AfterFunc(ctx, c.shut)
	if err := c.begin(port); err != nil {
		_ = c.Close()
		return nil, causeOr(ctx, err)
	}
	return c, nil
}

// begin opens the two streams of one forwarded connection: what goes wrong, and data.
func (c *podConn) begin(port int) error {
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(port))
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	failures, err := c.spdy.CreateStream(headers)
	if err != nil {
		return fmt.Errorf("open the error stream: %w", err)
	}
	// Nothing is written to it.
	_ = failures.Close()
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := c.spdy.CreateStream(headers)
	if err != nil {
		return fmt.Errorf("open the data stream: %w", err)
	}
	said := make(chan struct{})
	c.pumps.Go(func() {
		defer close(said)
		c.listen(failures)
	})
	c.pumps.Go(func() {
		_, _ = io.Copy(c.far, data)
		// The reader sees the end only when it can be told why.
		<-said
		_ = c.far.Close()
	})
	c.pumps.Go(func() {
		_, _ = io.Copy(data, c.far)
		_ = data.Close()
	})
	return nil
}

// listen keeps what the node says went wrong.
func (c *podConn) listen(failures io.Reader) {
	text, err := io.ReadAll(io.LimitReader(failures, mostRefusal))
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(text) > 0:
		c.refused = errors.New(strings.TrimSpace(string(text)))
	case err != nil:
		c.refused = fmt.Errorf("lost the connection to the pod: %w", err)
	}
}

// Read reads what the pod sends.
func (c *podConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	return n, c.why(err)
}

// Write sends to the pod.
func (c *podConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	return n, c.why(err)
}

// why replaces the end of the pipe by what ended it.
func (c *podConn) why(err error) error {
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() == nil && c.refused != nil {
		return c.refused
	}
	return causeOr(c.ctx, err)
}

// causeOr is why ctx ended, or err where it has not.
func causeOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// RemoteAddr names the pod.
func (c *podConn) RemoteAddr() net.Addr { return c.remote }

// Close ends the connection and waits for its goroutines.
func (c *podConn) Close() error {
	c.stop()
	c.shut()
	c.pumps.Wait()
	return nil
}

func (c *podConn) shut() {
	_ = c.Conn.Close()
	_ = c.far.Close()
	_ = c.spdy.Close()
	_ = c.wire.Close()
}

// switched is a connection that was switched to another protocol, for a library that
// wants a net.Conn. Its deadlines are those of the pipe in front of it.
type switched struct {
	io.ReadWriteCloser
	remote net.Addr
	once   sync.Once
}

// Close closes the connection, at the first call: the library does so as well, and
// waits a second for somebody to take an error of it.
func (s *switched) Close() error {
	var err error
	s.once.Do(func() { err = s.ReadWriteCloser.Close() })
	return err
}

func (s *switched) LocalAddr() net.Addr              { return podAddr("eksbg") }
func (s *switched) RemoteAddr() net.Addr             { return s.remote }
func (s *switched) SetDeadline(time.Time) error      { return nil }
func (s *switched) SetReadDeadline(time.Time) error  { return nil }
func (s *switched) SetWriteDeadline(time.Time) error { return nil }

// podAddr is the address of an end of a connection through an API server.
type podAddr string

func (podAddr) Network() string  { return "portforward" }
func (a podAddr) String() string { return string(a) }
