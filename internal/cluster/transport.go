package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/utils/clock"

	"github.com/eksbg/eksbg/internal/aws"
)

const (
	// dialTimeout and tlsTimeout are short, since a failed attempt is repeated.
	dialTimeout = 5 * time.Second
	tlsTimeout  = 10 * time.Second
	// listTimeout bounds an attempt of a request; a page of 500 objects may be slow.
	listTimeout = 60 * time.Second
	// mostInternal is how often a 500 to a change is repeated: a failing admission
	// webhook answers so for ever, an API server that restarts only for a moment.
	mostInternal = 5
	// lastGrace is how long a change that is on the wire has to be answered once the work
	// is cancelled: somebody waits for the process to leave, and what became of a change
	// that nobody answered is looked up in the cluster when it is resumed.
	lastGrace = 10 * time.Second
)

// newTransports builds what requests to the API server go through, outermost first:
// repeating, finishing what is on the wire, the token, TLS with the cluster's CA. A
// request that switches protocols is sent once, over HTTP/1.1, and has its connection
// for itself.
func newTransports(opt Options, back *comeback, ca []byte) (requests, upgrades http.RoundTripper, err error) {
	read := func(ctx context.Context) ([]byte, error) {
		c, err := describe(ctx, opt.EKS, opt.Name)
		if err != nil {
			return nil, err
		}
		return authority(c)
	}
	trust, once := &trustedTransport{read: read, make: newMultiplexed}, &trustedTransport{read: read, make: newUpgrading}
	for _, t := range []*trustedTransport{trust, once} {
		if err := t.use(ca); err != nil {
			return nil, nil, err
		}
	}
	tokens := newTokens(opt.AWS, opt.Name, opt.Clock)
	return newRepeater(opt.Name, opt.Retry, opt.Clock, back, &collector{&bearer{tokens: tokens, next: trust}}), &bearer{tokens: tokens, next: &onceMore{once}}, nil
}

// newMultiplexed speaks HTTP/2 where the server does.
func newMultiplexed(pool *x509.CertPool) *http.Transport {
	return utilnet.SetTransportDefaults(&http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSClientConfig:     &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: tlsTimeout,
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, Control: aws.DropUnsent}).DialContext,
		MaxIdleConnsPerHost: 25,
	})
}

// newUpgrading speaks HTTP/1.1 only: HTTP/2 has no Upgrade.
func newUpgrading(pool *x509.CertPool) *http.Transport {
	only := &http.Protocols{}
	only.SetHTTP1(true)
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		TLSClientConfig:       &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:   tlsTimeout,
		ResponseHeaderTimeout: listTimeout,
		DialContext:           (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext,
		Protocols:             only,
		DisableKeepAlives:     true,
	}
}

// onceMore sends a request again when another CA may have cured it.
type onceMore struct{ next http.RoundTripper }

// RoundTrip sends the request, which has no body.
func (o *onceMore) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(req)
	var rotated *rotatedError
	if errors.As(err, &rotated) {
		return o.next.RoundTrip(req)
	}
	return resp, err
}

// trustedTransport talks TLS with the cluster's CA, which it reads anew when a
// server shows a certificate that it does not know: EKS can rotate CAs (2026-08).
type trustedTransport struct {
	read func(context.Context) ([]byte, error)
	make func(*x509.CertPool) *http.Transport

	mu  sync.Mutex
	pem []byte
	rt  *http.Transport
}

// use makes a transport that trusts the CA and nothing else.
func (t *trustedTransport) use(ca []byte) error {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return errors.New("the certificate authority that EKS states holds no certificate")
	}
	rt := t.make(pool)
	t.mu.Lock()
	old := t.rt
	t.pem, t.rt = ca, rt
	t.mu.Unlock()
	if old != nil {
		old.CloseIdleConnections()
	}
	return nil
}

func (t *trustedTransport) current() (*http.Transport, []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rt, t.pem
}

// RoundTrip sends the request. On a certificate error it looks at EKS for another
// CA; the request fails all the same and is repeated above.
func (t *trustedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	rt, pem := t.current()
	resp, err := rt.RoundTrip(req)
	if err == nil || !isCertificateError(err) {
		return resp, err
	}
	ca, readErr := t.read(req.Context())
	if readErr != nil || bytes.Equal(ca, pem) {
		return nil, err
	}
	if useErr := t.use(ca); useErr != nil {
		return nil, err
	}
	return nil, &rotatedError{err}
}

// rotatedError is a certificate error that another CA may have cured.
type rotatedError struct{ error }

func (e *rotatedError) Unwrap() error { return e.error }

func isCertificateError(err error) bool {
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var verify *tls.CertificateVerificationError
	return errors.As(err, &unknown) || errors.As(err, &invalid) || errors.As(err, &verify)
}

// repeater repeats requests that may succeed later, as the AWS configuration does
// for AWS calls. Watches go straight through: whoever watches starts them again.
type repeater struct {
	cluster string
	opt     aws.Options
	clk     clock.Clock
	back    *comeback
	next    http.RoundTripper
	// reads end with their context, changes are finished.
	reads, changes http.RoundTripper
}

func newRepeater(cluster string, opt aws.Options, clk clock.Clock, back *comeback, next http.RoundTripper) *repeater {
	if opt.Budget <= 0 {
		opt.Budget = 10 * time.Minute
	}
	if opt.Patience <= 0 || opt.Patience > opt.Budget {
		opt.Patience = opt.Budget
	}
	if opt.Attempt <= 0 {
		opt.Attempt = listTimeout
	}
	return &repeater{cluster: cluster, opt: opt, clk: clk, back: back, next: next,
		reads: aws.FinishInFlight(next, opt.Attempt, 0), changes: aws.FinishInFlight(next, opt.Attempt, lastGrace)}
}

// RoundTrip sends the request until it is answered for good. Each attempt of one that
// changes something asks the guard of its context first (aws.WithGuard), and is cut off
// when what that allows is over.
func (r *repeater) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Query().Get("watch") == "true" {
		resp, err := r.next.RoundTrip(req)
		if retry, _ := judge(req, resp, err, 1); retry {
			r.back.see(err)
		}
		return resp, err
	}
	body, err := bodyOf(req)
	if err != nil {
		return nil, err
	}
	ctx := req.Context()
	began := r.clk.Now()
	answered := began
	var denied time.Time
	for attempt := 1; ; attempt++ {
		since := answered
		bounded, send := aws.BoundAttempt(ctx, r.opt.Patience, func() time.Duration { return r.clk.Since(since) }), r.reads
		if changing(req) {
			send = r.changes
			if bounded, err = aws.Allow(bounded); err != nil {
				return nil, fmt.Errorf("%s is withheld: %w", r.call(req), err)
			}
		}
		resp, err := send.RoundTrip(withBody(bounded, req, body))
		retry, last := judge(req, resp, err, attempt)
		if retry {
			r.back.see(err)
		} else if last = r.back.doubts(resp, err, &denied); last == nil {
			return resp, err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		now := r.clk.Now()
		if err == nil {
			answered = now
		}
		delay := r.opt.Backoff.Delay(attempt, err == nil && resp.StatusCode == http.StatusTooManyRequests)
		if now.Add(delay).Sub(answered) >= aws.Patience(ctx, r.opt.Patience) || now.Add(delay).Sub(began) >= aws.Budget(ctx, r.opt.Budget) {
			return nil, &aws.GaveUpError{Call: r.call(req), Attempts: attempt, After: now.Sub(began), Err: last}
		}
		if r.opt.OnRetry != nil {
			r.opt.OnRetry(r.call(req), attempt, last, delay)
		}
		if err := r.sleep(ctx, delay); err != nil {
			return nil, err
		}
	}
}

// changing tells whether a request changes something in the cluster. Callers ask about
// themselves with POST.
func changing(req *http.Request) bool {
	return req.Method != http.MethodGet && req.Method != http.MethodHead &&
		!strings.HasPrefix(req.URL.Path, "/apis/authorization.k8s.io/") && !strings.HasPrefix(req.URL.Path, "/apis/authentication.k8s.io/")
}

func (r *repeater) call(req *http.Request) string {
	return fmt.Sprintf("%s %s of cluster %s", req.Method, req.URL.Path, r.cluster)
}

func (r *repeater) sleep(ctx context.Context, d time.Duration) error {
	timer := r.clk.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C():
		return nil
	}
}

// judge tells whether the request may succeed later, and why it did not now.
func judge(req *http.Request, resp *http.Response, err error, attempt int) (bool, error) {
	if err != nil {
		var rotated *rotatedError
		switch {
		case req.Context().Err() != nil, aws.IsExpired(err), aws.ErrorCode(err) != "":
			return false, err
		case errors.As(err, &rotated):
			return true, err
		case isCertificateError(err):
			return false, err
		case isNoHost(err):
			return true, errors.New("no such host")
		}
		return true, plain(err)
	}
	// An eviction that a PodDisruptionBudget forbids is a 429 with a meaning.
	if resp.StatusCode == http.StatusTooManyRequests && strings.HasSuffix(req.URL.Path, "/eviction") {
		return false, nil
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true, fmt.Errorf("HTTP %s", resp.Status)
	case http.StatusInternalServerError:
		return req.Method == http.MethodGet || attempt < mostInternal, fmt.Errorf("HTTP %s", resp.Status)
	}
	return false, nil
}

func isNoHost(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsNotFound
}

// plain keeps the text of a connection error but not its kind: client-go repeats
// what looks like a reset ten times, each time through all of the patience here.
func plain(err error) error {
	return errors.New(strings.ReplaceAll(err.Error(), "connection reset by peer", "connection reset"))
}

// bodyOf reads the body of a request into memory, so that it can be sent again.
func bodyOf(req *http.Request) ([]byte, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return nil, nil
	}
	b, err := io.ReadAll(req.Body)
	if closeErr := req.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, fmt.Errorf("read the body of a request: %w", err)
	}
	return b, nil
}

func withBody(ctx context.Context, req *http.Request, body []byte) *http.Request {
	out := req.Clone(ctx)
	if body == nil {
		return out
	}
	out.Body = io.NopCloser(bytes.NewReader(body))
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	return out
}
