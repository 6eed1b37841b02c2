package aws

import (
	"context"
	"errors"
	"time"
)

// leastAttempt is what an attempt gets although less of the patience is left, so
// that the last one of a call can still find out what is wrong.
const leastAttempt = time.Second

type silenceKey struct{}

// BoundAttempt returns a context for one attempt, which ends it when the endpoint
// has been silent for as long as the context's patience, and not only at its own
// timeout: an endpoint that takes the connection and never answers must be an error
// as soon as one that refuses it (semantics 24). own is the configuration's
// patience; while the context shortens nothing, the attempt has its timeout alone,
// also when that becomes so with the attempt on the wire. silent tells for how long
// the endpoint has given no answer; another goroutine may call it.
func BoundAttempt(ctx context.Context, own time.Duration, silent func() time.Duration) context.Context {
	return context.WithValue(ctx, silenceKey{}, func() (left time.Duration, short bool) {
		d := Patience(ctx, own)
		return d - silent(), d < own
	})
}

// leash cuts the attempt off when its patience is over.
func leash(ctx context.Context, cut context.CancelCauseFunc) {
	left, ok := ctx.Value(silenceKey{}).(func() (time.Duration, bool))
	if !ok {
		return
	}
	if d, short := left(); short {
		lookAfter(ctx, max(d, leastAttempt), left, cut)
	}
}

// lookAfter looks at the patience when d has passed: it may have grown meanwhile.
func lookAfter(ctx context.Context, d time.Duration, left func() (time.Duration, bool), cut context.CancelCauseFunc) {
	due, stop := context.WithTimeout(ctx, d)
	context.AfterFunc(due, func() {
		stop()
		if ctx.Err() != nil {
			return
		}
		switch d, short := left(); {
		case !short:
		case d <= 0:
			cut(silentError{})
		default:
			lookAfter(ctx, d, left, cut)
		}
	})
}

// silentError is an endpoint that did not answer within the patience.
type silentError struct{}

func (silentError) Error() string { return "no answer: the endpoint is silent" }

// Timeout and Temporary make it a net.Error, as other timeouts are.
func (silentError) Timeout() bool   { return true }
func (silentError) Temporary() bool { return true }

// spoken is the error of an attempt, in place of the bare "context canceled" that
// HTTP/2 makes of one that was cut off.
func spoken(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), silentError{}) {
		return silentError{}
	}
	return err
}
