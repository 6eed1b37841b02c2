package cluster_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/aws-iam-authenticator/pkg/token"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/cluster"
)

func TestRequestsAreRepeated(t *testing.T) {
	for name, bad := range map[string]func(http.ResponseWriter){
		"429":   func(w http.ResponseWriter) { status(w, 429, metav1.StatusReasonTooManyRequests) },
		"503":   func(w http.ResponseWriter) { w.WriteHeader(503) },
		"500":   func(w http.ResponseWriter) { status(w, 500, metav1.StatusReasonInternalError) },
		"reset": reset,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.fill()
			c := w.open(t)
			n := 0
			w.api.before = func(_ int, rw http.ResponseWriter, _ *http.Request) bool {
				if n++; n > 15 {
					return false
				}
				bad(rw)
				return true
			}
			// Fifteen is more than client-go would repeat by itself.
			if _, err := c.Inventory(context.Background()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestAChangeIsSentAgainWithItsBody(t *testing.T) {
	w := newWorld(t)
	c := w.open(t)
	var bodies []string
	w.api.before = func(_ int, rw http.ResponseWriter, r *http.Request) bool {
		b, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(b))
		if len(bodies) < 3 {
			rw.WriteHeader(503)
			return true
		}
		rw.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		_, _ = rw.Write(w.api.encode(&appsv1.Deployment{}))
		return true
	}
	patch := []byte(`{"spec":{"paused":false}}`)
	_, err := c.Kubernetes().AppsV1().Deployments("shop").Patch(context.Background(), "cart", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil || !slices.Equal(bodies, []string{string(patch), string(patch), string(patch)}) {
		t.Fatalf("%v, bodies %q", err, bodies)
	}
}

func TestAnsweredForGood(t *testing.T) {
	w := newWorld(t)
	c := w.open(t)
	w.api.requests()
	w.api.before = func(_ int, rw http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			status(rw, 429, metav1.StatusReasonTooManyRequests)
		} else {
			status(rw, 500, metav1.StatusReasonInternalError)
		}
		return true
	}
	ctx := context.Background()
	evict := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart"}}
	if err := c.Kubernetes().CoreV1().Pods("shop").EvictV1(ctx, evict); err == nil {
		t.Error("a budget that forbids an eviction is an answer")
	}
	if got := w.api.requests(); len(got) != 1 {
		t.Errorf("eviction: %v", got)
	}
	if _, err := c.Kubernetes().AppsV1().Deployments("shop").Patch(ctx, "cart", types.StrategicMergePatchType, []byte(`{}`), metav1.PatchOptions{}); err == nil {
		t.Error("a webhook that fails for ever is an answer in the end")
	}
	if got := w.api.requests(); len(got) != 5 {
		t.Errorf("patch: %d requests", len(got))
	}
}

func TestDeadAPIServerIsGivenUpInTime(t *testing.T) {
	w := newWorld(t)
	w.eks.cluster.Endpoint = yes(closedPort(t))
	w.opts.Patience = 20 * time.Millisecond
	_, err := cluster.Open(context.Background(), w.opts)
	if err == nil || !aws.IsUnavailable(err) || !strings.Contains(err.Error(), "shop-green") || !strings.Contains(err.Error(), "public access CIDRs") {
		t.Fatalf("got %v", err)
	}
}

func TestSilentAPIServerIsGivenUpInTime(t *testing.T) {
	w := newWorld(t)
	c := w.open(t)
	done := make(chan struct{})
	defer close(done)
	w.api.before = func(_ int, rw http.ResponseWriter, r *http.Request) bool {
		select {
		case <-done:
		case <-r.Context().Done():
		}
		// Not even an empty answer, which could still overtake the client's hanging up.
		reset(rw)
		return true
	}
	// An attempt of its own length would take a minute.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, _, err := c.ServerVersion(aws.WithPatience(ctx, 20*time.Millisecond))
	var gave *aws.GaveUpError
	if !errors.As(err, &gave) || gave.Attempts != 1 || !aws.IsUnavailable(err) || gave.After > 30*time.Second || !strings.Contains(err.Error(), "silent") {
		t.Fatalf("got %v", err)
	}
}

func TestAnAPIServerThatAlwaysFailsIsGivenUpByWhoReads(t *testing.T) {
	w := newWorld(t)
	c := w.open(t)
	w.api.before = func(_ int, rw http.ResponseWriter, _ *http.Request) bool {
		status(rw, 500, metav1.StatusReasonInternalError)
		return true
	}
	_, _, err := c.ServerVersion(aws.WithBudget(context.Background(), 30*time.Millisecond))
	var gave *aws.GaveUpError
	if !errors.As(err, &gave) || !aws.IsUnavailable(err) || !strings.Contains(err.Error(), "500") {
		t.Fatalf("got %v", err)
	}
}

func TestResetsDoNotMultiply(t *testing.T) {
	w := newWorld(t)
	c := w.open(t)
	n := 0
	w.api.before = func(_ int, rw http.ResponseWriter, _ *http.Request) bool { n++; reset(rw); return true }
	_, _, err := c.ServerVersion(aws.WithPatience(context.Background(), 30*time.Millisecond))
	var gave *aws.GaveUpError
	// net/http itself sends a request again when a kept connection turns out dead.
	if !errors.As(err, &gave) || n < gave.Attempts || n > gave.Attempts+1 {
		t.Fatalf("%d requests for one call: %v", n, err)
	}
}

func TestCancelLetsAChangeInFlightFinish(t *testing.T) {
	w := newWorld(t)
	c := w.open(t)
	arrived, release := make(chan struct{}), make(chan struct{})
	w.api.before = func(_ int, rw http.ResponseWriter, _ *http.Request) bool {
		close(arrived)
		<-release
		rw.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		_, _ = rw.Write(w.api.encode(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "cart", Generation: 7}}))
		return true
	}
	ctx, cancel := context.WithCancel(context.Background())
	var d *appsv1.Deployment
	var err error
	var wg sync.WaitGroup
	wg.Go(func() {
		d, err = c.Kubernetes().AppsV1().Deployments("shop").Patch(ctx, "cart", types.StrategicMergePatchType, []byte(`{}`), metav1.PatchOptions{})
	})
	<-arrived
	cancel()
	close(release)
	wg.Wait()
	if err != nil || d.Generation != 7 {
		t.Fatalf("got %v", err)
	}
}

func TestRotatedCAIsReadAnew(t *testing.T) {
	w := newWorld(t)
	w.eks.cas = []string{otherCA(t), w.api.ca()}
	if _, _, err := w.open(t).ServerVersion(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func otherCA(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, tpl, tpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// shape is a token without what changes from one to the next.
func shape(t *testing.T, tok string) string {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(tok, "k8s-aws-v1."))
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(string(raw))
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	for _, k := range []string{"X-Amz-Date", "X-Amz-Signature"} {
		if q.Get(k) == "" {
			t.Errorf("token without %s", k)
		}
		q.Set(k, "…")
	}
	return u.Scheme + "://" + u.Host + u.Path + "?" + q.Encode()
}

func TestTokenIsThatOfTheAuthenticator(t *testing.T) {
	w := newWorld(t)
	w.open(t)
	gen, err := token.NewGenerator(false, false)
	if err != nil {
		t.Fatal(err)
	}
	want, err := gen.GetWithSTS("shop-green", sts.NewFromConfig(w.opts.AWS))
	if err != nil {
		t.Fatal(err)
	}
	got := w.api.tokens[0]
	if !strings.HasPrefix(got, "k8s-aws-v1.") {
		t.Fatal("no EKS token was sent")
	}
	if d := cmp.Diff(shape(t, want.Token), shape(t, got)); d != "" {
		t.Errorf("(-authenticator +ours):\n%s", d)
	}
}

func TestTokenIsRenewed(t *testing.T) {
	w := newWorld(t)
	clk := clocktesting.NewFakeClock(time.Now())
	w.opts.Clock = clk
	key := "AKIDFIRST"
	w.opts.AWS.Credentials = awssdk.CredentialsProviderFunc(func(context.Context) (awssdk.Credentials, error) {
		return awssdk.Credentials{AccessKeyID: key, SecretAccessKey: "very-secret"}, nil
	})
	c := w.open(t)
	ask := func() string {
		t.Helper()
		if _, _, err := c.ServerVersion(context.Background()); err != nil {
			t.Fatal(err)
		}
		return shape(t, w.api.tokens[len(w.api.tokens)-1])
	}
	key = "AKIDSECOND"
	if clk.Step(9 * time.Minute); !strings.Contains(ask(), "AKIDFIRST") {
		t.Error("a good token is thrown away")
	}
	if clk.Step(2 * time.Minute); !strings.Contains(ask(), "AKIDSECOND") {
		t.Error("a token is used for longer than ten minutes")
	}
	// The session behind the token was replaced: 401 once, then a fresh token.
	key = "AKIDTHIRD"
	refused := 0
	w.api.before = func(_ int, rw http.ResponseWriter, r *http.Request) bool {
		tok, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if strings.Contains(shape(t, tok), "AKIDTHIRD") {
			return false
		}
		refused++
		status(rw, 401, metav1.StatusReasonUnauthorized)
		return true
	}
	if !strings.Contains(ask(), "AKIDTHIRD") || refused != 1 {
		t.Errorf("%d refusals", refused)
	}
}

// A read that nobody answers does not keep a cancelled caller waiting.
func TestCancelCutsAReadInFlight(t *testing.T) {
	w := newWorld(t)
	c := w.open(t)
	arrived, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.api.before = func(int, http.ResponseWriter, *http.Request) bool {
		once.Do(func() { close(arrived) })
		<-release
		return true
	}
	defer close(release)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var err error
	wg.Go(func() { _, _, err = c.ServerVersion(ctx) })
	<-arrived
	cancel()
	wg.Wait()
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}
