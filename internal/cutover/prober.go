package cutover

import (
	"context"
	"crypto/x509"
	"errors"
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

type httpProber struct{ o ProberOptions }

// NewProber makes the prober that really connects.
func NewProber(o ProberOptions) Prober { return &httpProber{o: o} }

func (p *httpProber) Probe(ctx context.Context, s Probe) (ProbeResult, error) {
	return ProbeResult{}, errors.New("cutover: not complete yet")
}
