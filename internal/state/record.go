package state

import (
	"encoding/json"
	"time"
)

// RecordKind says what a journal record tells.
type RecordKind string

// The kinds of records. A RecordPlan is always the first of a journal, and only that.
const (
	// RecordPlan is the first record: the plan that this run walks.
	RecordPlan RecordKind = "plan"
	// RecordResumed is written each time a process takes the journal up again.
	RecordResumed RecordKind = "resumed"
	// RecordInserted puts Spec in front of the step named by Step while the run is under way.
	RecordInserted RecordKind = "inserted"
	// RecordStarted, RecordDone and RecordFailed are the life of a step.
	RecordStarted RecordKind = "started"
	RecordDone    RecordKind = "done"
	RecordFailed  RecordKind = "failed"
	// RecordIntent is durable before a change is sent; RecordOutcome says what came of it.
	RecordIntent  RecordKind = "intent"
	RecordOutcome RecordKind = "outcome"
	// RecordWaiting is what a step waits for, at most one per poll. It is not fsynced.
	RecordWaiting RecordKind = "waiting"
	// RecordGate is a verdict of the gates at a weight; RecordTraffic the weights as read back.
	RecordGate    RecordKind = "gate"
	RecordTraffic RecordKind = "traffic"
	// RecordCluster is a cluster as observed (version, pods, lag) during the run.
	RecordCluster RecordKind = "cluster"
	// RecordNote and RecordWarning are facts worth keeping.
	RecordNote    RecordKind = "note"
	RecordWarning RecordKind = "warning"
	// RecordApproval is a consent given (semantics 4).
	RecordApproval RecordKind = "approval"
	// RecordStopped ends a process, not the run: why, the exit code, what to type next.
	RecordStopped RecordKind = "stopped"
	// RecordClosed ends the run.
	RecordClosed RecordKind = "closed"
)

// Result is what came of an intent.
type Result string

// The results of a change.
const (
	// Accepted: the API took the change; what it leads to is still to be observed.
	Accepted Result = "accepted"
	// Succeeded: the change and what it leads to are observed.
	Succeeded Result = "succeeded"
	// Rejected: the API refused the change; nothing changed.
	Rejected Result = "rejected"
	// Failed: the API took the change and it failed later.
	Failed Result = "failed"
	// Found: the intent had no outcome and the world shows that the change happened.
	Found Result = "found"
	// Unknown: nobody could tell what came of it.
	Unknown Result = "unknown"
)

// Change is one change of the world, written down before it is made.
type Change struct {
	// Call is the API call, service:Operation as IAM spells it, or
	// k8s:patch deployments.
	Call string `json:"call"`
	// Object is what it is made to, for people: "cluster shop-green", "shop/Deployment/cart".
	Object string `json:"object"`
	// Detail is what recognises the effect later: tokens, old and new values, stamps.
	Detail json.RawMessage `json:"detail,omitempty"`
	// Undo is what puts it back, where it can be put back.
	Undo json.RawMessage `json:"undo,omitempty"`
}

// GateVerdict is what a gate says.
type GateVerdict string

// The verdicts. Unknown is no verdict at all (semantics 16).
const (
	GatePass    GateVerdict = "pass"
	GateFail    GateVerdict = "fail"
	GateUnknown GateVerdict = "unknown"
)

// GateResult is one evaluation of one gate.
type GateResult struct {
	// Gate is targetHealth or http, Target what it looked at.
	Gate    string      `json:"gate"`
	Target  string      `json:"target"`
	Percent int         `json:"percent"`
	Verdict GateVerdict `json:"verdict"`
	// Text says it to people: "http 99.95 % of 2000 samples, want 99.9 %".
	Text    string `json:"text"`
	Samples int    `json:"samples,omitempty"`
	Good    int    `json:"good,omitempty"`
}

// Record is one line of the journal.
type Record struct {
	// Seq counts from 1 without gaps.
	Seq  int64      `json:"seq"`
	Time time.Time  `json:"time"`
	Kind RecordKind `json:"kind"`
	// Step is the id of the step it belongs to; empty for the run itself.
	Step string `json:"step,omitempty"`
	// Text says it in one line, stripped of control characters.
	Text string `json:"text,omitempty"`

	Plan   *Plan     `json:"plan,omitempty"`
	Spec   *StepSpec `json:"spec,omitempty"`
	Change *Change   `json:"change,omitempty"`
	// Intent is the Seq of the intent that an outcome belongs to.
	Intent int64           `json:"intent,omitempty"`
	Result Result          `json:"result,omitempty"`
	Detail json.RawMessage `json:"detail,omitempty"`
	Gate   *GateResult     `json:"gate,omitempty"`
	// Traffic holds the weights of all traffic targets as read.
	Traffic []Share `json:"traffic,omitempty"`
	// Cluster and Side are set in RecordCluster.
	Side    Side         `json:"side,omitempty"`
	Cluster *ClusterView `json:"cluster,omitempty"`
	// Exit is set in RecordStopped and RecordClosed, and in RecordFailed: whether the step
	// failed, was blocked, or only stopped to be gone on with. Next is set in RecordStopped.
	Exit *int   `json:"exit,omitempty"`
	Next string `json:"next,omitempty"`
	// Who is set in RecordPlan, RecordResumed and RecordApproval.
	Who *Who `json:"who,omitempty"`
	// Phase is set in RecordApproval.
	Phase Phase `json:"phase,omitempty"`
}

// Who is a person or a pipeline, as far as it can be told.
type Who struct {
	// ARN is what STS GetCallerIdentity says.
	ARN  string `json:"arn,omitempty"`
	User string `json:"user,omitempty"`
	Host string `json:"host,omitempty"`
	PID  int    `json:"pid,omitempty"`
}
