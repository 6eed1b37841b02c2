package aws

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is exponential backoff with full jitter: the n-th wait is a random time
// between nothing and min(Cap, Base * 2^n).
type Backoff struct {
	// Base is the bound of the first wait; 0 means 500 ms, or 1 s for throttling.
	Base time.Duration
	// Cap bounds every wait; 0 means 20 s.
	Cap time.Duration
	// Random gives numbers from [0, 1); nil means math/rand/v2.
	Random func() float64
}

func (b Backoff) withDefaults() Backoff {
	if b.Cap <= 0 {
		b.Cap = 20 * time.Second
	}
	if b.Random == nil {
		b.Random = rand.Float64
	}
	return b
}

// Delay is the wait after the attempt that failed, counted from 1.
func (b Backoff) Delay(attempt int, throttled bool) time.Duration {
	b = b.withDefaults()
	base := b.Base
	if base <= 0 {
		base = 500 * time.Millisecond
		if throttled {
			base = time.Second
		}
	}
	most := base
	for i := 1; i < attempt && most < b.Cap; i++ {
		most *= 2
	}
	most = min(most, b.Cap)
	return time.Duration(b.Random() * float64(most))
}

type patienceKey struct{}

// WithPatience returns a context whose calls give up after d without any HTTP
// answer, instead of the configuration's own patience. Before the first change of
// a run a dead endpoint is an error within 30 s; afterwards it is waited for
// (semantics 24), so only the calls before it get such a context.
func WithPatience(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, patienceKey{}, d)
}

// Patience is what WithPatience put on the context, or the default given.
func Patience(ctx context.Context, otherwise time.Duration) time.Duration {
	if d, ok := ctx.Value(patienceKey{}).(time.Duration); ok && d > 0 && d < otherwise {
		return d
	}
	return otherwise
}
