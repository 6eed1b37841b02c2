// Package planfile reads the YAML file that users write for a pair of clusters:
// its types, strict decoding with file, line and column, defaults, and the JSON
// Schema made from the same types.
package planfile

import "time"

// File is a whole plan file: what a pair is and how it should be taken to a version.
type File struct {
	APIVersion string   `yaml:"apiVersion" json:"apiVersion" jsonschema:"enum=eksbg.dev/v1"`
	Kind       string   `yaml:"kind" json:"kind" jsonschema:"enum=UpgradePlan"`
	Name       string   `yaml:"name" json:"name"`
	Region     string   `yaml:"region" json:"region"`
	Variant    string   `yaml:"variant" json:"variant" jsonschema:"enum=hot"`
	Version    string   `yaml:"version" json:"version"`
	Clusters   Clusters `yaml:"clusters" json:"clusters"`
	Waive      []Waiver `yaml:"waive,omitempty" json:"waive,omitempty"`
	Upgrade    Upgrade  `yaml:"upgrade,omitempty" json:"upgrade,omitempty"`
	Restart    Restart  `yaml:"restart,omitempty" json:"restart,omitempty"`
	Capacity   string   `yaml:"capacity,omitempty" json:"capacity,omitempty" jsonschema:"enum=check"`
	Traffic    []Target `yaml:"traffic" json:"traffic"`
	Cutover    Cutover  `yaml:"cutover,omitempty" json:"cutover,omitempty"`
	Approvals  []string `yaml:"approvals,omitempty" json:"approvals,omitempty"`
}

// Clusters are the two sides of the pair.
type Clusters struct {
	Blue  Cluster `yaml:"blue" json:"blue"`
	Green Cluster `yaml:"green" json:"green"`
}

// Cluster names one EKS cluster and, optionally, how to reach its account.
type Cluster struct {
	Name    string `yaml:"name" json:"name"`
	Profile string `yaml:"profile,omitempty" json:"profile,omitempty"`
	RoleARN string `yaml:"roleARN,omitempty" json:"roleARN,omitempty"`
}

// Waiver accepts one finding by name until a day.
type Waiver struct {
	Check  string `yaml:"check" json:"check"`
	Reason string `yaml:"reason" json:"reason"`
	Until  Date   `yaml:"until" json:"until"`
}

// Upgrade says how control planes and add-ons are raised.
type Upgrade struct {
	// Addons is required (raise those that do not support the new minor) or keep.
	Addons  string   `yaml:"addons,omitempty" json:"addons,omitempty" jsonschema:"enum=required,enum=keep"`
	Polling Duration `yaml:"polling,omitempty" json:"polling,omitempty"`
}

// Restart says how workloads with lagging pods are rolled.
type Restart struct {
	MaxParallel int      `yaml:"maxParallel,omitempty" json:"maxParallel,omitempty"`
	Order       []string `yaml:"order,omitempty" json:"order,omitempty"`
	// Timeout bounds one workload's rollout; past it the run stops, resumable.
	Timeout Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`
	Skip    []Skip   `yaml:"skip,omitempty" json:"skip,omitempty"`
}

// Skip leaves one owner (namespace/Kind/name) lagging until a day.
type Skip struct {
	Owner  string `yaml:"owner" json:"owner"`
	Reason string `yaml:"reason" json:"reason"`
	Until  Date   `yaml:"until" json:"until"`
}

// Target is one entrance whose weights are moved: exactly one of its fields is set.
type Target struct {
	Route53 *Route53 `yaml:"route53,omitempty" json:"route53,omitempty"`
	ALB     *ALB     `yaml:"alb,omitempty" json:"alb,omitempty"`
}

// Route53 is a weighted pair of record sets, for one or more record types.
type Route53 struct {
	// Zone is the hosted zone's name; ZoneID settles which one where a public and a
	// private zone share it.
	Zone   string   `yaml:"zone,omitempty" json:"zone,omitempty"`
	ZoneID string   `yaml:"zoneID,omitempty" json:"zoneID,omitempty"`
	Record string   `yaml:"record" json:"record"`
	Types  []string `yaml:"types" json:"types" jsonschema:"enum=A,enum=AAAA,enum=CNAME"`
	Blue   Member   `yaml:"blue" json:"blue"`
	Green  Member   `yaml:"green" json:"green"`
}

// Member names a weighted record set by its SetIdentifier.
type Member struct {
	SetIdentifier string `yaml:"setIdentifier" json:"setIdentifier"`
}

// ALB is the default action of a listener, or a rule: exactly one of the two.
type ALB struct {
	Listener string `yaml:"listener,omitempty" json:"listener,omitempty"`
	Rule     string `yaml:"rule,omitempty" json:"rule,omitempty"`
	Blue     Group  `yaml:"blue" json:"blue"`
	Green    Group  `yaml:"green" json:"green"`
}

// Group names a target group by its ARN.
type Group struct {
	TargetGroup string `yaml:"targetGroup" json:"targetGroup"`
}

// Cutover says how the traffic is moved.
type Cutover struct {
	// Stages are the destination's per cents, rising, the last one 100.
	Stages []int    `yaml:"stages,omitempty" json:"stages,omitempty"`
	Hold   Duration `yaml:"hold,omitempty" json:"hold,omitempty"`
	// Patience is how long a gate may stay without an answer before exit 4.
	Patience Duration `yaml:"patience,omitempty" json:"patience,omitempty"`
	// OnStop is what an interrupt between the first shift and the last gate does
	// without a terminal: back or hold.
	OnStop string `yaml:"onStop,omitempty" json:"onStop,omitempty" jsonschema:"enum=back,enum=hold"`
	Gates  []Gate `yaml:"gates,omitempty" json:"gates,omitempty"`
}

// Gate is a check that must hold before and after a stage: exactly one field is set.
type Gate struct {
	TargetHealth *TargetHealth `yaml:"targetHealth,omitempty" json:"targetHealth,omitempty"`
	HTTP         *HTTP         `yaml:"http,omitempty" json:"http,omitempty"`
}

// TargetHealth wants a part of the destination's targets healthy.
type TargetHealth struct {
	AtLeast Percent `yaml:"atLeast" json:"atLeast"`
}

// HTTP probes a URL, each sample a new connection (semantics 17).
type HTTP struct {
	URL     string   `yaml:"url" json:"url"`
	Expect  int      `yaml:"expect,omitempty" json:"expect,omitempty"`
	Success Percent  `yaml:"success,omitempty" json:"success,omitempty"`
	Samples int      `yaml:"samples,omitempty" json:"samples,omitempty"`
	Over    Duration `yaml:"over,omitempty" json:"over,omitempty"`
	Timeout Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`
	// AtLeast is how many samples the destination must be expected to have answered
	// for the gate to have a verdict.
	AtLeast int `yaml:"atLeast,omitempty" json:"atLeast,omitempty"`
	// Resolver is the DNS server (host:port) that answers for the URL's host; empty
	// means the system's.
	Resolver string `yaml:"resolver,omitempty" json:"resolver,omitempty"`
}

// Duration reads "5m" or "1h30m".
type Duration time.Duration

// Percent reads "99.9%" or 99.9.
type Percent float64

// Date reads 2026-12-04; the waiver ends at the end of that day, UTC.
type Date struct{ time.Time }
