package cluster

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"k8s.io/utils/clock"
)

const (
	// tokenPrefix, clusterHeader and expiresHeader make a presigned GetCallerIdentity
	// an EKS token (sigs.k8s.io/aws-iam-authenticator/pkg/token/token.go).
	tokenPrefix   = "k8s-aws-v1."
	clusterHeader = "x-k8s-aws-id"
	expiresHeader = "X-Amz-Expires"
	// tokenLife is how long a token is used. EKS takes one for 15 minutes from its
	// signature, whatever X-Amz-Expires says.
	tokenLife = 10 * time.Minute
)

// tokens makes EKS tokens and keeps the present one while it is good. A token is a
// secret: it never gets into an error or a log.
type tokens struct {
	cluster string
	presign *sts.PresignClient
	clk     clock.PassiveClock

	mu    sync.Mutex
	value string
	until time.Time
}

func newTokens(cfg awssdk.Config, cluster string, clk clock.PassiveClock) *tokens {
	return &tokens{cluster: cluster, presign: sts.NewPresignClient(sts.NewFromConfig(cfg)), clk: clk}
}

// get returns a token that is good for a while. Signing needs credentials, which
// may have to be renewed first.
func (t *tokens) get(ctx context.Context) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clk.Now()
	if t.value != "" && now.Before(t.until) {
		return t.value, nil
	}
	signed, err := t.presign.PresignGetCallerIdentity(ctx, &sts.GetCallerIdentityInput{}, func(o *sts.PresignOptions) {
		o.ClientOptions = append(o.ClientOptions, func(so *sts.Options) {
			so.APIOptions = append(so.APIOptions,
				smithyhttp.SetHeaderValue(clusterHeader, t.cluster),
				smithyhttp.SetHeaderValue(expiresHeader, "60"))
		})
	})
	if err != nil {
		return "", fmt.Errorf("sign a token for cluster %s: %w", t.cluster, err)
	}
	t.value = tokenPrefix + base64.RawURLEncoding.EncodeToString([]byte(signed.URL))
	t.until = now.Add(tokenLife)
	return t.value, nil
}

// drop forgets the token, if it is still the one given.
func (t *tokens) drop(value string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.value == value {
		t.value = ""
	}
}

// bearer puts the token on every request, and takes a fresh one once when the
// server does not accept it: the session behind it may have been renewed.
type bearer struct {
	tokens *tokens
	next   http.RoundTripper
}

// RoundTrip sends the request with a token.
func (b *bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	value, err := b.tokens.get(req.Context())
	if err != nil {
		return nil, err
	}
	resp, err := b.next.RoundTrip(withToken(req, value))
	if err != nil || resp.StatusCode != http.StatusUnauthorized || (req.Body != nil && req.GetBody == nil) {
		return resp, err
	}
	b.tokens.drop(value)
	again, err := b.tokens.get(req.Context())
	if err != nil || again == value {
		return resp, err
	}
	_ = resp.Body.Close()
	second := withToken(req, again)
	if req.GetBody != nil {
		if second.Body, err = req.GetBody(); err != nil {
			return nil, fmt.Errorf("send the request again: %w", err)
		}
	}
	return b.next.RoundTrip(second)
}

func withToken(req *http.Request, value string) *http.Request {
	out := req.Clone(req.Context())
	out.Header.Set("Authorization", "Bearer "+value)
	return out
}
