package sandbox

import (
	"time"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// The kubelet rules: how UpdateClusterVersion judges Fargate pods that lag.
const (
	// KubeletSkew refuses a hop that would leave a kubelet outside Kubernetes'
	// version skew policy.
	KubeletSkew = "skew"
	// KubeletStrict refuses a hop while any kubelet is behind the control plane, as
	// EKS was seen to do from 2020 to 2022.
	KubeletStrict = "strict"
)

// The sides of a pair, as scenarios name them.
const (
	Blue  = "blue"
	Green = "green"
)

// Scenario is a world: what is there when it starts, how long things take, and
// what goes wrong. It is what the YAML files say; durations are those of the real
// world, and the sandbox divides them by its speed.
type Scenario struct {
	Name string `yaml:"name"`
	// About says in a sentence what the scenario shows.
	About   string `yaml:"about,omitempty"`
	Region  string `yaml:"region"`
	Account string `yaml:"account,omitempty"`
	// KubeletRule is KubeletSkew (default) or KubeletStrict.
	KubeletRule string `yaml:"kubeletRule,omitempty"`
	Seed        int64  `yaml:"seed,omitempty"`
	// CredentialsLast is how long after the start the credentials of the env file run
	// out; 0 is never.
	CredentialsLast time.Duration `yaml:"credentialsLast,omitempty"`
	// Quotas are the account's, for both clusters together.
	Quotas    Quotas    `yaml:"quotas,omitempty"`
	Plan      Plan      `yaml:"plan"`
	Durations Durations `yaml:"durations,omitempty"`
	Clusters  Clusters  `yaml:"clusters"`
	Zones     []Zone    `yaml:"zones,omitempty"`
	ALBs      []ALB     `yaml:"albs,omitempty"`
	// Updates are control-plane or add-on updates that fail, Insights what the
	// clusters' insights say beyond what EKS works out by itself.
	Updates  []UpdateFailure `yaml:"updateFailures,omitempty"`
	Insights []Insight       `yaml:"insights,omitempty"`
	Failures []Failure       `yaml:"failures,omitempty"`
	Faults   []wire.Fault    `yaml:"faults,omitempty"`
}

// Plan holds the knobs of the plan file that the sandbox writes.
type Plan struct {
	// Name names the pair and its journal.
	Name    string `yaml:"name"`
	Version string `yaml:"version"`
	// Variant is hot (default), warm, cold or in-place. More is put at the end of the plan
	// file as it is, but for $DIR, which is the sandbox's folder.
	Variant     string        `yaml:"variant,omitempty"`
	More        string        `yaml:"more,omitempty"`
	Addons      string        `yaml:"addons,omitempty"`
	Stages      []int         `yaml:"stages,omitempty"`
	Hold        time.Duration `yaml:"hold,omitempty"`
	Patience    time.Duration `yaml:"patience,omitempty"`
	Polling     time.Duration `yaml:"polling,omitempty"`
	MaxParallel int           `yaml:"maxParallel,omitempty"`
	Order       []string      `yaml:"order,omitempty"`
	Timeout     time.Duration `yaml:"timeout,omitempty"`
	Skip        []Skip        `yaml:"skip,omitempty"`
	Allow       []Allow       `yaml:"allow,omitempty"`
	// What follows are knobs of restart by the same name.
	CronJobs     string        `yaml:"cronJobs,omitempty"`
	FinishedJobs string        `yaml:"finishedJobs,omitempty"`
	FinishedAge  time.Duration `yaml:"finishedAge,omitempty"`
	JobTimeout   time.Duration `yaml:"jobTimeout,omitempty"`
	Pending      time.Duration `yaml:"pending,omitempty"`
	Resolve      string        `yaml:"resolve,omitempty"`
	Waive        []Waive       `yaml:"waive,omitempty"`
	Approvals    []string      `yaml:"approvals,omitempty"`
	OnStop       string        `yaml:"onStop,omitempty"`
	Gates        []Gate        `yaml:"gates,omitempty"`
	// Traffic lists what the plan moves, in the words of the scenario: "record NAME"
	// of a zone, "listener NAME" or "rule NAME PRIORITY" of a load balancer.
	Traffic []Entrance `yaml:"traffic,omitempty"`
}

// Skip is an owner that the plan file leaves lagging, for a number of days from the start.
type Skip struct {
	Owner  string `yaml:"owner"`
	Reason string `yaml:"reason"`
	Days   int    `yaml:"days"`
}

// Allow is something that the plan file permits the restart to do with an owner.
type Allow struct {
	Owner  string `yaml:"owner"`
	Action string `yaml:"action"`
	Reason string `yaml:"reason"`
}

// Waive is a finding that the plan file accepts, for a number of days from the start.
type Waive struct {
	Check  string `yaml:"check"`
	Reason string `yaml:"reason"`
	Days   int    `yaml:"days"`
}

// Gate is one gate of the plan file: exactly one of the two is set.
type Gate struct {
	// TargetHealth is the least per cent of healthy targets, "100%".
	TargetHealth string    `yaml:"targetHealth,omitempty"`
	HTTP         *HTTPGate `yaml:"http,omitempty"`
}

// HTTPGate probes a URL without port: the sandbox puts in the one it serves on,
// and its own DNS server as resolver.
type HTTPGate struct {
	URL     string        `yaml:"url"`
	Expect  int           `yaml:"expect,omitempty"`
	Success string        `yaml:"success,omitempty"`
	Samples int           `yaml:"samples,omitempty"`
	Over    time.Duration `yaml:"over,omitempty"`
	Timeout time.Duration `yaml:"timeout,omitempty"`
	AtLeast int           `yaml:"atLeast,omitempty"`
}

// Entrance names one traffic target of the plan: a record or a load balancer.
type Entrance struct {
	// Record is the name of a weighted record, Types its types (default A).
	Record string   `yaml:"record,omitempty"`
	Types  []string `yaml:"types,omitempty"`
	// ALB is the name of a load balancer; Rule the priority of one of its rules, 0
	// for the listener's default action.
	ALB  string `yaml:"alb,omitempty"`
	Rule int    `yaml:"rule,omitempty"`
}

// Durations are how long the world takes. Zero takes the default that the field
// names, except where a scenario says 0s.
type Durations struct {
	// ControlPlane is one hop of a control plane; Addon an add-on's update;
	// InsightsRefresh a refresh of the insights.
	ControlPlane    time.Duration `yaml:"controlPlane,omitempty"`
	Addon           time.Duration `yaml:"addon,omitempty"`
	InsightsRefresh time.Duration `yaml:"insightsRefresh,omitempty"`
	// ActiveLag is how long DescribeCluster still says ACTIVE after an update began.
	ActiveLag time.Duration `yaml:"activeLag,omitempty"`
	// FargateStartup is how long a pod waits for its node, give or take Jitter; PodStop
	// how long a pod takes to end.
	FargateStartup time.Duration `yaml:"fargateStartup,omitempty"`
	Jitter         time.Duration `yaml:"jitter,omitempty"`
	PodStop        time.Duration `yaml:"podStop,omitempty"`
	// Insync is how long a Route 53 change is PENDING; TargetHealthy how long a target
	// is initial once its group is in use and its pod ready.
	Insync        time.Duration `yaml:"insync,omitempty"`
	TargetHealthy time.Duration `yaml:"targetHealthy,omitempty"`
	// ClusterCreate and ClusterDelete are how long a cluster takes to come and to go,
	// FargateProfile how long a profile takes for either.
	ClusterCreate  time.Duration `yaml:"clusterCreate,omitempty"`
	ClusterDelete  time.Duration `yaml:"clusterDelete,omitempty"`
	FargateProfile time.Duration `yaml:"fargateProfile,omitempty"`
	// Nodegroup is how long an update of a node group's version takes at least and
	// NodegroupConfig one of its size; NodeStartup is how long an instance takes to join,
	// and Drain how long pods are asked to leave one before that is given up.
	Nodegroup       time.Duration `yaml:"nodegroup,omitempty"`
	NodegroupConfig time.Duration `yaml:"nodegroupConfig,omitempty"`
	NodeStartup     time.Duration `yaml:"nodeStartup,omitempty"`
	Drain           time.Duration `yaml:"drain,omitempty"`
	// AutoNodes is how long the nodes of an Auto Mode cluster take to roll back.
	AutoNodes time.Duration `yaml:"autoNodes,omitempty"`
}

// Clusters are the two sides of the pair; without a green one there is one cluster alone.
type Clusters struct {
	Blue  Cluster `yaml:"blue"`
	Green Cluster `yaml:"green,omitempty"`
}

// Cluster is one EKS cluster with what runs in it.
type Cluster struct {
	Name    string `yaml:"name"`
	Version string `yaml:"version"`
	// Standby says what there is less of than in a cluster that serves; Upgrade how its
	// version came about.
	Standby `yaml:",inline"`
	Upgrade `yaml:",inline"`
	// MaxNodes bounds how many Fargate nodes may exist at once; 0 is no limit.
	MaxNodes   int         `yaml:"maxNodes,omitempty"`
	Subnets    []Subnet    `yaml:"subnets"`
	Addons     []Addon     `yaml:"addons,omitempty"`
	Profiles   []Profile   `yaml:"fargateProfiles,omitempty"`
	Nodegroups []Nodegroup `yaml:"nodegroups,omitempty"`
	// Nodes are EC2 instances beside Fargate; Priorities the priority classes of the user.
	Nodes      []Node           `yaml:"nodes,omitempty"`
	Priorities map[string]int32 `yaml:"priorityClasses,omitempty"`
	Workloads  []Workload       `yaml:"workloads,omitempty"`
	// Budgets are PodDisruptionBudgets beside those of the workloads.
	Budgets []Budget `yaml:"budgets,omitempty"`
	// GitOps reverts what others write.
	GitOps *GitOps `yaml:"gitops,omitempty"`
	// Groups are those of callers with an EKS token, as an access entry gives them; none
	// makes them administrators. In memory everybody may do what is not denied.
	Groups []string `yaml:"groups,omitempty"`
	// Deny is what callers may not do.
	Deny []Denial `yaml:"deny,omitempty"`
}

// Subnet is a private subnet of the cluster's VPC.
type Subnet struct {
	ID   string `yaml:"id"`
	CIDR string `yaml:"cidr"`
	Zone string `yaml:"zone"`
}

// Addon is a managed add-on as installed.
type Addon struct {
	Name    string `yaml:"name"`
	Version string `yaml:"version"`
}

// Profile is a Fargate profile.
type Profile struct {
	Name      string            `yaml:"name"`
	Selectors []ProfileSelector `yaml:"selectors"`
	// Subnets are the ids of those of the cluster's subnets that its pods get addresses
	// from; none means all.
	Subnets []string `yaml:"subnets,omitempty"`
}

// ProfileSelector matches pods by namespace and labels, with the wildcards * and ?.
type ProfileSelector struct {
	Namespace string            `yaml:"namespace"`
	Labels    map[string]string `yaml:"labels,omitempty"`
}

// Zone is a hosted zone.
type Zone struct {
	Name    string   `yaml:"name"`
	Private bool     `yaml:"private,omitempty"`
	Records []Record `yaml:"records"`
}

// Record is one record set.
type Record struct {
	Name          string   `yaml:"name"`
	Type          string   `yaml:"type"`
	TTL           int64    `yaml:"ttl,omitempty"`
	SetIdentifier string   `yaml:"setIdentifier,omitempty"`
	Weight        *int64   `yaml:"weight,omitempty"`
	Values        []string `yaml:"values,omitempty"`
	// Alias is the name of a load balancer of the scenario that the set points to.
	Alias          string `yaml:"alias,omitempty"`
	EvaluateHealth bool   `yaml:"evaluateTargetHealth,omitempty"`
	// Serves makes the data plane answer at the set's value, a loopback address of
	// its own, for a service of a cluster.
	Serves *Backend `yaml:"serves,omitempty"`
}

// Backend is a service in one of the clusters: the pods that a selector matches.
type Backend struct {
	Cluster   string            `yaml:"cluster"`
	Namespace string            `yaml:"namespace"`
	Selector  map[string]string `yaml:"selector"`
	Port      int32             `yaml:"port,omitempty"`
}

// ALB is an application load balancer with one listener.
type ALB struct {
	Name string `yaml:"name"`
	// Address is the loopback address that it answers at.
	Address string        `yaml:"address"`
	Groups  []TargetGroup `yaml:"targetGroups"`
	Port    int32         `yaml:"port"`
	// Default is the listener's default action, Rules the others.
	Default Forward `yaml:"default"`
	Rules   []Rule  `yaml:"rules,omitempty"`
	// Tags are put on the load balancer, its listener, rules and groups.
	Tags map[string]string `yaml:"tags,omitempty"`
}

// TargetGroup is filled from the pods of a service.
type TargetGroup struct {
	Name    string `yaml:"name"`
	Backend `yaml:",inline"`
	Path    string `yaml:"healthPath,omitempty"`
}

// Forward is an action that forwards by weights.
type Forward struct {
	Weights map[string]int32 `yaml:"weights,omitempty"`
	// Stickiness is how long a client stays with a group; 0 is off.
	Stickiness time.Duration `yaml:"stickiness,omitempty"`
}

// Rule is a rule of a listener: it forwards, or answers by itself.
type Rule struct {
	Priority int      `yaml:"priority"`
	Paths    []string `yaml:"paths,omitempty"`
	Hosts    []string `yaml:"hosts,omitempty"`
	Forward  `yaml:",inline"`
	Fixed    *Fixed `yaml:"fixed,omitempty"`
}

// Fixed is an answer that needs no target.
type Fixed struct {
	Status int    `yaml:"status"`
	Body   string `yaml:"body,omitempty"`
}

// UpdateFailure makes an update end as Failed with errors[].
type UpdateFailure struct {
	Cluster string `yaml:"cluster"`
	// To is the minor, or the add-on version, whose update fails; Addon is empty for
	// the control plane's, and so is Nodegroup.
	To        string `yaml:"to"`
	Addon     string `yaml:"addon,omitempty"`
	Nodegroup string `yaml:"nodegroup,omitempty"`
	// Times is how many attempts fail (default 1, -1 for all).
	Times  int           `yaml:"times,omitempty"`
	Errors []UpdateError `yaml:"errors"`
}

// UpdateError is one entry of a failed update's errors[].
type UpdateError struct {
	Code        string   `yaml:"code"`
	Message     string   `yaml:"message"`
	ResourceIDs []string `yaml:"resourceIds,omitempty"`
}

// Insight is what EKS finds about a cluster.
type Insight struct {
	Cluster string `yaml:"cluster"`
	Name    string `yaml:"name"`
	Version string `yaml:"version"`
	// Category is UPGRADE_READINESS (default), MISCONFIGURATION or ROLLBACK_READINESS.
	Category       string `yaml:"category,omitempty"`
	Status         string `yaml:"status"`
	Reason         string `yaml:"reason,omitempty"`
	Description    string `yaml:"description,omitempty"`
	Recommendation string `yaml:"recommendation,omitempty"`
}

// Failure makes a cluster answer a part of its requests wrongly; see edge.Failure.
type Failure struct {
	Cluster string  `yaml:"cluster"`
	Status  int     `yaml:"status,omitempty"`
	Percent float64 `yaml:"percent"`
	Share   float64 `yaml:"share,omitempty"`
}

// Side returns the cluster of a side.
func (s *Scenario) Side(side string) *Cluster {
	if side == Green {
		return &s.Clusters.Green
	}
	return &s.Clusters.Blue
}

// Sides are the sides that the scenario names: both, or blue alone.
func (s *Scenario) Sides() []string {
	if s.Clusters.Green.Name == "" {
		return []string{Blue}
	}
	return []string{Blue, Green}
}
