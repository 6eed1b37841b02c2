package text

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/ui/view"
)

// Plan renders a plan for people: the pair, the numbered steps with what each will
// call and how long it is expected to take, what needs a look, and what to type
// next. now is only used for the life of the credentials.
func Plan(w io.Writer, p *state.Plan, now time.Time, next string) {
	Wrap(w, "", "", headline(p))
	fmt.Fprintln(w)
	pair(w, p)
	fmt.Fprintln(w)
	if len(p.Steps) == 0 {
		fmt.Fprintln(w, nothing(p))
	} else {
		steps(w, p)
	}
	findings(w, p.Findings)
	if len(p.Steps) > 0 {
		outlook(w, p, now)
	}
	if next != "" {
		label := "Run it"
		if len(p.Steps) == 0 {
			label = "Look at it"
		}
		fmt.Fprintf(w, "\n%-11s %s\n", label, next)
	}
}

// headline says what the plan is of.
func headline(p *state.Plan) string {
	what := string(p.Variant)
	if p.Operation != "" {
		what = fmt.Sprintf("%s %s", p.Operation, p.Side)
	}
	return fmt.Sprintf("%s - %s - %s - %s", p.Name, what, versions(p), p.Region)
}

// nothing says why there is nothing to do.
func nothing(p *state.Plan) string {
	switch p.Operation {
	case state.OperationRestart:
		return fmt.Sprintf("Nothing to do: no pod of %s lags that the plan file does not skip.", p.Side)
	case state.OperationJobs:
		return fmt.Sprintf("Nothing to do: no finished Job or pod of %s may be deleted.", p.Side)
	}
	return "Nothing to do: the traffic is served whole by a cluster at the target version\non which no pod lags."
}

func versions(p *state.Plan) string {
	if p.Operation != "" {
		return p.Target
	}
	from := p.Clusters[p.Destination].Version
	if from == p.Target || from == "" {
		return p.Target
	}
	return from + " -> " + p.Target
}

func pair(w io.Writer, p *state.Plan) {
	row := func(name string, cell func(state.Side) string) {
		fmt.Fprintf(w, "%-12s %-30s %s\n", name, clip(cell(state.Blue), 30), clip(cell(state.Green), 36))
	}
	row("", func(s state.Side) string { return string(s) })
	row("cluster", func(s state.Side) string { return state.Clean(p.Clusters[s].Name) })
	row("role", func(s state.Side) string { return Role(p, s) })
	row("version", func(s state.Side) string { return p.Clusters[s].Version })
	row("pods", func(s state.Side) string { return Pods(p.Clusters[s]) })
	row("traffic", func(s state.Side) string { return Percent(p.Traffic, s) })
}

// Role says what a side was when the plan was made.
func Role(p *state.Plan, s state.Side) string {
	if s == p.Origin {
		return "active"
	}
	return "standby"
}

// Pods says how many pods are ready and how many lag.
func Pods(c state.ClusterView) string {
	out := fmt.Sprintf("%d of %d ready", c.PodsReady, c.Pods)
	if c.PodsReady == c.Pods {
		out = fmt.Sprintf("%d ready", c.Pods)
	}
	return fmt.Sprintf("%s, %d lagging", out, c.Lagging)
}

// Percent says a side's share; where traffic targets disagree, the range.
func Percent(traffic []state.Share, s state.Side) string {
	low, high := view.Percent(traffic, s)
	switch {
	case low < 0:
		return "no weight at all"
	case low == high:
		return fmt.Sprintf("%d %%", low)
	}
	return fmt.Sprintf("%d to %d %%", low, high)
}

func steps(w io.Writer, p *state.Plan) {
	fmt.Fprintf(w, "%3s  %-41s %-24s %s\n", "#", "step", "changes", "expect")
	for i, s := range p.Steps {
		expect := fmt.Sprintf("%6s", Span(s.Expect))
		room := 30 - len(expect) // hours take columns of what it changes
		line := fmt.Sprintf("%3d  %-7s %-33s %-*s %s", i+1, s.Side, clip(s.Title, 33), room, clip(s.Changes, room), expect)
		fmt.Fprintln(w, strings.TrimRight(line, " "))
		if s.Approval {
			fmt.Fprintf(w, "             waits for an approval of phase %s\n", s.Phase)
		}
	}
}

// clip shortens s to n columns, with dots where something is missing.
func clip(s string, n int) string {
	r := []rune(state.Clean(s))
	if len(r) <= n {
		return string(r)
	}
	return string(r[:n-2]) + ".."
}

func findings(w io.Writer, fs []state.Finding) {
	if len(fs) == 0 {
		return
	}
	fmt.Fprintln(w, "\nNeeds a look")
	for _, f := range fs {
		text := state.Clean(f.Text)
		if f.Side != "" && f.Side != state.Both {
			text = string(f.Side) + ": " + text
		}
		Wrap(w, fmt.Sprintf("  %-7s", f.Severity), "          ", fmt.Sprintf("%s (%s)", text, f.Check))
		switch {
		case f.Waived != "":
			Wrap(w, "          waived: ", "          ", state.Clean(f.Waived))
		case f.CuredBy != "":
			Wrap(w, "          ", "          ", "cured by step "+f.CuredBy)
		case f.Cure != "":
			Cure(w, "          cure: ", "          ", cleanLines(f.Cure))
		}
	}
}

// cleanLines strips control characters and keeps the lines.
func cleanLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = state.Clean(lines[i])
	}
	return strings.Join(lines, "\n")
}

func outlook(w io.Writer, p *state.Plan, now time.Time) {
	var lo, hi time.Duration
	moves := false
	for _, s := range p.Steps {
		lo += s.Expect.Min.D()
		hi += s.Expect.Max.D()
		moves = moves || s.Kind == state.KindTraffic
	}
	fmt.Fprintln(w)
	if moves {
		fmt.Fprintf(w, "%-11s traffic: one change of weights, back to %s, at any time\n", "Way back", p.Origin)
	}
	about := "about " + Short(hi)
	if lo != hi {
		about = roughly(lo) + " to " + roughly(hi)
	}
	life := "your credentials do not say when they end"
	if !p.CredentialsExpire.IsZero() {
		life = "your credentials last " + Short(p.CredentialsExpire.Sub(now))
	}
	fmt.Fprintf(w, "%-11s %s; %s\n", "In all", about, life)
}

// roughly is a time in whole minutes, where it has any.
func roughly(d time.Duration) string {
	if d >= time.Minute {
		d = d.Round(time.Minute)
	}
	return Short(d)
}
