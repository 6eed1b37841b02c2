package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eksbg/eksbg/internal/sandbox"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// lagBox is a sandbox whose green cluster lags and has finished Jobs; its plan file
// deletes them.
func lagBox(t *testing.T) *sandbox.Sandbox {
	t.Helper()
	box := startSandbox(t, "stuck", testSpeed, func(sc *sandbox.Scenario) {
		sc.Updates = nil
		jobs := []sandbox.Workload{{Namespace: "ledger", Kind: "Job", Name: "import", Image: "import:1"}, {Namespace: "ops", Kind: "Job", Name: "migrate", Image: "migrate:1"}}
		sc.Clusters.Green.Workloads = append(sc.Clusters.Green.Workloads, jobs...)
	})
	editPlan(t, box, "restart:\n", "restart:\n  finishedJobs: delete\n  finishedAge: 0s\n")
	if err := hop(func(key string) string { return envOf(box, key) }, "ledger-green", "1.32"); err != nil {
		t.Fatal(err)
	}
	return box
}

func envOf(box *sandbox.Sandbox, key string) string {
	for _, kv := range box.Env() {
		if k, v, _ := strings.Cut(kv, "="); k == key {
			return v
		}
	}
	return ""
}

func restartArgs(box *sandbox.Sandbox) []string {
	return []string{"restart", box.PlanFile(), "--cluster", "green", "--yes"}
}

// deletions counts the accepted deletions by object; of a Job and a pod of a name no
// more than one may be.
func deletions(entries []wire.Entry) map[string]int {
	n := map[string]int{}
	for _, e := range entries {
		if e.Changing && e.Accepted && strings.HasPrefix(e.Call, "k8s:delete ") {
			n[e.Call+" "+e.Object]++
		}
	}
	return n
}

// Killed at every changing call of its own, a restart alone ends in the world of one
// that nobody disturbed, and deletes nothing twice.
func TestARestartAloneKilledAtEveryChangingCallResumes(t *testing.T) {
	if testing.Short() {
		t.Skip("many whole runs")
	}
	undisturbed := lagBox(t)
	if out, exit := runOnce(t, undisturbed, nil, restartArgs(undisturbed)...); exit != 0 {
		t.Fatalf("restart: exit %d\n%s", exit, out)
	}
	want := world(t, undisturbed)
	var moments []moment
	jobs := 0
	for _, m := range changing(requests(t, undisturbed)) {
		if m.call == "k8s:delete jobs" {
			jobs++
		}
		if strings.HasPrefix(m.call, "k8s:") && !strings.HasSuffix(m.call, " leases") {
			moments = append(moments, m)
		}
	}
	if jobs != 2 || len(moments) < 4 {
		t.Fatalf("%d deletions of Jobs in %v", jobs, moments)
	}
	for _, m := range moments {
		for _, hold := range []string{"before", "after"} {
			t.Run(strings.ReplaceAll(m.String()+" "+hold, "/", "_"), func(t *testing.T) {
				t.Parallel()
				box := lagBox(t)
				held := holdAt(t, box, wire.Fault{Call: m.call, Object: m.object, Nth: m.nth, Hold: hold})
				p := begin(t, box, restartArgs(box)...)
				p.reaches(t, held)
				kill(t, p)
				if out, exit := runOnce(t, box, nil, restartArgs(box)...); exit != 0 {
					t.Fatalf("resumed: exit %d\n%s", exit, out)
				}
				if diff := cmp.Diff(want, world(t, box)); diff != "" {
					t.Errorf("the world differs from an undisturbed run's (-want +got):\n%s", diff)
				}
				for what, n := range deletions(requests(t, box)) {
					if strings.Contains(what, " jobs ") && n != 1 {
						t.Errorf("%s: %d times", what, n)
					}
				}
			})
		}
	}
}

// What may not be deleted, may not be restarted: refused Jobs stop the run before any
// restart, and it goes on once they may.
func TestJobsThatMayNotBeDeletedStopTheRun(t *testing.T) {
	t.Parallel()
	box := lagBox(t)
	if err := box.Faults().Add(wire.Fault{Call: "k8s:delete jobs", Times: -1, Status: 403, Error: "Forbidden", Message: "jobs.batch is forbidden"}); err != nil {
		t.Fatal(err)
	}
	out, exit := runOnce(t, box, nil, restartArgs(box)...)
	if exit != 3 {
		t.Errorf("exit %d, want 3\n%s", exit, out)
	}
	says(t, out, "refuses to delete Job", "restart.finishedJobs: keep", "eksbg restart "+box.PlanFile()+" --cluster green --yes")
	for _, e := range requests(t, box) {
		if e.Changing && e.Accepted && strings.HasPrefix(e.Call, "k8s:patch ") {
			t.Errorf("%s %s before the Jobs were gone", e.Call, e.Object)
		}
	}
	box.Faults().Clear()
	if out, exit := runOnce(t, box, nil, restartArgs(box)...); exit != 0 {
		t.Errorf("exit %d\n%s", exit, out)
	}
}

// A put-back that is due is the open run's own: no other command makes it.
func TestARestartDoesNotTakeUpAnOpenRunsPutBack(t *testing.T) {
	t.Parallel()
	box := killedBeforeThePutBack(t)
	before := len(changing(requests(t, box)))
	out, exit := runOnce(t, box, nil, restartArgs(box)...)
	if exit != 3 || len(changing(requests(t, box))) != before {
		t.Errorf("exit %d, want 3 and no change\n%s", exit, out)
	}
	says(t, out, "(apply) is open", "eksbg apply "+box.PlanFile())
	// It is told before consent is asked for.
	out, exit = runOnce(t, box, nil, "restart", box.PlanFile(), "--cluster", "green")
	if exit != 3 {
		t.Errorf("without --yes: exit %d, want 3\n%s", exit, out)
	}
	says(t, out, "(apply) is open")
	box.Heal("green")
	applyExit(t, box, 5)
}

// Room that cannot be read is no room: it blocks until it is waived by name.
func TestUnreadableRoomBlocksUntilWaived(t *testing.T) {
	t.Parallel()
	box := lagBox(t)
	if err := box.Faults().Add(wire.Fault{Call: "ec2:DescribeSubnets", Times: -1, Status: 403, Error: "UnauthorizedOperation", Message: "You are not authorized to perform this operation."}); err != nil {
		t.Fatal(err)
	}
	out, exit := runOnce(t, box, nil, restartArgs(box)...)
	if exit != 3 {
		t.Errorf("exit %d, want 3\n%s", exit, out)
	}
	says(t, out, "UNKNOWN capacity/fargate", "ec2:DescribeSubnets", "nothing has been changed")
	editPlan(t, box, "\nupgrade:", "\nwaive:\n  - {check: capacity/fargate, reason: \"a small pair\", until: 2099-01-01}\n\nupgrade:")
	if out, exit := runOnce(t, box, nil, restartArgs(box)...); exit != 0 {
		t.Errorf("waived: exit %d\n%s", exit, out)
	}
	// lag needs none of it.
	if out, exit := runOnce(t, box, nil, "lag", box.PlanFile(), "--detailed-exitcode"); exit != 0 {
		t.Errorf("lag: exit %d\n%s", exit, out)
	}
}

// lag says what it can where the weights cannot be read.
func TestLagWithoutTheTraffic(t *testing.T) {
	t.Parallel()
	box := lagBox(t)
	if err := box.Faults().Add(wire.Fault{Call: "elbv2:*", Times: -1, Status: 403, Error: "AccessDenied", Message: "no"}); err != nil {
		t.Fatal(err)
	}
	out, exit := runOnce(t, box, nil, "lag", box.PlanFile(), "--detailed-exitcode")
	if exit != 2 {
		t.Errorf("exit %d, want 2\n%s", exit, out)
	}
	says(t, out, "as if both clusters had it", "ledger/Deployment/ledger", "2 finished Jobs hold 2 Fargate addresses")
}
