package plan

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/eksbg/eksbg/internal/cutover"
	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/preflight"
	"github.com/eksbg/eksbg/internal/run"
	"github.com/eksbg/eksbg/internal/standby"
	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/upgrade"
)

// Builder makes the steps of a run from their specs.
type Builder struct {
	File    *planfile.File
	Plan    *state.Plan
	History state.History
	// FileSum is the digest of File as it is now; empty where nobody says.
	FileSum string
	Sources
	// Open reaches a side's API server.
	Open    func(context.Context, state.Side) (Cluster, error)
	Servers map[state.Side]upgrade.ServerVersioner
	Prober  cutover.Prober
	// OnInterrupt decides what an interrupt in the middle of the cutover does.
	OnInterrupt func() (back bool)
	// Approve asks for the approval of a restart whose side has come to get traffic since
	// it was planned; nil, or nobody, is no approval.
	Approve func(context.Context, run.Ask) (*state.Who, error)
	// Stderr takes what a put-back could not write to the journal.
	Stderr func(line string)

	own sync.Once
}

// Build makes the step of a spec. What it changes in a cluster ends the handing on of
// what was read of the clusters before.
func (b *Builder) Build(ctx context.Context, spec state.StepSpec) (run.Step, error) {
	step, err := b.build(ctx, spec)
	if err != nil || spec.Kind == state.KindTraffic { // which changes no cluster
		return step, err
	}
	return &changing{step, b.looks()}, nil
}

func (b *Builder) build(ctx context.Context, spec state.StepSpec) (run.Step, error) {
	switch spec.Kind {
	case state.KindPreflight:
		return b.preflight(spec), nil
	case state.KindControlPlane:
		return upgrade.NewControlPlane(spec, b.upgradeDeps(spec)), nil
	case state.KindAddon:
		return upgrade.NewAddon(spec, b.upgradeDeps(spec)), nil
	case state.KindRestart:
		return b.restartStep(ctx, spec)
	case state.KindJobs:
		return b.jobsStep(ctx, spec)
	case state.KindCapacity:
		return standby.NewCapacity(spec, standby.CapacityDeps{
			Origin: b.looks().First(b.Plan.Origin), Destination: b.looks().First(b.Plan.Destination),
			Clock: b.Clock, Patience: time.Duration(b.File.Cutover.Patience), Polling: time.Duration(b.File.Upgrade.Polling),
		}), nil
	case state.KindTraffic:
		return b.stage(spec), nil
	}
	return nil, fmt.Errorf("step %s is of kind %q, which this eksbg does not know; use the version that made the run", spec.ID, spec.Kind)
}

func (b *Builder) preflight(spec state.StepSpec) run.Step {
	d := b.Plan.Destination
	checks := []preflight.Check{
		preflight.Identity(b.Plan, b.identities()),
		preflight.Credentials(b.Plan, b.Clock.Now, b.CredentialsExpire),
	}
	if hop := firstHop(b.Plan); hop != "" {
		checks = append(checks, preflight.Check{Name: "EKS upgrade insights, refreshed", Run: func(ctx context.Context) ([]state.Finding, error) {
			return b.insights(ctx, d, hop)
		}})
	}
	if moves(b.Plan) {
		checks = append(checks, preflight.Check{Name: "traffic targets", Run: func(ctx context.Context) ([]state.Finding, error) {
			return cutover.Check(ctx, b.Traffic, b.File.Cutover.Stages...)
		}})
	}
	checks = append(checks, b.roomChecks()...)
	checks = append(checks, b.accessChecks()...)
	return preflight.New(spec, preflight.Deps{Checks: checks, History: b.History,
		Again: func(ctx context.Context) (string, []preflight.Check, error) { return b.accessAgain(ctx, spec.ID) },
		Waive: func(fs []state.Finding) []state.Finding { return Waive(b.File, fs, b.Clock.Now()) },
		Cured: func(f state.Finding) string { return curedBy(b.Plan.Steps, f) },
	})
}

// insights reads the refreshed upgrade insights of a side for a minor.
func (b *Builder) insights(ctx context.Context, side state.Side, minor string) ([]state.Finding, error) {
	return upgrade.Insights(ctx, b.EKS[side], b.Plan.Clusters[side].Name, minor, upgrade.InsightOptions{
		Refresh: true, Clock: b.Clock, Side: side, Polling: time.Duration(b.File.Upgrade.Polling),
	})
}

func (b *Builder) upgradeDeps(spec state.StepSpec) upgrade.Deps {
	side := spec.Side
	return upgrade.Deps{
		EKS: b.EKS[side], Server: b.Servers[side], Clock: b.Clock, History: b.History,
		Polling: time.Duration(b.File.Upgrade.Polling), Cluster: b.Plan.Clusters[side].Name, Side: side, Addons: b.File.Upgrade.Addons,
		Check: func(ctx context.Context, minor string) ([]state.Finding, error) {
			found, err := b.insights(ctx, side, minor)
			return Waive(b.File, found, b.Clock.Now()), err
		},
	}
}

func (b *Builder) stage(spec state.StepSpec) run.Step {
	var remaining time.Duration
	for _, s := range b.Plan.Steps {
		if s.Kind == state.KindTraffic && s.Percent > spec.Percent {
			remaining += time.Duration(b.File.Cutover.Hold)
		}
	}
	stage := cutover.NewStage(spec, cutover.StageDeps{
		Traffic: b.Traffic, Start: b.Plan.Traffic, Origin: b.Plan.Origin, Destination: b.Plan.Destination,
		Gates: b.File.Cutover.Gates, Hold: time.Duration(b.File.Cutover.Hold), Patience: time.Duration(b.File.Cutover.Patience),
		Remaining: remaining, Clock: b.Clock, History: b.History, Prober: b.Prober,
		CredentialsExpire: b.CredentialsExpire, OnInterrupt: b.OnInterrupt, Stderr: b.Stderr,
	})
	return &checkedStage{Step: stage, check: b.ownersBeforeTheShift}
}

// checkedStage looks at the entrances again before the first shift: an upgrade takes
// an hour, and a controller may have taken one over meanwhile (semantics 19).
type checkedStage struct {
	run.Step
	check func(context.Context) error
}

// Act checks, then lets the stage act.
func (c *checkedStage) Act(ctx context.Context, rec state.Recorder) error {
	if err := c.check(ctx); err != nil {
		return err
	}
	return c.Step.Act(ctx, rec)
}

// ownersBeforeTheShift is nil once any weight was sent: from then on the stages alone
// decide, and nothing may stand between them and a put-back.
func (b *Builder) ownersBeforeTheShift(ctx context.Context) error {
	for _, s := range b.Plan.Steps {
		if s.Kind != state.KindTraffic {
			continue
		}
		for _, r := range b.History.Records(s.ID) {
			if r.Kind == state.RecordIntent {
				return nil
			}
		}
	}
	found, err := cutover.Check(ctx, b.Traffic, b.File.Cutover.Stages...)
	if err != nil {
		return fmt.Errorf("look at the entrances before the first shift: %w", err)
	}
	for _, f := range Waive(b.File, found, b.Clock.Now()) {
		if f.Blocks() {
			return &state.Stop{Code: state.ExitBlocked, Why: fmt.Sprintf("%s %s: %s", f.Severity, f.Check, f.Text), Cure: f.Cure}
		}
	}
	return nil
}

// Terms digests what the plan file says of a phase, for approvals to bind to
// (semantics 4): gates and holds of a cutover, skips and parallelism of a restart.
func (b *Builder) Terms(phase state.Phase) string {
	var of any
	switch phase {
	case state.PhaseCutover:
		of = []any{b.File.Cutover, b.File.Traffic}
	case state.PhaseRestart, state.PhaseRestartLive:
		of = b.File.Restart
	case state.PhaseUpgrade:
		of = []any{b.File.Upgrade, b.File.Waive}
	case state.PhaseCapacity:
		of = b.File.Capacity
	default:
		return ""
	}
	raw, err := json.Marshal(of)
	if err != nil {
		panic(fmt.Sprintf("marshal a part of the plan file: %v", err)) // it was read from text
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// Urgent names the traffic step that has to put the traffic back before anything
// else is looked at, or "" when none has to.
func (b *Builder) Urgent() string {
	if _, due := cutover.PutBackDue(b.History); !due {
		return ""
	}
	last := ""
	for _, s := range state.Steps(b.History.Records("")) {
		if s.Kind == state.KindTraffic && len(b.History.Records(s.ID)) > 0 {
			last = s.ID
		}
	}
	return last
}

func firstHop(p *state.Plan) string {
	for _, s := range p.Steps {
		if s.Kind == state.KindControlPlane {
			return s.To
		}
	}
	return ""
}

func moves(p *state.Plan) bool {
	for _, s := range p.Steps {
		if s.Kind == state.KindTraffic {
			return true
		}
	}
	return false
}

// curedBy names the step that removes a finding (semantics 26), or "".
func curedBy(steps []state.StepSpec, f state.Finding) string {
	kind := upgrade.Curable(f)
	if kind == "" {
		return ""
	}
	for _, s := range steps {
		if s.Kind == kind && (f.Side == "" || s.Side == f.Side) {
			return s.ID
		}
	}
	return ""
}
