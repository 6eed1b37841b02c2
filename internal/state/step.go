package state

import (
	"fmt"
	"strings"
	"unicode"
)

// Status is where a step stands in the world, whatever the journal says.
type Status string

// The statuses.
const (
	// Done: the world is as the step wants it; nothing to do.
	Done Status = "done"
	// Ready: the step can act.
	Ready Status = "ready"
	// Blocked: the step must not act; Reason and Cure say why and what helps.
	Blocked Status = "blocked"
)

// Observation is what a step sees when it looks at the world.
type Observation struct {
	Status Status
	// Reason says it in one line: "control plane answers 1.32", "insight … is in ERROR".
	Reason string
	// Cure is the next thing to do for a person when blocked.
	Cure string
}

// Exit is a process exit code with the meaning that the documentation gives it.
type Exit int

// The exit codes.
const (
	ExitDone        Exit = 0
	ExitFailed      Exit = 1
	ExitPending     Exit = 2
	ExitBlocked     Exit = 3
	ExitResumable   Exit = 4
	ExitPutBack     Exit = 5
	ExitLocked      Exit = 6
	ExitStale       Exit = 7
	ExitConsent     Exit = 8
	ExitDisplaced   Exit = 9
	ExitInterrupted Exit = 130
)

// Stop ends a run on purpose: the exit code, why, and what helps. It is an error,
// so steps return it; anything else that a step returns is a failure (exit 1).
type Stop struct {
	Code Exit
	// Why says what happened in one or a few lines.
	Why string
	// Cure is what a person should do, in words or as commands, one a line.
	Cure string
	// Cause is the error behind it, if there is one.
	Cause error
	// Approve names the phase whose approval is awaited, if one is.
	Approve Phase
}

// Error says why and, where there is one, the cause.
func (s *Stop) Error() string {
	if s.Cause != nil {
		return fmt.Sprintf("%s: %v", s.Why, s.Cause)
	}
	return s.Why
}

// Unwrap gives the cause.
func (s *Stop) Unwrap() error { return s.Cause }

// NeedsFirst is returned by a step that can only go on after another one that the
// plan does not hold: "recycle all offending pod replicas" asks for a restart
// first. The run puts Spec in front of the step, journals that, and tries again.
type NeedsFirst struct {
	Spec StepSpec
}

// Error says what is needed.
func (n *NeedsFirst) Error() string {
	return fmt.Sprintf("%s has to come first: %s", n.Spec.ID, n.Spec.Cause)
}

// Recorder writes the records of one step. Every method that returns an error has
// failed to make the record durable; a step that gets one from Intent must not
// make the change. Implementations set Seq, Time and Step.
type Recorder interface {
	// Intent makes a change durable before it is sent and returns its Seq. detail and
	// undo are marshalled to JSON; nil leaves them out.
	Intent(call, object string, detail, undo any) (int64, error)
	// Outcome says what came of the intent.
	Outcome(intent int64, result Result, text string, detail any) error
	// Record appends any other record of the step, fsynced unless it is RecordWaiting.
	Record(r Record) error
	// Waiting says what the step waits for; it never fails the step.
	Waiting(text string)
}

// History reads what the journal already holds.
type History interface {
	// Records returns the records of one step in order, those of this process
	// included; "" returns all records of the run.
	Records(step string) []Record
}

// Clean strips control characters from text that came from a cluster or from AWS,
// so that it cannot drive a terminal; newlines and tabs become spaces.
func Clean(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, s))
}
