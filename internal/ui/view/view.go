// Package view folds journal records into one pure model of a run. The plain log,
// status, and every other front end render this model, so they cannot disagree.
package view

import (
	"time"

	"github.com/eksbg/eksbg/internal/state"
)

// StepState is where a step stands for people.
type StepState string

// The states of a step.
const (
	Pending StepState = "pending"
	Running StepState = "running"
	Done    StepState = "done"
	Failed  StepState = "failed"
	// Stopped is a step that nothing is wrong with: it was interrupted, or waits for
	// somebody or something, and goes on with the same command.
	Stopped StepState = "stopped"
)

// Step is one step of the run with what is known of it.
type Step struct {
	Spec  state.StepSpec
	State StepState
	// Started is zero for a step that was found done without acting.
	Started time.Time
	Ended   time.Time
	// Text is the newest thing said about it.
	Text string
	// TextAt is when that was said.
	TextAt time.Time
}

// Elapsed is how long the step has been, or was, at work.
func (s Step) Elapsed(now time.Time) time.Duration {
	if s.Started.IsZero() {
		return 0
	}
	if s.Ended.IsZero() {
		return now.Sub(s.Started)
	}
	return s.Ended.Sub(s.Started)
}

// Model is a run as its records tell it.
type Model struct {
	Plan  *state.Plan
	Steps []Step
	// Clusters and Traffic are as last seen; they start as the plan saw them.
	Clusters map[state.Side]state.ClusterView
	Traffic  []state.Share
	// TrafficStale is true when weights were sent after Traffic was last read, so that
	// nobody should take it for where the traffic is.
	TrafficStale bool
	// TrafficAt is when Traffic was read.
	TrafficAt time.Time
	// Gates holds the newest result of each gate and target.
	Gates []state.GateResult
	// Resumed counts how often a process took the run up again.
	Resumed int
	// PutBack is true when the traffic was put back and not moved again since.
	PutBack bool
	// Stopped is the newest stop when no process has taken the run up since.
	Stopped *state.Record
	Closed  bool
	// Last is the newest record.
	Last state.Record
}

// Fold makes the model of all the records.
func Fold(records []state.Record) *Model {
	m := &Model{}
	for _, r := range records {
		m.Apply(r)
	}
	return m
}

// Apply takes one more record in.
func (m *Model) Apply(r state.Record) {
	m.Last = r
	switch r.Kind {
	case state.RecordPlan:
		m.start(r)
	case state.RecordResumed:
		m.Resumed++
		m.Stopped = nil
	case state.RecordInserted:
		m.insert(r)
	case state.RecordStarted, state.RecordDone, state.RecordFailed, state.RecordWaiting,
		state.RecordNote, state.RecordWarning:
		m.step(r)
	case state.RecordGate:
		m.gate(r)
	case state.RecordIntent:
		if st := m.find(r.Step); st != nil && st.Spec.Kind == state.KindTraffic {
			m.TrafficStale = true
		}
	case state.RecordTraffic:
		m.Traffic, m.TrafficStale, m.TrafficAt = r.Traffic, false, r.Time
		m.step(r)
	case state.RecordPutBack:
		m.PutBack = true
		m.step(r)
		for i := range m.Steps { // all stages are to be done again
			if st := &m.Steps[i]; st.Spec.Kind == state.KindTraffic && st.State == Done {
				st.State, st.Started, st.Ended = Pending, time.Time{}, time.Time{}
			}
		}
	case state.RecordCluster:
		if r.Cluster != nil {
			m.Clusters[r.Side] = *r.Cluster
		}
	case state.RecordStopped:
		stopped := r
		m.Stopped = &stopped
	case state.RecordClosed:
		m.Closed = true
	}
}

func (m *Model) start(r state.Record) {
	if r.Plan == nil {
		return
	}
	m.Plan = r.Plan
	m.Traffic, m.TrafficAt = r.Plan.Traffic, r.Plan.CreatedAt
	m.Clusters = map[state.Side]state.ClusterView{}
	for side, c := range r.Plan.Clusters {
		m.Clusters[side] = c
	}
	m.Steps = nil
	for _, spec := range r.Plan.Steps {
		m.Steps = append(m.Steps, Step{Spec: spec, State: Pending})
	}
}

func (m *Model) insert(r state.Record) {
	if r.Spec == nil || m.find(r.Spec.ID) != nil {
		return
	}
	var out []Step
	for _, s := range m.Steps {
		if s.Spec.ID == r.Step {
			s.State = Pending
			out = append(out, Step{Spec: *r.Spec, State: Pending})
		}
		out = append(out, s)
	}
	m.Steps = out
}

func (m *Model) find(id string) *Step {
	for i := range m.Steps {
		if m.Steps[i].Spec.ID == id {
			return &m.Steps[i]
		}
	}
	return nil
}

func (m *Model) step(r state.Record) {
	s := m.find(r.Step)
	if s == nil {
		return
	}
	if r.Text != "" {
		s.Text, s.TextAt = r.Text, r.Time
	}
	switch r.Kind {
	case state.RecordStarted:
		s.State, s.Ended = Running, time.Time{}
		if s.Started.IsZero() {
			s.Started = r.Time
		}
		if s.Spec.Kind == state.KindTraffic {
			m.PutBack = false
		}
	case state.RecordDone:
		s.State, s.Ended = Done, r.Time
	case state.RecordFailed:
		s.State, s.Ended = Failed, r.Time
		if Resumable(r) {
			s.State = Stopped
		}
	}
}

// Resumable tells whether a step that did not get done was only stopped: nothing is wrong
// with it. Records of older journals do not say and count as failed.
func Resumable(r state.Record) bool {
	if r.Exit == nil {
		return false
	}
	switch state.Exit(*r.Exit) {
	case state.ExitInterrupted, state.ExitResumable, state.ExitLocked, state.ExitConsent:
		return true
	}
	return false
}

func (m *Model) gate(r state.Record) {
	if r.Gate == nil {
		return
	}
	m.step(state.Record{Kind: state.RecordNote, Step: r.Step, Time: r.Time, Text: r.Gate.Text})
	for i, g := range m.Gates {
		if g.Gate == r.Gate.Gate && g.Target == r.Gate.Target {
			m.Gates[i] = *r.Gate
			return
		}
	}
	m.Gates = append(m.Gates, *r.Gate)
}

// Current is the step at work or next in line, or nil when all are done.
func (m *Model) Current() *Step {
	for i := range m.Steps {
		if m.Steps[i].State != Done {
			return &m.Steps[i]
		}
	}
	return nil
}

// Percent is a side's smallest and largest share over all traffic targets.
func (m *Model) Percent(side state.Side) (low, high int) {
	return Percent(m.Traffic, side)
}

// Percent is a side's smallest and largest share over the traffic targets.
func Percent(traffic []state.Share, side state.Side) (low, high int) {
	for i, s := range traffic {
		p := s.Percent(side)
		if i == 0 || p < low {
			low = p
		}
		if i == 0 || p > high {
			high = p
		}
	}
	return low, high
}
