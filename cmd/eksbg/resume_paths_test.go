package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eksbg/eksbg/internal/sandbox"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
	"github.com/eksbg/eksbg/internal/state"
)

// editPlan replaces a text of the sandbox's plan file.
func editPlan(t *testing.T, box *sandbox.Sandbox, old, new string) {
	t.Helper()
	b, err := os.ReadFile(box.PlanFile())
	if err != nil {
		t.Fatal(err)
	}
	edited := strings.Replace(string(b), old, new, 1)
	if edited == string(b) {
		t.Fatalf("%q is not in the plan file:\n%s", old, b)
	}
	if err := os.WriteFile(box.PlanFile(), []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
}

func longHold(sc *sandbox.Scenario) { sc.Plan.Hold = 10 * time.Hour }

// killedInTheHold is a run that was killed while it held the first stage.
func killedInTheHold(t *testing.T) *sandbox.Sandbox {
	t.Helper()
	box := startSandbox(t, "hot", testSpeed, longHold)
	p := apply(t, box)
	p.reaches(t, recorded(t, box, state.RecordTraffic))
	kill(t, p)
	shortenHold(t, box.PlanFile())
	return box
}

// recorded closes when the journal holds a record of the kind. It looks whenever the
// sandbox has served a request, so nothing sleeps.
func recorded(t *testing.T, box *sandbox.Sandbox, kind state.RecordKind) <-chan struct{} {
	t.Helper()
	found := make(chan struct{})
	done := false
	path := journalPath(box.PlanFile(), "shop", "")
	box.Log().Watch(func(wire.Entry) {
		if done {
			return
		}
		records, _, err := state.Read(path)
		if err != nil {
			return
		}
		if _, ok := state.LastOf(records, kind); ok {
			done = true
			close(found)
		}
	})
	return found
}

// Semantics 12: the destination fell ill while nobody watched. Its lack of capacity
// must not keep the stage from judging it and putting back.
func TestResumedInAHoldAnIllDestinationIsPutBack(t *testing.T) {
	t.Parallel()
	box := killedInTheHold(t)
	box.Fail(sandbox.Failure{Cluster: "green", Status: 502, Percent: 100})
	says(t, applyExit(t, box, 5), "502", "blue 100 %, green 0 %")
	wantShares(t, box, state.Blue, 100)
}

// Semantics 12, 14: a due put-back waits for nothing that it does not need.
func TestADuePutBackWaitsForNobody(t *testing.T) {
	t.Parallel()
	for name, hinder := range map[string]func(t *testing.T, box *sandbox.Sandbox){
		"EKS is away": func(t *testing.T, box *sandbox.Sandbox) {
			if err := box.Faults().Add(wire.Fault{Call: "eks:*", Times: -1, Reset: "before"}); err != nil {
				t.Fatal(err)
			}
		},
		"the plan file wants another version": func(t *testing.T, box *sandbox.Sandbox) {
			editPlan(t, box, `version: "1.33"`, `version: "1.34"`)
		},
		"an entrance is gone from the plan file": removeALB,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box := killedBeforeThePutBack(t)
			hinder(t, box)
			says(t, applyExit(t, box, 5), "route53/api.shop.example.com blue 100 %, green 0 %", "alb/shop blue 100 %, green 0 %")
		})
	}
}

func removeALB(t *testing.T, box *sandbox.Sandbox) {
	t.Helper()
	b, err := os.ReadFile(box.PlanFile())
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), "  - alb:")
	_, after, ok2 := strings.Cut(rest, "\ncutover:")
	if !ok || !ok2 {
		t.Fatalf("no alb in the plan file:\n%s", b)
	}
	if err := os.WriteFile(box.PlanFile(), []byte(before+"\ncutover:"+after), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAChangedPlanFileDoesNotLeadAnOpenRunElsewhere(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		edit func(t *testing.T, box *sandbox.Sandbox)
		says []string
	}{
		"another version": {func(t *testing.T, box *sandbox.Sandbox) { editPlan(t, box, `version: "1.33"`, `version: "1.34"`) }, []string{"1.34", "1.33"}},
		"other stages": {func(t *testing.T, box *sandbox.Sandbox) {
			editPlan(t, box, "stages: [10, 50, 100]", "stages: [10, 100]")
		}, []string{"[10 100]", "[10 50 100]"}},
		"an entrance less": {removeALB, []string{"traffic targets", "alb/shop"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box := killedInTheHold(t)
			tt.edit(t, box)
			says(t, applyExit(t, box, 3), append(tt.says, "changed so far", "route53:ChangeResourceRecordSets", "green 10 %. Nobody watches it", "eksbg apply")...)
		})
	}
}

// A plan that --active made is applied as it was made.
func TestASavedPlanRemembersWhoWasNamedActive(t *testing.T) {
	t.Parallel()
	box := startSandbox(t, "hot", testSpeed, func(sc *sandbox.Scenario) {
		ninety, ten := int64(90), int64(10)
		sc.Zones[0].Records[0].Weight, sc.Zones[0].Records[1].Weight = &ninety, &ten
	})
	saved := filepath.Join(t.TempDir(), "saved.json")
	out, exit := runOnce(t, box, nil, "plan", box.PlanFile(), "--active", "blue", "--out", saved)
	if exit != 0 {
		t.Fatalf("plan: exit %d\n%s", exit, out)
	}
	says(t, out, "eksbg apply "+saved)
	out, exit = runOnce(t, box, nil, "apply", saved, "--yes", "--approve", "restart-live")
	if exit != 0 {
		t.Errorf("apply: exit %d\n%s", exit, out)
	}
}

func TestAClosedRunThatWasNotArchivedIsArchivedFirst(t *testing.T) {
	t.Parallel()
	box := startSandbox(t, "hot", testSpeed)
	applyExit(t, box, 0)
	path := journalPath(box.PlanFile(), "shop", "")
	archived := newestClosed(path)
	if archived == "" {
		t.Fatal("no archived journal")
	}
	if err := os.Rename(archived, path); err != nil {
		t.Fatal(err)
	}
	says(t, applyExit(t, box, 0), "Nothing to do")
	if newestClosed(path) != archived {
		t.Errorf("archived as %q, want %q", newestClosed(path), archived)
	}
}

// Semantics 6: a cluster of the same name that was made anew is another cluster.
func TestAJournalOfClustersMadeAnewIsRefused(t *testing.T) {
	t.Parallel()
	old := killedInTheHold(t)
	anew := startSandbox(t, "hot", testSpeed)
	journal, err := os.ReadFile(journalPath(old.PlanFile(), "shop", ""))
	if err != nil {
		t.Fatal(err)
	}
	path := journalPath(anew.PlanFile(), "shop", "")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, journal, 0o600); err != nil {
		t.Fatal(err)
	}
	// The entrances are the same but for ids, so only the clusters tell.
	b, err := os.ReadFile(old.PlanFile())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(anew.PlanFile(), b, 0o600); err != nil {
		t.Fatal(err)
	}
	says(t, applyExit(t, anew, 1), "another pair", "created at")
	if m := changing(requests(t, anew)); len(m) > 0 {
		t.Errorf("changing calls were made: %v", m)
	}
}

// A terminal that is gone does not end a run.
func TestHangupGoesOn(t *testing.T) {
	t.Parallel()
	box := startSandbox(t, "hot", testSpeed)
	p := apply(t, box)
	p.reaches(t, recorded(t, box, state.RecordIntent))
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if got := p.exit(); got != 0 {
		t.Errorf("exit %d\n%s", got, p.out.String())
	}
}

// Somebody removes the journal of a run at work and begins another: neither takes the
// other's file for its own.
func TestAReplacedJournalIsLeftToItsRun(t *testing.T) {
	t.Parallel()
	box := startSandbox(t, "hot", testSpeed)
	path := journalPath(box.PlanFile(), "shop", "")
	p := apply(t, box)
	p.reaches(t, recorded(t, box, state.RecordIntent))
	journal, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	saved := filepath.Join(t.TempDir(), "saved.json")
	if out, exit := runOnce(t, box, nil, "plan", box.PlanFile(), "--out", saved, "--state", filepath.Join(t.TempDir(), "x.journal")); exit != 0 {
		t.Fatalf("plan: exit %d\n%s", exit, out)
	}
	other, err := os.ReadFile(saved) // a saved plan is the first record of a journal
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, other, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := p.exit(); got != 1 {
		t.Errorf("exit %d, want 1\n%s", got, p.out.String())
	}
	says(t, p.out.String(), "removed while run")
	if now, err := os.ReadFile(path); err != nil || string(now) != string(other) || len(journal) == 0 {
		t.Errorf("the other run's journal was touched: %v", err)
	}
}

// An unknown is not a pass: without EKS nobody can say that the clusters are still the
// run's, so the present stage is judged and no further one begins.
func TestEKSAwayInTheCutoverStopsAfterThePresentStage(t *testing.T) {
	t.Parallel()
	box := killedInTheHold(t)
	if err := box.Faults().Add(wire.Fault{Call: "eks:*", Times: -1, Reset: "before"}); err != nil {
		t.Fatal(err)
	}
	says(t, applyExit(t, box, 4), "stopped after traffic/10, since EKS does not answer")
	wantShares(t, box, state.Green, 10)
	box.Faults().Clear()
	applyExit(t, box, 0)
	wantShares(t, box, state.Green, 100)
}
