package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Why a request was not accepted; each service answers with its own code for them.
var (
	ErrUnsigned   = errors.New("the request is not signed")
	ErrUnknownKey = errors.New("the security token included in the request is invalid")
	ErrExpired    = errors.New("the security token included in the request is expired")
	ErrSignature  = errors.New("the request signature does not match")
	// ErrSkew is a signature from another time: older or newer than it may be.
	ErrSkew = errors.New("signature expired")
)

// maxSkew is how far the time of a signature may be from now
// (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-troubleshooting.html).
const maxSkew = 15 * time.Minute

const (
	timeFormat = "20060102T150405Z"
	algorithm  = "AWS4-HMAC-SHA256"
)

// Signature is what a request says about who signed it, from its Authorization
// header or, for a presigned URL, its query.
type Signature struct {
	AccessKey string
	// Date, Region and Service are the credential scope.
	Date, Region, Service string
	SignedHeaders         []string
	Signature             string
	SessionToken          string
	// At is X-Amz-Date.
	At time.Time
	// Presigned is true when all of it stood in the query; Lifetime is its
	// X-Amz-Expires then.
	Presigned bool
	Lifetime  time.Duration
}

// ParseSignature reads the signature of a request without checking it. The error
// is ErrUnsigned when there is none, and wraps ErrSignature when it is malformed.
func ParseSignature(r *http.Request) (Signature, error) {
	if r.URL.Query().Has("X-Amz-Signature") {
		return parsePresigned(r.URL.Query())
	}
	header := r.Header.Get("Authorization")
	if header == "" {
		return Signature{}, ErrUnsigned
	}
	rest, ok := strings.CutPrefix(header, algorithm+" ")
	if !ok {
		return Signature{}, fmt.Errorf("%w: not %s", ErrSignature, algorithm)
	}
	fields := map[string]string{}
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		fields[name] = value
	}
	return newSignature(fields["Credential"], fields["SignedHeaders"], fields["Signature"],
		r.Header.Get("X-Amz-Date"), r.Header.Get("X-Amz-Security-Token"))
}

func parsePresigned(q url.Values) (Signature, error) {
	if q.Get("X-Amz-Algorithm") != algorithm {
		return Signature{}, fmt.Errorf("%w: not %s", ErrSignature, algorithm)
	}
	s, err := newSignature(q.Get("X-Amz-Credential"), q.Get("X-Amz-SignedHeaders"), q.Get("X-Amz-Signature"),
		q.Get("X-Amz-Date"), q.Get("X-Amz-Security-Token"))
	if err != nil {
		return s, err
	}
	seconds, err := strconv.Atoi(q.Get("X-Amz-Expires"))
	if err != nil || seconds < 0 || seconds > 7*24*3600 {
		return s, fmt.Errorf("%w: X-Amz-Expires is %q", ErrSignature, q.Get("X-Amz-Expires"))
	}
	s.Presigned, s.Lifetime = true, time.Duration(seconds)*time.Second
	return s, nil
}

func newSignature(credential, headers, signature, date, token string) (Signature, error) {
	scope := strings.Split(credential, "/")
	if len(scope) != 5 || scope[4] != "aws4_request" || headers == "" || signature == "" {
		return Signature{}, fmt.Errorf("%w: credential, signed headers or signature is missing or malformed", ErrSignature)
	}
	at, err := time.Parse(timeFormat, date)
	if err != nil {
		return Signature{}, fmt.Errorf("%w: X-Amz-Date is %q", ErrSignature, date)
	}
	return Signature{
		AccessKey: scope[0], Date: scope[1], Region: scope[2], Service: scope[3],
		SignedHeaders: strings.Split(headers, ";"), Signature: signature, SessionToken: token, At: at,
	}, nil
}

// Check finds out who signed a request to a service ("eks", "sts", ...): the key is
// known and not expired, the signature is of the service and of this very request,
// and not older than a signature may be. Errors wrap the Err values above.
// See https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html.
func (k *Keys) Check(r *http.Request, body []byte, service string, now time.Time) (Key, error) {
	sig, err := ParseSignature(r)
	if err != nil {
		return Key{}, err
	}
	key, ok := k.Lookup(sig.AccessKey)
	switch {
	case !ok || key.SessionToken != sig.SessionToken:
		return Key{}, ErrUnknownKey
	case !key.Expires.IsZero() && !now.Before(key.Expires):
		return Key{}, ErrExpired
	case sig.Service != service:
		return Key{}, fmt.Errorf("%w: credential should be scoped to correct service: %q", ErrSignature, service)
	case sig.Date != sig.At.Format("20060102"):
		return Key{}, fmt.Errorf("%w: date in credential scope does not match that of X-Amz-Date", ErrSignature)
	case !slices.Contains(sig.SignedHeaders, "host"):
		return Key{}, fmt.Errorf("%w: 'Host' must be a signed header", ErrSignature)
	case now.Sub(sig.At) > max(maxSkew, sig.Lifetime), sig.At.Sub(now) > maxSkew:
		return Key{}, fmt.Errorf("%w: %s is not within %s of %s", ErrSkew,
			sig.At.Format(timeFormat), maxSkew, now.UTC().Format(timeFormat))
	}
	if !hmac.Equal([]byte(sig.Signature), []byte(Sign(r, body, sig, key.Secret))) {
		return Key{}, ErrSignature
	}
	return key, nil
}

// Sign works out the hexadecimal signature that a request ought to carry.
func Sign(r *http.Request, body []byte, sig Signature, secret string) string {
	canonical := strings.Join([]string{
		r.Method, canonicalPath(r.URL), canonicalQuery(r.URL), canonicalHeaders(r, sig.SignedHeaders),
		strings.Join(sig.SignedHeaders, ";"), payloadHash(r, body, sig),
	}, "\n")
	scope := strings.Join([]string{sig.Date, sig.Region, sig.Service, "aws4_request"}, "/")
	toSign := strings.Join([]string{algorithm, sig.At.Format(timeFormat), scope, hash([]byte(canonical))}, "\n")
	key := []byte("AWS4" + secret)
	for _, part := range []string{sig.Date, sig.Region, sig.Service, "aws4_request", toSign} {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	return hex.EncodeToString(key)
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// payloadHash always hashes what was received: a client that names another hash in
// X-Amz-Content-Sha256 has signed something else.
func payloadHash(r *http.Request, body []byte, sig Signature) string {
	if !sig.Presigned && r.Header.Get("X-Amz-Content-Sha256") == "UNSIGNED-PAYLOAD" {
		return "UNSIGNED-PAYLOAD"
	}
	return hash(body)
}

// canonicalPath encodes the path as it was sent once more, as every service but S3
// has it.
func canonicalPath(u *url.URL) string {
	path := u.EscapedPath()
	if path == "" {
		return "/"
	}
	parts := strings.Split(path, "/")
	for i, part := range parts {
		parts[i] = encode(part)
	}
	return strings.Join(parts, "/")
}

func canonicalQuery(u *url.URL) string {
	query := map[string][]string{}
	for name, values := range u.Query() {
		if name == "X-Amz-Signature" {
			continue
		}
		for _, v := range values {
			query[encode(name)] = append(query[encode(name)], encode(v))
		}
	}
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(query)) {
		slices.Sort(query[name])
		for _, v := range query[name] {
			pairs = append(pairs, name+"="+v)
		}
	}
	return strings.Join(pairs, "&")
}

func canonicalHeaders(r *http.Request, names []string) string {
	var b strings.Builder
	for _, name := range names {
		values := slices.Clone(r.Header.Values(name))
		switch name {
		case "host":
			values = []string{r.Host}
		case "content-length":
			if len(values) == 0 {
				values = []string{strconv.FormatInt(r.ContentLength, 10)}
			}
		}
		for i, v := range values {
			values[i] = strings.Join(strings.Fields(v), " ")
		}
		fmt.Fprintf(&b, "%s:%s\n", name, strings.Join(values, ","))
	}
	return b.String()
}

// encode is the URI encoding of RFC 3986 that SigV4 asks for.
func encode(s string) string {
	return strings.ReplaceAll(url.QueryEscape(s), "+", "%20")
}
