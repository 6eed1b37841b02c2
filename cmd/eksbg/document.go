package main

import (
	"encoding/json"
	"errors"

	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/ui/view"
)

// document is the one JSON document that a command with -o json prints, in every
// exit path.
type document struct {
	command string
	// remedies keep Job templates from leaving finished Jobs behind.
	remedies []string
}

type documentBody struct {
	Format  int    `json:"format"`
	Command string `json:"command"`
	outcome
	Journal string         `json:"journal,omitempty"`
	Run     string         `json:"run,omitempty"`
	Holder  string         `json:"holder,omitempty"`
	Steps   []documentStep `json:"steps,omitempty"`
	// TrafficStale is true when weights were sent after Traffic was read.
	TrafficStale bool                             `json:"trafficStale,omitempty"`
	Traffic      []state.Share                    `json:"traffic,omitempty"`
	Clusters     map[state.Side]state.ClusterView `json:"clusters,omitempty"`
	// Stopped is the newest stop of a run that nobody has taken up since.
	Stopped *documentStop `json:"stopped,omitempty"`
	Closed  bool          `json:"closed"`
	// Remedies are what jobs clean says against more finished Jobs.
	Remedies []string `json:"remedies,omitempty"`
}

// outcome is how a command ended, in every document.
type outcome struct {
	Exit int    `json:"exit"`
	Why  string `json:"why,omitempty"`
	Cure string `json:"cure,omitempty"`
}

func outcomeOf(err error) outcome {
	var quiet exitError
	switch {
	case err == nil:
		return outcome{}
	case errors.As(err, &quiet):
		return outcome{Exit: int(quiet)}
	}
	stop := asStop(err)
	return outcome{Exit: int(stop.Code), Why: clean(stop.Error()), Cure: clean(stop.Cure)}
}

// write prints the document that says all of it, and gives the bare exit code.
func (o outcome) write(s streams, doc any) error {
	enc := json.NewEncoder(s.out)
	enc.SetIndent("", "  ")
	err := enc.Encode(doc)
	if o.Exit != 0 { // which counts, whoever reads the document
		return exitError(o.Exit)
	}
	return err
}

type documentStop struct {
	Exit int    `json:"exit"`
	Why  string `json:"why"`
	Next string `json:"next,omitempty"`
}

type documentStep struct {
	ID    string         `json:"id"`
	Title string         `json:"title"`
	Side  state.Side     `json:"side"`
	State view.StepState `json:"state"`
	Text  string         `json:"text,omitempty"`
}

func (d *document) write(s streams, records []state.Record, path string, err error) error {
	return d.writeHeld(s, records, path, "", err)
}

// writeHeld prints the document and returns the error as a bare exit code, since the
// document says everything.
func (d *document) writeHeld(s streams, records []state.Record, path, holder string, err error) error {
	b := documentBody{Format: state.FormatVersion, Command: d.command, outcome: outcomeOf(err), Journal: path, Holder: holder, Remedies: d.remedies}
	if len(records) > 0 {
		m := view.Fold(records)
		b.Run, b.Traffic, b.TrafficStale, b.Clusters, b.Closed = m.Plan.Run, m.Traffic, m.TrafficStale, m.Clusters, m.Closed
		if m.Stopped != nil && m.Stopped.Exit != nil {
			b.Stopped = &documentStop{Exit: *m.Stopped.Exit, Why: m.Stopped.Text, Next: m.Stopped.Next}
		}
		for _, st := range m.Steps {
			b.Steps = append(b.Steps, documentStep{ID: st.Spec.ID, Title: st.Spec.Title, Side: st.Spec.Side, State: st.State, Text: st.Text})
		}
	}
	return b.outcome.write(s, b)
}
