// Package kube is the Kubernetes half of the sandbox: an API server, the controllers of
// the workloads and Fargate, in memory, true enough for client-go and kubectl.
package kube

import (
	"context"
	"errors"
	"net"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// Cluster is one Kubernetes cluster. It implements wire.Service.
type Cluster struct {
	opts Options
}

var _ wire.Service = (*Cluster)(nil)

// New makes an empty cluster (namespaces default, kube-system, kube-public and
// kube-node-lease). Nothing runs before Start.
func New(o Options) (*Cluster, error) {
	if o.Version == nil {
		return nil, errors.New("kube: Options.Version is needed")
	}
	return &Cluster{opts: o}, nil
}

// Start runs the controllers until ctx ends or Close is called.
func (c *Cluster) Start(ctx context.Context) error { return errors.ErrUnsupported }

// Close ends the controllers, the servers and every watch, and waits for them.
func (c *Cluster) Close() error { return nil }

// Create stores an object as the API server would (defaults, admission), for seeding.
func (c *Cluster) Create(obj runtime.Object) error { return errors.ErrUnsupported }

// Settle lets the controllers and Fargate work without any delay until nothing is left
// to do. Start comes first.
func (c *Cluster) Settle(ctx context.Context) error { return errors.ErrUnsupported }

// Nodes lists the nodes by name.
func (c *Cluster) Nodes() []NodeInfo { return nil }

// ReadyPods lists the pods with an address in a namespace that match all labels.
func (c *Cluster) ReadyPods(namespace string, selector map[string]string) []PodEndpoint { return nil }

// Snapshot is the canonical state, for comparing worlds.
func (c *Cluster) Snapshot() any { return nil }

// OnChange registers f to be called after changes; calls are coalesced and come one at a time.
func (c *Cluster) OnChange(f func()) {}

// SetProfiles replaces the Fargate profiles; pods that exist keep theirs.
func (c *Cluster) SetProfiles(p []Profile) {}

// CA is the certificate of the cluster's own authority, PEM.
func (c *Cluster) CA() []byte { return nil }

// Serve serves TLS on l with a certificate of the cluster's CA until Close. h is the
// handler around the cluster (faults, log); nil serves the cluster itself.
func (c *Cluster) Serve(l net.Listener, h http.Handler) error {
	_ = handlerOr(h, c)
	return errors.ErrUnsupported
}

// Classify implements wire.Service.
func (c *Cluster) Classify(r *http.Request, body []byte) wire.Call { return wire.Call{Name: "k8s:"} }

// WriteFault implements wire.Service.
func (c *Cluster) WriteFault(w http.ResponseWriter, r *http.Request, f wire.Fault) {
	w.WriteHeader(http.StatusServiceUnavailable)
}

// ServeHTTP implements http.Handler.
func (c *Cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }
