package plan

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/client-go/kubernetes"

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
	var out []preflight.Check
	for _, side := range state.Sides {
		if len(b.Plan.Access[side]) == 0 {
			continue
		}
		out = append(out, accessCheck(b.Plan, side, func(ctx context.Context, side state.Side) (kubernetes.Interface, error) {
			c, err := b.Open(ctx, side)
			if err != nil {
				return nil, err
			}
			return c.Kubernetes(), nil
		}))
	}
	return out
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
		if err != nil {
			return nil, err
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
