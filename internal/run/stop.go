package run

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/state"
)

// causedBy gives an interrupted run the code and the cure of what interrupted it, where
// that is a stop itself: the lock was lost (semantics 23).
func causedBy(ctx context.Context, stop *state.Stop) *state.Stop {
	var cause *state.Stop
	if stop == nil || stop.Code != state.ExitInterrupted || !errors.As(context.Cause(ctx), &cause) {
		return stop
	}
	out := *cause
	out.Why += "\n" + stop.Why
	return &out
}

// stopFor gives an error the exit code and the cure that users are promised.
func (w *Walker) stopFor(ctx context.Context, spec state.StepSpec, err error) *state.Stop {
	var stop *state.Stop
	if errors.As(err, &stop) {
		return stop
	}
	switch {
	case ctx.Err() != nil:
		return &state.Stop{Code: state.ExitInterrupted, Why: "interrupted during " + spec.ID,
			Cure: "the journal is complete: run the same command again to go on"}
	case aws.IsExpired(err):
		return &state.Stop{Code: state.ExitResumable, Why: "the AWS credentials have expired", Cause: err, Cure: w.loginCure(spec.Side)}
	case apierrors.IsUnauthorized(err):
		// Session credentials sign tokens without asking AWS, so the API server may be the
		// first to say that they are over.
		return &state.Stop{Code: state.ExitResumable, Why: "the API server does not take the credentials any more", Cause: err, Cure: w.loginCure(spec.Side)}
	case aws.IsUnavailable(err):
		stop = &state.Stop{Code: state.ExitFailed, Why: "step " + spec.ID + " failed", Cause: err,
			Cure: "check the network and the endpoint, then run the same command again"}
		if len(state.Changed(w.Journal.Records(""))) > 0 {
			stop.Code, stop.Why = state.ExitResumable, "an endpoint did not answer for minutes"
		}
		return stop
	}
	return &state.Stop{Code: state.ExitFailed, Why: "step " + spec.ID + " failed", Cause: err,
		Cure: "mend what the message says, then run the same command again"}
}

func (w *Walker) loginCure(side state.Side) string {
	if w.Login == nil {
		return "log in again, then run the same command again"
	}
	return w.Login(side) + "\nthen run the same command again"
}

// withChanges adds to a block what has been changed so far (semantics 24).
func (w *Walker) withChanges(stop *state.Stop) *state.Stop {
	if stop == nil || stop.Code != state.ExitBlocked {
		return stop
	}
	out := *stop
	out.Why = strings.TrimRight(stop.Why, "\n") + "\n" + SoFar(w.Journal.Records(""))
	return &out
}

// SoFar says in one line what a run has changed so far.
func SoFar(records []state.Record) string {
	changed := state.Changed(records)
	line := "nothing has been changed so far"
	if n := len(changed); n > 0 {
		const most = 12 // the newest tell more: the weights come last
		earlier := ""
		if n > most {
			earlier = fmt.Sprintf("%d earlier ones, then ", n-most)
			changed = changed[n-most:]
		}
		line = "changed so far: " + earlier + strings.Join(changed, ", ")
	}
	return line
}
