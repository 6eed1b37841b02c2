package cutover

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	eksaws "github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

const (
	// maxSamples bounds how far a series is lengthened so that the destination is met.
	maxSamples = 50000
	// originSamples are enough to see whether the origin answers at all.
	originSamples = 20
	// defaultTimeout bounds a sample where the plan file does not.
	defaultTimeout = 5 * time.Second
)

// askHTTP takes the series of an HTTP gate (semantics 17). A URL whose host is a
// listed record is asked at the destination's own values and by its name; any other by
// its name alone, with enough samples that the destination is expected to have
// answered some of them.
func (s *Stage) askHTTP(ctx context.Context, g planfile.Gate, p phase, r *reading) ([]asked, error) {
	h := withDefaults(*g.HTTP)
	u, err := url.Parse(h.URL)
	if err != nil {
		return nil, fmt.Errorf("http gate: %w", err)
	}
	rec := s.recordOf(canonicalName(u.Hostname()))
	if rec == nil {
		return s.askByName(ctx, g, h, p, r)
	}
	return s.askRecord(ctx, g, h, p, rec, r)
}

func withDefaults(h planfile.HTTP) planfile.HTTP {
	if h.Expect == 0 {
		h.Expect = 200
	}
	if h.Success == 0 {
		h.Success = 100
	}
	if h.Timeout == 0 {
		h.Timeout = planfile.Duration(defaultTimeout)
	}
	h.Samples = max(h.Samples, 1)
	return h
}

// recordOf finds the listed record that answers for a host; an exact name wins over a
// wildcard.
func (s *Stage) recordOf(host string) *record {
	var found *record
	for _, t := range s.d.Traffic {
		rec, ok := t.(*record)
		if !ok || !covers(rec.name, host) {
			continue
		}
		if rec.name == host {
			return rec
		}
		if found == nil || len(rec.name) > len(found.name) {
			found = rec
		}
	}
	return found
}

// probeOf makes the probe of n samples that may end as soon as it cannot pass any more.
func probeOf(h planfile.HTTP, n int, dial []string) Probe {
	allowed := int(math.Floor(float64(n)*(100-float64(h.Success))/100 + 1e-9))
	return Probe{URL: h.URL, Expect: h.Expect, Samples: n, Over: time.Duration(h.Over), Timeout: time.Duration(h.Timeout),
		Resolver: h.Resolver, Dial: dial, MostBad: allowed}
}

// askRecord dials the destination's own values and, once it has a share, the name.
func (s *Stage) askRecord(ctx context.Context, g planfile.Gate, h planfile.HTTP, p phase, rec *record, r *reading) ([]asked, error) {
	dials, err := rec.dials(ctx, s.d.Destination)
	if err != nil {
		if s.final(ctx, err) {
			return nil, err
		}
		return []asked{s.unknown(g, rec.id, r, "http: "+eksaws.Message(err))}, nil
	}
	if len(dials) == 0 {
		return []asked{s.unknown(g, rec.id, r, fmt.Sprintf("http: %s of %s has no value that could be dialled", s.d.Destination, rec.name))}, nil
	}
	direct := probeOf(h, max(h.Samples, h.AtLeast), dials)
	probes := []Probe{direct}
	if p != beforeShift {
		probes = append(probes, probeOf(h, h.Samples, nil))
	}
	results, err := s.probeAll(ctx, probes)
	if err != nil {
		return nil, err
	}
	at := fmt.Sprintf(" at %s (%s)", s.d.Destination, strings.Join(dials, ", "))
	a := s.judge(g, h, rec.id+" "+string(s.d.Destination), r, results[0], at)
	a.good = partGood(results[0])
	if results[0].Answered == 0 {
		if err := s.bothSilent(ctx, h, rec, &a); err != nil {
			return nil, err
		}
	}
	out := []asked{a}
	if len(results) > 1 {
		named := s.judge(g, h, rec.id+" name", r, results[1], " by name")
		// What fails by name and not at the destination fails at the origin: it is held
		// against what the destination can do.
		named.good = a.good
		out = append(out, named)
	}
	return out, nil
}

// bothSilent settles what a destination without any answer means: FAIL when the origin
// answers, UNKNOWN when it does not either (semantics 16).
func (s *Stage) bothSilent(ctx context.Context, h planfile.HTTP, rec *record, a *asked) error {
	dials, err := rec.dials(ctx, s.d.Origin)
	if len(dials) == 0 || err != nil {
		if s.final(ctx, err) {
			return err
		}
		a.result.Text += "; the origin's values cannot be read: " + eksaws.Message(err)
		return nil
	}
	probe := probeOf(h, originSamples, dials)
	probe.Over, probe.MostBad = 0, -1
	origin, err := s.d.Prober.Probe(ctx, probe)
	if err != nil {
		return err
	}
	if origin.Answered > 0 {
		a.result.Verdict = state.GateFail
		a.result.Text += fmt.Sprintf("; %s answers", s.d.Origin)
		return nil
	}
	a.result.Text += fmt.Sprintf("; %s does not answer either", s.d.Origin)
	return nil
}

// askByName takes enough samples by name that the destination, at its share, is
// expected to have answered AtLeast of them.
func (s *Stage) askByName(ctx context.Context, g planfile.Gate, h planfile.HTTP, p phase, r *reading) ([]asked, error) {
	part := s.part(r)
	if p == beforeShift && part == 0 {
		// At weight 0 the destination is behind no name: target health has to do.
		return nil, nil
	}
	n := h.Samples
	if part > 0 {
		n = max(n, min(int(math.Ceil(float64(h.AtLeast)/part-1e-9)), maxSamples))
	}
	res, err := s.d.Prober.Probe(ctx, probeOf(h, n, nil))
	if err != nil {
		return nil, err
	}
	a := s.judge(g, h, h.URL, r, res, "")
	met := float64(res.Samples) * part
	if a.result.Verdict == state.GatePass && met+1e-9 < float64(h.AtLeast) {
		a.result.Verdict = state.GateUnknown
		a.result.Text += fmt.Sprintf(": %s is expected to have answered %.0f of them, want %d", s.d.Destination, math.Floor(met), h.AtLeast)
	}
	return []asked{a}, nil
}

// probeAll takes several series at the same time.
func (s *Stage) probeAll(ctx context.Context, probes []Probe) ([]ProbeResult, error) {
	type answer struct {
		res ProbeResult
		err error
	}
	answers := make([]chan answer, len(probes))
	for i, p := range probes {
		answers[i] = make(chan answer, 1)
		go func() {
			res, err := s.d.Prober.Probe(ctx, p)
			answers[i] <- answer{res, err}
		}()
	}
	var out []ProbeResult
	var failed error
	for _, c := range answers {
		a := <-c
		out = append(out, a.res)
		if a.err != nil && failed == nil {
			failed = a.err
		}
	}
	return out, failed
}

// judge gives the verdict of one series by itself: none without any answer.
func (s *Stage) judge(g planfile.Gate, h planfile.HTTP, target string, r *reading, res ProbeResult, at string) asked {
	a := asked{gate: g, good: -1, result: state.GateResult{Gate: "http", Target: target, Percent: s.percentNow(r),
		Samples: res.Samples, Good: res.Good}}
	switch {
	case res.Answered == 0:
		a.result.Verdict = state.GateUnknown
		a.result.Text = fmt.Sprintf("http: no answer to any of %d samples%s: %s", res.Samples, at, kindsText(res.Kinds))
	case atLeast(100*float64(res.Good), float64(h.Success)*float64(res.Samples)):
		a.result.Verdict = state.GatePass
		a.result.Text = fmt.Sprintf("http %s of %d samples%s, want %s", goodText(res), res.Samples, at, percentText(float64(h.Success)))
	default:
		a.result.Verdict = state.GateFail
		a.result.Text = fmt.Sprintf("http %s of %d samples%s: %s", goodText(res), res.Samples, at, kindsText(res.Kinds))
	}
	return a
}

func (s *Stage) unknown(g planfile.Gate, target string, r *reading, text string) asked {
	return asked{gate: g, good: -1, result: state.GateResult{Gate: "http", Target: target, Percent: s.percentNow(r),
		Verdict: state.GateUnknown, Text: text}}
}

func partGood(r ProbeResult) float64 {
	if r.Samples == 0 {
		return 0
	}
	return 100 * float64(r.Good) / float64(r.Samples)
}

// goodText is the part of good samples, rounded down so that 100 % means all of them.
func goodText(r ProbeResult) string {
	if r.Good == r.Samples {
		return "100 %"
	}
	return fmt.Sprintf("%.2f %%", math.Floor(partGood(r)*100)/100)
}

// kindsText counts what went wrong, the most frequent first: "57 x 502, 3 x timeout".
func kindsText(kinds map[string]int) string {
	names := make([]string, 0, len(kinds))
	for k := range kinds {
		names = append(names, k)
	}
	slices.SortFunc(names, func(a, b string) int {
		if c := cmp.Compare(kinds[b], kinds[a]); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	})
	var out []string
	for _, k := range names {
		out = append(out, fmt.Sprintf("%d x %s", kinds[k], k))
	}
	return strings.Join(out, ", ")
}

// hostOf gives the canonical host of a URL; "" for one that cannot be parsed.
func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return canonicalName(u.Hostname())
}
