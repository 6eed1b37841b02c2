package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/lease"
	"github.com/eksbg/eksbg/internal/run"
	"github.com/eksbg/eksbg/internal/state"
)

type unlockOptions struct {
	streams
	path   string
	state  string
	output string
	yes    bool
	force  bool
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
		Args: fileArg,
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
	cmd.Flags().StringVarP(&o.output, "output", "o", "text", "text or json")
	return cmd
}

// locked is what unlock found, and did.
type locked struct {
	// journal is its path, busy true where local, a process on this machine, holds it.
	journal string
	local   state.Who
	busy    bool
	// clusters are those that exist or of which nobody knows whether they do, blue first.
	clusters []*lockedCluster
}

// lockedCluster is the lock of one side's cluster.
type lockedCluster struct {
	side state.Side
	name string
	// found is nil where the lock could not be read; err says why.
	found *lease.Found
	err   error
	// cleared is true once it was taken away.
	cleared bool
}

func runUnlock(ctx context.Context, o *unlockOptions) error {
	l := &locked{}
	err := o.unlock(ctx, l)
	if o.output == "json" {
		return l.writeJSON(o.streams, err)
	}
	return err
}

// unlock looks, shows, asks, and takes away. l holds what it found, however it ends.
func (o *unlockOptions) unlock(ctx context.Context, l *locked) error {
	if o.output != "text" && o.output != "json" {
		return fmt.Errorf("-o %s: text or json", o.output)
	}
	f, err := loadPlanFile(o.path)
	if err != nil {
		return err
	}
	if o.state != "" { // it may have no journal yet
		if _, err := os.Stat(filepath.Dir(o.state)); err != nil {
			return fmt.Errorf("--state %s: its folder cannot be read: %w", o.state, err)
		}
	}
	l.journal = journalPath(o.path, f.Name, o.state)
	l.local, l.busy = state.Holder(l.journal)
	ctx, stopSignals := withSignals(ctx, o.streams, finishing)
	defer stopSignals()
	s, err := newSession(o.streams, o.path, f)
	if err != nil {
		return err
	}
	ctx = run.Reading(ctx)
	if err := s.load(ctx); err != nil {
		return s.explain(ctx, err)
	}
	l.clusters = s.inspectLocks(ctx)
	o.show(l)
	if err := l.unread(ctx, s); err != nil {
		return err
	}
	return o.clear(ctx, s, l)
}

// unread says of every cluster whose lock could not be read why not, or nil. The exit code
// is that of the first.
func (l *locked) unread(ctx context.Context, s *session) error {
	var all *state.Stop
	for _, c := range l.clusters {
		if c.err == nil {
			continue
		}
		err := s.explain(ctx, c.err)
		if ctx.Err() != nil {
			return err // for all of them
		}
		stop := asStop(err)
		if all == nil {
			first := *stop
			all = &first
			continue
		}
		all.Why, all.Cause = all.Error()+"\n"+stop.Error(), nil
		if !strings.Contains(all.Cure, stop.Cure) {
			all.Cure = strings.TrimSpace(all.Cure + "\n" + stop.Cure)
		}
	}
	if all == nil {
		return nil // not a nil *Stop in an error
	}
	return all
}

// inspectLocks reads the locks of both clusters at the same time. A cluster that does
// not exist is left out.
func (s *session) inspectLocks(ctx context.Context) []*lockedCluster {
	all := make([]*lockedCluster, len(state.Sides))
	var wg sync.WaitGroup
	for i, side := range state.Sides {
		wg.Go(func() {
			lock := s.lockOf(side)
			c := &lockedCluster{side: side, name: lock.Name}
			if _, c.err = s.open(ctx, side); aws.IsNotFound(c.err) {
				return
			}
			if c.err == nil {
				c.found, c.err = lease.Inspect(ctx, lock)
			}
			all[i] = c
		})
	}
	wg.Wait()
	var out []*lockedCluster
	for _, c := range all {
		if c != nil {
			out = append(out, c)
		}
	}
	return out
}

// held are the clusters whose lock somebody has.
func (l *locked) held() []*lockedCluster {
	var out []*lockedCluster
	for _, c := range l.clusters {
		if c.found != nil && c.found.Held {
			out = append(out, c)
		}
	}
	return out
}

// clear asks, and takes away what was shown.
func (o *unlockOptions) clear(ctx context.Context, s *session, l *locked) error {
	held := l.held()
	if err := o.refuse(l, held); err != nil {
		return err
	}
	if len(held) == 0 {
		if o.output == "text" {
			fmt.Fprintln(o.out, "\nNothing to unlock.")
		}
		return nil
	}
	if !o.yes {
		ok, err := ask(ctx, o.streams, "Make sure that this process is gone: two that change the same pair are an outage.\nTake its locks away? Only 'yes' does:")
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
	for _, c := range held {
		if err := c.found.Clear(ctx, by, o.clock); err != nil {
			errs = append(errs, err)
			continue
		}
		c.cleared = true
		if o.output == "text" {
			fmt.Fprintf(o.out, "Unlocked    %s\n", c.name)
		}
	}
	if err := errors.Join(errs...); errors.Is(err, lease.ErrMoved) {
		return &state.Stop{Code: state.ExitLocked, Why: err.Error(), Cure: "look again: " + o.again()}
	} else if err != nil {
		return s.explain(ctx, err)
	}
	return nil
}

// again is the command itself.
func (o *unlockOptions) again() string { return withState("eksbg unlock "+shellQuote(o.path), o.state) }

// refuse is why the locks are not even asked about, or nil.
func (o *unlockOptions) refuse(l *locked, held []*lockedCluster) error {
	if l.busy {
		return &state.Stop{Code: state.ExitLocked, Why: "a process on this machine is at work on this pair: " + l.local.String(),
			Cure: fmt.Sprintf("stop it with Ctrl-C, or with kill %d: it gives its locks back", l.local.PID)}
	}
	for _, c := range held {
		if who := c.found.Holder.Who; livingProcess(c.found.Holder) && !o.force {
			return &state.Stop{Code: state.ExitLocked, Why: "a process on this machine holds the lock and still runs, with another journal: " + who.String(),
				Cure: fmt.Sprintf("stop it with Ctrl-C, or with kill %d: it gives its locks back; to take them away all the same\n%s --force", who.PID, o.again())}
		}
	}
	if len(held) > 0 && !o.yes && !o.interactive {
		return &state.Stop{Code: state.ExitConsent, Why: "there is no terminal to ask on, and --yes was not given", Cure: o.again() + " --yes"}
	}
	return nil
}

// livingProcess tells that a holder is another process of this very machine which
// runs, as far as can be told.
func livingProcess(h lease.Holder) bool {
	here := machine()
	return here != "" && h.Machine == here && h.Who.PID > 0 && !goneProcess(h)
}
