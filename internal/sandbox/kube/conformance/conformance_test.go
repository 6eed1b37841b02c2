package conformance_test

import (
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/eksbg/eksbg/internal/sandbox/kube"
	"github.com/eksbg/eksbg/internal/sandbox/kube/conformance"
)

// A SPDY connection that was closed waits a second for somebody to ask how it went.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/moby/spdystream.(*Connection).shutdown"))
}

// readers are what a user who is no administrator may do: read the pods of some namespaces,
// and ask what it may.
type readers struct{ namespaces sync.Map }

func (r *readers) authorize(user string, _ []string, a kube.Attributes) (bool, string) {
	if user == "admin" || a.Verb == "create" && strings.HasPrefix(a.Resource, "selfsubject") {
		return true, ""
	}
	_, ok := r.namespaces.Load(a.Namespace)
	return ok && a.Group == "" && a.Resource == "pods" && a.Subresource == "" && slices.Contains([]string{"get", "list", "watch"}, a.Verb), ""
}

// TestSandbox holds the sandbox's own API server to the suite.
func TestSandbox(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Target {
		var minor atomic.Value
		minor.Store("1.31")
		readable := &readers{}
		c, err := kube.New(kube.Options{
			Authenticate: func(bearer string) (string, []string, error) { return bearer, []string{"system:authenticated"}, nil },
			Authorize:    readable.authorize,
			Name:         "blue", Region: "eu-central-1", Seed: 7, Version: func() string { return minor.Load().(string) },
			Bookmark: 50 * time.Millisecond,
			Fargate: kube.FargateOptions{
				Startup: 12 * time.Millisecond, Jitter: 6 * time.Millisecond, Stop: 4 * time.Millisecond,
				Profiles: []kube.Profile{{Name: "all", Selectors: []kube.Selector{{Namespace: conformance.NamespacePrefix + "*"}}}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- c.Serve(l, nil) }()
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			if err := <-served; err != nil {
				t.Errorf("Serve: %v", err)
			}
		})
		as := func(user string) *rest.Config {
			return &rest.Config{Host: "https://" + l.Addr().String(), BearerToken: user, TLSClientConfig: rest.TLSClientConfig{CAData: c.CA()}}
		}
		return conformance.Target{
			Config: as("admin"),
			Narrow: func(_ *testing.T, namespace string) *rest.Config {
				readable.namespaces.Store(namespace, true)
				return as("narrow")
			},
			Minor:    "1.31",
			Raise:    func(_ *testing.T, m string) { minor.Store(m) },
			Compact:  func(*testing.T) { c.Compact() },
			Patience: 30 * time.Second,
		}
	})
}
