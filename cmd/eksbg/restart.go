package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/eksbg/eksbg/internal/state"
)

func newRestartCommand(s streams, runF func(context.Context, *applyOptions) error) *cobra.Command {
	o := &applyOptions{streams: s, part: part{operation: state.OperationRestart}}
	cmd := &cobra.Command{
		Use:   "restart FILE --cluster SIDE",
		Short: "Restart every pod whose kubelet lags, on one cluster alone",
		Long: "Gives every lagging pod of one cluster a new kubelet, in the order that `eksbg lag`\n" +
			"shows, and proves it: done is when no pod lags that the plan file does not skip. It is\n" +
			"a run of its own in the pair's journal; the same command (or apply) goes on with it.\n" +
			"On the cluster that gets traffic it needs --approve restart-live. Where the plan file\n" +
			"says restart.finishedJobs: delete, finished Jobs and pods are deleted first.",
		Example: "  eksbg restart plans/shop-hot.yaml --cluster green\n  eksbg restart plans/shop-hot.yaml --cluster blue --yes --approve restart-live",
		Args:    fileArg,
		RunE:    o.runAlone(runF),
	}
	o.flags(cmd)
	cmd.Flags().StringArrayVar(&o.approve, "approve", nil, "approve a `PHASE` (restart, restart-live)")
	return cmd
}
