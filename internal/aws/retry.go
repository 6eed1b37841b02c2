package aws

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awsmiddle "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// GaveUpError is a call that was repeated until its time was over.
type GaveUpError struct {
	// Call is service:Operation, or what was asked of an API server.
	Call string
	// Attempts counts the tries, After is how long they took.
	Attempts int
	After    time.Duration
	// Err is what the last attempt got.
	Err error
}

// Error says how long it was tried and what came last.
func (e *GaveUpError) Error() string {
	attempts := fmt.Sprintf("%d attempts", e.Attempts)
	if e.Attempts == 1 {
		attempts = "1 attempt"
	}
	return fmt.Sprintf("%s: gave up after %s in %s: %v", e.Call, attempts, e.After.Round(time.Second), e.Err)
}

// Unwrap gives what the last attempt got.
func (e *GaveUpError) Unwrap() error { return e.Err }

// classes is the SDK's judgement of errors, with the ones in front that it must
// not repeat. Source: aws/retry/standard.go of aws-sdk-go-v2 v1.48.0.
var classes = retry.IsErrorRetryables(append([]retry.IsErrorRetryable{
	retry.IsErrorRetryableFunc(func(err error) awssdk.Ternary {
		if IsExpired(err) {
			return awssdk.FalseTernary
		}
		return awssdk.UnknownTernary
	}),
}, append(retry.DefaultRetryables,
	// EKS answers 429 with a modeled ThrottlingException, proxies with anything.
	retry.RetryableHTTPStatusCode{Codes: map[int]struct{}{http.StatusTooManyRequests: {}}},
)...))

// IsRetryable tells whether the same request may succeed later: throttled, 5xx
// (EKS's "Updates in the cell are disabled" among them), reset, refused, timed out.
func IsRetryable(err error) bool { return classes.IsErrorRetryable(err).Bool() }

// newRetryer is the retryer of clients whose stack the middleware below does not
// reach. It never runs out of attempts or tokens; it has no deadline of its own.
func newRetryer(opt Options) awssdk.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.Retryables = classes
		o.RateLimiter = ratelimit.None
		o.MaxBackoff = opt.Backoff.Cap
	})
}

// retryMiddleware puts a retry loop of our own in the place of the SDK's: the same
// loop, with a retryer that knows the call it is for.
func retryMiddleware(opt Options) func(*middleware.Stack) error {
	return func(stack *middleware.Stack) error {
		old, ok := stack.Finalize.Get((*retry.Attempt)(nil).ID())
		if !ok {
			// A presigned request is not sent, so there is nothing to repeat.
			return nil
		}
		loop := &retryLoop{opt: opt}
		switch sdk := old.(type) {
		case *retry.Attempt:
			loop.sdk = *sdk
		case *retryLoop:
			return nil
		}
		_, err := stack.Finalize.Swap(loop.ID(), loop)
		return err
	}
}

// imdsService is the id of the instance metadata client (feature/ec2/imds).
const imdsService = "ec2imds"

type retryLoop struct {
	opt Options
	sdk retry.Attempt
}

// ID is that of the SDK's own loop, whose place it takes.
func (*retryLoop) ID() string { return (*retry.Attempt)(nil).ID() }

// HandleFinalize runs one call with all its attempts.
func (l *retryLoop) HandleFinalize(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (
	middleware.FinalizeOutput, middleware.Metadata, error,
) {
	if awsmiddle.GetServiceID(ctx) == imdsService {
		// No machine without an instance role should wait minutes to hear so.
		return l.sdk.HandleFinalize(ctx, in, next)
	}
	name := strings.ToLower(strings.ReplaceAll(awsmiddle.GetServiceID(ctx), " ", "")) + ":" + awsmiddle.GetOperationName(ctx)
	budget, cancel := context.WithTimeout(ctx, l.opt.Budget)
	defer cancel()
	one := newCall(name, l.opt, func() time.Duration { return Patience(ctx, l.opt.Patience) })
	one.budget = func() time.Duration { return Budget(ctx, l.opt.Budget) }
	loop := retry.NewAttemptMiddleware(one, smithyhttp.RequestCloner, func(a *retry.Attempt) {
		a.LogAttempts, a.OperationMeter = l.sdk.LogAttempts, l.sdk.OperationMeter
		a.ClientSkew, a.DisableClockSkewCorrection = l.sdk.ClientSkew, l.sdk.DisableClockSkewCorrection
	})
	out, md, err := loop.HandleFinalize(budget, in, one.bounded(next))
	if err != nil && ctx.Err() == nil && budget.Err() != nil && one.last != nil {
		err = one.giveUp()
	}
	return out, md, err
}

// call is the retryer of one call; it is used by one goroutine.
type call struct {
	awssdk.NopRetryer
	name string
	opt  Options
	// patience is how long the endpoint may be silent, as it is at the moment.
	patience func() time.Duration
	// budget is how long the call is repeated, as it is at the moment.
	budget func() time.Duration

	began time.Time
	// answered is when the endpoint last gave any HTTP answer, or when the call began.
	answered time.Time
	attempts int
	last     error
}

func newCall(name string, opt Options, patience func() time.Duration) *call {
	now := opt.Clock.Now()
	return &call{name: name, opt: opt, patience: patience, budget: func() time.Duration { return opt.Budget }, began: now, answered: now}
}

// bounded bounds each attempt by what is left of the patience.
func (c *call) bounded(next middleware.FinalizeHandler) middleware.FinalizeHandler {
	return middleware.FinalizeHandlerFunc(func(ctx context.Context, in middleware.FinalizeInput) (
		middleware.FinalizeOutput, middleware.Metadata, error,
	) {
		since := c.answered
		silent := func() time.Duration { return c.opt.Clock.Since(since) }
		if changing(ctx) {
			var err error
			if ctx, err = Allow(ctx); err != nil {
				return middleware.FinalizeOutput{}, middleware.Metadata{}, err
			}
		}
		return next.HandleFinalize(BoundAttempt(ctx, c.opt.Patience, silent), in)
	})
}

func (c *call) giveUp() error {
	return &GaveUpError{Call: c.name, Attempts: c.attempts, After: c.opt.Clock.Since(c.began), Err: c.last}
}

// IsErrorRetryable judges the error of an attempt.
func (c *call) IsErrorRetryable(err error) bool { return IsRetryable(err) }

// MaxAttempts is unlimited: time decides.
func (c *call) MaxAttempts() int { return 0 }

// RetryDelay is the wait before the next attempt, or the error that ends the call.
func (c *call) RetryDelay(attempt int, err error) (time.Duration, error) {
	c.attempts, c.last = attempt, err
	now := c.opt.Clock.Now()
	if answered(err) {
		c.answered = now
	}
	delay := c.opt.Backoff.Delay(attempt, isThrottle(err))
	if now.Add(delay).Sub(c.answered) >= c.patience() || now.Add(delay).Sub(c.began) >= c.budget() {
		return 0, c.giveUp()
	}
	if c.opt.OnRetry != nil {
		c.opt.OnRetry(c.name, attempt, err, delay)
	}
	return delay, nil
}

// answered tells whether the endpoint gave any HTTP answer.
func answered(err error) bool {
	var status interface{ HTTPStatusCode() int }
	return errors.As(err, &status) && status.HTTPStatusCode() != 0
}

func isThrottle(err error) bool {
	return retry.IsErrorThrottles(retry.DefaultThrottles).IsErrorThrottle(err).Bool()
}
