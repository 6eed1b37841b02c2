package cutover

import (
	"context"
	"fmt"
	"strings"
	"time"

	eksaws "github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

// phase says when a gate is asked.
type phase string

const (
	beforeShift phase = "before"
	duringHold  phase = "hold"
	afterHold   phase = "verdict"
)

// asked is one answer of a gate.
type asked struct {
	gate   planfile.Gate
	result state.GateResult
	// good is the destination's part of good answers in per cent, where the gate can
	// tell the destination from the origin; -1 where it cannot.
	good float64
}

// evaluation is one round of all gates.
type evaluation struct {
	phase   phase
	answers []asked
}

// verdict: one FAIL fails, one UNKNOWN leaves it open (semantics 16).
func (e evaluation) verdict() state.GateVerdict {
	out := state.GatePass
	for _, a := range e.answers {
		switch a.result.Verdict {
		case state.GateFail:
			return state.GateFail
		case state.GateUnknown:
			out = state.GateUnknown
		}
	}
	return out
}

// text says all answers with a verdict in one line.
func (e evaluation) text(v state.GateVerdict) string {
	var out []string
	for _, a := range e.answers {
		if a.result.Verdict == v {
			out = append(out, a.result.Text)
		}
	}
	return strings.Join(out, "; ")
}

// evaluate asks every gate once. Errors are those that end the stage; a gate that could
// not be asked is UNKNOWN.
func (s *Stage) evaluate(ctx context.Context, p phase, r *reading, probe bool) (evaluation, error) {
	e := evaluation{phase: p}
	for _, g := range s.d.Gates {
		var got []asked
		var err error
		switch {
		case g.TargetHealth != nil:
			got, err = s.askHealth(ctx, g, r)
		case g.HTTP != nil && probe:
			got, err = s.askHTTP(ctx, g, p, r)
		}
		if err != nil {
			return e, err
		}
		e.answers = append(e.answers, got...)
	}
	return e, nil
}

// askHealth asks for the health of the destination's targets, wherever it can be read.
func (s *Stage) askHealth(ctx context.Context, g planfile.Gate, r *reading) ([]asked, error) {
	want := float64(g.TargetHealth.AtLeast)
	var out []asked
	for _, t := range s.d.Traffic {
		pt, ok := t.(patient)
		if !ok {
			continue
		}
		h, known, err := pt.health(ctx, s.d.Destination)
		a := asked{gate: g, good: h.percent(), result: state.GateResult{Gate: "targetHealth", Target: t.ID(), Percent: s.percentNow(r)}}
		switch {
		case err != nil && s.final(ctx, err):
			return nil, err
		case err != nil:
			a.good = -1
			a.result.Verdict, a.result.Text = state.GateUnknown, "targets: "+eksaws.Message(err)
		case !known:
			continue
		case h.healthy == 0 && h.unhealthy+h.initial+h.unused == 0 && h.unchecked > 0:
			a.good = -1
			a.result.Verdict = state.GateUnknown
			a.result.Text = fmt.Sprintf("targets: the health checks of %s are off", h.of)
		default:
			a.result.Samples, a.result.Good = h.healthy+h.unhealthy, h.healthy
			a.result.Text = fmt.Sprintf("targets: %s, want %s", h, percentText(want))
			a.result.Verdict = state.GateFail
			if h.healthy > 0 && atLeast(h.percent(), want) {
				a.result.Verdict = state.GatePass
			}
		}
		out = append(out, a)
	}
	if len(out) == 0 {
		out = append(out, asked{gate: g, good: -1, result: state.GateResult{Gate: "targetHealth", Target: s.spec.ID, Percent: s.percentNow(r),
			Verdict: state.GateUnknown,
			Text:    "targets: no traffic target has health that can be read (no ALB, no alias to one): take the gate targetHealth out"}})
	}
	return out, nil
}

// askBefore asks the gates before traffic is shifted: what fails now would fail with
// users on it.
func (s *Stage) askBefore(ctx context.Context, rec state.Recorder, r *reading) error {
	begun := s.d.Clock.Now()
	for pause := firstPause; ; pause = longer(pause, pollPause) {
		e, err := s.evaluate(ctx, beforeShift, r, true)
		if err != nil {
			return err
		}
		if err := s.recordGates(rec, e); err != nil {
			return err
		}
		switch e.verdict() {
		case state.GatePass:
			return nil
		case state.GateFail:
			return &gateFailed{e}
		}
		left := s.d.Patience - s.d.Clock.Since(begun)
		if left <= 0 {
			return s.noAnswer(e.text(state.GateUnknown), r)
		}
		rec.Waiting("not shifted yet: " + e.text(state.GateUnknown))
		if err := s.sleep(ctx, min(left, pause)); err != nil {
			return err
		}
	}
}

// recordGates journals a round.
func (s *Stage) recordGates(rec state.Recorder, e evaluation) error {
	return s.recordNews(rec, e, map[string]string{})
}

// recordNews journals the answers of a round that say something new.
func (s *Stage) recordNews(rec state.Recorder, e evaluation, told map[string]string) error {
	for _, a := range e.answers {
		key := a.result.Gate + " " + a.result.Target
		if told[key] == a.result.Text {
			continue
		}
		told[key] = a.result.Text
		result := a.result
		err := s.record(rec, state.Record{Kind: state.RecordGate, Text: result.Text, Gate: &result,
			Detail: detail(map[string]string{"phase": string(e.phase)})})
		if err != nil {
			return err
		}
	}
	return nil
}

// percentNow is the destination's share, the least of all targets.
func (s *Stage) percentNow(r *reading) int {
	least := 100
	for _, sh := range r.shares {
		least = min(least, sh.Percent(s.d.Destination))
	}
	return max(least, 0)
}

// part is the destination's part of all traffic between 0 and 1, members that are not of
// the pair included: the least of all targets and types.
func (s *Stage) part(r *reading) float64 {
	least := 1.0
	for _, pv := range r.pairs {
		p := pv.pair(s.d.Destination)
		if p.sum() == 0 {
			return 0
		}
		least = min(least, float64(p.dest)/float64(p.sum()+pv.others))
	}
	return least
}

// gatesTake is how long one round of all gates lasts.
func gatesTake(gates []planfile.Gate) time.Duration {
	var d time.Duration
	for _, g := range gates {
		if g.HTTP != nil {
			d += time.Duration(g.HTTP.Over) + time.Duration(g.HTTP.Timeout)
		}
	}
	return d
}

// earlyProbe tells whether the hold is long enough for the HTTP gates to be asked once
// at its start too, so that a bad stage ends early.
func (s *Stage) earlyProbe() bool {
	d := gatesTake(s.d.Gates)
	return d > 0 && s.d.Hold >= d
}

// atLeast compares per cents, lenient to what floating point adds.
func atLeast(got, want float64) bool { return got >= want-1e-9 }

// percentText writes a per cent without trailing zeros: "99.9 %".
func percentText(p float64) string {
	s := fmt.Sprintf("%.3f", p)
	return strings.TrimRight(strings.TrimRight(s, "0"), ".") + " %"
}
