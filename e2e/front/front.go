// Package front is what stands between clients and a real API server: it answers
// /version as the simulated EKS has it, and passes everything else on, watches and
// upgraded connections too.
package front

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/eksbg/eksbg/internal/sandbox/kube/apiserver"
	"github.com/eksbg/eksbg/internal/sandbox/kube/release"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// Front is a wire.Service: the request log and the faults of the sandbox stand before it.
type Front struct {
	version func() string
	proxy   *httputil.ReverseProxy
	streams *http.Transport // HTTP/2
	upgrade *http.Transport // HTTP/1.1, which alone can be upgraded
	// words names requests and words faults; it serves nothing here.
	words apiserver.Server
}

var _ wire.Service = (*Front)(nil)

// New makes a front of the API server at target, for which ca (PEM) vouches. version
// tells the minor of the control plane now.
func New(target string, ca []byte, version func() string) (*Front, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, fmt.Errorf("make the front of %s: %w", target, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("make the front of %s: its CA is no PEM certificate", target)
	}
	transport := func(h2 bool) *http.Transport {
		t := &http.Transport{
			TLSClientConfig:    &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			DisableCompression: true, MaxIdleConnsPerHost: 64, ForceAttemptHTTP2: h2,
		}
		if !h2 {
			t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
		}
		return t
	}
	f := &Front{version: version, streams: transport(true), upgrade: transport(false)}
	f.proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }, Transport: transports{f},
		ErrorHandler: lose, ErrorLog: log.New(io.Discard, "", 0),
	}
	return f, nil
}

// transports sends what is to be upgraded over HTTP/1.1.
type transports struct{ f *Front }

func (t transports) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Upgrade") != "" {
		return t.f.upgrade.RoundTrip(r)
	}
	return t.f.streams.RoundTrip(r)
}

// lose is what a client sees of an API server that is away: no answer. EKS's network
// load balancer has no words of its own.
func lose(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Value(http.ServerContextKey) == nil {
		http.Error(w, err.Error(), http.StatusBadGateway) // asked from within, without a connection to cut
		return
	}
	panic(http.ErrAbortHandler)
}

// ServeHTTP implements http.Handler.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/version" {
		f.proxy.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// The client may be gone by now.
	_ = json.NewEncoder(w).Encode(release.Info(f.version()))
}

// Classify implements wire.Service.
func (f *Front) Classify(r *http.Request, body []byte) wire.Call { return f.words.Classify(r, body) }

// WriteFault implements wire.Service.
func (f *Front) WriteFault(w http.ResponseWriter, r *http.Request, fault wire.Fault) {
	f.words.WriteFault(w, r, fault)
}

// Close drops the connections to the API server that are idle.
func (f *Front) Close() {
	f.streams.CloseIdleConnections()
	f.upgrade.CloseIdleConnections()
}
