package text

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/ui/view"
)

// Status renders where a run stands: its steps, the traffic, what it waits for or
// why it stopped, and what to type next. holder is who runs it now, or "".
func Status(w io.Writer, m *view.Model, now time.Time, holder, next string) {
	p := m.Plan
	Wrap(w, "", "", headline(p))
	fmt.Fprintf(w, "run %s, from %s\n\n", p.Run, p.CreatedAt.UTC().Format("2006-01-02 15:04:05 UTC"))
	for i, s := range m.Steps {
		stepLine(w, i+1, s, now, holder != "")
	}
	fmt.Fprintln(w)
	Traffic(w, m)
	standing(w, m, now, holder)
	if next != "" {
		fmt.Fprintf(w, "%-11s %s\n", "Go on", next)
	}
}

// Traffic renders the weights of every traffic target, and says when they are not
// the newest.
func Traffic(w io.Writer, m *view.Model) {
	for _, t := range m.Traffic {
		Wrap(w, "Traffic     ", "            ", fmt.Sprintf("%s blue %d (%d %%), green %d (%d %%)",
			state.Clean(t.Target), t.Blue, t.Percent(state.Blue), t.Green, t.Percent(state.Green)))
	}
	at := "as read at " + m.TrafficAt.UTC().Format("15:04:05 UTC")
	if m.TrafficStale {
		at += "; weights were sent after that and not read back yet"
	}
	Wrap(w, "            ", "            ", at)
}

// marks are the signs in front of steps; words beside them say the same.
var marks = map[view.StepState]string{view.Pending: ".", view.Running: ">", view.Done: "+", view.Failed: "!", view.Stopped: "="}

// stepLine renders one step. A step that was at work when its process ended, and that
// nobody holds now, is not done and not at work: it is cut off.
func stepLine(w io.Writer, n int, s view.Step, now time.Time, held bool) {
	took := ""
	if !s.Started.IsZero() {
		took = Short(s.Elapsed(now))
	}
	word := string(s.State)
	if s.State == view.Running {
		word = "cut off"
		if held {
			word = "at work"
			took += " of " + Span(s.Spec.Expect)
		}
	}
	line := fmt.Sprintf("%s %2d  %-5s  %-36s  %-8s %8s", marks[s.State], n, s.Spec.Side, clip(s.Spec.Title, 36), word, took)
	fmt.Fprintln(w, strings.TrimRight(line, " "))
	if s.Text != "" && (s.State == view.Running || s.State == view.Failed || s.State == view.Stopped) {
		ago := ""
		if s.State == view.Running {
			ago = " (" + Short(now.Sub(s.TextAt).Round(time.Second)) + " ago)"
		}
		Wrap(w, "             ", "             ", state.Clean(s.Text)+ago)
	}
}

func standing(w io.Writer, m *view.Model, now time.Time, holder string) {
	switch {
	case m.Closed:
		fmt.Fprintf(w, "%-11s finished at %s\n", "Run", m.Last.Time.UTC().Format("15:04:05 UTC"))
	case holder != "":
		fmt.Fprintf(w, "%-11s at work: %s\n", "Run", holder)
	case m.Stopped != nil:
		exit := 0
		if m.Stopped.Exit != nil {
			exit = *m.Stopped.Exit
		}
		Wrap(w, "Stopped     ", "            ", fmt.Sprintf("%s ago with exit %d: %s",
			Short(now.Sub(m.Stopped.Time).Round(time.Second)), exit, state.Clean(m.Stopped.Text)))
	default:
		Wrap(w, "Stopped     ", "            ", fmt.Sprintf("no process holds this run; its last word was %s ago",
			Short(now.Sub(m.Last.Time).Round(time.Second))))
	}
}

// Summary renders the before and after table of a run.
func Summary(w io.Writer, m *view.Model) {
	p := m.Plan
	row := func(name string, cell func(state.Side) string) {
		fmt.Fprintf(w, "%-9s %-34s %s\n", name, clip(cell(state.Blue), 34), clip(cell(state.Green), 35))
	}
	arrow := func(before, after string) string {
		if before == after {
			return after
		}
		return before + " -> " + after
	}
	row("", func(s state.Side) string { return string(s) + " " + state.Clean(p.Clusters[s].Name) })
	row("version", func(s state.Side) string { return arrow(p.Clusters[s].Version, m.Clusters[s].Version) })
	row("ready", func(s state.Side) string { return arrow(ready(p.Clusters[s]), ready(m.Clusters[s])) })
	row("lagging", func(s state.Side) string {
		return arrow(fmt.Sprint(p.Clusters[s].Lagging), fmt.Sprint(m.Clusters[s].Lagging))
	})
	row("traffic", func(s state.Side) string { return arrow(Percent(p.Traffic, s), Percent(m.Traffic, s)) })
}

func ready(c state.ClusterView) string { return fmt.Sprintf("%d/%d", c.PodsReady, c.Pods) }
