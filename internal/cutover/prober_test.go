package cutover

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"k8s.io/utils/clock"
)

// seen counts connections and remembers what the server was asked for.
type seen struct {
	mu    sync.Mutex
	conns int
	hosts map[string]int
	sni   map[string]int
	proto map[string]int
}

func serve(t *testing.T, secure bool, handler http.HandlerFunc) (*httptest.Server, *seen) {
	t.Helper()
	s := &seen{hosts: map[string]int{}, sni: map[string]int{}, proto: map[string]int{}}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.hosts[r.Host]++
		s.proto[r.Proto]++
		if r.TLS != nil {
			s.sni[r.TLS.ServerName]++
		}
		s.mu.Unlock()
		handler(rw, r)
	}))
	srv.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			s.mu.Lock()
			s.conns++
			s.mu.Unlock()
		}
	}
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.EnableHTTP2 = true
	if secure {
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	return srv, s
}

func portOf(t *testing.T, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u.Port()
}

func probe(t *testing.T, o ProberOptions, p Probe) ProbeResult {
	t.Helper()
	o.Clock = clock.RealClock{}
	if p.Timeout == 0 {
		p.Timeout = 10 * time.Second
	}
	if p.Expect == 0 {
		p.Expect = 200
	}
	res, err := NewProber(o).Probe(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func ok(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "ok") }

// Semantics 17: each sample is a new connection, with the URL's Host and SNI, to the
// value that is dialled.
func TestEachSampleIsANewConnection(t *testing.T) {
	srv, s := serve(t, true, ok)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	// The test certificate is for example.com, which nobody resolves here.
	res := probe(t, ProberOptions{RootCAs: roots, MaxConcurrent: 4}, Probe{URL: "https://example.com:" + portOf(t, srv.URL) + "/healthz", Samples: 40, Dial: []string{"127.0.0.1"}, MostBad: -1})
	if res.Good != 40 || res.Answered != 40 {
		t.Fatalf("%+v", res)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns != 40 {
		t.Errorf("%d connections for 40 samples", s.conns)
	}
	if s.sni["example.com"] != 40 || s.hosts["example.com:"+portOf(t, srv.URL)] != 40 || s.proto["HTTP/1.1"] != 40 {
		t.Errorf("sni %v, hosts %v, protocols %v", s.sni, s.hosts, s.proto)
	}
}

func TestWhatGoesWrongIsNamed(t *testing.T) {
	plain, _ := serve(t, false, ok)
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := closed.Addr().String()
	closed.Close()
	tests := []struct {
		name    string
		handler http.HandlerFunc
		secure  bool
		url     string
		timeout time.Duration
		kind    string
		answers int
	}{
		{name: "status", handler: func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(502) }, kind: "502", answers: 3},
		{name: "redirects are not followed", handler: func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Location", plain.URL)
			rw.WriteHeader(302)
		}, kind: "302", answers: 3},
		{name: "refused", url: "http://" + gone, kind: "refused"},
		{name: "reset", handler: func(rw http.ResponseWriter, _ *http.Request) {
			conn, _, _ := rw.(http.Hijacker).Hijack()
			_ = conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		}, kind: "reset"},
		{name: "closed without an answer", handler: func(rw http.ResponseWriter, _ *http.Request) {
			conn, _, _ := rw.(http.Hijacker).Hijack()
			conn.Close()
		}, kind: "cut off"},
		{name: "body cut off", handler: func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(rw, "half")
		}, kind: "cut off", answers: 3},
		{name: "unknown authority", handler: ok, secure: true, kind: "tls"},
		{name: "timeout", handler: func(rw http.ResponseWriter, r *http.Request) {
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		}, timeout: 20 * time.Millisecond, kind: "timeout"},
		{name: "no such name", url: "http://nobody.invalid", kind: "dns"},
	}
	server := dnsServer(t, func(string, uint16) []string { return nil })
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := Probe{URL: tt.url, Samples: 3, Timeout: tt.timeout, MostBad: -1, Resolver: server}
			if tt.handler != nil {
				srv, _ := serve(t, tt.secure, tt.handler)
				p.URL = srv.URL
			}
			res := probe(t, ProberOptions{}, p)
			if res.Kinds[tt.kind] != 3 || res.Good != 0 || res.Answered != tt.answers || res.Samples != 3 {
				t.Errorf("%+v, want 3 x %s, %d answered", res, tt.kind, tt.answers)
			}
		})
	}
}

func TestEndlessBodyIsBounded(t *testing.T) {
	srv, _ := serve(t, false, func(rw http.ResponseWriter, r *http.Request) {
		chunk := strings.Repeat("x", 64<<10)
		for r.Context().Err() == nil {
			if _, err := io.WriteString(rw, chunk); err != nil {
				return
			}
		}
	})
	if res := probe(t, ProberOptions{}, Probe{URL: srv.URL, Samples: 1, MostBad: -1}); res.Good != 1 {
		t.Errorf("%+v", res)
	}
}

func TestSeriesEndsWhenItCannotPassAnyMore(t *testing.T) {
	var asked atomic.Int64
	srv, _ := serve(t, false, func(rw http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		rw.WriteHeader(503)
	})
	res := probe(t, ProberOptions{MaxConcurrent: 1}, Probe{URL: srv.URL, Samples: 10000, MostBad: 5})
	if res.Samples < 6 || res.Samples > 10 || res.Kinds["503"] != res.Samples {
		t.Errorf("%+v after %d requests", res, asked.Load())
	}
}

func TestSilentSeriesIsTakenToItsEnd(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	if res := probe(t, ProberOptions{}, Probe{URL: "http://" + addr, Samples: 30, MostBad: 0}); res.Samples != 30 || res.Answered != 0 {
		t.Errorf("%+v: without any answer nothing is certain", res)
	}
}

func TestCancelledSeries(t *testing.T) {
	started := make(chan struct{}, 100)
	srv, _ := serve(t, false, func(rw http.ResponseWriter, r *http.Request) {
		started <- struct{}{}
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("signal: interrupt")
	go func() { <-started; cancel(why) }()
	_, err := NewProber(ProberOptions{Clock: clock.RealClock{}, MaxConcurrent: 2}).Probe(ctx, Probe{URL: srv.URL, Samples: 100, Expect: 200, Timeout: time.Minute, MostBad: -1})
	if !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}

func TestConcurrencyIsBounded(t *testing.T) {
	var now, most atomic.Int64
	srv, _ := serve(t, false, func(rw http.ResponseWriter, _ *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for {
			m := most.Load()
			if n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
	})
	probe(t, ProberOptions{MaxConcurrent: 3}, Probe{URL: srv.URL, Samples: 60, MostBad: -1})
	// A connection that the server is still closing may overlap with the next one.
	if most.Load() > 6 {
		t.Errorf("%d requests at the same time, want about 3", most.Load())
	}
}

func TestSamplesAreSpread(t *testing.T) {
	srv, _ := serve(t, false, ok)
	c := newClock()
	begun := c.Now()
	res, err := NewProber(ProberOptions{Clock: c, MaxConcurrent: 100}).Probe(context.Background(), Probe{URL: srv.URL, Expect: 200, Samples: 60, Over: time.Minute, MostBad: -1})
	if err != nil || res.Good != 60 {
		t.Fatalf("%+v, %v", res, err)
	}
	if took := c.Since(begun); took < 58*time.Second || took > time.Minute {
		t.Errorf("60 samples over a minute took %s", took)
	}
}

func TestMalformedURL(t *testing.T) {
	for _, u := range []string{"", "ftp://x", "http://", ":"} {
		if _, err := NewProber(ProberOptions{}).Probe(context.Background(), Probe{URL: u, Samples: 1}); err == nil {
			t.Errorf("%q was probed", u)
		}
	}
}

// dnsServer answers from a function, on loopback over UDP.
func dnsServer(t *testing.T, answer func(name string, qtype uint16) []string) string {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	up := make(chan struct{})
	srv := &dns.Server{PacketConn: pc, NotifyStartedFunc: func() { close(up) }, Handler: dns.HandlerFunc(func(rw dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		for _, line := range answer(strings.TrimSuffix(q.Question[0].Name, "."), q.Question[0].Qtype) {
			rr, err := dns.NewRR(line)
			if err != nil {
				panic(err)
			}
			m.Answer = append(m.Answer, rr)
		}
		_ = rw.WriteMsg(m)
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.ActivateAndServe() }()
	<-up
	t.Cleanup(func() { _ = srv.Shutdown(); <-done })
	return pc.LocalAddr().String()
}

// Names are resolved through the gate's resolver, anew for each sample; CNAMEs that it
// leaves to its clients are followed.
func TestNamesAreResolvedForEachSample(t *testing.T) {
	srv, s := serve(t, false, ok)
	var queries atomic.Int64
	server := dnsServer(t, func(name string, qtype uint16) []string {
		queries.Add(1)
		switch {
		case name == "api.shop.test":
			return []string{"api.shop.test. 60 IN CNAME lb.shop.test."}
		case name == "lb.shop.test" && qtype == dns.TypeA:
			return []string{"lb.shop.test. 60 IN A 127.0.0.1"}
		}
		return nil
	})
	host := "api.shop.test:" + portOf(t, srv.URL)
	res := probe(t, ProberOptions{}, Probe{URL: "http://" + host + "/", Samples: 10, Resolver: server, MostBad: -1})
	if res.Good != 10 {
		t.Fatalf("%+v", res)
	}
	if got := queries.Load(); got != 40 {
		t.Errorf("%d queries for 10 samples, want 4 each: nothing is cached", got)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hosts[host] != 10 {
		t.Errorf("hosts %v", s.hosts)
	}
}

func TestCNAMEsThatDoNotEnd(t *testing.T) {
	server := dnsServer(t, func(name string, _ uint16) []string { return []string{fmt.Sprintf("%s. 60 IN CNAME %s.", name, name)} })
	if res := probe(t, ProberOptions{}, Probe{URL: "http://loop.test/", Samples: 2, Resolver: server, MostBad: -1}); res.Kinds["dns"] != 2 {
		t.Errorf("%+v", res)
	}
}

// Values are dialled in turn.
func TestDialsInTurn(t *testing.T) {
	a, sa := serve(t, false, ok)
	port := portOf(t, a.URL)
	b, err := net.Listen("tcp", "127.0.0.2:"+port)
	if err != nil {
		t.Skipf("no second loopback address with port %s here: %v", port, err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(500) })}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(b) }()
	t.Cleanup(func() { srv.Close(); <-done })
	res := probe(t, ProberOptions{}, Probe{URL: "http://shop.test:" + port, Samples: 20, Dial: []string{"127.0.0.1", "127.0.0.2"}, MostBad: -1})
	if res.Good != 10 || res.Kinds["500"] != 10 {
		t.Errorf("%+v", res)
	}
	_ = sa
}
