package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/eksbg/eksbg/internal/plan"
	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/run"
	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/ui/text"
)

type planOptions struct {
	streams
	path     string
	state    string
	active   string
	output   string
	save     string
	detailed bool
}

func newPlanCommand(s streams, runF func(context.Context, *planOptions) error) *cobra.Command {
	o := &planOptions{streams: s}
	cmd := &cobra.Command{
		Use:   "plan FILE",
		Short: "Read the pair and print the steps that would be run; changes nothing",
		Long: "Reads the pair and prints the steps that would be run, with what each will call\n" +
			"and how long it is expected to take. Upgrade insights are read as they are; apply\n" +
			"has EKS refresh them first.",
		Args: fileArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.path = args[0]
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runPlan(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.output, "output", "o", "text", "text or json")
	f.StringVar(&o.save, "out", "", "save the plan to this `FILE` for apply")
	f.BoolVar(&o.detailed, "detailed-exitcode", false, "exit 2 when there is something to do")
	f.StringVar(&o.active, "active", "", "which side serves the traffic, where the weights do not say (blue or green)")
	f.StringVar(&o.state, "state", "", "the journal `FILE` (default .eksbg/NAME.journal beside the plan file)")
	return cmd
}

func runPlan(ctx context.Context, o *planOptions) error {
	err := mayReplace(o.save)
	var p *state.Plan
	if err == nil {
		p, err = makePlan(ctx, o)
	}
	if err == nil && o.save != "" {
		err = state.SavePlan(o.save, p)
	}
	if err == nil {
		if blocked := blockers(p); blocked != nil {
			err = blocked
		} else if o.detailed && len(p.Steps) > 0 {
			err = exitError(state.ExitPending)
		}
	}
	if o.output == "json" {
		return writePlanJSON(o.streams, p, err)
	}
	if p != nil {
		text.Plan(o.out, p, o.clock.Now(), o.next(p))
	}
	return err
}

// mayReplace refuses to write a saved plan over something that is none.
func mayReplace(path string) error {
	if path == "" {
		return nil
	}
	there, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("--out %s: %w", path, err)
	case !there.Mode().IsRegular(): // a rename would take the place of /dev/null
		return fmt.Errorf("--out %s is no file; a saved plan is one that apply can read again", path)
	}
	content, err := os.ReadFile(path)
	switch {
	case err != nil:
		return fmt.Errorf("--out %s: %w", path, err)
	case len(content) > 0 && !state.IsPlan(content):
		return fmt.Errorf("--out %s is there and is no saved plan; name another file, or remove it first", path)
	}
	return nil
}

func makePlan(ctx context.Context, o *planOptions) (*state.Plan, error) {
	if o.output != "text" && o.output != "json" {
		return nil, fmt.Errorf("-o %s: text or json", o.output)
	}
	content, err := os.ReadFile(o.path)
	if err != nil {
		return nil, notThere(fmt.Errorf("read the plan file: %w", err))
	}
	f, err := planfile.Parse(o.path, content)
	if err != nil {
		return nil, err
	}
	path := journalPath(o.path, f.Name, o.state)
	if err := refuseOpenRun(o, path); err != nil {
		return nil, err
	}
	s, err := newSession(o.streams, o.path, f)
	if err != nil {
		return nil, err
	}
	ctx, stopSignals := withSignals(ctx, o.streams, "Interrupted.")
	defer stopSignals()
	p, err := s.plan(run.Reading(ctx), state.Side(o.active), sum(content), lineageOf(path))
	if err != nil {
		return nil, err
	}
	gaps, err := plan.AccessGaps(ctx, f, p, s.kubernetes)
	if err != nil {
		return nil, s.explain(ctx, err)
	}
	p.Findings = append(p.Findings, gaps...)
	return p, nil
}

// kubernetes is the client of one side's API server.
func (s *session) kubernetes(ctx context.Context, side state.Side) (kubernetes.Interface, error) {
	c, err := s.open(ctx, side)
	if err != nil {
		return nil, err
	}
	return c.Kubernetes(), nil
}

// refuseOpenRun says that a run is open instead of planning beside it.
func refuseOpenRun(o *planOptions, path string) error {
	records, from, _, err := readRun(path)
	if err != nil {
		return err
	}
	if from != path || len(records) == 0 {
		return nil
	}
	for _, r := range records {
		if r.Kind == state.RecordClosed {
			return nil
		}
	}
	return &state.Stop{Code: state.ExitBlocked, Why: fmt.Sprintf("run %s is open: its steps are fixed\n%s", records[0].Plan.Run, run.SoFar(records)),
		Cure: statusCommand(o.path, o.state) + "\nto see where it stands, and to go on\n" + applyCommand(o.path, o.state)}
}

func (o *planOptions) next(p *state.Plan) string {
	switch {
	case os.Getenv(inDemo) != "":
		return ""
	case len(p.Steps) == 0:
		return statusCommand(o.path, o.state)
	case o.save != "":
		return applyCommand(o.save, o.state)
	case o.active != "":
		return applyCommand(o.path, o.state) + " --active " + o.active
	}
	return applyCommand(o.path, o.state)
}

// blockers is the stop for findings that nobody waived and no step cures.
func blockers(p *state.Plan) error {
	var lines []string
	for _, f := range p.Findings {
		if f.Blocks() && len(p.Steps) > 0 {
			lines = append(lines, fmt.Sprintf("%s %s: %s", f.Severity, f.Check, f.Text))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	verb := "1 finding blocks"
	if len(lines) > 1 {
		verb = fmt.Sprintf("%d findings block", len(lines))
	}
	return &state.Stop{Code: state.ExitBlocked, Why: fmt.Sprintf("%s the run:\n%s\nnothing has been changed", verb, strings.Join(lines, "\n")),
		Cure: "mend them, or accept one by name under waive: in the plan file, with a reason and an end"}
}

func writePlanJSON(s streams, p *state.Plan, err error) error {
	doc := struct {
		Format  int    `json:"format"`
		Command string `json:"command"`
		outcome
		Plan *state.Plan `json:"plan"`
	}{Format: state.FormatVersion, Command: "plan", outcome: outcomeOf(err), Plan: p}
	return doc.outcome.write(s, doc)
}

// statusCommand and applyCommand are what to type for a plan file and its journal.
func statusCommand(path, journal string) string {
	return withState("eksbg status "+shellQuote(path), journal)
}

func applyCommand(path, journal string) string {
	return withState("eksbg apply "+shellQuote(path), journal)
}

// jobsCommand is what deletes finished Jobs of a side.
func jobsCommand(path string, side state.Side, journal string) string {
	return withState("eksbg jobs clean "+shellQuote(path)+" --cluster "+string(side), journal)
}

func withState(cmd, journal string) string {
	if journal != "" {
		cmd += " --state " + shellQuote(journal)
	}
	return cmd
}
