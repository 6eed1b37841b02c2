package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/eksbg/eksbg/internal/sandbox"
	"github.com/eksbg/eksbg/internal/state"
)

type demoOptions struct {
	streams
	scenario string
	speed    float64
}

func newDemoCommand(s streams) *cobra.Command {
	o := &demoOptions{streams: s}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a whole upgrade in the sandbox, as a user would",
		Long: "Serves the sandbox and runs `eksbg plan` and `eksbg apply --yes` against it, with the\n" +
			"environment that the sandbox writes. Ends with how the pair was before and is after.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := withSignals(cmd.Context(), s, "Stopping the demo when its command has ended.")
			defer stop()
			return runDemo(ctx, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.scenario, "scenario", "hot", "a built-in scenario ("+strings.Join(sandbox.Names(), ", ")+") or a `FILE`")
	f.Float64Var(&o.speed, "speed", demoSpeed, "how many times faster than in the real world things happen")
	return cmd
}

// demoSpeed makes the hot upgrade, more than an hour, take less than half a minute.
const demoSpeed = 300

// inDemo is set in the environment of the demo's commands: what they name is deleted
// after them.
const inDemo = "EKSBG_IN_DEMO"

func runDemo(ctx context.Context, o *demoOptions) (err error) {
	sc, err := sandbox.Load(o.scenario)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "eksbg-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	box, err := sandbox.Start(ctx, sandbox.Options{Scenario: sc, Dir: dir, Speed: o.speed})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.Close()) }()

	fmt.Fprintf(o.err, "A sandbox with the scenario %s, %.0f times faster than the world.\n", sc.Name, o.speed)
	defer fmt.Fprintln(o.err, "\nThe demo's sandbox is gone now. To try things on one that stays:\neksbg sandbox --help")
	for _, args := range [][]string{{"plan", box.PlanFile()}, {"apply", box.PlanFile(), "--yes"}} {
		fmt.Fprintf(o.err, "\n$ eksbg %s\n\n", strings.Join(args, " "))
		if err := o.self(box.Env(), args); err != nil {
			return err
		}
	}
	return nil
}

// self runs this program again with the sandbox's environment. An interrupt reaches
// it as well, being of the same process group.
func (o *demoOptions) self(env, args []string) error {
	me, err := executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(me, args...)
	cmd.Env = append(append(os.Environ(), env...), inDemo+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = o.in, o.out, o.err
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if code := exit.ExitCode(); code >= 0 {
			return exitError(code)
		}
		return exitError(state.ExitFailed)
	}
	return err
}

// executable is this program by the name it was started with, so that a test binary
// that stands in for it is found too.
func executable() (string, error) {
	if !strings.ContainsRune(os.Args[0], os.PathSeparator) {
		return exec.LookPath(os.Args[0])
	}
	return os.Args[0], nil
}
