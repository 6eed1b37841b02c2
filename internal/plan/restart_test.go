package plan_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
	"pgregory.net/rapid"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/fargate"
	"github.com/eksbg/eksbg/internal/plan"
	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/preflight"
	"github.com/eksbg/eksbg/internal/state"
)

// withJobs adds n finished Jobs, each with a pod on a Fargate node.
func withJobs(inv *cluster.Inventory, n int) *cluster.Inventory {
	for i := range n {
		o := cluster.Owner{APIVersion: "batch/v1", Namespace: "shop", Kind: "Job", Name: fmt.Sprintf("import-%d", i), UID: fmt.Sprintf("job-%d", i)}
		done := at.Add(-2 * time.Hour)
		inv.Jobs = append(inv.Jobs, cluster.Job{Owner: o, Finished: true, FinishedAt: done, CreatedAt: done})
		node := fmt.Sprintf("fargate-job-%d", i)
		inv.Nodes = append(inv.Nodes, cluster.Node{Name: node, Minor: inv.Version, Compute: cluster.ComputeFargate})
		inv.Pods = append(inv.Pods, cluster.Pod{Namespace: "shop", Name: o.Name + "-x", UID: o.UID + "-x", Node: node, Phase: "Succeeded", Finished: true, FinishedAt: done, Owner: o})
	}
	return inv
}

func finding(p *state.Plan, check string) (state.Finding, bool) {
	for _, f := range p.Findings {
		if f.Check == check {
			return f, true
		}
	}
	return state.Finding{}, false
}

func TestFinishedJobsAreReportedAlwaysAndDeletedIfAsked(t *testing.T) {
	f := file("1.32")
	f.Restart.FinishedAge = planfile.Duration(time.Hour)
	w := world(inventory(state.Blue, "1.31", "1.31"), withJobs(inventory(state.Green, "1.31", "1.31"), 2), share(100, 0))
	p := mustMake(t, f, w)
	got, ok := finding(p, "jobs/finished")
	if !ok || got.Severity != state.SeverityWarn || got.Side != state.Green || got.Text != "2 finished Jobs hold 2 Fargate addresses" {
		t.Errorf("kept: %+v", got)
	}
	for _, part := range []string{"restart.finishedJobs: delete", "eksbg jobs clean", "ttlSecondsAfterFinished", "3600"} {
		if !strings.Contains(got.Cure, part) {
			t.Errorf("the cure lacks %q: %s", part, got.Cure)
		}
	}
	if strings.Contains(ids(p), "jobs") {
		t.Errorf("deletes unasked: %s", ids(p))
	}

	f.Restart.FinishedJobs = "delete"
	p = mustMake(t, f, w)
	if got, _ := finding(p, "jobs/finished"); got.Severity != state.SeverityInfo {
		t.Errorf("deleted: %+v", got)
	} else if strings.Contains(got.Cure, "set restart.finishedJobs") || !strings.Contains(got.Cure, "on cluster shop-green:") {
		t.Errorf("cure: %s", got.Cure)
	}
	if s, ok := p.Step("green/jobs/1"); !ok || s.Title != "delete 2 finished Jobs" || s.Phase != state.PhaseRestart {
		t.Errorf("step %+v", s)
	}
	if !strings.Contains(ids(p), "green/jobs/1 green/restart/1") {
		t.Errorf("steps %s", ids(p))
	}
	// Blue is reported as well; nothing of it is touched.
	withJobs(w.Inventories[state.Blue], 1)
	for _, got := range mustMake(t, f, w).Findings {
		if got.Side == state.Blue && got.Check == "jobs/finished" && (strings.Contains(got.Cure, "set restart.finishedJobs") || !strings.Contains(got.Cure, "shop-blue:")) {
			t.Errorf("cure under blue: %s", got.Cure)
		}
	}
	n := 0
	for _, got := range mustMake(t, f, w).Findings {
		if got.Check == "jobs/finished" && got.Severity == state.SeverityInfo {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d sides reported, want 2", n)
	}
}

func TestPartsAlone(t *testing.T) {
	f := file("1.35")
	f.Restart.FinishedAge = planfile.Duration(time.Hour)
	w := world(inventory(state.Blue, "1.32", "1.31"), withJobs(inventory(state.Green, "1.32", "1.31", "1.32"), 3), share(100, 0))
	id := plan.Identity{Run: "run", Lineage: "line", File: "plan.yaml"}
	for _, c := range []struct {
		name, want, operation string
		p                     *state.Plan
	}{
		{"restart of the standby", "preflight green/restart/1", "restart", plan.Restart(f, w, state.Green, id)},
		{"restart of the live side", "preflight blue/restart-live/1", "restart", plan.Restart(f, w, state.Blue, id)},
		{"jobs", "preflight green/jobs/1", "jobs clean", plan.Jobs(f, w, state.Green, id)},
		{"no jobs", "", "jobs clean", plan.Jobs(f, w, state.Blue, id)},
	} {
		if got := ids(c.p); got != c.want || string(c.p.Operation) != c.operation || c.p.Target != "1.32" || c.p.Fingerprint != c.p.Sum() {
			t.Errorf("%s: steps %q, operation %q, target %s", c.name, got, c.p.Operation, c.p.Target)
		}
	}
	if s, _ := plan.Restart(f, w, state.Blue, id).Step("blue/restart-live/1"); !s.Approval || s.Phase != state.PhaseRestartLive {
		t.Errorf("live: %+v", s)
	}
	f.Restart.FinishedJobs = "delete"
	if got := ids(plan.Restart(f, w, state.Green, id)); got != "preflight green/jobs/1 green/restart/1" {
		t.Errorf("steps %q", got)
	}
	// A split that would need --active for the whole way is no matter here, and makes both live.
	w.Traffic = []state.Share{share(50, 50)}
	if s, ok := plan.Restart(f, w, state.Green, id).Step("green/restart-live/1"); !ok || !s.Approval {
		t.Errorf("split: %+v", s)
	}
	if f.Restart.FinishedJobs != "delete" || f.Version != "1.35" {
		t.Error("the plan file was changed")
	}
	// What the plan file skips does not count.
	f.Restart.FinishedJobs = "keep"
	f.Restart.Skip = []planfile.Skip{{Owner: "shop/Deployment/d0", Reason: "later", Until: planfile.Date{Time: at}}}
	if p := plan.Restart(f, w, state.Green, id); len(p.Steps) != 0 {
		t.Errorf("skipped: %s", ids(p))
	}
}

func TestFindingsOfARestart(t *testing.T) {
	f := file("1.32")
	f.Restart.JobTimeout = planfile.Duration(time.Hour)
	green := inventory(state.Green, "1.32", "1.31", "1.31", "1.31", "1.31")
	green.Workloads[0].Strategy = cluster.StrategyRecreate // one replica: away for a moment
	green.Workloads[1].Paused = true
	green.Pods[2].Owner = cluster.Owner{APIVersion: "batch/v1", Namespace: "shop", Kind: "Job", Name: "report"}
	green.Workloads[3].Replicas, green.Workloads[3].MaxSurge = 2, 1
	green.Pods[3].Profile = "all"
	w := world(inventory(state.Blue, "1.31", "1.31"), green, share(100, 0))
	w.Rooms = map[state.Side]fargate.Room{state.Green: {Addresses: map[string]int{"all": 0}, MilliCPU: fargate.Unknown, Burst: 20, PerSecond: 20,
		Missing: []string{"the vCPU quota could not be read: denied"}}}
	p := mustMake(t, f, w)
	for check, parts := range map[string][]string{
		"restart/shop/Deployment/d0": {"away for a moment"},
		"restart/shop/Deployment/d1": {"cannot be restarted: paused Deployment", "before the cutover"},
		"restart/shop/Deployment/d3": {"has no room"},
		"restart/jobs":               {"still run", "1h", "shop/Job/report"},
		plan.RoomCheck:               {"the vCPU quota could not be read"},
	} {
		got, ok := finding(p, check)
		for _, part := range parts {
			if !ok || !strings.Contains(got.Text, part) {
				t.Errorf("%s: %+v, want %q", check, got, part)
			}
		}
	}
	if got, _ := finding(p, "restart/shop/Deployment/d1"); !strings.Contains(got.Cure, "restart.allow") || !strings.Contains(got.Cure, "restart.skip") {
		t.Errorf("cure %q", got.Cure)
	}
	if got, _ := finding(p, plan.RoomCheck); !got.Blocks() || got.Severity != state.SeverityUnknown {
		t.Errorf("room: %+v", got)
	}
	f.Waive = []planfile.Waiver{{Check: plan.RoomCheck, Reason: "small pair", Until: planfile.Date{Time: at}}}
	if got, _ := finding(mustMake(t, f, w), plan.RoomCheck); got.Blocks() {
		t.Errorf("waived: %+v", got)
	}
}

// What the plan file allows decides how, on the cluster with the traffic too.
func TestConsentsReachThePlan(t *testing.T) {
	f := file("1.32")
	blue := inventory(state.Blue, "1.32", "1.31")
	blue.Workloads[0].Strategy = cluster.StrategyRecreate
	w := world(blue, inventory(state.Green, "1.32", "1.32"), share(100, 0))
	if got, ok := finding(mustMake(t, f, w), "restart/shop/Deployment/d0"); !ok || !strings.Contains(got.Text, "cannot be restarted") {
		t.Errorf("without consent: %+v", got)
	}
	f.Restart.Allow = []planfile.Allow{{Owner: "shop/Deployment/d0", Action: planfile.ActionOutage, Reason: "agreed"}}
	if got, ok := finding(mustMake(t, f, w), "restart/shop/Deployment/d0"); !ok || !strings.Contains(got.Text, "away for a moment") {
		t.Errorf("with consent: %+v", got)
	}
}

// The room is asked for once, with what both clusters use, and only where there is
// Fargate at all.
func TestRoomIsReadForTheSideThatIsRestarted(t *testing.T) {
	blue, green := inventory(state.Blue, "1.32", "1.32"), inventory(state.Green, "1.32", "1.31")
	blue.Pods[0].MilliCPU, green.Pods[0].MilliCPU = 250, 500
	asked := 0
	src := plan.Sources{Clock: clock.RealClock{},
		Inventories: map[state.Side]preflight.Inventory{
			state.Blue:  func(context.Context) (*cluster.Inventory, error) { return blue, nil },
			state.Green: func(context.Context) (*cluster.Inventory, error) { return green, nil },
		},
		CredentialsExpire: func(context.Context) (time.Time, error) { return time.Time{}, nil },
		Room: func(_ context.Context, side state.Side, used int) (fargate.Room, error) {
			if asked++; side != state.Green || used != 750 {
				t.Errorf("asked for %s with %d in use", side, used)
			}
			return fargate.Room{MilliCPU: 1}, nil
		}}
	w, err := plan.ObserveSide(t.Context(), file("1.32"), src, state.Green)
	if err != nil || asked != 1 || w.Rooms[state.Green].MilliCPU != 1 {
		t.Errorf("%v, asked %d times, %+v", err, asked, w)
	}
	for i := range green.Nodes {
		green.Nodes[i].Compute = cluster.ComputeEC2
	}
	if w, err = plan.ObserveSide(t.Context(), file("1.32"), src, state.Green); err != nil || asked != 1 || len(w.Rooms) != 0 {
		t.Errorf("EC2 alone: %v, asked %d times", err, asked)
	}
	src.Room = func(context.Context, state.Side, int) (fargate.Room, error) {
		return fargate.Room{}, errors.New("expired")
	}
	green.Nodes[0].Compute = cluster.ComputeFargate
	if _, err = plan.ObserveSide(t.Context(), file("1.32"), src, state.Green); err == nil {
		t.Error("an error of the room is lost")
	}
}

// A restart never looks shorter with less parallelism, and never shorter than its
// longest owner.
func TestExpectationsGrowWithLessParallelism(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var kubelets []string
		for range rapid.IntRange(1, 30).Draw(t, "pods") {
			kubelets = append(kubelets, "1.31")
		}
		green := inventory(state.Green, "1.32", kubelets...)
		for i := range green.Workloads {
			if rapid.Bool().Draw(t, "set") {
				green.Workloads[i].Kind, green.Pods[i].Owner.Kind = "StatefulSet", "StatefulSet"
			}
		}
		w := world(inventory(state.Blue, "1.32"), green, share(100, 0))
		last := time.Duration(0)
		for parallel := 8; parallel >= 1; parallel-- {
			f := file("1.32")
			f.Restart.MaxParallel = parallel
			s, ok := plan.Restart(f, w, state.Green, plan.Identity{}).Step("green/restart/1")
			if !ok || s.Expect.Min.D() < last || s.Expect.Min > s.Expect.Max {
				t.Fatalf("%d at once: %+v after %s", parallel, s.Expect, last)
			}
			last = s.Expect.Min.D()
		}
	})
}

func TestEntriesThatNameNothing(t *testing.T) {
	f := file("1.32")
	green := inventory(state.Green, "1.32", "1.31", "1.31")
	cron := cluster.Owner{Namespace: "shop", Kind: "CronJob", Name: "nightly"}
	green.Workloads[1].Replicas, green.Pods = 0, green.Pods[:1] // scaled to nothing, and yet there
	green.CronJobs = []cluster.CronJob{{Owner: cron}}
	green.Jobs = []cluster.Job{{Owner: cluster.Owner{Namespace: "shop", Kind: "Job", Name: "nightly-1"}, CronJob: cron}}
	skip := func(owner string, days int) planfile.Skip {
		return planfile.Skip{Owner: owner, Reason: "later", Until: planfile.Date{Time: at.AddDate(0, 0, days)}}
	}
	f.Restart.Skip = []planfile.Skip{skip("shop/StatefulSet/d0", 1), skip("shop/Deployment/d1", 1), skip("shop/Job/nightly-1", 1), skip("Node/fargate-ip-10-0-0-0", 1),
		skip("shop/Deployment/old", -2)}
	f.Restart.Allow = []planfile.Allow{{Owner: "shop/Deployment/d9", Action: planfile.ActionEvict}, {Owner: "shop/Deployment/d9", Action: planfile.ActionOutage}, {Owner: "shop/Deployment/d0", Action: planfile.ActionEvict}}
	f.Restart.Order = []string{"shop", "shpo"}
	w := world(inventory(state.Blue, "1.32", "1.32"), green, share(100, 0))
	for name, p := range map[string]*state.Plan{"plan": mustMake(t, f, w), "restart": plan.Restart(f, w, state.Green, plan.Identity{})} {
		got := map[string]string{}
		for _, found := range p.Findings {
			if list, _, _ := strings.Cut(found.Check, "/"); list == "skip" || list == "allow" || list == "order" {
				if got[found.Check] != "" || found.Severity != state.SeverityWarn || found.Blocks() {
					t.Errorf("%s: %+v", name, found)
				}
				got[found.Check] = found.Text + " " + found.Cure
			}
		}
		for check, part := range map[string]string{
			"skip/shop/StatefulSet/d0": "nothing of that name is in shop-blue or shop-green; there is shop/Deployment/d0 name shop/Deployment/d0",
			"skip/shop/Job/nightly-1":  "there is shop/CronJob/nightly",
			"skip/shop/Deployment/old": "ended on",
			"allow/shop/Deployment/d9": "nothing of that name is in shop-blue or shop-green correct it",
			"order/shpo":               "namespace shpo",
		} {
			if !strings.Contains(got[check], part) {
				t.Errorf("%s: %s lacks %q: %s", name, check, part, got[check])
			}
			delete(got, check)
		}
		if len(got) > 0 {
			t.Errorf("%s: unasked %v", name, got)
		}
	}
}
