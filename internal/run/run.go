// Package run walks the steps of a plan: it observes each one, acts on what is not
// done, asks for approvals, takes in steps that others need first, and writes all
// of it into the journal. Resuming is the same walk (design.md, "steps converge").
package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/state"
)

// maxActs bounds how often one step may act in one walk before the world is
// believed to work against it.
const maxActs = 3

// Step is one step of a plan. The step packages fit it through state alone.
type Step interface {
	// Spec is the step as data.
	Spec() state.StepSpec
	// Observe reads the world and changes nothing.
	Observe(ctx context.Context) (state.Observation, error)
	// Act blocks until the step is done, or returns why it is not: a *state.Stop, a
	// *state.NeedsFirst, or a failure.
	Act(ctx context.Context, rec state.Recorder) error
}

// Journal is what a walk needs of a journal.
type Journal interface {
	state.History
	Plan() *state.Plan
	Append(state.Record) (state.Record, error)
	Recorder(step string) state.Recorder
}

// Ask is a decision that a person has to make before a phase may change anything.
type Ask struct {
	Phase state.Phase
	Step  state.StepSpec
	// Why says why it is asked: the plan file, the live cluster, or a put-back.
	Why string
}

// Control answers what people decide: flags, a terminal, the request folder.
type Control interface {
	// Approve returns who approved, or nil when nobody has.
	Approve(ctx context.Context, ask Ask) (*state.Who, error)
}

// Walker walks one run.
type Walker struct {
	Journal Journal
	// Build makes the step of a spec.
	Build   func(context.Context, state.StepSpec) (Step, error)
	Control Control
	// Until is the id of the last step to walk; empty walks all.
	Until string
	// UntilWhy says why it ends there; empty means that --until asked for it.
	UntilWhy string
	// Urgent names a step that has to act before any other is looked at, or "": the
	// traffic has to be put back first whatever else stands against the run (semantics
	// 12). It is asked once, when the walk begins.
	Urgent func() string
	// Terms digests what a phase would be run with beside its steps (gates, holds, skips
	// of the plan file as it is now); approvals bind to it as well. May be nil.
	Terms func(state.Phase) string
	// Login gives the command that renews the credentials of a side.
	Login func(state.Side) string
	// Next gives the command to type after a stop.
	Next func(*state.Stop) string
}

// Walk walks the run to its end. It returns nil when every step is done, and a
// *state.Stop otherwise. Either is in the journal when it returns, unless the
// journal itself could not be written.
func (w *Walker) Walk(ctx context.Context) error {
	stop := w.walk(ctx)
	if stop != nil && stop.Code == state.ExitInterrupted && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		timedOut := *stop
		timedOut.Code, timedOut.Why = state.ExitResumable, "the time that --timeout gives is over: "+stop.Why
		stop = &timedOut
	}
	stop = w.withChanges(causedBy(ctx, stop))
	if stop == nil {
		exit := int(state.ExitDone)
		if _, err := w.Journal.Append(state.Record{Kind: state.RecordClosed, Text: "all steps are done", Exit: &exit}); err != nil {
			return &state.Stop{Code: state.ExitFailed, Why: "write the end of the run to the journal", Cause: err,
				Cure: "free space or mend the folder's permissions, then run the same command again"}
		}
		return nil
	}
	exit := int(stop.Code)
	rec := state.Record{Kind: state.RecordStopped, Text: oneLine(stop), Exit: &exit}
	if w.Next != nil {
		rec.Next = w.Next(stop)
	}
	if _, err := w.Journal.Append(rec); err != nil {
		stop.Cure = strings.TrimSpace(stop.Cure + "\nthe journal could not be written: " + err.Error())
	}
	return stop
}

func (w *Walker) walk(ctx context.Context) *state.Stop {
	if stop := w.urgent(ctx); stop != nil {
		return stop
	}
	if w.Until != "" && !w.known(w.Until) {
		return &state.Stop{Code: state.ExitFailed, Why: fmt.Sprintf("--until %s: no such step in this run", w.Until),
			Cure: "the steps are: " + strings.Join(w.ids(), ", ")}
	}
	ctx = w.patient(ctx)
	for i := 0; ; {
		steps := state.Steps(w.Journal.Records(""))
		if i >= len(steps) {
			return nil
		}
		spec := steps[i]
		if w.passed(spec) {
			i++
			continue
		}
		needs, stop := w.step(ctx, spec)
		if stop != nil {
			return stop
		}
		if needs != nil {
			if stop := w.insert(spec, needs); stop != nil {
				return stop
			}
			continue // i now names the step that was put in front
		}
		if spec.ID == w.Until {
			if i == len(steps)-1 {
				return nil
			}
			why := w.UntilWhy
			if why == "" {
				why = "as asked with --until"
			}
			return &state.Stop{Code: state.ExitResumable, Why: fmt.Sprintf("stopped after %s, %s", spec.ID, why)}
		}
		i++
	}
}

// urgent lets the step act that must not wait for any other.
func (w *Walker) urgent(ctx context.Context) *state.Stop {
	if w.Urgent == nil {
		return nil
	}
	id := w.Urgent()
	for _, spec := range state.Steps(w.Journal.Records("")) {
		if spec.ID != id {
			continue
		}
		step, err := w.Build(ctx, spec)
		if err != nil {
			return w.stopFor(ctx, spec, fmt.Errorf("prepare step %s: %w", spec.ID, err))
		}
		_, stop := w.start(ctx, spec, step)
		return stop
	}
	return nil
}

// FirstContact is how long an endpoint may stay silent before the first change;
// afterwards it is waited for (semantics 24: exit 1 within 30 s).
const FirstContact = 20 * time.Second

// reading is how long calls are repeated before anything was changed, whatever the
// endpoint answers.
const reading = 25 * time.Second

// Reading is for reading before anything was changed: calls end with an error within
// about half a minute, be the endpoint silent or answering with errors that might pass.
func Reading(ctx context.Context) context.Context {
	return aws.WithBudget(aws.WithPatience(ctx, FirstContact), reading)
}

// patient is Reading until the first intent is in the journal, which may be in the
// middle of a step; from then on calls have all the time that there is.
func (w *Walker) patient(ctx context.Context) context.Context {
	until := func(d time.Duration) func() time.Duration {
		return func() time.Duration {
			if len(state.Changed(w.Journal.Records(""))) == 0 {
				return d
			}
			return 0
		}
	}
	return aws.WithBudgetFunc(aws.WithPatienceFunc(ctx, until(FirstContact)), until(reading))
}

// passed tells whether a step is not looked at again: the traffic is on its way, and
// what was done before it must not keep the stages from holding, judging and putting
// back (semantics 12, 20).
func (w *Walker) passed(spec state.StepSpec) bool {
	return spec.Kind != state.KindTraffic && Moving(w.Journal.Records("")) && state.StepDone(w.Journal.Records(spec.ID), spec.ID)
}

func (w *Walker) ids() []string {
	var out []string
	for _, s := range state.Steps(w.Journal.Records("")) {
		out = append(out, s.ID)
	}
	return out
}

func (w *Walker) known(id string) bool {
	for _, s := range w.ids() {
		if s == id {
			return true
		}
	}
	return false
}

// step brings one step to done, or says what stands against it.
func (w *Walker) step(ctx context.Context, spec state.StepSpec) (*state.NeedsFirst, *state.Stop) {
	step, err := w.Build(ctx, spec)
	if err != nil {
		return nil, w.stopFor(ctx, spec, fmt.Errorf("prepare step %s: %w", spec.ID, err))
	}
	for acts := 0; ; acts++ {
		obs, err := step.Observe(ctx)
		if err != nil {
			return nil, w.fail(ctx, spec, fmt.Errorf("look at %s: %w", spec.ID, err))
		}
		switch obs.Status {
		case state.Done:
			return nil, w.done(ctx, spec, obs, acts)
		case state.Blocked:
			return nil, w.fail(ctx, spec, &state.Stop{Code: state.ExitBlocked, Why: obs.Reason, Cure: obs.Cure})
		}
		if acts == maxActs {
			return nil, w.fail(ctx, spec, &state.Stop{Code: state.ExitBlocked,
				Why:  fmt.Sprintf("%s acted %d times and the world is still not as it should be: %s", spec.ID, acts, obs.Reason),
				Cure: "look for somebody or something that changes it back, then run the same command again"})
		}
		needs, stop := w.act(ctx, spec, step)
		if needs != nil || stop != nil {
			return needs, stop
		}
	}
}

func (w *Walker) act(ctx context.Context, spec state.StepSpec, step Step) (*state.NeedsFirst, *state.Stop) {
	if ctx.Err() != nil && (spec.Kind != state.KindTraffic || !Moving(w.Journal.Records(""))) {
		return nil, w.stopFor(ctx, spec, ctx.Err())
	}
	if ctx.Err() == nil {
		if stop := w.approval(ctx, spec); stop != nil {
			return nil, stop
		}
	}
	return w.start(ctx, spec, step)
}

// start records the step as begun and lets it act.
func (w *Walker) start(ctx context.Context, spec state.StepSpec, step Step) (*state.NeedsFirst, *state.Stop) {
	if stop := w.append(state.Record{Kind: state.RecordStarted, Step: spec.ID, Text: spec.Title}); stop != nil {
		return nil, stop
	}
	err := step.Act(ctx, w.Journal.Recorder(spec.ID))
	var needs *state.NeedsFirst
	if errors.As(err, &needs) {
		return needs, nil
	}
	if err != nil {
		return nil, w.fail(ctx, spec, err)
	}
	return nil, nil
}

// done records a step as done once; seen again on resume it adds nothing.
func (w *Walker) done(_ context.Context, spec state.StepSpec, obs state.Observation, acts int) *state.Stop {
	if acts == 0 && state.StepDone(w.Journal.Records(spec.ID), spec.ID) {
		return nil
	}
	return w.append(state.Record{Kind: state.RecordDone, Step: spec.ID, Text: obs.Reason})
}

func (w *Walker) insert(before state.StepSpec, needs *state.NeedsFirst) *state.Stop {
	if w.known(needs.Spec.ID) {
		return &state.Stop{Code: state.ExitBlocked,
			Why:  fmt.Sprintf("%s was done and %s still asks for it: %s", needs.Spec.ID, before.ID, needs.Spec.Cause),
			Cure: "what EKS or the check says is above; mend it, then run the same command again"}
	}
	spec := needs.Spec
	return w.append(state.Record{Kind: state.RecordInserted, Step: before.ID, Spec: &spec,
		Text: fmt.Sprintf("%s comes first: %s", spec.Title, spec.Cause)})
}

func (w *Walker) append(r state.Record) *state.Stop {
	if _, err := w.Journal.Append(r); err != nil {
		return &state.Stop{Code: state.ExitFailed, Why: "write to the journal", Cause: err,
			Cure: "free space or mend the folder's permissions, then run the same command again"}
	}
	return nil
}

// fail records that the step did not get done and turns err into a stop.
func (w *Walker) fail(ctx context.Context, spec state.StepSpec, err error) *state.Stop {
	stop := w.stopFor(ctx, spec, err)
	exit := int(stop.Code)
	if s := w.append(state.Record{Kind: state.RecordFailed, Step: spec.ID, Text: oneLine(stop), Exit: &exit}); s != nil && stop.Code < state.ExitPutBack {
		return s
	}
	return stop
}

// oneLine says a stop in one line: records hold no more.
func oneLine(stop *state.Stop) string { return flat.Replace(stop.Error()) }

// flat makes a list one line.
var flat = strings.NewReplacer(":\n  ", ": ", "\n  ", "; ", "\n", "; ")

// Moving tells whether the traffic is between its first shift and its last gate, as
// far as the journal knows. An interrupt is then the stage's to decide (semantics 20),
// also when it comes between two stages.
func Moving(records []state.Record) bool {
	back := lastPutBack(records)
	traffic := map[string]bool{}
	for _, s := range state.Steps(records) {
		traffic[s.ID] = s.Kind == state.KindTraffic
	}
	for _, r := range records {
		if r.Kind == state.RecordIntent && traffic[r.Step] && r.Seq > back {
			return true
		}
	}
	return false
}
