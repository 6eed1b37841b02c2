package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/eksbg/eksbg/internal/sandbox"
)

var update = flag.Bool("update", false, "write the expected output of the scripts anew")

func TestMain(m *testing.M) {
	// Whole runs against the sandbox wait more than they work.
	if f := flag.Lookup("test.parallel"); f != nil {
		_ = f.Value.Set("6") // -parallel on the command line is read after this and wins
	}
	testscript.Main(m, map[string]func(){"eksbg": func() { os.Exit(Main()) }})
}

// Scripts in testdata/script run the command line as users do. Beside testscript's
// own they have:
//
//	sandbox SCENARIO [SPEED]   serve a scenario; its files are in the working folder
//	exits CODE COMMAND ...     run a command that has to end with this exit code
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"sandbox": cmdSandbox,
			"exits":   cmdExits,
		},
	})
}

func cmdSandbox(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: sandbox SCENARIO [SPEED]")
	}
	speed := float64(testSpeed)
	if len(args) == 2 {
		var err error
		speed, err = strconv.ParseFloat(args[1], 64)
		ts.Check(err)
	}
	name := args[0]
	if _, err := os.Stat(ts.MkAbs(name)); err == nil {
		name = ts.MkAbs(name)
	}
	sc, err := sandbox.Load(name)
	ts.Check(err)
	box, err := sandbox.Start(context.Background(), sandbox.Options{Scenario: sc, Dir: ts.MkAbs("."), Speed: speed})
	ts.Check(err)
	ts.Defer(func() {
		if err := box.Close(); err != nil {
			ts.Logf("close the sandbox: %v", err)
		}
	})
	for _, kv := range box.Env() {
		for i := range kv {
			if kv[i] == '=' {
				ts.Setenv(kv[:i], kv[i+1:])
				break
			}
		}
	}
}

func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit %d, want %d", got, want)
	}
}
