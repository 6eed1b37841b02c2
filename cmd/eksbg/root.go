package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode"

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
		newPlanCommand(s, nil), newApplyCommand(s, nil), newStatusCommand(s, nil), newLagCommand(s, nil), newUnlockCommand(s, nil),
		newRestartCommand(s, nil), newJobsCommand(s, nil),
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

// report says an error once, with the cure, and turns it into the exit code. args are
// the command line: with -o json even a wrong one is answered with a document.
func report(s streams, root *cobra.Command, args []string, err error) int {
	if err == nil {
		return int(state.ExitDone)
	}
	var quiet exitError
	if errors.As(err, &quiet) {
		return int(quiet)
	}
	stop := asStop(err)
	cmd := commandOf(root, args)
	if isUsage(err) {
		stop.Cure = "see " + cmd.CommandPath() + " --help"
	}
	if wantsJSON(args) {
		refused(s, cmd, stop)
		return int(stop.Code)
	}
	fmt.Fprintln(s.err)
	var mistake *planfile.Error
	if errors.As(err, &mistake) { // its excerpt points with a caret: no wrapping
		fmt.Fprintf(s.err, "Error: %s\n", excerpt(err.Error()))
		return int(stop.Code)
	}
	text.Wrap(s.err, "Error: ", "       ", clean(stop.Error()))
	if stop.Cure != "" {
		text.Cure(s.err, "Cure:  ", "       ", clean(stop.Cure))
	}
	return int(stop.Code)
}

func wantsJSON(args []string) bool {
	for i, a := range args {
		if a == "-ojson" || a == "-o=json" || a == "--output=json" || i > 0 && a == "json" && (args[i-1] == "-o" || args[i-1] == "--output") {
			return true
		}
	}
	return false
}

// excerpt strips control characters and keeps the blanks that carets stand on.
func excerpt(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case r == '\t':
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, s)
}

// shellQuote quotes a path for a command to type, where it has to be.
func shellQuote(p string) string {
	if p != "" && strings.Trim(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./@:+,=%") == "" {
		return p
	}
	return "'" + strings.ReplaceAll(p, "'", `'\''`) + "'"
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
