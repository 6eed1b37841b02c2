package wire_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"pgregory.net/rapid"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

var signedAt = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// signed is a request signed by the SDK, as a server receives it.
func signed(t interface{ Fatal(...any) }, method, target, body string, creds aws.Credentials, service string) *http.Request {
	req, err := http.NewRequest(method, "http://sandbox.test:4566"+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	sum := sha256.Sum256([]byte(body))
	if err := v4.NewSigner().SignHTTP(context.Background(), creds, req, hex.EncodeToString(sum[:]), service, "eu-west-1", signedAt); err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header, r.Host = req.Header, req.URL.Host
	return r
}

var own = aws.Credentials{AccessKeyID: wire.AccessKey, SecretAccessKey: wire.Secret}

func TestEveryRequestThatTheSDKSignsIsAccepted(t *testing.T) {
	keys := wire.NewKeys()
	rapid.Check(t, func(t *rapid.T) {
		var path strings.Builder
		for _, part := range rapid.SliceOfN(rapid.StringMatching(`[a-zA-Z0-9 :@+=~._-]{1,8}`), 1, 4).Draw(t, "path") {
			path.WriteString("/" + strings.ReplaceAll(part, " ", "%20"))
		}
		query := rapid.StringMatching(`([a-z]{1,3}=[a-zA-Z0-9%2B.~-]{0,4}&){0,4}z=1`).Draw(t, "query")
		query = strings.ReplaceAll(query, "%", "")
		body := rapid.String().Draw(t, "body")
		method := rapid.SampledFrom([]string{"GET", "POST"}).Draw(t, "method")
		r := signed(t, method, path.String()+"?"+query, body, own, "eks")
		key, err := keys.Check(r, []byte(body), "eks", signedAt.Add(time.Minute))
		if err != nil {
			t.Fatalf("%s %s?%s: %v", method, path.String(), query, err)
		}
		if key.AccessKey != wire.AccessKey {
			t.Fatalf("signed by %s", key.AccessKey)
		}
	})
}

func TestRequestsThatAreNotAccepted(t *testing.T) {
	session := wire.Key{AccessKey: "ASIASESSION", Secret: "s", SessionToken: "token", Expires: signedAt.Add(time.Hour)}
	fromSession := aws.Credentials{AccessKeyID: "ASIASESSION", SecretAccessKey: "s", SessionToken: "token"}
	edit := func(fn func(r *http.Request)) *http.Request {
		r := signed(t, "POST", "/clusters/blue/updates?a=1", "body", own, "eks")
		fn(r)
		return r
	}
	for name, tt := range map[string]struct {
		r    *http.Request
		body string
		now  time.Time
		want error
	}{
		"as it was signed": {edit(func(*http.Request) {}), "body", signedAt, nil},
		"a session":        {signed(t, "GET", "/clusters", "", fromSession, "eks"), "", signedAt, nil},
		"unsigned":         {edit(func(r *http.Request) { r.Header.Del("Authorization") }), "body", signedAt, wire.ErrUnsigned},
		"unknown key": {signed(t, "GET", "/clusters", "", aws.Credentials{AccessKeyID: "AKIDNOBODY", SecretAccessKey: "x"}, "eks"),
			"", signedAt, wire.ErrUnknownKey},
		"wrong secret": {signed(t, "GET", "/clusters", "", aws.Credentials{AccessKeyID: wire.AccessKey, SecretAccessKey: "x"}, "eks"),
			"", signedAt, wire.ErrSignature},
		"without its session token": {signed(t, "GET", "/clusters", "", aws.Credentials{AccessKeyID: "ASIASESSION", SecretAccessKey: "s"}, "eks"),
			"", signedAt, wire.ErrUnknownKey},
		"expired session": {signed(t, "GET", "/clusters", "", fromSession, "eks"), "", signedAt.Add(time.Hour), wire.ErrExpired},
		"another service": {signed(t, "GET", "/clusters", "", own, "sts"), "", signedAt, wire.ErrSignature},
		"another body":    {edit(func(*http.Request) {}), "BODY", signedAt, wire.ErrSignature},
		"another path":    {edit(func(r *http.Request) { r.URL.Path = "/clusters/green/updates" }), "body", signedAt, wire.ErrSignature},
		"another query":   {edit(func(r *http.Request) { r.URL.RawQuery = "a=2" }), "body", signedAt, wire.ErrSignature},
		"another host":    {edit(func(r *http.Request) { r.Host = "elsewhere.test" }), "body", signedAt, wire.ErrSignature},
		"too old":         {edit(func(*http.Request) {}), "body", signedAt.Add(16 * time.Minute), wire.ErrSkew},
		"from the future": {edit(func(*http.Request) {}), "body", signedAt.Add(-16 * time.Minute), wire.ErrSkew},
		"malformed":       {edit(func(r *http.Request) { r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=x") }), "body", signedAt, wire.ErrSignature},
		"another scheme":  {edit(func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }), "body", signedAt, wire.ErrSignature},
	} {
		t.Run(name, func(t *testing.T) {
			keys := wire.NewKeys()
			keys.Add(session)
			_, err := keys.Check(tt.r, []byte(tt.body), "eks", tt.now)
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestAKeyCanRunOut(t *testing.T) {
	keys := wire.NewKeys()
	if !keys.Expire(wire.AccessKey, signedAt) || keys.Expire("AKIDNOBODY", signedAt) {
		t.Fatal("Expire did not know which keys there are")
	}
	r := signed(t, "GET", "/clusters", "", own, "eks")
	if _, err := keys.Check(r, nil, "eks", signedAt); !errors.Is(err, wire.ErrExpired) {
		t.Errorf("got %v", err)
	}
	if e := wire.QueryAuthError(wire.ErrExpired); e.Code != "ExpiredToken" || e.Status != 403 {
		t.Errorf("in XML it is %+v", e)
	}
}

func FuzzParseSignature(f *testing.F) {
	f.Add("AWS4-HMAC-SHA256 Credential=AKID/20261130/eu-west-1/eks/aws4_request, SignedHeaders=host, Signature=00", "20261130T120000Z", "")
	f.Add("", "", "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=1&X-Amz-Expires=60")
	f.Fuzz(func(t *testing.T, header, date, query string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.RawQuery = query
		r.Header.Set("Authorization", header)
		r.Header.Set("X-Amz-Date", date)
		if _, err := wire.NewKeys().Check(r, nil, "eks", signedAt); err == nil {
			t.Fatalf("accepted %q %q %q", header, date, query)
		}
	})
}

func FuzzDecodeQuery(f *testing.F) {
	f.Add("Actions.member.1.Order=1&Actions.member.2.Type=forward&Tags.entry.1.key=a&Tags.entry.1.value=b")
	f.Fuzz(func(t *testing.T, form string) {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		params, err := wire.Params(r, []byte(form))
		if err != nil {
			return
		}
		var into struct {
			Actions []struct {
				Type  string
				Order *int32
			}
			Tags map[string]string
			At   *time.Time
			On   *bool
		}
		_ = wire.DecodeQuery(params, &into) // must not panic
	})
}

func TestQueryAnswersLeaveOutWhatIsNotThere(t *testing.T) {
	type item struct {
		Name  string
		Count *int32
	}
	seven := int32(7)
	w := httptest.NewRecorder()
	wire.WriteQueryResult(w, "urn:x", "Do", struct {
		Items []item
		None  []item
		Empty []string
		Tags  map[string]string
		At    time.Time
		Never time.Time
	}{Items: []item{{"<a&b>", nil}, {"", &seven}}, Empty: []string{}, Tags: map[string]string{"k": "v"}, At: signedAt})
	body, _ := io.ReadAll(w.Body)
	want := `<DoResult><Items><member><Name>&lt;a&amp;b&gt;</Name></member><member><Count>7</Count></member></Items><Empty></Empty>` +
		`<Tags><entry><key>k</key><value>v</value></entry></Tags><At>2026-11-30T12:00:00.000Z</At></DoResult>`
	if !strings.Contains(string(body), want) {
		t.Errorf("got %s\nwant %s", body, want)
	}
}
