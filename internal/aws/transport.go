package aws

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
)

// detachingClient is the SDK's HTTP client with the promise of the package: once a
// request is on the wire its answer is read to the end, although the context was
// cancelled meanwhile.
type detachingClient struct {
	inner   awssdk.HTTPClient
	timeout time.Duration
}

// Do sends the request and returns the answer with its whole body in memory.
func (c *detachingClient) Do(req *http.Request) (*http.Response, error) {
	return finish(req, c.timeout, c.timeout, c.inner.Do)
}

// FinishInFlight wraps a transport so that a request that is on the wire is
// finished, its body read to the end, although its context is cancelled: within grace
// from then on; timeout bounds it altogether, and what BoundAttempt put on the context.
// While the connection is still being made a cancelled context ends the request. Not for
// streams: the body is held in memory.
func FinishInFlight(rt http.RoundTripper, timeout, grace time.Duration) http.RoundTripper {
	return roundTripFunc(func(req *http.Request) (*http.Response, error) {
		return finish(req, timeout, grace, rt.RoundTrip)
	})
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func finish(req *http.Request, timeout, grace time.Duration, do func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	caller := req.Context()
	if caller.Err() != nil {
		return nil, context.Cause(caller)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(caller), wireTime(caller, timeout))
	defer cancel()
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	leash(ctx, cut)

	wire := &onWire{}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { wire.reached() }})
	stop := context.AfterFunc(caller, func() {
		if !wire.interrupt(cancel) && grace < timeout {
			due, release := context.WithTimeout(ctx, grace)
			context.AfterFunc(due, func() {
				release()
				cancel()
			})
		}
	})
	defer stop()

	resp, err := do(req.WithContext(ctx))
	if err != nil {
		return nil, spoken(ctx, err)
	}
	// A body that breaks off is a failed request, which is repeated, and not a
	// document that cannot be parsed, which is not.
	body, err := io.ReadAll(resp.Body)
	closeErr := resp.Body.Close()
	if err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", req.URL.Host, spoken(ctx, err))
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// onWire remembers whether a request has got its connection.
type onWire struct {
	mu   sync.Mutex
	sent bool
}

func (w *onWire) reached() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = true
}

// interrupt ends a request that is not on the wire yet, and tells whether it did.
func (w *onWire) interrupt(cancel context.CancelFunc) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.sent {
		cancel()
	}
	return !w.sent
}
