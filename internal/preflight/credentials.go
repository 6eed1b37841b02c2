package preflight

import (
	"context"
	"fmt"
	"time"

	"github.com/eksbg/eksbg/internal/state"
)

// Credentials holds the life of the credentials against the time that the plan is
// expected to take. It only warns: a run that outlives them stops resumable, and no
// stage of the cutover begins without enough of it (semantics 13).
func Credentials(p *state.Plan, now func() time.Time, expire func(context.Context) (time.Time, error)) Check {
	return Check{Name: "the credentials last", Run: func(ctx context.Context) ([]state.Finding, error) {
		at, err := expire(ctx)
		if err != nil {
			return nil, fmt.Errorf("read when the credentials end: %w", err)
		}
		if at.IsZero() {
			return nil, nil
		}
		var need time.Duration
		for _, s := range p.Steps {
			need += s.Expect.Max.D()
		}
		left := at.Sub(now())
		if left >= need {
			return nil, nil
		}
		return []state.Finding{{Check: "credentials/life", Severity: state.SeverityWarn,
			Text: fmt.Sprintf("the credentials last %s and the plan may take %s; the run will stop, resumable, when they end", left.Round(time.Minute), need.Round(time.Minute)),
			Cure: "log in again before you start"}}, nil
	}}
}
