package run

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/eksbg/eksbg/internal/state"
)

// consent is what an approval binds to.
type consent struct {
	// Remaining digests the steps from the first one of the phase on.
	Remaining string `json:"remaining"`
	// Terms digests what the plan file says of the phase.
	Terms string `json:"terms,omitempty"`
	Why   string `json:"why"`
}

// approval makes sure that the phase of the step is approved where that is asked
// for: by the plan file, for a live cluster (semantics 22), or after a put-back
// (semantics 16). Approvals bind to the run and to what remains, and lapse when
// that changes or after a put-back (semantics 4).
func (w *Walker) approval(ctx context.Context, spec state.StepSpec) *state.Stop {
	records := w.Journal.Records("")
	why := whyApproval(records, spec.Phase)
	if why == "" {
		return nil
	}
	want := consent{Remaining: remaining(state.Steps(records), spec.Phase), Why: why}
	if w.Terms != nil {
		want.Terms = w.Terms(spec.Phase)
	}
	if approved(records, spec.Phase, want) {
		return nil
	}
	who, err := w.Control.Approve(ctx, Ask{Phase: spec.Phase, Step: spec, Why: why})
	if err != nil {
		return w.stopFor(ctx, spec, fmt.Errorf("ask for the approval of %s: %w", spec.Phase, err))
	}
	if who == nil {
		return &state.Stop{Code: state.ExitResumable,
			Why:  fmt.Sprintf("%s waits for an approval of phase %s (%s)", spec.ID, spec.Phase, why),
			Cure: fmt.Sprintf("run the same command again with --approve %s", spec.Phase), Approve: spec.Phase}
	}
	detail, err := json.Marshal(want)
	if err != nil {
		return w.stopFor(ctx, spec, err)
	}
	return w.append(state.Record{Kind: state.RecordApproval, Step: spec.ID, Phase: spec.Phase, Who: who, Detail: detail,
		Text: fmt.Sprintf("phase %s approved by %s", spec.Phase, nameOf(who))})
}

func nameOf(who *state.Who) string {
	if who.ARN != "" {
		return who.ARN
	}
	return who.User + "@" + who.Host
}

// whyApproval says why a phase needs an approval, or "" when it needs none.
func whyApproval(records []state.Record, phase state.Phase) string {
	if phase == state.PhaseRestartLive {
		return "it restarts pods of the cluster that serves the traffic"
	}
	if phase == state.PhaseCutover && lastPutBack(records) > 0 {
		return "the traffic was put back"
	}
	for _, s := range state.Steps(records) {
		if s.Phase == phase && s.Approval {
			return "the plan file asks for it"
		}
	}
	return ""
}

func lastPutBack(records []state.Record) int64 {
	for i := len(records) - 1; i >= 0; i-- {
		if records[i].Kind == state.RecordPutBack {
			return records[i].Seq
		}
	}
	return 0
}

// ApprovalLapsed tells whether the traffic was put back and nobody has approved the
// phase since, so that the next start waits for that (semantics 16).
func ApprovalLapsed(records []state.Record, phase state.Phase) bool {
	back := lastPutBack(records)
	if back == 0 {
		return false
	}
	for _, r := range records {
		if r.Kind == state.RecordApproval && r.Phase == phase && r.Seq > back {
			return false
		}
	}
	return true
}

func approved(records []state.Record, phase state.Phase, want consent) bool {
	lapsed := lastPutBack(records)
	for _, r := range records {
		if r.Kind != state.RecordApproval || r.Phase != phase || r.Seq < lapsed {
			continue
		}
		var c consent
		if json.Unmarshal(r.Detail, &c) == nil && c.Remaining == want.Remaining && c.Terms == want.Terms {
			return true
		}
	}
	return false
}

// remaining digests the steps from the first one of the phase to the end.
func remaining(steps []state.StepSpec, phase state.Phase) string {
	h := sha256.New()
	enc := json.NewEncoder(h)
	on := false
	for _, s := range steps {
		on = on || s.Phase == phase
		if on {
			_ = enc.Encode(s) // a hash takes every write, and a StepSpec always encodes
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
