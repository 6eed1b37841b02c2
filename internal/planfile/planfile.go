// Package planfile reads the YAML file that users write for a pair of clusters:
// its types, strict decoding with file, line and column, defaults, and the JSON
// Schema made from the same types.
//
// The types are the reference: a field without omitempty is required, the comments
// are the schema's descriptions, and setDefaults holds what a field left out means.
package planfile

import "time"

// APIVersion and Kind head every plan file.
const (
	APIVersion = "eksbg.dev/v1"
	Kind       = "UpgradePlan"
)

// File is a whole plan file: what a pair is and how it should be taken to a version.
type File struct {
	// The format of the file.
	APIVersion string `yaml:"apiVersion" json:"apiVersion" jsonschema:"enum=eksbg.dev/v1"`
	Kind       string `yaml:"kind" json:"kind" jsonschema:"enum=UpgradePlan"`
	// Names the pair's runs and their journal.
	Name string `yaml:"name" json:"name" jsonschema:"pattern=^[A-Za-z0-9][A-Za-z0-9_-]{0\\,62}$"`
	// The AWS region of both clusters.
	Region string `yaml:"region" json:"region" jsonschema:"pattern=^[a-z]{2\\,}(-[a-z]+)+-[0-9]+$"`
	// How the standby is kept between upgrades.
	Variant string `yaml:"variant" json:"variant" jsonschema:"enum=hot"`
	// The minor where the control planes should end up, in quotes: "1.33".
	Version  string   `yaml:"version" json:"version" jsonschema:"pattern=^1\\.(0|[1-9][0-9]{0\\,2})$"`
	Clusters Clusters `yaml:"clusters" json:"clusters"`
	// Findings accepted by name, each with a reason and an end.
	Waive   []Waiver `yaml:"waive,omitempty" json:"waive,omitempty"`
	Upgrade Upgrade  `yaml:"upgrade,omitempty" json:"upgrade,omitempty"`
	Restart Restart  `yaml:"restart,omitempty" json:"restart,omitempty"`
	// The destination must stand as the origin does before it gets traffic.
	Capacity string `yaml:"capacity,omitempty" json:"capacity,omitempty" jsonschema:"enum=check,default=check"`
	// The entrances whose weights are moved together, stage by stage.
	Traffic []Target `yaml:"traffic" json:"traffic" jsonschema:"minItems=1"`
	Cutover Cutover  `yaml:"cutover,omitempty" json:"cutover,omitempty"`
	// Phases whose first step waits for an approval: upgrade, restart, restart-live, capacity, cutover.
	Approvals []string `yaml:"approvals,omitempty" json:"approvals,omitempty" jsonschema:"uniqueItems=true,enum=upgrade,enum=restart,enum=restart-live,enum=capacity,enum=cutover"`

	// Path is the file's name as it was given to Load or Parse, Sum the SHA-256 of its
	// content in hex. Neither is part of the YAML.
	Path string `yaml:"-" json:"-"`
	Sum  string `yaml:"-" json:"-"`
}

// Clusters are the two sides of the pair. Which of them has the traffic is read from
// the traffic itself.
type Clusters struct {
	Blue  Cluster `yaml:"blue" json:"blue"`
	Green Cluster `yaml:"green" json:"green"`
}

// Cluster names one EKS cluster and, optionally, how to reach its account.
type Cluster struct {
	// The name of the EKS cluster.
	Name string `yaml:"name" json:"name" jsonschema:"pattern=^[0-9A-Za-z][A-Za-z0-9_-]{0\\,99}$"`
	// The AWS profile to take credentials from; left out: the SDK's own order.
	Profile string `yaml:"profile,omitempty" json:"profile,omitempty"`
	// A role to assume with those credentials.
	RoleARN string `yaml:"roleARN,omitempty" json:"roleARN,omitempty"`
}

// Waiver accepts one finding by name until a day. Once that day is over it waives nothing.
type Waiver struct {
	// The name of the finding as eksbg plan prints it: insight/deprecated-apis.
	Check  string `yaml:"check" json:"check"`
	Reason string `yaml:"reason" json:"reason"`
	// The last day (UTC) on which it holds.
	Until Date `yaml:"until" json:"until"`
}

// Upgrade says how control planes and add-ons are raised.
type Upgrade struct {
	// Managed add-ons: required raises those that do not support the new minor, keep none.
	Addons string `yaml:"addons,omitempty" json:"addons,omitempty" jsonschema:"enum=required,enum=keep,default=required"`
	// Time between two looks at an update in progress.
	Polling Duration `yaml:"polling,omitempty" json:"polling,omitempty" jsonschema:"default=30s"`
}

// Restart says how workloads with lagging pods are rolled.
type Restart struct {
	// How many workloads roll at once.
	MaxParallel int `yaml:"maxParallel,omitempty" json:"maxParallel,omitempty" jsonschema:"minimum=1,maximum=100,default=4"`
	// Namespaces to begin with, in this order; the rest follows.
	Order []string `yaml:"order,omitempty" json:"order,omitempty"`
	// Bounds one workload's rollout; past it the run stops, resumable.
	Timeout Duration `yaml:"timeout,omitempty" json:"timeout,omitempty" jsonschema:"default=20m"`
	// How long a pod may wait for the Fargate scheduler before it is made anew; at most three times for one owner.
	Pending Duration `yaml:"pending,omitempty" json:"pending,omitempty" jsonschema:"default=5m"`
	// How long running Jobs are waited for; past it the run stops, resumable.
	JobTimeout Duration `yaml:"jobTimeout,omitempty" json:"jobTimeout,omitempty" jsonschema:"default=1h"`
	// CronJobs during the restart: run leaves them alone, suspend holds them and puts them back afterwards.
	CronJobs string `yaml:"cronJobs,omitempty" json:"cronJobs,omitempty" jsonschema:"enum=run,enum=suspend,default=run"`
	// Finished Jobs and pods, which keep their Fargate node and address: keep reports them, delete removes them before the restart.
	FinishedJobs string `yaml:"finishedJobs,omitempty" json:"finishedJobs,omitempty" jsonschema:"enum=keep,enum=delete,default=keep"`
	// How long a Job must have been finished to be deleted.
	FinishedAge Duration `yaml:"finishedAge,omitempty" json:"finishedAge,omitempty" jsonschema:"default=1h"`
	// The name that each new CoreDNS pod must resolve before the next one is restarted; off asks none.
	Resolve string `yaml:"resolve,omitempty" json:"resolve,omitempty" jsonschema:"default=kubernetes.default.svc.cluster.local"`
	// What may be done to owners that no rollout restart moves, or whose restart is an outage.
	Allow []Allow `yaml:"allow,omitempty" json:"allow,omitempty"`
	// Owners that may stay on older kubelets, each with a reason and an end.
	Skip []Skip `yaml:"skip,omitempty" json:"skip,omitempty"`
}

// The actions of Allow.
const (
	ActionEvict    = "evict"
	ActionRecreate = "recreate"
	ActionOutage   = "outage"
)

// Allow permits one thing that eksbg does not do unasked.
type Allow struct {
	// The owner as namespace/Kind/name: shop/StatefulSet/ledger.
	Owner string `yaml:"owner" json:"owner"`
	// evict takes the pods of a paused Deployment, a StatefulSet with a partition or an owner whose
	// restart somebody reverts, one by one; recreate makes a bare pod anew from its own spec;
	// outage restarts an owner that has no ready pod meanwhile.
	Action string `yaml:"action" json:"action" jsonschema:"enum=evict,enum=recreate,enum=outage"`
	Reason string `yaml:"reason" json:"reason"`
}

// Skip leaves one owner lagging until a day. Once that day is over it skips nothing.
type Skip struct {
	// The owner as namespace/Kind/name: shop/Job/nightly-report.
	Owner  string `yaml:"owner" json:"owner"`
	Reason string `yaml:"reason" json:"reason"`
	// The last day (UTC) on which it holds.
	Until Date `yaml:"until" json:"until"`
}

// Target is one entrance whose weights are moved: exactly one of its fields is set.
type Target struct {
	Route53 *Route53 `yaml:"route53,omitempty" json:"route53,omitempty" jsonschema:"oneof_required=route53"`
	ALB     *ALB     `yaml:"alb,omitempty" json:"alb,omitempty" jsonschema:"oneof_required=alb"`
}

// Route53 is a weighted pair of record sets, for one or more record types.
type Route53 struct {
	// The hosted zone's name.
	Zone string `yaml:"zone,omitempty" json:"zone,omitempty" jsonschema:"anyof_required=zone"`
	// The hosted zone's id; settles which one where a public and a private zone share the name.
	ZoneID string `yaml:"zoneID,omitempty" json:"zoneID,omitempty" jsonschema:"anyof_required=zoneID,pattern=^Z[A-Z0-9]{1\\,31}$"`
	// The name of the weighted record sets.
	Record string `yaml:"record" json:"record"`
	// Their types, moved together: A, AAAA, CNAME.
	Types []string `yaml:"types" json:"types" jsonschema:"minItems=1,uniqueItems=true,enum=A,enum=AAAA,enum=CNAME"`
	Blue  Member   `yaml:"blue" json:"blue"`
	Green Member   `yaml:"green" json:"green"`
}

// Member names a weighted record set by its SetIdentifier.
type Member struct {
	SetIdentifier string `yaml:"setIdentifier" json:"setIdentifier"`
}

// ALB is the default action of a listener, or a rule: exactly one of the two.
type ALB struct {
	// The ARN of the listener whose default action has the weights.
	Listener string `yaml:"listener,omitempty" json:"listener,omitempty" jsonschema:"oneof_required=listener"`
	// The ARN of the rule that has the weights.
	Rule  string `yaml:"rule,omitempty" json:"rule,omitempty" jsonschema:"oneof_required=rule"`
	Blue  Group  `yaml:"blue" json:"blue"`
	Green Group  `yaml:"green" json:"green"`
}

// Group names a target group by its ARN.
type Group struct {
	TargetGroup string `yaml:"targetGroup" json:"targetGroup"`
}

// Cutover says how the traffic is moved.
type Cutover struct {
	// The destination's per cents, rising, the last one 100. Left out: 10, 50, 100.
	Stages []int `yaml:"stages,omitempty" json:"stages,omitempty" jsonschema:"minItems=1"`
	// How long a stage stands, watched by the gates, before it is done.
	Hold Duration `yaml:"hold,omitempty" json:"hold,omitempty" jsonschema:"default=5m"`
	// How long a gate may stay without an answer before the run stops, resumable.
	Patience Duration `yaml:"patience,omitempty" json:"patience,omitempty" jsonschema:"default=10m"`
	// What an interrupt between the first shift and the last gate does without a terminal.
	OnStop string `yaml:"onStop,omitempty" json:"onStop,omitempty" jsonschema:"enum=back,enum=hold,default=back"`
	Gates  []Gate `yaml:"gates,omitempty" json:"gates,omitempty"`
}

// Gate is a check that must hold before and after a stage: exactly one field is set.
type Gate struct {
	TargetHealth *TargetHealth `yaml:"targetHealth,omitempty" json:"targetHealth,omitempty" jsonschema:"oneof_required=targetHealth"`
	HTTP         *HTTP         `yaml:"http,omitempty" json:"http,omitempty" jsonschema:"oneof_required=http"`
}

// TargetHealth wants a part of the destination's targets healthy.
type TargetHealth struct {
	AtLeast Percent `yaml:"atLeast" json:"atLeast"`
}

// HTTP probes a URL, each sample a new connection.
type HTTP struct {
	URL string `yaml:"url" json:"url"`
	// The status that counts as good.
	Expect int `yaml:"expect,omitempty" json:"expect,omitempty" jsonschema:"minimum=100,maximum=599,default=200"`
	// The part of the samples that must be good.
	Success Percent `yaml:"success,omitempty" json:"success,omitempty" jsonschema_extras:"default=99%"`
	// How many samples one evaluation takes.
	Samples int `yaml:"samples,omitempty" json:"samples,omitempty" jsonschema:"minimum=1,maximum=1000000,default=200"`
	// The time over which they are spread.
	Over Duration `yaml:"over,omitempty" json:"over,omitempty" jsonschema:"default=30s"`
	// Bounds one sample.
	Timeout Duration `yaml:"timeout,omitempty" json:"timeout,omitempty" jsonschema:"default=5s"`
	// How many samples the destination must be expected to have answered for the gate to
	// have a verdict. Left out: 20, or samples where that is less.
	AtLeast int `yaml:"atLeast,omitempty" json:"atLeast,omitempty" jsonschema:"minimum=1"`
	// The DNS server (host:port) that answers for the URL's host; left out: the system's.
	Resolver string `yaml:"resolver,omitempty" json:"resolver,omitempty"`
}

// Duration reads "5m" or "1h30m".
type Duration time.Duration

// Percent reads "99.9%" or 99.9.
type Percent float64

// Date reads 2026-12-04; what it bounds ends with the end of that day, UTC.
type Date struct{ time.Time }
