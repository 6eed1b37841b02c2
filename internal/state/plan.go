package state

import (
	"encoding/json"
	"fmt"
	"time"
)

// FormatVersion is the version of the journal and of saved plans that this build
// writes. A file with a higher one is refused (semantics 6).
const FormatVersion = 1

// Side names one cluster of the pair, or both.
type Side string

// The sides of a pair.
const (
	Blue  Side = "blue"
	Green Side = "green"
	Both  Side = "both"
)

// Sides lists the two clusters of a pair in name order.
var Sides = []Side{Blue, Green}

// Other returns the opposite cluster; Both stays Both.
func (s Side) Other() Side {
	switch s {
	case Blue:
		return Green
	case Green:
		return Blue
	}
	return s
}

// Variant is how the standby is kept between upgrades.
type Variant string

// The variants. Only Hot can be planned today.
const (
	Hot     Variant = "hot"
	Warm    Variant = "warm"
	Cold    Variant = "cold"
	InPlace Variant = "in-place"
)

// Phase groups steps; approvals name phases (semantics 4).
type Phase string

// The phases, in the order in which they come.
const (
	PhasePreflight Phase = "preflight"
	PhaseUpgrade   Phase = "upgrade"
	PhaseRestart   Phase = "restart"
	// PhaseRestartLive is the restart of pods on the cluster that serves the
	// traffic; it is always approved by name (semantics 22).
	PhaseRestartLive Phase = "restart-live"
	PhaseCapacity    Phase = "capacity"
	PhaseCutover     Phase = "cutover"
	PhaseSettle      Phase = "settle"
	PhaseTeardown    Phase = "teardown"
)

// Kind says what a step does; the plan package builds the step from it.
type Kind string

// The kinds of steps.
const (
	KindPreflight    Kind = "preflight"
	KindControlPlane Kind = "control-plane"
	KindAddon        Kind = "addon"
	KindRestart      Kind = "restart"
	KindJobs         Kind = "jobs"
	KindCapacity     Kind = "capacity"
	KindTraffic      Kind = "traffic"
)

// Duration is a time.Duration that reads and writes as "8m30s" in JSON.
type Duration time.Duration

// D returns the plain duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

// String formats the duration as time.Duration does.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON writes the duration as a string.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("duration: %w", err)
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("duration: %w", err)
	}
	*d = Duration(v)
	return nil
}

// Expect is how long a step is expected to take, waiting included.
type Expect struct {
	Min Duration `json:"min"`
	Max Duration `json:"max"`
}

// StepSpec is one step of a plan as data: what is shown, what is journaled, and
// everything that the step is built from again on resume.
type StepSpec struct {
	// ID is stable over replanning: green/control-plane/1.32, green/restart/1, traffic/50.
	ID    string `json:"id"`
	Phase Phase  `json:"phase"`
	Kind  Kind   `json:"kind"`
	Side  Side   `json:"side"`
	// Title says it to people: "control plane 1.31 -> 1.32".
	Title string `json:"title"`
	// Changes names what will be called, for people: "eks:UpdateClusterVersion".
	Changes string `json:"changes"`
	Expect  Expect `json:"expect"`
	// Approval is true where the plan file asks for an approval of this phase and
	// this is the first step of it.
	Approval bool `json:"approval,omitempty"`

	// From and To are minors ("1.31") for a control plane, add-on versions for an
	// add-on; To is the minor that kubelets must have for a restart.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Addon is the EKS add-on's name.
	Addon string `json:"addon,omitempty"`
	// FromPercent and Percent are the destination's share before and after a traffic step.
	FromPercent int      `json:"fromPercent,omitempty"`
	Percent     int      `json:"percent,omitempty"`
	Hold        Duration `json:"hold,omitempty"`
	// Cause says why a step was put in while the run was under way.
	Cause string `json:"cause,omitempty"`
}

// ClusterView is one cluster as a plan saw it.
type ClusterView struct {
	Name      string    `json:"name"`
	ARN       string    `json:"arn"`
	CreatedAt time.Time `json:"createdAt"`
	// Version is the control plane's minor, "1.31".
	Version   string `json:"version"`
	Status    string `json:"status"`
	PodsReady int    `json:"podsReady"`
	Pods      int    `json:"pods"`
	// Lagging counts unfinished pods on nodes whose kubelet minor is below Version.
	Lagging int `json:"lagging"`
	// Owners counts the workloads that own a lagging pod.
	Owners int `json:"owners"`
}

// Share is the traffic of the two clusters on one traffic target.
type Share struct {
	// Target is the id of the traffic target: route53/api.shop.example.com,
	// alb/shop/f2f7dc8efc522ab2 (a listener) or alb/shop/rule-9683b2d02a6cabee.
	Target string `json:"target"`
	// Blue and Green are weights as the API states them.
	Blue  int `json:"blue"`
	Green int `json:"green"`
}

// Sum is the pair's own weight sum.
func (s Share) Sum() int { return s.Blue + s.Green }

// Of returns the raw weight of a side.
func (s Share) Of(side Side) int {
	if side == Green {
		return s.Green
	}
	return s.Blue
}

// Percent is a side's part of the pair's own weight sum, rounded to the nearest
// per cent but never rounded to 0 or 100 when it is not (semantics 1, 18). A sum
// of 0 gives -1.
func (s Share) Percent(side Side) int {
	sum := s.Sum()
	if sum == 0 {
		return -1
	}
	w := s.Of(side)
	p := (w*100 + sum/2) / sum
	if p == 0 && w > 0 {
		p = 1
	}
	if p == 100 && w < sum {
		p = 99
	}
	return p
}

// Severity of a finding.
type Severity string

// The severities. Error and Unknown block (design.md: an unknown is not a pass).
const (
	SeverityInfo    Severity = "INFO"
	SeverityWarn    Severity = "WARN"
	SeverityError   Severity = "ERROR"
	SeverityUnknown Severity = "UNKNOWN"
)

// Finding is something that a check saw and a person should look at.
type Finding struct {
	// Check is the name that a waiver uses: insight/deprecated-apis-removed-in-kubernetes-v1-32.
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	Side     Side     `json:"side,omitempty"`
	// Text says what is wrong and Cure what helps.
	Text string `json:"text"`
	Cure string `json:"cure,omitempty"`
	// Step is the id of the step that it concerns, if one.
	Step string `json:"step,omitempty"`
	// Waived holds the reason from the plan file when the finding is waived.
	Waived string `json:"waived,omitempty"`
	// CuredBy names a step of the plan that removes the finding (semantics 26).
	CuredBy string `json:"curedBy,omitempty"`
}

// Blocks tells whether the finding stops the run.
func (f Finding) Blocks() bool {
	return f.Waived == "" && f.CuredBy == "" && (f.Severity == SeverityError || f.Severity == SeverityUnknown)
}

// Operation is a part of the way that can be run alone.
type Operation string

// The operations, in the words of the command line.
const (
	OperationRestart Operation = "restart"
	OperationJobs    Operation = "jobs clean"
)

// Plan is the ordered list of steps for one plan file and one state of the world.
// The saved plan, the first record of a journal and what ui/view folds are this
// same document (semantics 5).
type Plan struct {
	Format int `json:"format"`
	// Tool is the version of eksbg that wrote it.
	Tool string `json:"tool"`
	// Run identifies the plan and, once applied, the run.
	Run string `json:"run"`
	// Lineage is shared by all runs of a pair that grew out of one another.
	Lineage   string    `json:"lineage"`
	CreatedAt time.Time `json:"createdAt"`

	Name    string  `json:"name"`
	Region  string  `json:"region"`
	Variant Variant `json:"variant"`
	// Target is the minor where the control planes should end up.
	Target string `json:"target"`
	// File is the plan file as the user named it, FileSum the SHA-256 of its content.
	File    string `json:"file"`
	FileSum string `json:"fileSum"`

	// Origin has the traffic when the run starts, Destination gets it. Fixed for the
	// run (semantics 1).
	Origin      Side `json:"origin"`
	Destination Side `json:"destination"`

	// Active is the side that a person named with --active, where the weights did not say.
	Active Side `json:"active,omitempty"`

	// Operation is OperationRestart or OperationJobs where the run is that alone, on the
	// cluster of Side; empty for the whole way of a plan file.
	Operation Operation `json:"operation,omitempty"`
	Side      Side      `json:"side,omitempty"`

	Clusters map[Side]ClusterView `json:"clusters"`
	Traffic  []Share              `json:"traffic"`
	// Entrances are the traffic targets as the plan file named them, so that a run never
	// loses one that a later plan file leaves out.
	Entrances json.RawMessage `json:"entrances,omitempty"`
	Steps     []StepSpec      `json:"steps"`
	Findings  []Finding       `json:"findings,omitempty"`
	// Access is what the steps use of each cluster's API server, beside the lists that the
	// plan was made from.
	Access map[Side][]Access `json:"access,omitempty"`
	// CredentialsExpire is when the first of the credentials in use ends; zero when
	// they do not.
	CredentialsExpire time.Time `json:"credentialsExpire,omitzero"`
	// Fingerprint digests what the plan saw and what it will do; a saved plan whose
	// fingerprint no longer matches is stale (exit 7).
	Fingerprint string `json:"fingerprint"`
}

// Step returns the spec with the id, or false.
func (p *Plan) Step(id string) (StepSpec, bool) {
	for _, s := range p.Steps {
		if s.ID == id {
			return s, true
		}
	}
	return StepSpec{}, false
}
