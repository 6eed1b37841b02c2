// Package kubelet is the HTTP side of all kubelets of a cluster: what the API server asks
// them for when a client forwards a port. Nodes have addresses of a VPC that is not there,
// so the API server comes through a proxy, and the proxy ends here.
package kubelet

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eksbg/eksbg/internal/sandbox/kube/forward"
)

// Options say what the kubelets know.
type Options struct {
	// Socket is the unix socket of the proxy, Certificate what kubelets serve with.
	Socket      string
	Certificate tls.Certificate
	// Pod finds a pod by namespace/name, or nil.
	Pod func(key string) *corev1.Pod
	// Listen serves a connection to a port of a pod; forward.ErrRefused is that nobody
	// listens there.
	Listen func(pod *corev1.Pod, port int, conn io.ReadWriter) error
}

// Server is the kubelets.
type Server struct {
	o      Options
	proxy  net.Listener
	conns  chan net.Conn
	server *http.Server
	closed chan struct{}
	once   sync.Once
	wg     sync.WaitGroup
}

// Start serves until Close.
func Start(o Options) (*Server, error) {
	if err := os.RemoveAll(o.Socket); err != nil {
		return nil, fmt.Errorf("serve kubelets: %w", err)
	}
	l, err := net.Listen("unix", o.Socket)
	if err != nil {
		return nil, fmt.Errorf("serve kubelets: %w", err)
	}
	s := &Server{o: o, proxy: l, conns: make(chan net.Conn), closed: make(chan struct{})}
	mux := http.NewServeMux()
	// The paths are the kubelet's (k8s.io/kubernetes/pkg/kubelet/server).
	mux.HandleFunc("POST /portForward/{namespace}/{pod}", s.portForward)
	mux.HandleFunc("POST /portForward/{namespace}/{pod}/{uid}", s.portForward)
	s.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: 30 * time.Second, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{o.Certificate}, MinVersion: tls.VersionTLS12},
		// Upgrades need HTTP/1.1.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	s.wg.Go(func() { _ = s.server.ServeTLS(tunnels{s}, "", "") }) // ends with ErrServerClosed
	s.wg.Go(s.accept)
	return s, nil
}

// accept answers CONNECT for whatever kubelet is wanted: all of them are this one.
func (s *Server) accept() {
	for {
		conn, err := s.proxy.Accept()
		if err != nil {
			return
		}
		s.wg.Go(func() { s.tunnel(conn) })
	}
}

func (s *Server) tunnel(conn net.Conn) {
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second)) // a unix socket takes it
	r := bufio.NewReader(conn)
	req, err := http.ReadRequest(r)
	if err == nil && (req.Method != http.MethodConnect || r.Buffered() > 0) {
		err = fmt.Errorf("a kubelet's proxy was asked to %s", req.Method)
	}
	if err == nil {
		_, err = io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = conn.Close()
		return
	}
	select {
	case s.conns <- conn:
	case <-s.closed:
		_ = conn.Close()
	}
}

// tunnels is the listener whose connections come through the proxy.
type tunnels struct{ s *Server }

func (t tunnels) Accept() (net.Conn, error) {
	select {
	case c := <-t.s.conns:
		return c, nil
	case <-t.s.closed:
		return nil, net.ErrClosed
	}
}

func (t tunnels) Addr() net.Addr { return t.s.proxy.Addr() }

// Close does nothing: the tunnels end with their Server.
func (t tunnels) Close() error { return nil }

// Close ends the kubelets and waits for them. A second Close does nothing.
func (s *Server) Close() error {
	var err error
	s.once.Do(func() {
		close(s.closed)
		err = errors.Join(s.proxy.Close(), s.server.Close())
	})
	s.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (s *Server) portForward(w http.ResponseWriter, r *http.Request) {
	pod := s.o.Pod(r.PathValue("namespace") + "/" + r.PathValue("pod"))
	if uid := r.PathValue("uid"); pod == nil || uid != "" && uid != string(pod.UID) {
		http.Error(w, "pod does not exist", http.StatusNotFound)
		return
	}
	s.wg.Add(1) // a hijacked connection is no longer the server's to wait for
	defer s.wg.Done()
	forward.Serve(w, r, s.closed, func(port int, conn io.ReadWriter) error { return s.o.Listen(pod, port, conn) })
}
