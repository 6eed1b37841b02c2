package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/ui/text"
)

func newRoot(s streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "eksbg",
		Short: "Take a pair of EKS clusters to a new Kubernetes version without an outage",
		Long: "eksbg takes a service that runs on a pair of Amazon EKS clusters (blue and green)\n" +
			"to a new Kubernetes version: the standby goes up hop by hop, every pod whose\n" +
			"kubelet lags is restarted, and the traffic moves over in gated stages. Kill it at\n" +
			"any moment; the same command goes on.\n\n" +
			"Exit codes: 0 done or nothing to do, 1 failed, 2 changes pending, 3 blocked,\n" +
			"4 not finished but resumable, 5 a gate failed and the traffic is back, 6 locked,\n" +
			"7 the saved plan is stale, 8 consent missing, 9 the traffic is not where it\n" +
			"should be, 130 interrupted.",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.AddCommand(
		newPlanCommand(s, nil), newApplyCommand(s, nil), newStatusCommand(s, nil),
		newSchemaCommand(s), newSandboxCommand(s), newDemoCommand(s), newVersionCommand(s),
	)
	return root
}

func newVersionCommand(s streams) *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(s.out, "eksbg", version)
			return err
		}}
}

func newSchemaCommand(s streams) *cobra.Command {
	return &cobra.Command{Use: "schema", Short: "Print the JSON Schema of the plan file", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b, err := planfile.Schema()
			if err != nil {
				return err
			}
			_, err = s.out.Write(b)
			return err
		}}
}

func isTerminal(f *os.File) bool { return isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()) }

// exitError carries an exit code for which everything has been said already.
type exitError state.Exit

func (e exitError) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// report says an error once, with the cure, and turns it into the exit code.
func report(s streams, root *cobra.Command, err error) int {
	if err == nil {
		return int(state.ExitDone)
	}
	var quiet exitError
	if errors.As(err, &quiet) {
		return int(quiet)
	}
	stop := asStop(err)
	fmt.Fprintln(s.err)
	text.Wrap(s.err, "Error: ", "       ", clean(stop.Error()))
	if stop.Cure != "" {
		text.Wrap(s.err, "Cure:  ", "       ", clean(stop.Cure))
	}
	if strings.HasPrefix(err.Error(), "unknown command") || strings.HasPrefix(err.Error(), "unknown flag") {
		fmt.Fprintf(s.err, "Cure:  see %s --help\n", root.CommandPath())
	}
	return int(stop.Code)
}

// clean strips control characters line by line.
func clean(t string) string {
	lines := strings.Split(t, "\n")
	for i := range lines {
		lines[i] = state.Clean(lines[i])
	}
	return strings.Join(lines, "\n")
}

// asStop gives any error the exit code that users are promised.
func asStop(err error) *state.Stop {
	var stop *state.Stop
	if errors.As(err, &stop) {
		return stop
	}
	var locked *state.ErrLocked
	if errors.As(err, &locked) {
		return &state.Stop{Code: state.ExitLocked, Why: err.Error()}
	}
	return &state.Stop{Code: state.ExitFailed, Why: err.Error()}
}
