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
// answer, instead of the configuration's own patience; 0 or less is the
// configuration's own. Before the first change of a run a dead endpoint is an error
// within 30 s; afterwards it is waited for (semantics 24), so only the calls before
// it get such a context.
func WithPatience(ctx context.Context, d time.Duration) context.Context {
	return WithPatienceFunc(ctx, func() time.Duration { return d })
}

// WithPatienceFunc is WithPatience with a time that may change while a call is
// under way: f is asked anew whenever a call decides whether to go on waiting, so a
// short patience ends with the first change although the context lives on. f may be
// called by several goroutines and must not block.
func WithPatienceFunc(ctx context.Context, f func() time.Duration) context.Context {
	return context.WithValue(ctx, patienceKey{}, f)
}

// FullPatience returns a context whose calls have the configuration's own patience,
// whatever WithPatience or WithPatienceFunc put on before.
func FullPatience(ctx context.Context) context.Context { return WithPatience(ctx, 0) }

// Patience is what the context says now, or the default given where it says nothing
// or more than that.
func Patience(ctx context.Context, otherwise time.Duration) time.Duration {
	f, ok := ctx.Value(patienceKey{}).(func() time.Duration)
	if !ok || f == nil {
		return otherwise
	}
	if d := f(); d > 0 && d < otherwise {
		return d
	}
	return otherwise
}

type budgetKey struct{}

// WithBudget returns a context whose calls are repeated for d at most, whatever the
// endpoint answers, where that is less than the configuration's own budget. It is for
// reading before anything was changed: somebody waits in front of it, and nothing is half
// done. An attempt on the wire is not cut.
func WithBudget(ctx context.Context, d time.Duration) context.Context {
	return WithBudgetFunc(ctx, func() time.Duration { return d })
}

// WithBudgetFunc is WithBudget with a time that may change while a call is under way, as
// WithPatienceFunc is; 0 or less is the configuration's own. f may be called by several
// goroutines and must not block.
func WithBudgetFunc(ctx context.Context, f func() time.Duration) context.Context {
	return context.WithValue(ctx, budgetKey{}, f)
}

// Budget is what the context says now, or the default given where it says nothing or more
// than that.
func Budget(ctx context.Context, otherwise time.Duration) time.Duration {
	f, ok := ctx.Value(budgetKey{}).(func() time.Duration)
	if !ok || f == nil {
		return otherwise
	}
	if d := f(); d > 0 && d < otherwise {
		return d
	}
	return otherwise
}
