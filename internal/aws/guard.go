package aws

import (
	"context"
	"math"
	"strings"
	"time"

	awsmiddle "github.com/aws/aws-sdk-go-v2/aws/middleware"
)

// Guard tells whether a request that changes something may be sent at this moment, and
// for how long it may then be on the wire. It waits while that cannot be told yet; its
// error ends the call.
type Guard func(context.Context) (time.Duration, error)

type guardKey struct{}

// WithGuard returns a context whose changing requests ask g before every attempt: a call
// is repeated for minutes, and the lock that allowed its first attempt is good for less
// than one (semantics 23). Requests that only read do not ask.
func WithGuard(ctx context.Context, g Guard) context.Context {
	return context.WithValue(ctx, guardKey{}, g)
}

// Unguarded returns a context whose changing requests ask nobody, whatever WithGuard put
// on before: putting the traffic back needs no lock (semantics 14).
func Unguarded(ctx context.Context) context.Context {
	return context.WithValue(ctx, guardKey{}, Guard(nil))
}

// Unwaiting returns a context whose changing requests wait for no guard: they are sent
// unless what WithGuard put on answers at once with an error that is final. What a restart
// changed only for its time goes back without the lock (semantics 14), but not once
// somebody else has it.
func Unwaiting(ctx context.Context, final func(error) bool) context.Context {
	g, ok := ctx.Value(guardKey{}).(Guard)
	if !ok || g == nil {
		return ctx
	}
	return WithGuard(ctx, func(ctx context.Context) (time.Duration, error) {
		over, cancel := context.WithCancel(ctx)
		cancel() // a guard that cannot tell yet does not wait then
		if _, err := g(over); err != nil && final(err) {
			return 0, err
		}
		return math.MaxInt64, nil
	})
}

type wireTimeKey struct{}

// Allow asks the guard of ctx for one attempt of a changing request, and returns the
// context to send it with, which bounds its time on the wire. Without a guard it is ctx.
func Allow(ctx context.Context) (context.Context, error) {
	g, ok := ctx.Value(guardKey{}).(Guard)
	if !ok || g == nil {
		return ctx, nil
	}
	d, err := g(ctx)
	if err != nil {
		return nil, err
	}
	return context.WithValue(ctx, wireTimeKey{}, d), nil
}

// wireTime is how long an attempt may be on the wire.
func wireTime(ctx context.Context, timeout time.Duration) time.Duration {
	if d, ok := ctx.Value(wireTimeKey{}).(time.Duration); ok {
		return min(d, timeout)
	}
	return timeout
}

// changing tells whether a call of the SDK changes clusters or traffic.
func changing(ctx context.Context) bool {
	switch awsmiddle.GetServiceID(ctx) {
	case "EKS", "Route 53", "Elastic Load Balancing v2":
	default:
		return false
	}
	op := awsmiddle.GetOperationName(ctx)
	for _, reads := range []string{"Describe", "List", "Get", "StartInsightsRefresh"} {
		if strings.HasPrefix(op, reads) {
			return false
		}
	}
	return true
}
