// Package text renders plans, runs and their records as plain text: 80 columns, no
// colour, ASCII only.
package text

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/ui/view"
)

// Width is the number of columns that every line keeps to, unless a single word
// (an ARN, a command to type) is longer.
const Width = 80

// Short formats a duration as people say it: 20s, 8m54s, 1h05m.
func Short(d time.Duration) string {
	switch {
	case d < 10*time.Second && d.Round(100*time.Millisecond)%time.Second != 0:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Round(time.Second)/time.Second))
	case d < time.Hour:
		d = d.Round(time.Second)
		if s := d % time.Minute / time.Second; s != 0 {
			return fmt.Sprintf("%dm%02ds", d/time.Minute, s)
		}
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	d = d.Round(time.Minute)
	return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
}

// Span formats an expectation: 20s, 8-12m, 45s-3m.
func Span(e state.Expect) string {
	lo, hi := e.Min.D(), e.Max.D()
	if lo == hi {
		return Short(hi)
	}
	if lo >= time.Minute && hi < time.Hour { // whole minutes say enough of a range
		return fmt.Sprintf("%d-%dm", lo/time.Minute, (hi+time.Minute-1)/time.Minute)
	}
	return Short(lo) + "-" + Short(hi)
}

// Wrap writes words in lines of at most Width columns: first in front of the first
// line, rest in front of the others. Lines of the text stay lines.
func Wrap(w io.Writer, first, rest, s string) {
	lead := first
	for _, para := range strings.Split(ascii(s), "\n") {
		line := lead
		empty := true
		for _, word := range strings.Fields(para) {
			if !empty && len(line)+1+len(word) > Width {
				fmt.Fprintln(w, strings.TrimRight(line, " "))
				line, empty = rest, true
			}
			if !empty {
				line += " "
			}
			line += word
			empty = false
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
		lead = rest
	}
}

func ascii(s string) string { return strings.ReplaceAll(s, "…", "...") }

// commands are the words with which a line that can be typed begins.
var commands = map[string]bool{"aws": true, "eksbg": true, "kubectl": true, "sudo": true}

// Cure writes what helps: prose is wrapped, and a line that is a command stays one line
// as it is, so that it can be pasted.
func Cure(w io.Writer, first, rest, s string) {
	lead := first
	for _, line := range strings.Split(s, "\n") {
		word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if commands[word] {
			fmt.Fprintln(w, lead+strings.TrimSpace(line))
		} else {
			Wrap(w, lead, rest, line)
		}
		lead = rest
	}
}

// The columns of the plain log: the titles of most steps take logTitle, the longest shown
// logMost. What does not fit beside a title stands below it.
const (
	logTitle  = 29
	logMost   = 33
	logHang   = "                 "
	logDetail = "                            "
)

// Line renders one record for the plain log, or "" for a record that people need
// not see there. m is the model with the record already applied. A step's title is said
// where it begins and ends; what happens between stands below it. What is longer than a
// line goes on in the next one; there is no newline at the end.
func Line(m *view.Model, r state.Record) string {
	word, text := event(m, r)
	if word == "" {
		return ""
	}
	who, title, between := "", r.Step, r.Step == ""
	if s := step(m, r.Step); s != nil {
		who, title = string(s.Spec.Side), s.Spec.Title
		between = s.State == view.Running && r.Kind != state.RecordStarted
	}
	if between {
		return wrapped(fmt.Sprintf("%s         %-9s  ", r.Time.UTC().Format("15:04:05"), word), logDetail, text)
	}
	head := fmt.Sprintf("%s  %-5s  %-*s  %-9s", r.Time.UTC().Format("15:04:05"), who, logTitle, clip(title, logMost), word)
	if line := head + "  " + ascii(text); len(line) <= Width {
		return strings.TrimRight(line, " ")
	}
	return strings.TrimRight(head, " ") + "\n" + wrapped(logHang, logHang, text)
}

// wrapped is what Wrap writes, without its last newline.
func wrapped(first, rest, s string) string {
	var b strings.Builder
	Wrap(&b, first, rest, s)
	return strings.TrimSuffix(b.String(), "\n")
}

func step(m *view.Model, id string) *view.Step {
	for i := range m.Steps {
		if m.Steps[i].Spec.ID == id {
			return &m.Steps[i]
		}
	}
	return nil
}

// mostEnding bounds what the log says of why a step ended: the run's last lines say it
// in full.
const mostEnding = 240

// ended is the word for a step that did not get done.
func ended(r state.Record) string {
	switch {
	case view.Resumable(r):
		return "stopped"
	case r.Exit != nil && state.Exit(*r.Exit) == state.ExitBlocked:
		return "BLOCKED"
	}
	return "FAILED"
}

// event gives the word of the record and what it says.
func event(m *view.Model, r state.Record) (word, text string) {
	switch r.Kind {
	case state.RecordStarted:
		return "started", ""
	case state.RecordDone:
		text = r.Text
		if s := step(m, r.Step); s != nil && !s.Started.IsZero() {
			text = Short(s.Elapsed(r.Time)) + ", " + text
		}
		return "done", text
	case state.RecordFailed:
		return ended(r), clip(r.Text, mostEnding) // in full among the last lines of the run
	case state.RecordWaiting:
		return "waiting", r.Text
	case state.RecordIntent:
		return "", ""
	case state.RecordOutcome:
		if r.Text == "" {
			return "", ""
		}
		return string(r.Result), r.Text
	case state.RecordGate:
		if r.Gate == nil {
			return "", ""
		}
		if r.Gate.Verdict == state.GatePass {
			return "gate", r.Gate.Text
		}
		return "GATE", string(r.Gate.Verdict) + ": " + r.Gate.Text
	case state.RecordTraffic:
		return "traffic", r.Text
	case state.RecordPutBack:
		return "put back", r.Text
	case state.RecordNote:
		return "note", r.Text
	case state.RecordWarning:
		return "WARNING", r.Text
	case state.RecordApproval:
		return "approved", r.Text
	case state.RecordInserted:
		return "first", r.Text
	}
	return "", ""
}
