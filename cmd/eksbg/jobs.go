package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/eksbg/eksbg/internal/restart"
	"github.com/eksbg/eksbg/internal/run"
	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/ui/text"
)

func newJobsCommand(s streams, runF func(context.Context, *applyOptions) error) *cobra.Command {
	cmd := group(&cobra.Command{Use: "jobs", Short: "Finished Jobs, which keep their Fargate node and address"})
	cmd.AddCommand(newJobsCleanCommand(s, runF))
	return cmd
}

func newJobsCleanCommand(s streams, runF func(context.Context, *applyOptions) error) *cobra.Command {
	o := &applyOptions{streams: s, part: part{operation: state.OperationJobs}}
	cmd := &cobra.Command{
		Use:   "clean FILE --cluster SIDE",
		Short: "Delete the finished Jobs and pods of one cluster, and nothing else",
		Long: "Deletes Jobs and bare pods that finished at least restart.finishedAge ago, and prints\n" +
			"the ttlSecondsAfterFinished that keeps each Job template from leaving more. What the\n" +
			"history limits of a CronJob keep, and Jobs that another controller made, stay.\n" +
			"It is a run of its own in the pair's journal; the same command goes on with it.",
		Example: "  eksbg jobs clean plans/shop-hot.yaml --cluster green",
		Args:    fileArg,
		RunE:    o.runAlone(runF),
	}
	o.flags(cmd)
	cmd.Flags().StringArrayVar(&o.approve, "approve", nil, "approve a `PHASE` (restart), where the plan file asks for that")
	return cmd
}

// remedies says, after a clean-up or in place of one, what stays and why, and how the
// Job templates are kept from leaving more.
func (a *applied) remedies(ctx context.Context) {
	if a.o.part.operation != state.OperationJobs {
		return
	}
	inv, err := a.session.looks.Glance(a.o.part.side)(run.Reading(ctx))
	if err != nil {
		a.o.say(fmt.Sprintf("What is left on %s could not be read: %s", a.o.part.side, shortly(err)))
		return
	}
	age := a.file.Restart.FinishedAge.D()
	ls := restart.Finished(inv, age, a.o.clock.Now())
	for _, r := range ls.Remedies(inv, age) {
		a.remedy = append(a.remedy, r.String())
	}
	if a.o.output == "json" {
		return
	}
	fmt.Fprintf(a.o.out, "\nLeft on %s: %s.\n", a.o.part.side, ls)
	kept := map[string]int{}
	var order []string
	for _, l := range ls.Kept() {
		if kept[l.Keep] == 0 {
			order = append(order, l.Keep)
		}
		kept[l.Keep]++
	}
	for _, why := range order {
		text.Wrap(a.o.out, fmt.Sprintf("%5d  ", kept[why]), "       ", state.Clean(why))
	}
	if len(a.remedy) > 0 {
		fmt.Fprintf(a.o.out, "\nSo that no more stay, on cluster %s:\n", inv.Name)
		for _, r := range a.remedy {
			text.Cure(a.o.out, "  ", "  ", r)
		}
	}
}
