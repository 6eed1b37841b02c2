package main

import (
	"fmt"
	"io"
	"time"

	"github.com/eksbg/eksbg/internal/lease"
	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/ui/text"
)

// show prints who holds what, one holder a paragraph. With -o json people only see it
// where they are asked about it.
func (o *unlockOptions) show(l *locked) {
	w := o.out
	if o.output == "json" {
		if o.yes || !o.interactive || len(l.held()) == 0 {
			return
		}
		w = o.err
	}
	if l.busy {
		field(w, "Journal", l.journal+": in use by "+l.local.String())
	} else {
		field(w, "Journal", l.journal+": no process on this machine")
	}
	for _, c := range l.clusters {
		c.show(w, o.clock.Now())
	}
}

func (c *lockedCluster) show(w io.Writer, now time.Time) {
	if c.found == nil {
		field(w, "Cluster", c.name+": unknown, it could not be read")
		return
	}
	field(w, "Cluster", c.name+": "+lockState(c.found))
	if !c.found.Held {
		return
	}
	h := c.found.Holder
	field(w, "  by", h.Who.String())
	if h.Operation != "" || h.Run != "" {
		field(w, "  for", fmt.Sprintf("%s of %s, run %s", h.Operation, h.Pair, h.Run))
	}
	field(w, "  since", h.Since.UTC().Format(time.DateTime)+" UTC")
	field(w, "  renewed", renewedText(h.Renewed, now))
	if goneProcess(h) {
		field(w, "", "That process ran on this machine and is gone: the next command takes the lock over at once.")
	}
}

func field(w io.Writer, name, s string) {
	text.Wrap(w, fmt.Sprintf("%-11s ", name), "            ", clean(s))
}

func lockState(f *lease.Found) string {
	switch {
	case f.Held:
		return "locked"
	case f.Holder == lease.Holder{}:
		return "free, never locked"
	}
	return "free; last held by " + f.Holder.String()
}

func renewedText(at, now time.Time) string {
	out := at.UTC().Format(time.DateTime) + " UTC"
	if ago := now.Sub(at).Round(time.Second); ago >= 0 {
		out += fmt.Sprintf(", %s ago if the clocks agree", ago)
	}
	return out
}

type unlockDocument struct {
	Format  int    `json:"format"`
	Command string `json:"command"`
	outcome
	Journal string `json:"journal,omitempty"`
	// Holder is the process on this machine that holds the journal.
	Holder   string                      `json:"holder,omitempty"`
	Clusters map[state.Side]unlockedSide `json:"clusters,omitempty"`
}

// unlockedSide is the lock of one cluster in the document.
type unlockedSide struct {
	Name string `json:"name"`
	// State is free, locked, unlocked (by this command) or unknown; Why says why it is
	// unknown.
	State string `json:"state"`
	Why   string `json:"why,omitempty"`
	// Holder has the lock, or had it last.
	Holder *unlockHolder `json:"holder,omitempty"`
}

type unlockHolder struct {
	state.Who
	Operation string    `json:"operation,omitempty"`
	Pair      string    `json:"pair,omitempty"`
	Run       string    `json:"run,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	Renewed   time.Time `json:"renewed,omitzero"`
	// Gone is true where the holder was a process of this machine that runs no more.
	Gone bool `json:"gone,omitempty"`
}

// writeJSON prints the one document, however the command ended.
func (l *locked) writeJSON(s streams, err error) error {
	doc := unlockDocument{Format: state.FormatVersion, Command: "unlock", outcome: outcomeOf(err), Journal: l.journal}
	if l.busy {
		doc.Holder = clean(l.local.String())
	}
	for _, c := range l.clusters {
		if doc.Clusters == nil {
			doc.Clusters = map[state.Side]unlockedSide{}
		}
		doc.Clusters[c.side] = c.json()
	}
	return doc.outcome.write(s, doc)
}

func (c *lockedCluster) json() unlockedSide {
	out := unlockedSide{Name: c.name, State: "free"}
	switch {
	case c.found == nil:
		out.State, out.Why = "unknown", clean(c.err.Error())
		return out
	case c.cleared:
		out.State = "unlocked"
	case c.found.Held:
		out.State = "locked"
	}
	if h := c.found.Holder; h != (lease.Holder{}) {
		out.Holder = &unlockHolder{Who: h.Who, Operation: h.Operation, Pair: h.Pair, Run: h.Run,
			Since: h.Since.UTC(), Renewed: h.Renewed.UTC(), Gone: c.found.Held && goneProcess(h)}
	}
	return out
}
