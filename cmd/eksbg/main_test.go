package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
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
//	sandbox SCENARIO [SPEED|JOB=RUNS]
//	                           serve a scenario, in which a Job runs that long; its files are in the working folder
//	exits CODE COMMAND ...     run a command that has to end with this exit code
//	edit FILE OLD NEW          replace the one OLD in a file (\n is a newline)
//	hop CLUSTER MINOR          somebody else upgrades the control plane, to its end
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"sandbox": cmdSandbox,
			"exits":   cmdExits,
			"edit":    cmdEdit,
			"hop":     cmdHop,
		},
	})
}

func cmdSandbox(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: sandbox SCENARIO [SPEED|JOB=RUNS]")
	}
	speed := float64(testSpeed)
	job, runs, found := "", "", false
	if len(args) == 2 {
		if job, runs, found = strings.Cut(args[1], "="); !found {
			var err error
			speed, err = strconv.ParseFloat(args[1], 64)
			ts.Check(err)
		}
	}
	name := args[0]
	if _, err := os.Stat(ts.MkAbs(name)); err == nil {
		name = ts.MkAbs(name)
	}
	sc, err := sandbox.Load(name)
	ts.Check(err)
	if found {
		d, err := time.ParseDuration(runs)
		ts.Check(err)
		ts.Check(runsFor(sc, job, d))
	}
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

// runsFor makes a Job of a scenario run that long, on both sides.
func runsFor(sc *sandbox.Scenario, job string, d time.Duration) error {
	n := 0
	for _, side := range []*sandbox.Cluster{&sc.Clusters.Blue, &sc.Clusters.Green} {
		for i := range side.Workloads {
			if w := &side.Workloads[i]; w.Kind == "Job" && w.Name == job {
				w.Runs = d
				n++
			}
		}
	}
	if n == 0 {
		return fmt.Errorf("no Job is called %s", job)
	}
	return nil
}

func cmdEdit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: edit FILE OLD NEW")
	}
	path := ts.MkAbs(args[0])
	content := ts.ReadFile(path)
	if n := strings.Count(content, args[1]); n != 1 {
		ts.Fatalf("%q is there %d times", args[1], n)
	}
	ts.Check(os.WriteFile(path, []byte(strings.Replace(content, args[1], strings.ReplaceAll(args[2], `\n`, "\n"), 1)), 0o600))
}

func cmdHop(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: hop CLUSTER MINOR")
	}
	ts.Check(hop(ts.Getenv, args[0], args[1]))
}

// hop upgrades a control plane as somebody beside eksbg would, to the end of the update.
func hop(env func(string) string, cluster, minor string) error {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	api := eks.New(eks.Options{
		Region: env("AWS_REGION"), BaseEndpoint: aws.String(env("AWS_ENDPOINT_URL_EKS")),
		Credentials: credentials.NewStaticCredentialsProvider(env("AWS_ACCESS_KEY_ID"), env("AWS_SECRET_ACCESS_KEY"), ""),
	})
	out, err := api.UpdateClusterVersion(ctx, &eks.UpdateClusterVersionInput{Name: &cluster, Version: &minor})
	if err != nil {
		return err
	}
	for {
		u, err := api.DescribeUpdate(ctx, &eks.DescribeUpdateInput{Name: &cluster, UpdateId: out.Update.Id})
		switch {
		case err != nil:
			return err
		case u.Update.Status == ekstypes.UpdateStatusSuccessful:
			return nil
		case u.Update.Status != ekstypes.UpdateStatusInProgress:
			return fmt.Errorf("the update of %s to %s: %s", cluster, minor, u.Update.Status)
		}
		time.Sleep(20 * time.Millisecond) // EKS has nothing to wait on
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
