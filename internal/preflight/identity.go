package preflight

import (
	"context"
	"fmt"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/state"
)

// Inventory reads a cluster of the pair.
type Inventory func(ctx context.Context) (*cluster.Inventory, error)

// Identity holds the clusters against those that the plan was made for: same ARN,
// same time of creation (semantics 6). A cluster of the same name that was made anew
// is another cluster.
func Identity(p *state.Plan, inventories map[state.Side]Inventory) Check {
	return Check{Name: "the clusters are the plan's", Run: func(ctx context.Context) ([]state.Finding, error) {
		var out []state.Finding
		for _, side := range state.Sides {
			inv, err := inventories[side](ctx)
			if err != nil {
				return nil, fmt.Errorf("read cluster %s: %w", p.Clusters[side].Name, err)
			}
			want := p.Clusters[side]
			if inv.ARN != want.ARN || !inv.CreatedAt.Equal(want.CreatedAt) {
				out = append(out, state.Finding{Check: "cluster/identity", Severity: state.SeverityError, Side: side,
					Text: fmt.Sprintf("%s is %s of %s; the plan is about %s of %s", side, inv.ARN, inv.CreatedAt.UTC().Format("2006-01-02 15:04:05"),
						want.ARN, want.CreatedAt.UTC().Format("2006-01-02 15:04:05")),
					Cure: "plan again: the cluster was made anew since"})
			}
			out = append(out, Status(side, inv)...)
		}
		return out, nil
	}}
}

// Status finds clusters that are not ACTIVE and updates that somebody else began.
func Status(side state.Side, inv *cluster.Inventory) []state.Finding {
	var out []state.Finding
	switch inv.Status {
	case "ACTIVE":
	case "UPDATING":
		out = append(out, state.Finding{Check: "cluster/status", Severity: state.SeverityWarn, Side: side,
			Text: fmt.Sprintf("%s is UPDATING; a step that changes it waits until it is ACTIVE", inv.Name)})
	default:
		out = append(out, state.Finding{Check: "cluster/status", Severity: state.SeverityError, Side: side,
			Text: fmt.Sprintf("%s is %s", inv.Name, state.Clean(inv.Status)), Cure: "bring the cluster back to ACTIVE first"})
	}
	for _, u := range inv.Updates {
		out = append(out, state.Finding{Check: "cluster/update", Severity: state.SeverityWarn, Side: side,
			Text: fmt.Sprintf("%s has %s %s in progress, begun %s; it is waited for", inv.Name, state.Clean(u.Type), state.Clean(u.ID),
				u.CreatedAt.UTC().Format("15:04:05"))})
	}
	return out
}
