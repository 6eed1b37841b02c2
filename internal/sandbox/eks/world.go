package eks

import "time"

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
	Nodegroups  []Nodegroup
	// UpgradedAt is when the cluster came to its version from the minor before; zero when
	// it was created at it. Within seven days of it the version can be rolled back.
	UpgradedAt time.Time
	// AutoMode has EKS run the nodes; DeletionProtection keeps the cluster from being
	// deleted.
	AutoMode, DeletionProtection bool
	// PublicEndpoint and PrivateEndpoint are how the API server can be reached (private
	// when neither is set). AuthenticationMode is API_AND_CONFIG_MAP when empty.
	PublicEndpoint, PrivateEndpoint bool
	AuthenticationMode              string
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
	// PodIdentity are the ARNs of its pod identity associations, which an update
	// with an empty, non-null list deletes.
	PodIdentity []string
	CreatedAt   time.Time
	Issues      []Issue
	Tags        map[string]string
}

// FargateProfile is one Fargate profile of a cluster.
type FargateProfile struct {
	Name, PodExecutionRoleARN string
	Subnets                   []string
	Selectors                 []Selector
	CreatedAt                 time.Time
	Tags                      map[string]string
}

// Selector says which pods a profile takes.
type Selector struct {
	Namespace string
	Labels    map[string]string
}

// Failure makes updates of a cluster end as Failed.
type Failure struct {
	Cluster string
	// Addon is set for updates of that add-on, Nodegroup for those of that node group;
	// without either it is about those of the control plane.
	Addon, Nodegroup string
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
