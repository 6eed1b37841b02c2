package run

import (
	"context"
	"errors"
	"strings"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/state"
)

// stopFor gives an error the exit code and the cure that users are promised.
func (w *Walker) stopFor(ctx context.Context, spec state.StepSpec, err error) *state.Stop {
	var stop *state.Stop
	if errors.As(err, &stop) {
		return w.withChanges(stop)
	}
	switch {
	case ctx.Err() != nil:
		return &state.Stop{Code: state.ExitInterrupted, Why: "interrupted during " + spec.ID,
			Cure: "the journal is complete: run the same command again to go on"}
	case aws.IsExpired(err):
		cure := "log in again, then run the same command again"
		if w.Login != nil {
			cure = w.Login(spec.Side) + "\nthen run the same command again"
		}
		return &state.Stop{Code: state.ExitResumable, Why: "the AWS credentials have expired", Cause: err, Cure: cure}
	case aws.IsUnavailable(err) && len(state.Changed(w.Journal.Records(""))) > 0:
		return &state.Stop{Code: state.ExitResumable, Why: "an endpoint did not answer for minutes", Cause: err,
			Cure: "check the network and the endpoint, then run the same command again"}
	}
	return &state.Stop{Code: state.ExitFailed, Why: "step " + spec.ID + " failed", Cause: err,
		Cure: "mend what the message says, then run the same command again"}
}

// withChanges adds to a block what has been changed so far (semantics 24).
func (w *Walker) withChanges(stop *state.Stop) *state.Stop {
	if stop.Code != state.ExitBlocked {
		return stop
	}
	changed := state.Changed(w.Journal.Records(""))
	line := "nothing has been changed so far"
	if n := len(changed); n > 0 {
		const most = 12
		more := ""
		if n > most {
			changed, more = changed[:most], ", …"
		}
		line = "changed so far: " + strings.Join(changed, ", ") + more
	}
	out := *stop
	out.Why = strings.TrimRight(stop.Why, "\n") + "\n" + line
	return &out
}
