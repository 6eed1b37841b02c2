// Package preflight holds the checks over the observed pair that must not find
// anything in the way before a run changes something; one file a check.
package preflight

import (
	"context"
	"fmt"
	"strings"

	"github.com/eksbg/eksbg/internal/state"
)

// Check looks at the pair and says what it found. It changes nothing. An error is a
// check that could not be made and fails the step; a thing that could not be read is
// better told as a finding with SeverityUnknown.
type Check struct {
	// Name says what is looked at, for people.
	Name string
	Run  func(ctx context.Context) ([]state.Finding, error)
}

// Deps are what the step needs of the world.
type Deps struct {
	Checks  []Check
	History state.History
	// Waive marks the findings that the plan file accepts.
	Waive func([]state.Finding) []state.Finding
	// Again gives the checks to make once more in a run that they have passed in already,
	// and why; no words where nothing asks for that. It may be nil.
	Again func(context.Context) (why string, checks []Check, err error)
	// Cured names the step of the run that removes a finding, or "" (semantics 26).
	Cured func(state.Finding) string
}

// Preflight is the step that runs all checks once, before the first change; and on resume
// those again whose answer may be another one.
type Preflight struct {
	spec state.StepSpec
	d    Deps
	// checks are those to make, why says it where they are made again.
	checks []Check
	why    string
	passed string
}

// New makes the step of a spec of kind preflight.
func New(spec state.StepSpec, d Deps) *Preflight {
	return &Preflight{spec: spec, d: d, checks: d.Checks}
}

// Spec is the step as data.
func (p *Preflight) Spec() state.StepSpec { return p.spec }

// Observe is done once the checks have passed in this run and none is due again: later
// steps look at what concerns them again when they come.
func (p *Preflight) Observe(ctx context.Context) (state.Observation, error) {
	if p.passed != "" {
		return state.Observation{Status: state.Done, Reason: p.passed}, nil
	}
	if !state.StepDone(p.d.History.Records(p.spec.ID), p.spec.ID) {
		return state.Observation{Status: state.Ready, Reason: "not looked yet"}, nil
	}
	if p.d.Again != nil {
		why, checks, err := p.d.Again(ctx)
		if err != nil {
			return state.Observation{}, err
		}
		if why != "" {
			p.why, p.checks = why, checks
			return state.Observation{Status: state.Ready, Reason: why}, nil
		}
	}
	return state.Observation{Status: state.Done, Reason: "passed when the run began"}, nil
}

// Act runs the checks in order and stops with exit 3 when a finding blocks.
func (p *Preflight) Act(ctx context.Context, rec state.Recorder) error {
	if p.why != "" {
		if err := rec.Record(state.Record{Kind: state.RecordNote, Text: p.why}); err != nil {
			return err
		}
	}
	var all []state.Finding
	for i, c := range p.checks {
		rec.Waiting(fmt.Sprintf("check %d of %d: %s", i+1, len(p.checks), c.Name))
		found, err := c.Run(ctx)
		if err != nil {
			return fmt.Errorf("check %s: %w", c.Name, err)
		}
		all = append(all, found...)
	}
	if p.d.Waive != nil {
		all = p.d.Waive(all)
	}
	var blocking []state.Finding
	for i, f := range all {
		if p.d.Cured != nil && f.Waived == "" {
			all[i].CuredBy = p.d.Cured(f)
		}
		if err := rec.Record(record(all[i])); err != nil {
			return err
		}
		if all[i].Blocks() {
			blocking = append(blocking, all[i])
		}
	}
	if len(blocking) > 0 {
		return blocked(blocking)
	}
	p.passed = fmt.Sprintf("%d checks, none blocks", len(p.checks))
	if p.why != "" {
		p.passed += "; those before passed when the run began"
	}
	return nil
}

func record(f state.Finding) state.Record {
	r := state.Record{Kind: state.RecordNote, Text: fmt.Sprintf("%s %s: %s", f.Severity, f.Check, f.Text)}
	switch {
	case f.Waived != "":
		r.Text += " (waived: " + f.Waived + ")"
	case f.CuredBy != "":
		r.Text += " (cured by step " + f.CuredBy + ")"
	case f.Severity != state.SeverityInfo:
		r.Kind = state.RecordWarning
	}
	return r
}

func blocked(fs []state.Finding) *state.Stop {
	lines := make([]string, 0, len(fs))
	cures := []string{}
	waive := false
	for _, f := range fs {
		lines = append(lines, fmt.Sprintf("%s %s: %s", f.Severity, f.Check, f.Text))
		if f.Cure != "" {
			cures = append(cures, f.Cure)
		}
		waive = waive || !strings.Contains(f.Cure, "waive")
	}
	if waive {
		cures = append(cures, "or accept one by name under waive: in the plan file, with a reason and an end")
	}
	return &state.Stop{Code: state.ExitBlocked, Why: strings.Join(lines, "\n"), Cure: strings.Join(cures, "\n")}
}
