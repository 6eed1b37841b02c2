package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

// fileArg is the Args of a command that takes one file.
func fileArg(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("FILE is missing: %s %s", cmd.CommandPath(), strings.TrimPrefix(cmd.Use, cmd.Name()+" "))
	}
	return cobra.ExactArgs(1)(cmd, args)
}

// group makes cmd one that only has commands below it. Like the root it shows its help
// when it is run alone, and knows no other word; flags that only those have do not hide
// that.
func group(cmd *cobra.Command) *cobra.Command {
	cmd.DisableFlagParsing = true
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, a := range args {
			if !strings.HasPrefix(a, "-") {
				return unknownCommand(cmd, a)
			}
			if a == "-h" || a == "--help" {
				return cmd.Help()
			}
		}
		if len(args) > 0 {
			return fmt.Errorf("unknown flag: %s", args[0])
		}
		return cmd.Help()
	}
	return cmd
}

// unknownCommand is what cobra says of the root's.
func unknownCommand(cmd *cobra.Command, word string) error {
	cmd.SuggestionsMinimumDistance = 2
	text := fmt.Sprintf("unknown command %q for %q", word, cmd.CommandPath())
	if near := cmd.SuggestionsFor(word); len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return errors.New(text)
}

// onceValue is a flag that may be given once.
type onceValue struct {
	to    *string
	given bool
}

// String is the value.
func (v *onceValue) String() string {
	if v.to == nil { // of pflag's own zero value
		return ""
	}
	return *v.to
}

// Set refuses a second value.
func (v *onceValue) Set(s string) error {
	if v.given {
		return fmt.Errorf("it was given before, as %s; one at a time", *v.to)
	}
	*v.to, v.given = s, true
	return nil
}

// Type names the type in the help.
func (*onceValue) Type() string { return "string" }

// loadPlanFile reads a plan file.
func loadPlanFile(path string) (*planfile.File, error) {
	f, err := planfile.Load(path)
	return f, notThere(err)
}

// notThere gives the cure where the plan file does not exist.
func notThere(err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return &state.Stop{Code: state.ExitFailed, Why: err.Error(), Cure: "name a plan file that is there; docs/plan-file.md says how to write one"}
}

// isUsage tells whether cobra, or what stands beside it here, refused the command line.
func isUsage(err error) bool {
	text := err.Error()
	for _, start := range []string{"unknown ", "invalid argument", "FILE is missing"} {
		if strings.HasPrefix(text, start) {
			return true
		}
	}
	return strings.Contains(text, " arg(s)")
}

// commandOf is the command that a command line is for, without the name of the program.
func commandOf(root *cobra.Command, args []string) *cobra.Command {
	if cmd, _, err := root.Find(args); err == nil {
		return cmd
	}
	return root
}

// refused prints the document of a command whose command line is wrong, in the format
// that it has otherwise.
func refused(s streams, cmd *cobra.Command, stop *state.Stop) {
	name := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
	switch name { // the exit code says the same as the errors
	case "lag":
		_ = (*lagging)(nil).writeJSON(s, stop)
	case "unlock":
		_ = (&locked{}).writeJSON(s, stop)
	case "plan":
		_ = writePlanJSON(s, nil, stop)
	default:
		_ = (&document{command: name}).write(s, nil, "", stop)
	}
}
