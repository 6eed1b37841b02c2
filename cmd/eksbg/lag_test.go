package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// A cluster that cannot be read hides nothing of the other one, and is no cluster on which
// nothing lags.
func TestLagWithOneClusterUnread(t *testing.T) {
	t.Parallel()
	box := lagBox(t)
	denied := wire.Fault{Call: "eks:DescribeCluster", Object: "ledger-blue", Times: -1, Status: 403, Error: "AccessDeniedException", Message: "no"}
	if err := box.Faults().Add(denied); err != nil {
		t.Fatal(err)
	}
	out, exit := runOnce(t, box, nil, "lag", box.PlanFile(), "--detailed-exitcode")
	if exit != 3 {
		t.Errorf("exit %d, want 3\n%s", exit, out)
	}
	says(t, out, "blue - ledger-blue - unknown", "green - ledger-green", "ledger/Deployment/ledger", "what lags on blue is unknown", "eks:DescribeCluster")

	cmd := exec.CommandContext(t.Context(), binary(t), "lag", box.PlanFile(), "-o", "json")
	cmd.Env = append(os.Environ(), box.Env()...)
	printed, err := cmd.Output()
	if err == nil || cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("json: %v", err)
	}
	var doc lagDocument
	if err := json.Unmarshal(printed, &doc); err != nil {
		t.Fatalf("%v\n%s", err, printed)
	}
	blue, green := doc.Cluster["blue"], doc.Cluster["green"]
	if doc.Exit != 3 || !strings.Contains(doc.Why, "unknown") || !strings.Contains(blue.Unknown, "not allowed") || blue.Name != "ledger-blue" || len(green.Owners) != 2 || green.Unknown != "" {
		t.Errorf("%s", printed)
	}

	says(t, out, "allow the caller what it says")

	// Asked for the healthy one alone nothing is unknown; the other one is as unknown alone.
	if out, exit := runOnce(t, box, nil, "lag", box.PlanFile(), "--cluster", "green"); exit != 0 {
		t.Errorf("green alone: exit %d\n%s", exit, out)
	}
	out, exit = runOnce(t, box, nil, "lag", box.PlanFile(), "--cluster", "blue", "-o", "json")
	alone := lagDocument{}
	if err := json.Unmarshal([]byte(out), &alone); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if exit != 3 || alone.Cluster["blue"].Unknown == "" || len(alone.Cluster) != 1 {
		t.Errorf("blue alone: exit %d\n%s", exit, out)
	}
}

// A permission that planning lacks blocks the command, with what to allow.
func TestAPermissionThatPlanningLacks(t *testing.T) {
	t.Parallel()
	for call, allow := range map[string]string{"eks:DescribeCluster": "eks:DescribeCluster", "k8s:list pods": "the verb list on pods"} {
		box := lagBox(t)
		f := wire.Fault{Call: call, Times: -1, Status: 403, Error: "AccessDeniedException", Message: "no"}
		if strings.HasPrefix(call, "k8s:") {
			f.Error = "Forbidden"
		}
		if err := box.Faults().Add(f); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"plan", box.PlanFile()}, restartArgs(box), {"jobs", "clean", box.PlanFile(), "--cluster", "green", "--yes"}} {
			out, exit := runOnce(t, box, nil, args...)
			if exit != 3 {
				t.Errorf("%s without %s: exit %d, want 3\n%s", args[0], call, exit, out)
			}
			says(t, out, allow, "allow the caller what it says")
		}
		// Credentials that nobody knows are no missing permission.
		box.Faults().Clear()
		f.Call, f.Error = "eks:DescribeCluster", "UnrecognizedClientException"
		if err := box.Faults().Add(f); err != nil {
			t.Fatal(err)
		}
		if out, exit := runOnce(t, box, nil, "plan", box.PlanFile()); exit != 1 {
			t.Errorf("unknown credentials: exit %d, want 1\n%s", exit, out)
		}
	}
}
