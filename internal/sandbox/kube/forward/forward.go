// Package forward is the far end of pods/portforward: it takes the upgrade that client-go
// and kubectl ask for, SPDY or SPDY within a websocket, and hands each forwarded
// connection to whatever listens in the pod. Kubelets speak it as API servers do.
package forward

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	apiforward "k8s.io/apimachinery/pkg/util/portforward"
	clientforward "k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// Listener serves one connection to a port of the pod until it ends. An error is what
// the client is told ("connection refused").
type Listener func(port int, conn io.ReadWriter) error

// ErrRefused is what a Listener answers for ports that nobody listens on.
var ErrRefused = errors.New("connect: connection refused")

// Serve upgrades a request and serves its connections until the client leaves or done is
// closed.
func Serve(w http.ResponseWriter, r *http.Request, done <-chan struct{}, listen Listener) {
	s := &session{listen: listen, pairs: map[string]*pair{}}
	conn := s.upgrade(w, r)
	if conn == nil {
		return // the client has been told
	}
	select {
	case <-conn.CloseChan():
	case <-done:
	}
	_ = conn.Close() // closed already, or it ends here
	s.wg.Wait()
}

// session is one upgraded connection.
type session struct {
	listen Listener
	wg     sync.WaitGroup

	mu    sync.Mutex
	pairs map[string]*pair
}

// pair is the two streams of one forwarded connection. They may be used once their
// replies are sent.
type pair struct {
	data, err httpstream.Stream
	replies   []<-chan struct{}
}

func (s *session) upgrade(w http.ResponseWriter, r *http.Request) httpstream.Connection {
	if websocket.IsWebSocketUpgrade(r) {
		u := websocket.Upgrader{
			Subprotocols: []string{apiforward.WebsocketsSPDYTunnelingPortForwardV1},
			CheckOrigin:  func(*http.Request) bool { return true },
		}
		ws, err := u.Upgrade(w, r, nil)
		if err != nil {
			return nil // Upgrade has answered
		}
		conn, err := spdy.NewServerConnection(clientforward.NewTunnelingConnection("server", ws), s.stream)
		if err != nil {
			_ = ws.Close() // nothing was said yet
			return nil
		}
		return conn
	}
	if _, err := httpstream.Handshake(r, w, []string{apiforward.PortForwardV1Name}); err != nil {
		return nil // Handshake has answered
	}
	return spdy.NewResponseUpgrader().UpgradeResponse(w, r, s.stream)
}

// stream takes a stream that the client opened; when the other of its pair is there the
// connection begins.
func (s *session) stream(st httpstream.Stream, replied <-chan struct{}) error {
	h := st.Headers()
	port, err := strconv.ParseUint(h.Get(corev1.PortHeader), 10, 16)
	if err != nil || port == 0 {
		return fmt.Errorf("%q is no port", h.Get(corev1.PortHeader))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := h.Get(corev1.PortForwardRequestIDHeader)
	p := s.pairs[id]
	if p == nil {
		p = &pair{}
		s.pairs[id] = p
	}
	switch t := h.Get(corev1.StreamType); t {
	case corev1.StreamTypeData:
		p.data = st
	case corev1.StreamTypeError:
		p.err = st
	default:
		return fmt.Errorf("invalid stream type %q", t)
	}
	p.replies = append(p.replies, replied)
	if p.data != nil && p.err != nil {
		delete(s.pairs, id)
		s.wg.Go(func() { s.connection(p, int(port)) })
	}
	return nil
}

func (s *session) connection(p *pair, port int) {
	for _, r := range p.replies {
		<-r
	}
	if err := s.listen(port, p.data); err != nil {
		_, _ = fmt.Fprintf(p.err, "error forwarding port %d to pod: %v", port, err) // a client that left need not know
	}
	_ = p.data.Close() // the client sees both end
	_ = p.err.Close()
}
