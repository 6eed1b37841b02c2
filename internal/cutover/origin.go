package cutover

import (
	"context"
	"fmt"
	"strings"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

// originIll looks at the origin before traffic goes back to it (semantics 14) and says
// what is wrong with it, or "". It is ill when it has no healthy target, gives no good
// answer, or does no better at a gate than the destination that just failed it. What
// cannot be read speaks for nobody: the destination is known to be bad.
func (s *Stage) originIll(ctx context.Context, failed []asked) string {
	var ill []string
	for _, t := range s.d.Traffic {
		pt, ok := t.(patient)
		if !ok {
			continue
		}
		h, known, err := pt.health(ctx, s.d.Origin)
		if err != nil || !known || h.healthy == 0 && h.unchecked > 0 {
			continue
		}
		bar, least := s.bar(failed, t.ID())
		if h.healthy == 0 || bar >= 0 && !atLeast(h.percent(), least) && h.percent() <= bar {
			ill = append(ill, "targets: "+h.String())
		}
	}
	if text := s.originSilent(ctx, failed); text != "" {
		ill = append(ill, text)
	}
	return state.Clean(strings.Join(ill, "; "))
}

// bar gives the destination's good part at a failed targetHealth gate, and what the
// gate wants; -1 where no such gate failed.
func (s *Stage) bar(failed []asked, target string) (bar, want float64) {
	for _, f := range failed {
		if f.gate.TargetHealth != nil && f.result.Target == target {
			return f.good, float64(f.gate.TargetHealth.AtLeast)
		}
	}
	return -1, 0
}

// originSilent takes a short series at the origin's own values for each HTTP gate whose
// URL belongs to a listed record.
func (s *Stage) originSilent(ctx context.Context, failed []asked) string {
	for _, g := range s.d.Gates {
		if g.HTTP == nil {
			continue
		}
		h := withDefaults(*g.HTTP)
		rec := s.recordOf(hostOf(h.URL))
		if rec == nil {
			continue
		}
		dials, err := rec.dials(ctx, s.d.Origin)
		if err != nil || len(dials) == 0 {
			continue
		}
		probe := probeOf(h, originSamples, dials)
		probe.Over, probe.MostBad = 0, -1
		res, err := s.d.Prober.Probe(ctx, probe)
		if err != nil {
			continue
		}
		bar, good := destinationGood(failed, g), partGood(res)
		if atLeast(good, float64(h.Success)) || bar >= 0 && good > bar {
			continue
		}
		if bar < 0 && (good > 0 || !s.answers(ctx, rec, probe)) {
			// The origin works in part, or nothing can be reached from here at all.
			continue
		}
		if res.Samples > 0 {
			return fmt.Sprintf("http %s of %d samples at %s (%s): %s", goodText(res), res.Samples, s.d.Origin, strings.Join(dials, ", "), kindsText(res.Kinds))
		}
	}
	return ""
}

// answers tells whether the destination gives a good answer to a short series.
func (s *Stage) answers(ctx context.Context, rec *record, probe Probe) bool {
	dials, err := rec.dials(ctx, s.d.Destination)
	if err != nil || len(dials) == 0 {
		return false
	}
	probe.Dial = dials
	res, err := s.d.Prober.Probe(ctx, probe)
	return err == nil && res.Good > 0
}

// destinationGood is what the destination's own values gave at a failed gate.
func destinationGood(failed []asked, g planfile.Gate) float64 {
	for _, f := range failed {
		if f.gate.HTTP == g.HTTP && f.good >= 0 {
			return f.good
		}
	}
	return -1
}
