// Package eks is the sandbox's Amazon EKS API: clusters whose control planes are
// updated one minor at a time, managed add-ons, Fargate profiles and insights, over
// restJson1.
package eks

import (
	"net/http"
	"time"

	"k8s.io/utils/clock"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// How UpdateClusterVersion looks at the kubelets of Fargate pods.
const (
	// SkewByVersion refuses an update that would leave a kubelet outside the skew
	// that Kubernetes allows: three minors, two for kubelets before 1.25.
	SkewByVersion = "skew"
	// SkewStrict refuses it while any kubelet is older than the control plane, as
	// seen in 2020 to 2022.
	SkewStrict = "strict"
)

// Options says what the service stands on and how long things take.
type Options struct {
	Region, Account string
	Keys            *wire.Keys
	// Clock drives updates and refreshes; the real one when nil.
	Clock clock.WithDelayedExecution
	// Update is how long a control-plane update takes, AddonUpdate one of an add-on,
	// Refresh a refresh of the insights.
	Update, AddonUpdate, Refresh time.Duration
	// Stale is how long a cluster still reads ACTIVE after an update was accepted;
	// at most half of Update.
	Stale time.Duration
	// Skew is SkewByVersion (default) or SkewStrict.
	Skew string
	// EnforceInsights refuses updates while an upgrade insight is in ERROR, unless
	// forced. EKS did so for a day in 2025 (containers-roadmap#2570).
	EnforceInsights bool
	// Versions is the catalogue; Catalogue() when nil.
	Versions []Version
	// Kubelets answers the versions of the kubelets of a cluster's Fargate nodes,
	// as minors or whole ("1.31", "v1.31.14-eks-6ae7ca2"). It is called without
	// locks held. Nil makes the skew insight UNKNOWN.
	Kubelets func(cluster string) []string
	// OnVersion is called when a control plane has become another version, OnAddon
	// when an add-on has. Both are called without locks held.
	OnVersion func(cluster, minor string)
	OnAddon   func(cluster, addon, version string)
}

// Version is one Kubernetes version of the catalogue.
type Version struct {
	// Minor is "1.32"; Patch the whole version ("1.32.9"); Platform "eks.22".
	Minor, Patch, Platform            string
	Default                           bool
	Release, EndStandard, EndExtended time.Time
	// Status is STANDARD_SUPPORT, EXTENDED_SUPPORT or UNSUPPORTED.
	Status string
}

// Cluster is one cluster to seed.
type Cluster struct {
	Name string
	// Version is its minor.
	Version string
	// Endpoint is the URL of its API server and CA the PEM that vouches for it; both
	// can be set later by SetEndpoint.
	Endpoint string
	CA       []byte
	// ARN, RoleARN, OIDCIssuer, VPC and security groups are made when empty.
	ARN, RoleARN, OIDCIssuer, VPC string
	Subnets, SecurityGroups       []string
	// SupportType is STANDARD or EXTENDED (default).
	SupportType string
	CreatedAt   time.Time
	Tags        map[string]string
	Issues      []Issue
	Addons      []Addon
	Profiles    []FargateProfile
}

// Issue is a health issue of a cluster or an add-on; Code is a ClusterIssueCode or
// an AddonIssueCode.
type Issue struct {
	Code, Message string
	ResourceIDs   []string
}

// Addon is one managed add-on of a cluster.
type Addon struct {
	Name string
	// Version is "v1.31.10-eksbuild.2"; empty takes the default for the cluster's
	// minor.
	Version       string
	Configuration string
	RoleARN       string
	CreatedAt     time.Time
	Issues        []Issue
}

// FargateProfile is one Fargate profile of a cluster.
type FargateProfile struct {
	Name, PodExecutionRoleARN string
	Subnets                   []string
	Selectors                 []Selector
	CreatedAt                 time.Time
}

// Selector says which pods a profile takes.
type Selector struct {
	Namespace string
	Labels    map[string]string
}

// Failure makes updates of a cluster end as Failed.
type Failure struct {
	Cluster string
	// Addon is set for updates of that add-on, empty for those of the control plane.
	Addon string
	// Version narrows it to updates to that version; empty means any.
	Version string
	// Times is how many updates fail: default 1, -1 all.
	Times  int
	Errors []UpdateError
}

// UpdateError is one member of the errors of a failed update; Code is an ErrorCode
// of the API such as InsufficientFreeAddresses.
type UpdateError struct {
	Code, Message string
	ResourceIDs   []string
}

// Insight is an insight that the scenario adds, or, where Name and Version are those
// of a computed one, puts in its place.
type Insight struct {
	Name string
	// Version is the Kubernetes minor it is about.
	Version string
	// Category is UPGRADE_READINESS (default), MISCONFIGURATION or
	// ROLLBACK_READINESS.
	Category string
	// Status is PASSING, WARNING, ERROR or UNKNOWN.
	Status, Reason, Description, Recommendation string
	Resources                                   []InsightResource
	Deprecations                                []Deprecation
}

// InsightResource is one resource that an insight names, by ARN or by URI.
type InsightResource struct{ ARN, URI, Status, Reason string }

// Deprecation is one deprecated API that is still used.
type Deprecation struct {
	Usage, ReplacedWith, StopServing, StartServingReplacement string
	Clients                                                   []DeprecationClient
}

// DeprecationClient is one user agent that used a deprecated API.
type DeprecationClient struct {
	UserAgent   string
	Requests    int32
	LastRequest time.Time
}

// Service is the API; it is safe for concurrent use.
type Service struct {
	opts Options
}

// New makes a service without clusters.
func New(o Options) *Service { return &Service{opts: o} }

var _ wire.Service = (*Service)(nil)

// AddCluster seeds a cluster, ACTIVE. Its version must be in the catalogue.
func (s *Service) AddCluster(c Cluster) error { return nil }

// SetEndpoint says where the API server of a cluster is and who vouches for it.
func (s *Service) SetEndpoint(cluster, endpoint string, ca []byte) error { return nil }

// Version is the minor of a control plane at this moment, empty for an unknown
// cluster.
func (s *Service) Version(cluster string) string { return "" }

// FailUpdates makes updates end as Failed.
func (s *Service) FailUpdates(f Failure) error { return nil }

// SetInsight puts an insight into a cluster; clients see it after a refresh, and
// from the first listing on when set before it.
func (s *Service) SetInsight(cluster string, i Insight) error { return nil }

// RemoveInsight takes a SetInsight back, as when its cause was cured; clients see
// that after a refresh.
func (s *Service) RemoveInsight(cluster, name, version string) {}

// Snapshot is the canonical state, made for JSON: clusters by name with version,
// status, add-ons and profiles, and how their updates ended; no ids, no times.
func (s *Service) Snapshot() any { return nil }

// Close stops the timers of what is under way.
func (s *Service) Close() {}

// Classify implements wire.Service.
func (s *Service) Classify(r *http.Request, body []byte) wire.Call { return wire.Call{} }

// WriteFault implements wire.Service.
func (s *Service) WriteFault(w http.ResponseWriter, r *http.Request, f wire.Fault) {}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {}

// Catalogue is the version catalogue of a sandbox: what EKS offers, and the older
// versions that scenarios play back.
func Catalogue() []Version { return nil }
