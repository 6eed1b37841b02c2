package cutover

import (
	"context"
	"errors"
	"time"

	"k8s.io/utils/clock"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

// StageDeps is everything that a stage of the cutover needs of the world.
type StageDeps struct {
	// Traffic are the entrances of the pair in the order of the plan file, as Open
	// made them. They are moved in this order and put back in the reverse one.
	Traffic []Traffic
	// Start holds the weights from before the run (state.Plan.Traffic): what a
	// put-back goes back to.
	Start []state.Share
	// Origin has the traffic when the run starts, Destination gets it.
	Origin, Destination state.Side

	// Gates must pass before the shift (as far as they can be asked then) and after it.
	Gates []planfile.Gate
	// Hold is how long a stage is watched before its verdict.
	Hold time.Duration
	// Patience is how long a gate may stay without an answer before exit 4.
	Patience time.Duration
	// Remaining is the time that all further stages will hold, for a warning about
	// credentials that end before the last one.
	Remaining time.Duration

	Clock   clock.WithTicker
	History state.History
	Prober  Prober

	// CredentialsExpire tells when the first of the credentials in use ends; the zero
	// time when they do not. Nil stands for credentials that do not end.
	CredentialsExpire func(context.Context) (time.Time, error)
	// OnInterrupt decides what happens when the run is interrupted between the first
	// shift and the last gate: true puts the traffic back, false leaves it. Nil puts
	// it back (semantics 20).
	OnInterrupt func() (back bool)
	// Stderr takes the records of a put-back that the journal could not take
	// (semantics 14), one line each. Nil drops them.
	Stderr func(line string)
	// ReadBack is how long reads after a change are repeated before they count; 0
	// stands for the 30 s of semantics 8.
	ReadBack time.Duration
}

// Stage is one traffic step: it brings the destination to its share, watches it
// through the hold, and puts everything back when a gate fails.
type Stage struct {
	spec state.StepSpec
	d    StageDeps
}

// NewStage makes the step of a spec of kind traffic.
func NewStage(spec state.StepSpec, d StageDeps) *Stage { return &Stage{spec: spec, d: d} }

// Spec is the step as data.
func (s *Stage) Spec() state.StepSpec { return s.spec }

// Observe reads the weights of all targets and says where the stage stands.
func (s *Stage) Observe(ctx context.Context) (state.Observation, error) {
	return state.Observation{}, errors.New("cutover: not complete yet")
}

// Act shifts the traffic, holds, asks the gates.
func (s *Stage) Act(ctx context.Context, rec state.Recorder) error {
	return errors.New("cutover: not complete yet")
}
