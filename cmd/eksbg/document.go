package main

import (
	"encoding/json"

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
	Format  int            `json:"format"`
	Command string         `json:"command"`
	Exit    int            `json:"exit"`
	Why     string         `json:"why,omitempty"`
	Cure    string         `json:"cure,omitempty"`
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
	b := documentBody{Format: state.FormatVersion, Command: d.command, Journal: path, Holder: holder, Remedies: d.remedies}
	if err != nil {
		stop := asStop(err)
		b.Exit, b.Why, b.Cure = int(stop.Code), clean(stop.Error()), clean(stop.Cure)
	}
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
	enc := json.NewEncoder(s.out)
	enc.SetIndent("", "  ")
	if werr := enc.Encode(b); werr != nil {
		return werr
	}
	if b.Exit != 0 {
		return exitError(b.Exit)
	}
	return nil
}
