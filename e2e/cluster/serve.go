package cluster

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// servers are the ones to be closed.
type servers struct {
	mu     sync.Mutex
	list   []*http.Server
	conns  map[net.Conn]bool
	closed bool
}

// follow keeps the connections that are open; it is a server's ConnState.
func (s *servers) follow(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateClosed, http.StateHijacked:
		delete(s.conns, c)
	default:
		if s.conns == nil {
			s.conns = map[net.Conn]bool{}
		}
		s.conns[c] = true
	}
}

// Cut drops every connection that clients have at this moment, as a network load balancer
// does whose target goes away: all watches end without a word.
func (c *Cluster) Cut() {
	c.servers.mu.Lock()
	defer c.servers.mu.Unlock()
	for conn := range c.servers.conns {
		_ = conn.Close() // one that is closed already is what is wanted
	}
}

func (s *servers) add(server *http.Server) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.list = append(s.list, server)
	return true
}

func (s *servers) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for _, server := range s.list {
		errs = append(errs, server.Close())
	}
	s.list = nil
	return errors.Join(errs...)
}

// CA implements sandbox.Kubernetes.
func (c *Cluster) CA() []byte { return c.ca.PEM() }

// Serve implements sandbox.Kubernetes.
func (c *Cluster) Serve(l net.Listener, h http.Handler) error {
	if h == nil {
		h = c
	}
	cert, err := c.ca.TLS("eks")
	if err != nil {
		return fmt.Errorf("certificate of cluster %s: %w", c.opts.Name, err)
	}
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: 30 * time.Second, ConnContext: wire.ConnContext, ConnState: c.servers.follow,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
		ErrorLog:  log.New(io.Discard, "", 0), // clients that hang up are no news
	}
	if !c.servers.add(server) {
		return l.Close()
	}
	if err := server.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve cluster %s: %w", c.opts.Name, err)
	}
	return nil
}
