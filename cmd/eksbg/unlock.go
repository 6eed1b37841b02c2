package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/eksbg/eksbg/internal/lease"
	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/run"
	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/ui/text"
)

type unlockOptions struct {
	streams
	path  string
	state string
	yes   bool
	force bool
}

func newUnlockCommand(s streams, runF func(context.Context, *unlockOptions) error) *cobra.Command {
	o := &unlockOptions{streams: s}
	cmd := &cobra.Command{
		Use:   "unlock FILE",
		Short: "Show who holds the locks of a pair, and take them away from a process that is gone",
		Long: "Shows who holds the journal on this machine and the lock in each cluster, asks, and\n" +
			"takes the locks away exactly as they were shown. Seldom needed: a lock that nobody\n" +
			"renews is free after a minute by itself. A process that lives after all stops with\n" +
			"exit 6 when it reads that its lock is gone, up to 20 seconds later.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.path = args[0]
			if runF != nil {
				return runF(cmd.Context(), o)
			}
			return runUnlock(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.yes, "yes", false, "take the locks away without asking")
	cmd.Flags().BoolVar(&o.force, "force", false, "take them away from a process of this machine too that still runs")
	cmd.Flags().StringVar(&o.state, "state", "", "the journal `FILE` (default .eksbg/NAME.journal beside the plan file)")
	return cmd
}

func runUnlock(ctx context.Context, o *unlockOptions) error {
	f, err := planfile.Load(o.path)
	if err != nil {
		return err
	}
	ctx, stopSignals := withSignals(ctx, o.streams, finishing)
	defer stopSignals()
	s, err := newSession(o.streams, o.path, f)
	if err != nil {
		return err
	}
	ctx = run.Reading(ctx)
	if err := s.connect(ctx); err != nil {
		return s.explain(ctx, err)
	}
	clusters, err := s.leases(ctx, true)
	if err != nil {
		return s.explain(ctx, err)
	}
	found, readErr := inspectAll(ctx, clusters)
	path := journalPath(o.path, f.Name, o.state)
	local, busy := state.Holder(path)
	showLocks(o, path, local, busy, found)
	if readErr != nil {
		return s.explain(ctx, readErr)
	}
	return o.clear(ctx, s, found, local, busy)
}

// inspectAll reads the locks that can be read.
func inspectAll(ctx context.Context, clusters []lease.Cluster) (found []*lease.Found, err error) {
	for _, c := range clusters {
		f, e := lease.Inspect(ctx, c)
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		found = append(found, f)
	}
	return found, err
}

// clear asks, and takes away what was shown.
func (o *unlockOptions) clear(ctx context.Context, s *session, found []*lease.Found, local state.Who, busy bool) error {
	again := withState("eksbg unlock "+shellQuote(o.path), o.state)
	var held []*lease.Found
	for _, f := range found {
		if f.Held {
			held = append(held, f)
		}
	}
	alive := slices.IndexFunc(held, func(f *lease.Found) bool { return livingProcess(f.Holder) })
	switch {
	case alive >= 0 && !busy && !o.force:
		who := held[alive].Holder.Who
		return &state.Stop{Code: state.ExitLocked, Why: "a process on this machine holds the lock and still runs, with another journal: " + who.String(),
			Cure: fmt.Sprintf("stop it with Ctrl-C, or with kill %d: it gives its locks back; to take them away all the same\n%s --force", who.PID, again)}
	case busy:
		return &state.Stop{Code: state.ExitLocked, Why: "a process on this machine is at work on this pair: " + local.String(),
			Cure: fmt.Sprintf("stop it with Ctrl-C, or with kill %d: it gives its locks back", local.PID)}
	case len(held) == 0:
		fmt.Fprintln(o.out, "\nNothing to unlock.")
		return nil
	case !o.yes && !o.interactive:
		return &state.Stop{Code: state.ExitConsent, Why: "there is no terminal to ask on, and --yes was not given", Cure: again + " --yes"}
	case !o.yes:
		ok, err := ask(ctx, o.streams, "\nMake sure that this process is gone: two that change the same pair are an outage.\nTake its locks away? Only 'yes' does: ")
		if err != nil {
			return s.explain(ctx, err)
		}
		if !ok {
			return &state.Stop{Code: state.ExitConsent, Why: "not confirmed; nothing has been unlocked"}
		}
	}
	by, err := s.holder(ctx, "", "unlock")
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range held {
		if err := f.Clear(ctx, by, o.clock); err != nil {
			errs = append(errs, err)
			continue
		}
		fmt.Fprintf(o.out, "Unlocked    %s\n", f.Cluster.Name)
	}
	if err := errors.Join(errs...); errors.Is(err, lease.ErrMoved) {
		return &state.Stop{Code: state.ExitLocked, Why: err.Error(), Cure: "look again: " + again}
	} else if err != nil {
		return s.explain(ctx, err)
	}
	return nil
}

// livingProcess tells that a holder is another process of this very machine which
// runs, as far as can be told.
func livingProcess(h lease.Holder) bool {
	here := machine()
	return here != "" && h.Machine == here && h.Who.PID > 0 && !goneProcess(h)
}

// showLocks prints who holds what, one holder a paragraph.
func showLocks(o *unlockOptions, path string, local state.Who, busy bool, found []*lease.Found) {
	say := func(first, s string) {
		text.Wrap(o.out, fmt.Sprintf("%-11s ", first), "            ", clean(s))
	}
	if busy {
		say("Journal", path+": in use by "+local.String())
	} else {
		say("Journal", path+": no process on this machine")
	}
	for _, f := range found {
		say("Cluster", f.Cluster.Name+": "+lockState(f))
		if !f.Held {
			continue
		}
		say("  by", f.Holder.Who.String())
		if f.Holder.Operation != "" || f.Holder.Run != "" {
			say("  for", fmt.Sprintf("%s of %s, run %s", f.Holder.Operation, f.Holder.Pair, f.Holder.Run))
		}
		say("  since", f.Holder.Since.UTC().Format(time.DateTime)+" UTC")
		say("  renewed", renewedText(f.Holder.Renewed, o.clock.Now()))
		if goneProcess(f.Holder) {
			say("", "That process ran on this machine and is gone: the next command takes the lock over at once.")
		}
	}
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
