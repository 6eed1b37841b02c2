package cutover

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// Probe is one series of samples of one URL, each over a new connection
// (semantics 17).
type Probe struct {
	URL string
	// Expect is the status that counts as good.
	Expect int
	// Samples are spread evenly over Over.
	Samples int
	Over    time.Duration
	// Timeout bounds one sample, name resolution and body included.
	Timeout time.Duration
	// Resolver is the DNS server (host:port) that is asked for each sample anew;
	// empty means the system's.
	Resolver string
	// Dial are addresses or names that are connected to instead of the URL's host,
	// in turn; the URL's host stays in Host and SNI. Empty connects to the URL's host.
	Dial []string
	// MostBad ends the series early once more samples than this are bad and at least
	// one was answered: the verdict is certain then. Negative never ends it early.
	MostBad int
}

// ProbeResult counts what came of a series.
type ProbeResult struct {
	// Samples were taken, Good of them got the expected status and a whole body,
	// Answered got any HTTP answer.
	Samples, Good, Answered int
	// Kinds counts the bad ones by what went wrong: "502", "refused", "timeout",
	// "reset", "dns", "tls", "cut off", "unreachable", "error".
	Kinds map[string]int
}

// Prober takes series of samples.
type Prober interface {
	// Probe blocks until the series is over. An error means that the series could not
	// be taken at all (malformed URL, ctx cancelled), not that samples were bad.
	Probe(ctx context.Context, p Probe) (ProbeResult, error)
}

// ProberOptions set up a prober.
type ProberOptions struct {
	Clock clock.WithTicker
	// RootCAs verify HTTPS servers; nil means the system's.
	RootCAs *x509.CertPool
	// MaxConcurrent bounds the samples in flight; 0 means 64.
	MaxConcurrent int
}

const (
	// maxConcurrent is the default bound of samples in flight.
	maxConcurrent = 64
	// maxBody is how much of a body is read: enough for any health page.
	maxBody = 1 << 20
)

type httpProber struct{ o ProberOptions }

// NewProber makes the prober that really connects. It follows no redirects, uses no
// proxy, keeps no connection and no answer of the resolver.
func NewProber(o ProberOptions) Prober {
	if o.MaxConcurrent <= 0 {
		o.MaxConcurrent = maxConcurrent
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &httpProber{o: o}
}

func (p *httpProber) Probe(ctx context.Context, s Probe) (ProbeResult, error) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return ProbeResult{}, fmt.Errorf("probe: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return ProbeResult{}, fmt.Errorf("probe: %q is not an http or https URL with a host", s.URL)
	}
	asker := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t := &tally{most: s.MostBad, enough: func() { cancel(errEnough) }, kinds: map[string]int{}}
	slots := make(chan struct{}, p.o.MaxConcurrent)
	var wg sync.WaitGroup
	err = p.pace(ctx, s, func(i int) bool {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return false
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer func() { <-slots }()
			status, kind := p.sample(ctx, u, s, i)
			if context.Cause(ctx) != nil && kind != "" && status == 0 {
				return // ended by the series, not by what it looks at
			}
			t.add(status, kind)
		}()
		return true
	})
	wg.Wait()
	if asker.Err() != nil {
		return t.result(), context.Cause(asker)
	}
	if errors.Is(err, errEnough) {
		err = nil
	}
	return t.result(), err
}

// errEnough ends a series whose verdict is certain.
var errEnough = errors.New("enough samples")

// pace starts sample after sample at even distances.
func (p *httpProber) pace(ctx context.Context, s Probe, start func(i int) bool) error {
	begun := p.o.Clock.Now()
	for i := range s.Samples {
		if due := time.Duration(float64(s.Over) * float64(i) / float64(s.Samples)); due > 0 {
			if err := p.until(ctx, begun.Add(due)); err != nil {
				return err
			}
		}
		if ctx.Err() != nil || !start(i) {
			return context.Cause(ctx)
		}
	}
	return nil
}

func (p *httpProber) until(ctx context.Context, at time.Time) error {
	left := at.Sub(p.o.Clock.Now())
	if left <= 0 {
		return nil
	}
	timer := p.o.Clock.NewTimer(left)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C():
		return nil
	}
}

// tally counts samples from many goroutines.
type tally struct {
	mu      sync.Mutex
	res     ProbeResult
	kinds   map[string]int
	most    int
	enough  func()
	stopped bool
}

func (t *tally) add(status int, kind string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.res.Samples++
	if status != 0 {
		t.res.Answered++
	}
	if kind == "" {
		t.res.Good++
		return
	}
	t.kinds[kind]++
	if bad := t.res.Samples - t.res.Good; t.most >= 0 && bad > t.most && t.res.Answered > 0 && !t.stopped {
		t.stopped = true
		t.enough()
	}
}

func (t *tally) result() ProbeResult {
	t.mu.Lock()
	defer t.mu.Unlock()
	res := t.res
	res.Kinds = t.kinds
	return res
}

// sample makes one request over one new connection. It gives the status, 0 without an
// answer, and what went wrong, "" when nothing did.
func (p *httpProber) sample(ctx context.Context, u *url.URL, s Probe, i int) (int, string) {
	if s.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.Timeout)
		defer cancel()
	}
	dial := dialer{resolver: s.Resolver, turn: i}
	tr := &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			if len(s.Dial) > 0 {
				return dial.turns(ctx, s.Dial, port)
			}
			return dial.one(ctx, host, port)
		},
		TLSClientConfig:   &tls.Config{RootCAs: p.o.RootCAs, ServerName: u.Hostname(), MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true,
		// A non-nil empty map keeps HTTP/2 off: its connections are shared.
		TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{},
		MaxResponseHeaderBytes: maxBody,
	}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return 0, "error"
	}
	req.Header.Set("User-Agent", "eksbg-gate")
	req.Header.Set("Cache-Control", "no-cache")
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return 0, classify(err)
	}
	defer func() { _ = resp.Body.Close() }() // nothing is written to it
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxBody)); err != nil {
		if kind := classify(err); kind == "timeout" {
			return resp.StatusCode, kind
		}
		return resp.StatusCode, "cut off"
	}
	if resp.StatusCode != s.Expect {
		return resp.StatusCode, strconv.Itoa(resp.StatusCode)
	}
	return resp.StatusCode, ""
}

// errUnreachable says that nothing of this address family can be reached from here.
var errUnreachable = errors.New("address family not reachable from here")

// classify names what went wrong without an answer.
func classify(err error) string {
	var dnsErr *net.DNSError
	var certErr *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var netErr net.Error
	var op *net.OpError
	switch {
	case errors.As(err, &dnsErr), errors.Is(err, errNoAnswer):
		return "dns"
	case errors.Is(err, errUnreachable):
		return "unreachable"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.As(err, &certErr), errors.As(err, &record), errors.As(err, &alert),
		errors.As(err, &op) && op.Op == "remote error": // a TLS alert of the server
		return "tls"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return "timeout"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "cut off"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "unreachable"
	}
	return "error"
}
