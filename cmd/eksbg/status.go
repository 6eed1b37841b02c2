package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/ui/text"
	"github.com/eksbg/eksbg/internal/ui/view"
)

type statusOptions struct {
	streams
	path   string
	state  string
	output string
}

func newStatusCommand(s streams, runF func(context.Context, *statusOptions) error) *cobra.Command {
	o := &statusOptions{streams: s}
	cmd := &cobra.Command{
		Use:   "status FILE",
		Short: "Say where the run of a plan file is; works while another process runs it",
		Args:  fileArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.path = args[0]
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runStatus(o)
		},
	}
	cmd.Flags().StringVar(&o.state, "state", "", "the journal `FILE` (default .eksbg/NAME.journal beside the plan file)")
	cmd.Flags().StringVarP(&o.output, "output", "o", "text", "text or json")
	return cmd
}

func runStatus(o *statusOptions) error {
	if o.output != "text" && o.output != "json" {
		return fmt.Errorf("-o %s: text or json", o.output)
	}
	f, err := loadPlanFile(o.path)
	if err != nil {
		return o.fail(err)
	}
	path := journalPath(o.path, f.Name, o.state)
	records, from, recovery, err := readRun(path)
	if err != nil {
		return o.fail(err)
	}
	if err := ofThisPair(records, f, from); err != nil {
		return o.fail(err)
	}
	holder := ""
	if from == path {
		if who, held := state.Holder(path); held {
			holder = who.String()
		}
	}
	if o.output == "json" {
		return (&document{command: "status"}).writeHeld(o.streams, records, from, holder, nil)
	}
	if len(records) == 0 {
		fmt.Fprintf(o.out, "%s: no run yet (%s is not there)\n", f.Name, path)
		fmt.Fprintf(o.out, "Begin       %s\n", withState("eksbg plan "+shellQuote(o.path), o.state))
		return nil
	}
	m := view.Fold(records)
	next := ""
	if holder == "" && !m.Closed {
		next = partOf(records[0].Plan).command(o.path, o.state)
		if m.Stopped != nil && m.Stopped.Next != "" {
			next = m.Stopped.Next
		}
	}
	text.Status(o.out, m, o.clock.Now(), holder, next)
	if s := recovery.String(); s != "" && holder == "" {
		fmt.Fprintln(o.out, "Journal    ", s)
	}
	return nil
}

func (o *statusOptions) fail(err error) error {
	var quiet exitError
	if o.output != "json" || errors.As(err, &quiet) {
		return err
	}
	return (&document{command: "status"}).write(o.streams, nil, "", err)
}

// ofThisPair refuses to show another pair's run as this plan file's.
func ofThisPair(records []state.Record, f *planfile.File, path string) error {
	if len(records) == 0 || records[0].Plan == nil {
		return nil
	}
	p := records[0].Plan
	if p.Name == f.Name && p.Region == f.Region && p.Clusters[state.Blue].Name == f.Clusters.Blue.Name && p.Clusters[state.Green].Name == f.Clusters.Green.Name {
		return nil
	}
	return fmt.Errorf("journal %s is of another pair: %s in %s, clusters %s and %s; name the right one with --state", path, p.Name, p.Region,
		p.Clusters[state.Blue].Name, p.Clusters[state.Green].Name)
}
