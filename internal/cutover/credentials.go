package cutover

import (
	"context"
	"fmt"
	"time"

	eksaws "github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/state"
)

// credentials makes sure that they outlast what this stage begins (semantics 13), and
// warns when they do not outlast the stages after it.
func (s *Stage) credentials(ctx context.Context, rec state.Recorder, r *reading) error {
	ends, until, err := s.outlasting(ctx, r)
	if err != nil || until.IsZero() || !ends.Add(s.d.Remaining).After(until) {
		return err
	}
	return s.record(rec, state.Record{Kind: state.RecordWarning, Text: fmt.Sprintf(
		"the credentials end at %s, before the last stage would: log in again before then", until.UTC().Format(time.RFC3339))})
}

// outlasting stops unless the credentials last for a hold, its gates and a put-back that
// begin now. It gives when those end, and when the credentials do; the zero time for
// those that do not.
func (s *Stage) outlasting(ctx context.Context, r *reading) (ends, until time.Time, err error) {
	if s.d.CredentialsExpire == nil {
		return ends, until, nil
	}
	until, err = s.d.CredentialsExpire(ctx)
	switch {
	case err != nil && (eksaws.IsExpired(err) || ctx.Err() != nil):
		return ends, until, err
	case err != nil:
		return ends, until, &state.Stop{Code: state.ExitResumable, Cause: err,
			Why:  "nobody can tell when the credentials end, so no stage begins; now " + s.unwatched(r.shares),
			Cure: "log in with credentials that tell, then run the same command again"}
	}
	ends = s.d.Clock.Now().Add(s.d.Hold + gatesTake(s.d.Gates) + backAllowance)
	if !until.IsZero() && ends.After(until) {
		return ends, until, &state.Stop{Code: state.ExitResumable,
			Why: fmt.Sprintf("the credentials end at %s, and this stage with a put-back needs them until %s; now %s",
				until.UTC().Format(time.RFC3339), ends.UTC().Format(time.RFC3339), s.unwatched(r.shares)),
			Cure: "log in again for longer, then run the same command again"}
	}
	return ends, until, nil
}
