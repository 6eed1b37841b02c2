package aws_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"

	"github.com/eksbg/eksbg/internal/aws"
)

var errLost = errors.New("the lock was lost")

// allows gives a guard that lets n attempts through, each for d on the wire.
func allows(n int, d time.Duration) (g aws.Guard, asked *int) {
	asked = new(int)
	return func(context.Context) (time.Duration, error) {
		if *asked++; *asked > n {
			return 0, errLost
		}
		return d, nil
	}, asked
}

func raise(ctx context.Context, c *eks.Client) error {
	_, err := c.UpdateClusterVersion(ctx, &eks.UpdateClusterVersionInput{Name: awssdk.String("shop-green"), Version: awssdk.String("1.32")})
	return err
}

// Every attempt of a change asks, not the first one alone; what only reads does not.
func TestEveryAttemptOfAChangeAsksTheGuard(t *testing.T) {
	away := fails(503, "ServiceUnavailableException", "Updates in the cell are disabled")
	srv := serve(t, append(append(times(3, away), times(4, away)...), ok)...)
	c := client(t, srv.URL, aws.Options{})
	guard, asked := allows(3, time.Minute)
	ctx := aws.WithGuard(context.Background(), guard)
	if err := raise(ctx, c); !errors.Is(err, errLost) || srv.calls.Load() != 3 || *asked != 4 {
		t.Errorf("%v after %d calls, asked %d times", err, srv.calls.Load(), *asked)
	}
	if v, err := read(ctx, c); err != nil || v != "1.31" || *asked != 4 {
		t.Errorf("a read: %q, %v, asked %d times", v, err, *asked)
	}
	if err := raise(aws.Unguarded(ctx), c); err != nil || *asked != 4 {
		t.Errorf("without the guard: %v, asked %d times", err, *asked)
	}
}

// A change that is not answered is cut off when what allowed it is over.
func TestAChangeIsOnTheWireForAsLongAsItMay(t *testing.T) {
	over := make(chan struct{})
	srv := serve(t, func(http.ResponseWriter, *http.Request) { <-over }) // no answer
	t.Cleanup(func() { close(over) })
	c := client(t, srv.URL, aws.Options{Attempt: time.Hour})
	guard, _ := allows(1, 20*time.Millisecond)
	if err := raise(aws.WithGuard(context.Background(), guard), c); !errors.Is(err, errLost) || srv.calls.Load() > 1 {
		t.Errorf("%v after %d calls", err, srv.calls.Load())
	}
}

// A put-back waits for no guard, and heeds only what is final.
func TestUnwaitingHeedsWhatIsFinal(t *testing.T) {
	final := func(err error) bool { return errors.Is(err, errLost) }
	waits := func(ctx context.Context) (time.Duration, error) {
		<-ctx.Done()
		return 0, context.Cause(ctx)
	}
	loses, _ := allows(0, 0)
	srv := serve(t, times(2, ok)...)
	c := client(t, srv.URL, aws.Options{})
	if err := raise(aws.Unwaiting(aws.WithGuard(t.Context(), waits), final), c); err != nil || srv.calls.Load() != 1 {
		t.Errorf("while nobody can tell: %v after %d calls", err, srv.calls.Load())
	}
	if err := raise(aws.Unwaiting(aws.WithGuard(t.Context(), loses), final), c); !errors.Is(err, errLost) || srv.calls.Load() != 1 {
		t.Errorf("lost: %v after %d calls", err, srv.calls.Load())
	}
	if err := raise(aws.Unwaiting(t.Context(), final), c); err != nil || srv.calls.Load() != 2 {
		t.Errorf("without a guard: %v after %d calls", err, srv.calls.Load())
	}
}
