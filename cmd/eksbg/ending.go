package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/eksbg/eksbg/internal/plan"
	"github.com/eksbg/eksbg/internal/run"
	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/ui/text"
	"github.com/eksbg/eksbg/internal/ui/view"
)

// next is the command that goes on after a stop.
func (a *applied) next(stop *state.Stop) string {
	cmd := a.o.part.command(a.o.path, a.o.state)
	if a.o.yes {
		cmd += " --yes"
	}
	switch {
	case stop.Approve != "":
		cmd += " --approve " + string(stop.Approve)
	case run.ApprovalLapsed(a.journalRecords(), state.PhaseCutover):
		cmd += " --approve cutover"
	}
	return cmd
}

// stopped says why the run stopped, where the traffic is, and what to type next.
func (a *applied) stopped(m *view.Model, err error) error {
	stop := asStop(err)
	if a.o.output == "json" {
		return stop
	}
	w := a.o.err
	fmt.Fprintln(w)
	text.Wrap(w, "Stopped     ", "            ", clean(stop.Error()))
	if stop.Cure != "" {
		text.Cure(w, "Cure        ", "            ", clean(stop.Cure))
	}
	if m.Plan.Operation == "" && !m.TrafficStale && !saysWhere(stop, m) { // otherwise the stop has the newer weights
		text.Traffic(w, m)
	}
	if os.Getenv(inDemo) != "" {
		fmt.Fprintf(w, "%-11s with exit %d\n", "Ended", stop.Code)
		return exitError(stop.Code)
	}
	fmt.Fprintf(w, "%-11s %s\n", "Look at", statusCommand(a.session.planPath, a.o.state))
	fmt.Fprintln(w, goOn(a.next(stop), stop.Code))
	return exitError(stop.Code)
}

// goOn is the last line of a run that stopped; the exit code has one of its own where the
// command is long.
func goOn(command string, exit state.Exit) string {
	line := fmt.Sprintf("%-11s %s", "Go on", command)
	code := fmt.Sprintf("(exit %d)", exit)
	if len(line)+6+len(code) > text.Width {
		return line + "\n            " + code
	}
	return line + "      " + code
}

// done prints how the pair was and is. The clusters and the traffic are read once more
// where nobody has just done so, since records only hold what steps looked at; what cannot
// be read stays as last seen, and so does a cluster that the run had nothing to do with.
func (a *applied) done(ctx context.Context, m *view.Model) {
	if a.o.output == "json" {
		return
	}
	ctx = run.Reading(ctx)
	for _, side := range a.o.part.sides() {
		if inv, err := a.session.looks.Glance(side)(ctx); err == nil {
			m.Clusters[side] = plan.View(inv)
		}
	}
	a.readTraffic(ctx, m)
	fmt.Fprintln(a.o.err)
	text.Summary(a.o.out, m)
	if os.Getenv(inDemo) != "" {
		fmt.Fprintln(a.o.out, "\nDone.")
		return
	}
	fmt.Fprintf(a.o.out, "\nDone. Look at it with: %s\n", statusCommand(a.session.planPath, a.o.state))
}

// readTraffic reads the weights into the model, all of them or none.
func (a *applied) readTraffic(ctx context.Context, m *view.Model) {
	var shares []state.Share
	for _, t := range a.session.traffic {
		s, err := t.Read(ctx)
		if err != nil {
			a.o.say("The weights cannot be read now, and are shown as last recorded: " + err.Error())
			return
		}
		shares = append(shares, s)
	}
	m.Traffic, m.TrafficStale = shares, false
}

// saysWhere tells whether the stop itself says where the traffic is.
func saysWhere(stop *state.Stop, m *view.Model) bool {
	for _, t := range m.Traffic {
		if strings.Contains(stop.Why, t.Target) {
			return true
		}
	}
	return false
}
