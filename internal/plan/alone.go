package plan

import (
	"context"
	"fmt"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/preflight"
	"github.com/eksbg/eksbg/internal/state"
)

// ObserveSide reads the pair for an operation on one side alone: both clusters and the
// traffic, but neither insights nor the versions that EKS offers.
func ObserveSide(ctx context.Context, f *planfile.File, src Sources, side state.Side) (*World, error) {
	w, err := observe(ctx, src)
	if err != nil {
		return nil, err
	}
	w.Findings = preflight.Status(side, w.Inventories[side])
	if err := w.readRoom(ctx, src, side); err != nil {
		return nil, err
	}
	w.Findings = Waive(f, w.Findings, w.At)
	return w, nil
}

// Restart is the plan of restarting what lags on one side, and nothing else. It has no
// steps where nothing lags that the plan file does not skip.
func Restart(f *planfile.File, w *World, side state.Side, id Identity) *state.Plan {
	b := alone(f, w, side, id, state.OperationRestart)
	version := w.Inventories[side].Version
	if b.left(side, version) > 0 {
		b.preflight()
		b.restart(side, version, fmt.Sprintf("%s/%s/1", side, b.restartName(side)), "")
	}
	return b.end()
}

// Jobs is the plan of deleting finished Jobs on one side, and nothing else, whatever
// restart.finishedJobs says. It has no steps where none may be deleted.
func Jobs(f *planfile.File, w *World, side state.Side, id Identity) *state.Plan {
	asked := *f
	asked.Restart.FinishedJobs = "delete"
	b := alone(&asked, w, side, id, state.OperationJobs)
	if len(b.finished(side).Deletable()) > 0 {
		b.preflight()
		b.jobs(side, state.PhaseRestart)
	}
	return b.end()
}

func alone(f *planfile.File, w *World, side state.Side, id Identity, op state.Operation) *builder {
	origin, err := Active(w.Traffic, "")
	if err != nil { // split: no part of this depends on who is active
		origin = side.Other()
	}
	b := newBuilder(f, w, Roles{Origin: origin, Destination: origin.Other()}, id)
	b.plan.Operation, b.plan.Side, b.plan.Target = op, side, w.Inventories[side].Version
	return b
}
