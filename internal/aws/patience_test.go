package aws_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eksbg/eksbg/internal/aws"
)

func TestPatience(t *testing.T) {
	const own = 10 * time.Minute
	bg := context.Background()
	gives := func(d time.Duration) func() time.Duration { return func() time.Duration { return d } }
	for name, tc := range map[string]struct {
		ctx  context.Context
		want time.Duration
	}{
		"nothing said":        {bg, own},
		"short":               {aws.WithPatience(bg, time.Second), time.Second},
		"short, asked":        {aws.WithPatienceFunc(bg, gives(time.Second)), time.Second},
		"zero is our own":     {aws.WithPatienceFunc(bg, gives(0)), own},
		"negative is our own": {aws.WithPatienceFunc(bg, gives(-1)), own},
		"longer than our own": {aws.WithPatience(bg, time.Hour), own},
		"no function":         {aws.WithPatienceFunc(bg, nil), own},
		"full over short":     {aws.FullPatience(aws.WithPatience(bg, time.Second)), own},
		"full over asked":     {aws.FullPatience(aws.WithPatienceFunc(bg, gives(time.Second))), own},
		"short over full":     {aws.WithPatience(aws.FullPatience(bg), time.Second), time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			if got := aws.Patience(tc.ctx, own); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// The first change may come while a call is under way.
func TestPatienceIsAskedAnew(t *testing.T) {
	srv := serve(t, append(times(6, reset(false)), ok)...)
	var changed atomic.Bool
	patience := func() time.Duration {
		if changed.Load() {
			return 0
		}
		return time.Minute
	}
	ctx := aws.WithPatienceFunc(context.Background(), patience)
	shrinks := aws.WithPatienceFunc(context.Background(), func() time.Duration {
		if changed.Load() {
			return time.Nanosecond
		}
		return 0
	})
	c := client(t, srv.URL, aws.Options{OnRetry: func(string, int, error, time.Duration) { changed.Store(true) }})
	if v, err := read(ctx, c); err != nil || v != "1.31" {
		t.Fatalf("got %q, %v", v, err)
	}
	srv.calls.Store(0)
	changed.Store(false)
	var gave *aws.GaveUpError
	if _, err := read(shrinks, c); !errors.As(err, &gave) || gave.Attempts != 2 {
		t.Fatalf("got %v, want the second decision to use the new patience", err)
	}
}

// silent takes every request and answers none; the channel tells of each.
func silent(t *testing.T) (http.HandlerFunc, <-chan struct{}) {
	arrived, done := make(chan struct{}, 100), make(chan struct{})
	t.Cleanup(func() { close(done) })
	return func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		select {
		case <-done:
		case <-r.Context().Done():
		}
	}, arrived
}

func TestSilentEndpointIsGivenUpWithinThePatience(t *testing.T) {
	mute, _ := silent(t)
	c := client(t, serve(t, mute).URL, aws.Options{Attempt: time.Hour})
	// An attempt that is not cut off lasts longer than the test may.
	_, err := read(aws.WithPatience(context.Background(), 20*time.Millisecond), c)
	var gave *aws.GaveUpError
	if !errors.As(err, &gave) || gave.Attempts != 1 || !aws.IsUnavailable(err) || !strings.Contains(err.Error(), "silent") {
		t.Fatalf("got %v", err)
	}
}

// Once something was changed a call has its normal time, also one on the wire.
func TestNoAttemptIsCutOffAfterTheFirstChange(t *testing.T) {
	var changed atomic.Bool
	asked := make(chan struct{}, 100)
	patience := func() time.Duration {
		select {
		case asked <- struct{}{}:
		default:
		}
		if changed.Load() {
			return 0
		}
		return 20 * time.Millisecond
	}
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		changed.Store(true)
		for len(asked) > 0 {
			<-asked
		}
		<-asked // the patience of before is over, and was looked at again
		ok(w, r)
	})
	c := client(t, srv.URL, aws.Options{})
	v, err := read(aws.WithPatienceFunc(context.Background(), patience), c)
	if err != nil || v != "1.31" || srv.calls.Load() != 1 {
		t.Fatalf("got %q, %v after %d calls", v, err, srv.calls.Load())
	}
}

func TestFullPatienceBoundsNoAttempt(t *testing.T) {
	mute, arrived := silent(t)
	c := client(t, serve(t, mute).URL, aws.Options{Attempt: 50 * time.Millisecond, Budget: 500 * time.Millisecond})
	_, err := read(aws.FullPatience(aws.WithPatience(context.Background(), time.Nanosecond)), c)
	var gave *aws.GaveUpError
	if !errors.As(err, &gave) || len(arrived) < 2 || strings.Contains(err.Error(), "silent") {
		t.Fatalf("got %v after %d requests, want attempts of their own length", err, len(arrived))
	}
}

func TestBudget(t *testing.T) {
	const own = 10 * time.Minute
	bg := context.Background()
	gives := func(d time.Duration) func() time.Duration { return func() time.Duration { return d } }
	for name, tc := range map[string]struct {
		ctx  context.Context
		want time.Duration
	}{
		"nothing said":        {bg, own},
		"short":               {aws.WithBudget(bg, time.Second), time.Second},
		"short, asked":        {aws.WithBudgetFunc(bg, gives(time.Second)), time.Second},
		"zero is our own":     {aws.WithBudgetFunc(bg, gives(0)), own},
		"longer than our own": {aws.WithBudget(bg, time.Hour), own},
		"no function":         {aws.WithBudgetFunc(bg, nil), own},
	} {
		t.Run(name, func(t *testing.T) {
			if got := aws.Budget(tc.ctx, own); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// What a call may be repeated for may shrink and grow while it is.
func TestTheBudgetIsAskedAnew(t *testing.T) {
	srv := serve(t, append(times(6, fails(503, "ServiceUnavailableException", "later")), ok)...)
	var tried atomic.Int32
	c := client(t, srv.URL, aws.Options{OnRetry: func(string, int, error, time.Duration) { tried.Add(1) }})
	grows := aws.WithBudgetFunc(context.Background(), func() time.Duration { return time.Minute })
	if v, err := read(grows, c); err != nil || v != "1.31" {
		t.Fatalf("got %q, %v", v, err)
	}
	srv.calls.Store(0)
	tried.Store(0)
	shrinks := aws.WithBudgetFunc(context.Background(), func() time.Duration {
		if tried.Load() > 0 {
			return time.Nanosecond
		}
		return 0
	})
	var gave *aws.GaveUpError
	if _, err := read(shrinks, c); !errors.As(err, &gave) || gave.Attempts != 2 {
		t.Fatalf("got %v, want the second decision to use the new budget", err)
	}
}
