// Package wiretest has what the tests of the sandbox's AWS services share: a server
// on loopback, an SDK configuration for it, and the comparison of what a service
// sends with the wire snapshots that AWS ships inside the SDK modules.
package wiretest

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/smithy-go"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// Server is a service on loopback.
type Server struct {
	URL    string
	Log    *bytes.Buffer
	Faults *wire.Faults

	mu     sync.Mutex
	last   Exchange
	client *http.Client
}

// Exchange is one request and its answer as they went over the wire.
type Exchange struct {
	Method, Path string
	Status       int
	Header       http.Header
	Request      []byte
	Response     []byte
}

// Serve starts a service behind log and faults; it ends with the test.
func Serve(t testing.TB, svc wire.Service) *Server {
	t.Helper()
	s := &Server{Log: &bytes.Buffer{}}
	faults, err := wire.NewFaults(nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Faults = faults
	srv := httptest.NewServer(wire.New(svc, wire.NewLog(s.Log), faults))
	s.URL = srv.URL
	transport := &http.Transport{}
	s.client = &http.Client{Transport: s.record(transport)}
	t.Cleanup(func() {
		faults.Close()
		transport.CloseIdleConnections()
		srv.Close()
	})
	return s
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (s *Server) record(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		var sent []byte
		if r.Body != nil {
			sent, _ = io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(sent))
		}
		resp, err := next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		resp.Body = io.NopCloser(bytes.NewReader(got))
		s.mu.Lock()
		defer s.mu.Unlock()
		s.last = Exchange{r.Method, r.URL.RequestURI(), resp.StatusCode, resp.Header, sent, got}
		return resp, err
	})
}

// Last is the last exchange of a client made from Config.
func (s *Server) Last() Exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// Config is an SDK configuration for the server: the sandbox's key, no retries.
func (s *Server) Config() aws.Config {
	return aws.Config{
		Region: "eu-west-1", BaseEndpoint: aws.String(s.URL), HTTPClient: s.client,
		Credentials: credentials.NewStaticCredentialsProvider(wire.AccessKey, wire.Secret, ""),
		Retryer:     func() aws.Retryer { return aws.NopRetryer{} },
	}
}

// Code is the error code that an API answered with; for other errors their text, and
// nothing for none.
func Code(err error) string {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return e.ErrorCode()
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

var (
	dirs   = map[string]string{}
	dirsMu sync.Mutex
)

// Snapshot reads a file of a snapshot folder of an SDK module, such as
// ("eks", "response_snapshot/ListUpdates.response.snap"). The module is located
// with go list, so nothing of it is copied.
func Snapshot(t testing.TB, service, file string) []byte {
	t.Helper()
	dirsMu.Lock()
	defer dirsMu.Unlock()
	module := "github.com/aws/aws-sdk-go-v2/service/" + service
	if dirs[module] == "" {
		out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
		if err != nil {
			t.Fatalf("locate %s: %v", module, err)
		}
		dirs[module] = strings.TrimSpace(string(out))
	}
	b, err := os.ReadFile(filepath.Join(dirs[module], file))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// SnapshotBody is what a snapshot has below its headers: the status or request
// line, and the body.
func SnapshotBody(t testing.TB, service, file string) (first string, body []byte) {
	t.Helper()
	head, text, ok := strings.Cut(strings.ReplaceAll(string(Snapshot(t, service, file)), "\r\n", "\n"), "\n\n")
	if !ok {
		t.Fatalf("%s of %s has no body", file, service)
	}
	first, _, _ = strings.Cut(head, "\n")
	// Request snapshots leave a second blank line above their headers.
	if strings.HasPrefix(text, "Content-Type:") {
		_, text, _ = strings.Cut(text, "\n\n")
	}
	return first, []byte(text)
}
