package plan

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/preflight"
	"github.com/eksbg/eksbg/internal/run"
	"github.com/eksbg/eksbg/internal/state"
)

// accessCheck asks whether the steps of a plan may do in a cluster what they will.
func accessCheck(p *state.Plan, side state.Side, open func(context.Context, state.Side) (kubernetes.Interface, error)) preflight.Check {
	c := preflight.Access(side, p.Clusters[side].Name, p.Access[side], func(ctx context.Context) (kubernetes.Interface, error) { return open(ctx, side) })
	ask := c.Run
	// Nothing has been changed yet, so an API server that only answers with errors is not
	// waited for.
	c.Run = func(ctx context.Context) ([]state.Finding, error) { return ask(run.Reading(ctx)) }
	return c
}

// accessChecks are those of a run, before its first change. A plan of an eksbg that did not
// write down what it uses has none.
func (b *Builder) accessChecks() []preflight.Check {
	if b.Plan.Access != nil && b.fileChanged() {
		return []preflight.Check{{Name: "what may be done, by the plan file as it is now", Run: func(ctx context.Context) ([]state.Finding, error) {
			ctx = run.Reading(ctx)
			need, err := b.accessLeft(ctx)
			if err != nil {
				return nil, err
			}
			return b.askFor(ctx, need)
		}}}
	}
	var out []preflight.Check
	for _, side := range state.Sides {
		if len(b.Plan.Access[side]) > 0 {
			out = append(out, accessCheck(b.Plan, side, b.kubernetes))
		}
	}
	return out
}

func (b *Builder) kubernetes(ctx context.Context, side state.Side) (kubernetes.Interface, error) {
	c, err := b.Open(ctx, side)
	if err != nil {
		return nil, err
	}
	return c.Kubernetes(), nil
}

// askFor asks whether all of this may be done.
func (b *Builder) askFor(ctx context.Context, need map[state.Side][]state.Access) ([]state.Finding, error) {
	var out []state.Finding
	for _, side := range state.Sides {
		if len(need[side]) == 0 {
			continue
		}
		open := func(ctx context.Context) (kubernetes.Interface, error) { return b.kubernetes(ctx, side) }
		found, err := preflight.Access(side, b.Plan.Clusters[side].Name, need[side], open).Run(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// accessAgain gives the check to make once more where what was asked when the preflight
// passed is not what would be asked now: the plan file has changed since the run began, or
// somebody else calls.
func (b *Builder) accessAgain(ctx context.Context, preflightStep string) (why string, checks []preflight.Check, err error) {
	if b.Plan.Access == nil {
		return "", nil, nil
	}
	switch asked, now := callers(b.History.Records(""), preflightStep); {
	case b.fileChanged():
		why = "asking again what may be done, since the plan file changed after the run began"
	case asked != now:
		why = fmt.Sprintf("asking again what may be done, since %s went on with what %s was asked about", named(now), named(asked))
	default:
		return "", nil, nil
	}
	need, err := b.accessLeft(ctx)
	if err != nil || len(need) == 0 {
		return "", nil, err
	}
	// What is under way needs what the plan says beside what is not begun yet: a CronJob
	// that is suspended is to be put back.
	for side := range need {
		all := slices.Clone(b.Plan.Access[side])
		for _, a := range need[side] {
			all = merged(all, a)
		}
		need[side] = all
	}
	return why, []preflight.Check{{Name: "what may be done in the steps that are left", Run: func(ctx context.Context) ([]state.Finding, error) {
		return b.askFor(ctx, need)
	}}}, nil
}

// fileChanged tells whether the plan file is another one than the run was made from.
func (b *Builder) fileChanged() bool { return b.FileSum != "" && b.FileSum != b.Plan.FileSum }

// callers are who called when a step was last seen done, and who calls now, as STS says.
func callers(records []state.Record, step string) (then, now string) {
	for _, r := range records {
		switch {
		case r.Who != nil && (r.Kind == state.RecordPlan || r.Kind == state.RecordResumed):
			now = r.Who.ARN
		case r.Kind == state.RecordDone && r.Step == step:
			then = now
		}
	}
	return then, now
}

// named is a caller for people.
func named(arn string) string {
	if arn == "" {
		return "somebody without a known ARN"
	}
	return arn
}

// accessLeft is what the steps that are not done use of the clusters that they change, by
// the plan file and the clusters as they are now. It lists these clusters, for the step
// that comes next as well.
func (b *Builder) accessLeft(ctx context.Context) (map[state.Side][]state.Access, error) {
	records := b.History.Records("")
	left := &state.Plan{}
	w := &World{At: b.Clock.Now().UTC(), Traffic: b.Plan.Traffic, Inventories: map[state.Side]*cluster.Inventory{}}
	for _, s := range state.Steps(records) {
		if s.Kind != state.KindRestart && s.Kind != state.KindJobs || state.StepDone(records, s.ID) {
			continue
		}
		left.Steps = append(left.Steps, s)
		if w.Inventories[s.Side] != nil {
			continue
		}
		inv, err := b.looks().Glance(s.Side)(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the %s cluster to see what may be needed there: %w", s.Side, err)
		}
		w.Inventories[s.Side] = inv
	}
	(&builder{file: b.File, world: w, plan: left}).access()
	return left.Access, nil
}

// AccessGaps says of each cluster what of a plan would be denied to whoever looks at it.
// It is information: who plans need not be who applies, and what makes a saved plan stale
// must not depend on that. What the plan file waives is left out.
func AccessGaps(ctx context.Context, f *planfile.File, p *state.Plan, open func(context.Context, state.Side) (kubernetes.Interface, error)) ([]state.Finding, error) {
	var out []state.Finding
	for _, side := range state.Sides {
		if len(p.Access[side]) == 0 {
			continue
		}
		found, err := accessCheck(p, side, open).Run(ctx)
		switch {
		case err == nil:
		case ctx.Err() != nil || aws.IsExpired(err):
			return nil, err
		default:
			found = []state.Finding{{Check: preflight.AccessUnknown, Text: state.Clean(err.Error()), Cure: "check the network, the endpoint and the credentials"}}
		}
		var gaps []string
		for _, g := range Waive(f, found, p.CreatedAt) {
			switch {
			case g.Waived != "":
			case g.Check == preflight.AccessUnknown:
				out = append(out, state.Finding{Check: g.Check, Severity: state.SeverityInfo, Side: side, Text: g.Text, Cure: g.Cure})
			default:
				gaps = append(gaps, strings.Replace(strings.TrimPrefix(g.Check, preflight.AccessCheck), "/", " ", 1))
			}
		}
		if len(gaps) > 0 {
			out = append(out, state.Finding{Check: preflight.AccessCheck + "run", Severity: state.SeverityInfo, Side: side,
				Text: fmt.Sprintf("a run with these credentials would stop before its first change, since in cluster %s they may not: %s", p.Clusters[side].Name, strings.Join(gaps, ", ")),
				Cure: "run it with others, or allow it (docs/permissions.md)"})
		}
	}
	return out, nil
}
