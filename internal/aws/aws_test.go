package aws_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/ssocreds"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/aws/smithy-go"
	"go.uber.org/goleak"

	"github.com/eksbg/eksbg/internal/aws"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quick makes retries short without changing what they do.
var quick = aws.Backoff{Base: time.Millisecond, Cap: 2 * time.Millisecond}

// answers is a server that gives one answer after another, the last one for ever.
type answers struct {
	*httptest.Server
	calls atomic.Int64
}

func serve(t *testing.T, list ...http.HandlerFunc) *answers {
	t.Helper()
	a := &answers{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(a.calls.Add(1)) - 1
		list[min(n, len(list)-1)](w, r)
	}))
	t.Cleanup(func() {
		a.CloseClientConnections()
		a.Close()
	})
	return a
}

func times(n int, h http.HandlerFunc) []http.HandlerFunc {
	out := make([]http.HandlerFunc, n)
	for i := range out {
		out[i] = h
	}
	return out
}

func ok(w http.ResponseWriter, _ *http.Request) {
	_, _ = fmt.Fprint(w, `{"cluster":{"name":"shop-green","status":"ACTIVE","version":"1.31"}}`)
}

func fails(status int, code, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Amzn-ErrorType", code)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"clusterName":null,"message":%q}`, message)
	}
}

// reset cuts the connection without an answer; with half it cuts within the body.
func reset(half bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		if half {
			_, _ = buf.WriteString("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{\"cluster\":")
			_ = buf.Flush()
		} else if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
}

// keys gives the SDK static credentials and nothing else to find.
func keys(t *testing.T) {
	t.Helper()
	none := filepath.Join(t.TempDir(), "none")
	for k, v := range map[string]string{
		"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "",
		"AWS_CONFIG_FILE": none, "AWS_SHARED_CREDENTIALS_FILE": none, "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_PROFILE": "", "AWS_MAX_ATTEMPTS": "2", "HTTP_PROXY": "", "HTTPS_PROXY": "",
	} {
		t.Setenv(k, v)
	}
}

func client(t *testing.T, url string, opt aws.Options) *eks.Client {
	t.Helper()
	keys(t)
	if opt.Backoff.Base == 0 {
		opt.Backoff = quick
	}
	cfg, err := aws.Load(context.Background(), aws.Account{Region: "eu-west-1"}, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return eks.NewFromConfig(cfg, func(o *eks.Options) { o.BaseEndpoint = &url })
}

func read(ctx context.Context, c *eks.Client) (string, error) {
	out, err := c.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: awssdk.String("shop-green")})
	if err != nil {
		return "", err
	}
	return awssdk.ToString(out.Cluster.Version), nil
}

func TestRetriesWhatMaySucceedLater(t *testing.T) {
	for name, bad := range map[string]http.HandlerFunc{
		"503 cell disabled": fails(503, "ServiceUnavailableException", "Updates in the cell are disabled"),
		"429 throttled":     fails(429, "ThrottlingException", "Rate exceeded"),
		"429 of a proxy":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) },
		"400 throttling":    fails(400, "Throttling", "Rate exceeded"),
		"500":               fails(500, "ServerException", "try again"),
		"reset":             reset(false),
		"body cut":          reset(true),
	} {
		t.Run(name, func(t *testing.T) {
			var seen []string
			srv := serve(t, append(times(7, bad), ok)...)
			c := client(t, srv.URL, aws.Options{OnRetry: func(call string, n int, err error, _ time.Duration) {
				seen = append(seen, fmt.Sprintf("%s %d", call, n))
				if err == nil {
					t.Error("retry without an error")
				}
			}})
			v, err := read(context.Background(), c)
			if err != nil || v != "1.31" {
				t.Fatalf("got %q, %v", v, err)
			}
			if srv.calls.Load() != 8 {
				t.Errorf("%d calls, want 8: more than the SDK's own attempts", srv.calls.Load())
			}
			if len(seen) != 7 || seen[6] != "eks:DescribeCluster 7" {
				t.Errorf("OnRetry saw %v", seen)
			}
		})
	}
}

func TestDoesNotRetryWhatStays(t *testing.T) {
	for name, tc := range map[string]struct {
		answer   http.HandlerFunc
		expired  bool
		rejected bool
		denied   bool
		missing  bool
	}{
		"expired, JSON spelling":  {answer: fails(400, "ExpiredTokenException", "The security token included in the request is expired"), expired: true},
		"expired, query spelling": {answer: fails(403, "ExpiredToken", "expired"), expired: true},
		"expired with a 5xx":      {answer: fails(503, "ExpiredTokenException", "expired"), expired: true},
		"conflict":                {answer: fails(409, "ResourceInUseException", "busy"), rejected: true},
		"invalid":                 {answer: fails(400, "InvalidParameterException", "unsupported Kubernetes version"), rejected: true},
		"denied":                  {answer: fails(403, "AccessDeniedException", "not authorized"), rejected: true, denied: true},
		"denied, EC2's spelling":  {answer: fails(401, "AuthFailure", "AWS was not able to validate the provided access credentials"), rejected: true, denied: true},
		"missing":                 {answer: fails(404, "ResourceNotFoundException", "No cluster found"), rejected: true, missing: true},
	} {
		t.Run(name, func(t *testing.T) {
			srv := serve(t, tc.answer)
			_, err := read(context.Background(), client(t, srv.URL, aws.Options{}))
			if err == nil || srv.calls.Load() != 1 {
				t.Fatalf("err %v after %d calls, want one call", err, srv.calls.Load())
			}
			got := []bool{aws.IsExpired(err), aws.IsRejected(err), aws.IsDenied(err), aws.IsNotFound(err), aws.IsUnavailable(err)}
			want := []bool{tc.expired, tc.rejected, tc.denied, tc.missing, false}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("expired, rejected, denied, missing, unavailable = %v, want %v: %v", got, want, err)
			}
		})
	}
}

func TestGivesUpAfterItsBudget(t *testing.T) {
	srv := serve(t, fails(503, "ServiceUnavailableException", "Updates in the cell are disabled"))
	_, err := read(context.Background(), client(t, srv.URL, aws.Options{Budget: 30 * time.Millisecond}))
	var gave *aws.GaveUpError
	if !errors.As(err, &gave) || gave.Attempts < 2 || !aws.IsUnavailable(err) || aws.IsRejected(err) {
		t.Fatalf("got %v", err)
	}
	if aws.Message(err) != "Updates in the cell are disabled" || !strings.Contains(err.Error(), "eks:DescribeCluster: gave up after") {
		t.Errorf("message %q in %v", aws.Message(err), err)
	}
}

func TestACommandThatReadsGivesUpOnAnswersToo(t *testing.T) {
	srv := serve(t, fails(503, "ServiceUnavailableException", "busy"))
	ctx := aws.WithPatience(aws.WithBudget(context.Background(), 30*time.Millisecond), time.Hour)
	c := client(t, srv.URL, aws.Options{Backoff: aws.Backoff{Base: 4 * time.Millisecond, Cap: 4 * time.Millisecond, Random: func() float64 { return 1 }}})
	var gave *aws.GaveUpError
	if _, err := read(ctx, c); !errors.As(err, &gave) || gave.Attempts < 2 || !aws.IsUnavailable(err) {
		t.Fatalf("got %v", err)
	}
	if got := (&aws.GaveUpError{Call: "eks:X", Attempts: 1, Err: gave.Err}).Error(); !strings.Contains(got, "after 1 attempt in") {
		t.Error(got)
	}
	if got := aws.Budget(aws.WithBudget(ctx, time.Hour), time.Minute); got != time.Minute {
		t.Errorf("longer than our own: %s", got)
	}
}

func TestPatienceIsForSilence(t *testing.T) {
	t.Run("a dead endpoint ends the call", func(t *testing.T) {
		srv := serve(t, ok)
		srv.Close()
		c := client(t, srv.URL, aws.Options{})
		_, err := read(aws.WithPatience(context.Background(), 20*time.Millisecond), c)
		if err == nil || !aws.IsUnavailable(err) {
			t.Fatalf("got %v", err)
		}
	})
	t.Run("an endpoint that answers 503 is alive", func(t *testing.T) {
		srv := serve(t, append(times(20, fails(503, "ServiceUnavailableException", "busy")), ok)...)
		c := client(t, srv.URL, aws.Options{Backoff: aws.Backoff{Base: 4 * time.Millisecond, Cap: 4 * time.Millisecond, Random: func() float64 { return 1 }}})
		if _, err := read(aws.WithPatience(context.Background(), 20*time.Millisecond), c); err != nil {
			t.Fatal(err)
		}
	})
}

func TestCancelEndsAWaitAtOnce(t *testing.T) {
	srv := serve(t, fails(503, "ServiceUnavailableException", "busy"))
	ctx, cancel := context.WithCancel(context.Background())
	c := client(t, srv.URL, aws.Options{
		Backoff: aws.Backoff{Base: time.Hour, Cap: time.Hour, Random: func() float64 { return 0.1 }},
		OnRetry: func(string, int, error, time.Duration) { cancel() },
	})
	// A wait that is not ended would hang until the test times out.
	if _, err := read(ctx, c); !errors.Is(err, context.Canceled) || aws.IsUnavailable(err) {
		t.Fatalf("got %v", err)
	}
	if srv.calls.Load() != 1 {
		t.Errorf("%d calls", srv.calls.Load())
	}
}

func TestCancelLetsARequestInFlightFinish(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		select {
		case <-release:
		case <-r.Context().Done():
			t.Error("the client hung up")
		}
		ok(w, r)
	})
	c := client(t, srv.URL, aws.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	var v string
	var err error
	var wg sync.WaitGroup
	wg.Go(func() { v, err = read(ctx, c) })
	<-arrived
	cancel()
	close(release)
	wg.Wait()
	if err != nil || v != "1.31" {
		t.Fatalf("got %q, %v: the answer says what has changed and must arrive", v, err)
	}
	if _, err := read(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("a new call with a cancelled context: %v", err)
	}
	if srv.calls.Load() != 1 {
		t.Errorf("%d calls", srv.calls.Load())
	}
}

func TestAttemptHasADeadline(t *testing.T) {
	release := make(chan struct{})
	srv := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}, ok)
	defer close(release)
	v, err := read(context.Background(), client(t, srv.URL, aws.Options{Attempt: 50 * time.Millisecond}))
	if err != nil || v != "1.31" {
		t.Fatalf("got %q, %v", v, err)
	}
}

func TestClassifiersOfUntypedErrors(t *testing.T) {
	oidc := &smithy.OperationError{ServiceID: "SSO OIDC", Err: &smithy.GenericAPIError{Code: "InvalidGrantException"}}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"nil":               {nil, ""},
		"sso token":         {fmt.Errorf("get credentials: %w", &ssocreds.InvalidTokenError{}), "expired"},
		"sso oidc":          {fmt.Errorf("refresh: %w", oidc), "expired"},
		"same code of IAM":  {&smithy.OperationError{ServiceID: "IAM", Err: &smithy.GenericAPIError{Code: "InvalidGrantException"}}, "rejected"},
		"throttle":          {&smithy.GenericAPIError{Code: "ThrottlingException"}, ""},
		"console login":     {errors.New("login session has expired, please reauthenticate"), "expired"},
		"network":           {&net.OpError{Op: "dial", Err: errors.New("refused")}, "unavailable"},
		"cancelled":         {fmt.Errorf("wait: %w", context.Canceled), ""},
		"something of ours": {errors.New("journal is full"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			switch {
			case aws.IsExpired(tc.err):
				got = "expired"
			case aws.IsUnavailable(tc.err):
				got = "unavailable"
			case aws.IsRejected(tc.err):
				got = "rejected"
			}
			if got != tc.want {
				t.Errorf("%v is %q, want %q", tc.err, got, tc.want)
			}
		})
	}
}

func TestMessage(t *testing.T) {
	batch := &r53types.InvalidChangeBatch{Messages: []string{"Tried to delete resource record set", "values do not\x1b[31m match"}}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"route 53 list":   {fmt.Errorf("op: %w", batch), "Tried to delete resource record set; values do not[31m match"},
		"api":             {fmt.Errorf("op: %w", &smithy.GenericAPIError{Code: "X", Message: "busy\nnow"}), "busy now"},
		"api, no message": {&smithy.GenericAPIError{Code: "ServiceUnavailable"}, "ServiceUnavailable"},
		"plain":           {errors.New("disk full"), "disk full"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := aws.Message(tc.err); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestLoginCommand(t *testing.T) {
	if got := aws.LoginCommand(aws.Account{Profile: "shop"}); !strings.HasPrefix(got, "aws sso login --profile shop") {
		t.Errorf("got %q", got)
	}
	if got := aws.LoginCommand(aws.Account{}); !strings.Contains(got, "AWS_SESSION_TOKEN") {
		t.Errorf("got %q", got)
	}
}

func TestBackoffHasFullJitterAndACap(t *testing.T) {
	b := aws.Backoff{Base: 100 * time.Millisecond, Cap: time.Second, Random: func() float64 { return 1 }}
	var got []time.Duration
	for n := 1; n <= 6; n++ {
		got = append(got, b.Delay(n, false))
	}
	want := "[100ms 200ms 400ms 800ms 1s 1s]"
	if fmt.Sprint(got) != want {
		t.Errorf("got %v, want %v", got, want)
	}
	b.Random = func() float64 { return 0 }
	if b.Delay(9, true) != 0 {
		t.Error("full jitter reaches down to nothing")
	}
}
