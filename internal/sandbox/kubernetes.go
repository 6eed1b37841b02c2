package sandbox

import (
	"context"
	"net"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/eksbg/eksbg/internal/sandbox/kube"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// Kubernetes is the Kubernetes half of a cluster: an API server with its controllers and
// Fargate. *kube.Cluster is one that lives in this process; anything else that serves
// the Kubernetes API can stand in its place (Options.Kubernetes).
type Kubernetes interface {
	// Service is the API itself, for whoever has a token that kube.Options.Authenticate
	// takes.
	wire.Service
	// Start runs controllers and Fargate until Close. It returns at once.
	Start(ctx context.Context) error
	// Create stores an object as an administrator would, for seeding.
	Create(obj runtime.Object) error
	// Settle lets everything happen without delay until nothing is left to do but to wait.
	Settle(ctx context.Context) error
	// Nodes lists the nodes by name, ReadyPods the running pods of a namespace that have
	// the labels.
	Nodes() []kube.NodeInfo
	ReadyPods(namespace string, selector map[string]string) []kube.PodEndpoint
	// SetProfiles replaces the Fargate profiles, for pods that are created from now on.
	SetProfiles(profiles []kube.Profile)
	// Free is how many addresses each subnet has left, by its id.
	Free() map[string]int
	// Snapshot is the cluster without ids, names that were made up, and times.
	Snapshot() any
	// OnChange has f called after changes, one call at a time.
	OnChange(f func())
	// CA vouches for what Serve serves, PEM.
	CA() []byte
	// Serve serves h, which stands in front of the Service, on l until Close.
	Serve(l net.Listener, h http.Handler) error
	// Close ends everything and waits for it. It may be called more than once.
	Close() error
}

var _ Kubernetes = (*kube.Cluster)(nil)

// inMemory is the Kubernetes of a sandbox that was not given another.
func inMemory(_ context.Context, o kube.Options) (Kubernetes, error) { return kube.New(o) }

// Kubernetes is the Kubernetes half of a side, nil when there is no such side.
func (s *Sandbox) Kubernetes(side string) Kubernetes {
	if c := s.cluster(side); c != nil {
		return c.kube
	}
	return nil
}
