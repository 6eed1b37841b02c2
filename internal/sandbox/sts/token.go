package sts

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

const (
	tokenPrefix   = "k8s-aws-v1."
	clusterHeader = "x-k8s-aws-id"
	// maxToken bounds a token as the authenticator does.
	maxToken = 4 << 10
	// tokenLife is how old the signature of a token may be, whatever its
	// X-Amz-Expires says.
	tokenLife = 15 * time.Minute
)

// tokenParams are the only parameters that the URL in a token may have.
var tokenParams = []string{
	"action", "version", "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-expires",
	"x-amz-security-token", "x-amz-signature", "x-amz-signedheaders",
}

// Verify checks an EKS bearer token as the control plane does: prefix
// "k8s-aws-v1.", a presigned GetCallerIdentity for this service with a signed
// x-k8s-aws-id header, X-Amz-Expires within bounds, and a signature of a known
// key that is at most 15 minutes old. It answers the caller's ARN and the cluster
// whose name was signed, which the caller of Verify compares with its own. The rules
// are those of pkg/token in kubernetes-sigs/aws-iam-authenticator.
func (s *Service) Verify(token string, now time.Time) (arn, cluster string, err error) {
	u, err := s.tokenURL(token)
	if err != nil {
		return "", "", fmt.Errorf("verify the token: %w", err)
	}
	r := &http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: http.Header{}}
	sig, err := wire.ParseSignature(r)
	switch {
	case err != nil:
		return "", "", fmt.Errorf("verify the token: %w", err)
	case !sig.Presigned || sig.Lifetime > tokenLife:
		return "", "", fmt.Errorf("verify the token: X-Amz-Expires is above %d", int(tokenLife.Seconds()))
	case !slices.Contains(sig.SignedHeaders, clusterHeader):
		return "", "", errors.New("verify the token: it is not signed over the cluster name (header x-k8s-aws-id)")
	case now.Sub(sig.At) >= tokenLife:
		return "", "", fmt.Errorf("verify the token: %w: signed %s ago", wire.ErrSkew, now.Sub(sig.At).Round(time.Second))
	}
	for _, name := range s.opts.Clusters() {
		r.Header.Set(clusterHeader, name)
		key, err := s.opts.Keys.Check(r, nil, "sts", now)
		if err == nil {
			return key.ARN, name, nil
		}
		if !errors.Is(err, wire.ErrSignature) {
			return "", "", fmt.Errorf("verify the token: %w", err)
		}
	}
	return "", "", fmt.Errorf("verify the token: %w for any cluster of the sandbox", wire.ErrSignature)
}

func (s *Service) tokenURL(token string) (*url.URL, error) {
	encoded, ok := strings.CutPrefix(token, tokenPrefix)
	if !ok || len(token) > maxToken {
		return nil, fmt.Errorf("it does not begin with %q or is longer than %d bytes", tokenPrefix, maxToken)
	}
	raw, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("decode it: %w", err)
	}
	u, err := url.Parse(string(raw))
	if err != nil {
		return nil, fmt.Errorf("parse the URL in it: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Path != "" && u.Path != "/" {
		return nil, fmt.Errorf("it is presigned for %s://…%s", u.Scheme, u.Path)
	}
	if len(s.opts.Hosts) > 0 && !slices.Contains(s.opts.Hosts, u.Host) {
		return nil, fmt.Errorf("it is presigned for host %q, not for this STS", u.Host)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("parse the query in it: %w", err)
	}
	for name, values := range query {
		if !slices.Contains(tokenParams, strings.ToLower(name)) || len(values) != 1 {
			return nil, fmt.Errorf("it has a parameter %s that does not belong there", strconv.Quote(name))
		}
	}
	if query.Get("Action") != "GetCallerIdentity" {
		return nil, fmt.Errorf("it is presigned for %q, not GetCallerIdentity", query.Get("Action"))
	}
	return u, nil
}
