package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/eksbg/eksbg/internal/plan"
	"github.com/eksbg/eksbg/internal/run"
	"github.com/eksbg/eksbg/internal/state"
)

// part is the part of the way that a command runs alone; zero is the whole way.
type part struct {
	operation state.Operation
	side      state.Side
}

// partOf is the part that a plan is of.
func partOf(p *state.Plan) part { return part{p.Operation, p.Side} }

// name is the command in words.
func (p part) name() string {
	if p.operation == "" {
		return "apply"
	}
	return string(p.operation)
}

// sides are the clusters that it is about.
func (p part) sides() []state.Side {
	if p.side == "" {
		return state.Sides
	}
	return []state.Side{p.side}
}

// command is what to type for the part.
func (p part) command(path, journal string) string {
	if p.operation == "" {
		return applyCommand(path, journal)
	}
	return withState(fmt.Sprintf("eksbg %s %s --cluster %s", p.operation, shellQuote(path), p.side), journal)
}

// look is the command that shows what the part would do, without doing it.
func (p part) look(path, journal string) string {
	if p.operation == "" {
		return withState("eksbg plan "+shellQuote(path), journal)
	}
	return fmt.Sprintf("eksbg lag %s --cluster %s", shellQuote(path), p.side)
}

// flags adds the flags of a command that runs a part alone.
func (o *applyOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Var(&onceValue{to: (*string)(&o.part.side)}, "cluster", "the `SIDE` to work on (blue or green)")
	if err := cmd.MarkFlagRequired("cluster"); err != nil {
		panic(fmt.Sprintf("%s: %v", cmd.Name(), err)) // the flag is declared above
	}
	f.BoolVar(&o.yes, "yes", false, "start without asking; approves nothing else")
	f.DurationVar(&o.timeout, "timeout", 0, "stop, resumable, after this long (0: never)")
	f.StringVar(&o.state, "state", "", "the journal `FILE` (default .eksbg/NAME.journal beside the plan file)")
	f.StringVarP(&o.output, "output", "o", "text", "text or json")
}

// runAlone is the RunE of a command that runs a part alone.
func (o *applyOptions) runAlone(runF func(context.Context, *applyOptions) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		o.path = args[0]
		if runF != nil {
			return runF(cmd.Context(), o)
		}
		return runApply(cmd.Context(), o)
	}
}

// sided refuses a side that is none, and saved plans, which are of the whole way.
func (o *applyOptions) sided(saved bool) error {
	switch {
	case o.part.operation == "":
		return nil
	case o.part.side != state.Blue && o.part.side != state.Green:
		return fmt.Errorf("--cluster %s: blue or green", o.part.side)
	case saved:
		return fmt.Errorf("%s is a saved plan, which eksbg apply runs; %s takes a plan file", o.path, o.part.name())
	}
	return nil
}

// ownPhases refuses approvals of phases that the part does not have.
func (o *applyOptions) ownPhases() error {
	has, names := []state.Phase{state.PhaseRestart, state.PhaseRestartLive}, "restart and restart-live"
	switch o.part.operation {
	case "":
		return nil
	case state.OperationJobs:
		has, names = has[:1], "restart"
	}
	for _, p := range o.approve {
		if !slices.Contains(has, state.Phase(p)) {
			return fmt.Errorf("--approve %s: %s has no such phase; there is %s", p, o.part.name(), names)
		}
	}
	return nil
}

// planAlone reads the pair and works out the part of the way that is run alone.
func (s *session) planAlone(ctx context.Context, p part, fileSum, lineage string) (*state.Plan, error) {
	ctx = run.Reading(ctx)
	if err := s.connect(ctx); err != nil {
		return nil, s.explain(ctx, err)
	}
	w, err := plan.ObserveSide(ctx, s.file, s.sources(), p.side)
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	id, err := s.identity(w, fileSum, lineage)
	if err != nil {
		return nil, err
	}
	if p.operation == state.OperationJobs {
		return plan.Jobs(s.file, w, p.side, id), nil
	}
	return plan.Restart(s.file, w, p.side, id), nil
}

// identity is what a new plan carries beside what it saw.
func (s *session) identity(w *plan.World, fileSum, lineage string) (plan.Identity, error) {
	id := plan.Identity{Tool: version, File: s.planPath, FileSum: fileSum, Lineage: lineage}
	var err, lerr error
	id.Run, err = state.NewID(w.At, rand.Reader)
	if id.Lineage == "" {
		id.Lineage, lerr = state.NewID(w.At, rand.Reader)
	}
	return id, errors.Join(err, lerr)
}

// openRun refuses, before anything is asked, where a run of another part is open. What
// is wrong with the journal itself is told by the one who opens it.
func (a *applied) openRun() error {
	records, from, _, err := readRun(a.path)
	if err != nil || from != a.path || len(records) == 0 || records[0].Plan == nil {
		return nil
	}
	if slices.ContainsFunc(records, func(r state.Record) bool { return r.Kind == state.RecordClosed }) {
		return nil
	}
	return a.samePart(records[0].Plan, records)
}

// samePart refuses to go on with an open run of another part. apply goes on with any.
func (a *applied) samePart(p *state.Plan, records []state.Record) error {
	if a.o.part.operation == "" || a.o.part == partOf(p) {
		return nil
	}
	open := partOf(p)
	what := open.name()
	if open.operation != "" {
		what += " on " + string(open.side)
	}
	return &state.Stop{Code: state.ExitBlocked,
		Why: fmt.Sprintf("run %s (%s) is open, and a pair has one run at a time\n%s", p.Run, what, run.SoFar(records)),
		Cure: statusCommand(a.o.path, a.o.state) + "\nto see where it stands, and to finish it first\n" +
			open.command(a.o.path, a.o.state)}
}
