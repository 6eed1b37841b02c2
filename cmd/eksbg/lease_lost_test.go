package main

import (
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/eksbg/eksbg/internal/sandbox"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
	"github.com/eksbg/eksbg/internal/state"
)

// A lock that is taken away stops the work before its next change, and the traffic is
// left to whoever took it (semantics 23).
func TestALockThatIsTakenAwayStopsTheRun(t *testing.T) {
	t.Parallel()
	box := startSandbox(t, "hot", testSpeed, func(sc *sandbox.Scenario) { sc.Plan.Hold = 10 * time.Hour })
	moved := make(chan struct{})
	var once sync.Once
	box.Log().Watch(func(e wire.Entry) {
		if e.Call == "route53:GetChange" {
			once.Do(func() { close(moved) })
		}
	})
	p := apply(t, box)
	p.reaches(t, moved)
	out, exit := runOnce(t, box, nil, "unlock", box.PlanFile(), "--yes")
	if exit != 6 {
		t.Errorf("unlock beside the journal of a process at work: exit %d\n%s", exit, out)
	}
	says(t, out, "a process on this machine is at work", "it gives its locks back")
	doc := unlockJSON(t, box, 6, box.PlanFile(), "--yes", "--force")
	if h := doc.Clusters[state.Blue].Holder; doc.Holder == "" || doc.Clusters[state.Blue].State != "locked" || h == nil || h.PID != p.cmd.Process.Pid || h.Gone {
		t.Errorf("unlock -o json beside a process at work: %+v", doc)
	}
	out, exit = runOnce(t, box, nil, "unlock", box.PlanFile(), "--yes", "--state", elsewhere(t))
	if exit != 6 {
		t.Errorf("unlock of a process of this machine that runs: exit %d\n%s", exit, out)
	}
	says(t, out, "still runs", "--force")
	out, exit = runOnce(t, box, nil, "unlock", box.PlanFile(), "--yes", "--force", "--state", elsewhere(t))
	if exit != 0 {
		t.Errorf("unlock: exit %d\n%s", exit, out)
	}
	says(t, out, "shop-blue: locked", "for apply of shop, run ", "Unlocked shop-blue", "Unlocked shop-green")
	if got := p.exit(); got != 6 {
		t.Errorf("exit %d, want 6\n%s", got, p.out.String())
	}
	says(t, p.out.String(), "was lost", "(unlock of shop", "blue 90 (90 %), green 10 (10 %)", "(exit 6)")
	wantShares(t, box, state.Green, 10)
	shortenHold(t, box.PlanFile())
	applyExit(t, box, 0)
	wantShares(t, box, state.Green, 100)
	onceEach(t, requests(t, box))
}

// Killed when the put-back is due, the next process makes it although somebody else has
// the lock (semantics 14), and nothing else.
func TestAPutBackNeedsNoLock(t *testing.T) {
	t.Parallel()
	box := killedBeforeThePutBack(t)
	for _, side := range []string{"blue", "green"} {
		foreignLock(t, box, side)
	}
	says(t, applyExit(t, box, 5), "blue 100 %, green 0 %")
	wantShares(t, box, state.Blue, 100)
	if f := lockHolder(t, box, "blue"); f.Holder.Who.Host != "bastion" {
		t.Errorf("the lock is held by %s now", f.Holder)
	}
}

// A lock that cannot be renewed holds the next change back until it is, and ends nothing.
func TestALockThatCannotBeRenewedHoldsChangesBack(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for renewals of a lock of a minute")
	}
	box := startSandbox(t, "hot", testSpeed, func(sc *sandbox.Scenario) {
		// The first renewal is due and given up within this hold, which the plan file has
		// scaled: the next shift finds the lock not renewed.
		sc.Plan.Stages, sc.Plan.Hold = []int{10, 100}, 35*time.Second*testSpeed
	})
	if err := box.Faults().Add(wire.Fault{Call: "k8s:update leases", Times: -1, Status: 503}); err != nil {
		t.Fatal(err)
	}
	refused, shifted := make(chan struct{}, 1), make(chan struct{})
	renewed, shifts := 0, 0
	box.Log().Watch(func(e wire.Entry) { // under the log's lock
		switch {
		case e.Call == "k8s:update leases" && e.Accepted:
			renewed++
		case e.Call == "k8s:update leases":
			select {
			case refused <- struct{}{}:
			default:
			}
		case e.Call == "route53:ChangeResourceRecordSets" && e.Accepted:
			if shifts++; shifts != 2 {
				return
			}
			close(shifted)
			if renewed < 2 { // both clusters'
				t.Errorf("a shift while the lock was not renewed")
			}
		}
	})
	p := apply(t, box)
	for withheld := false; !withheld; {
		p.reaches(t, refused)
		records, _, _, err := readRun(journalPath(box.PlanFile(), "shop", ""))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			withheld = withheld || r.Kind == state.RecordWaiting && strings.Contains(r.Text, "no change before the lock in cluster")
		}
	}
	box.Faults().Clear()
	p.reaches(t, shifted)
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if exit := p.exit(); exit != 130 {
		t.Errorf("exit %d", exit)
	}
	says(t, p.out.String(), "no change before the lock in cluster", "is renewed again after", "HTTP 503", "blue 100 %, green 0 %")
	wantFree(t, box)
}

// What a restart has changed only for its time is put back while no lock can be renewed,
// as when the other cluster's API server is away (semantics 14).
func TestARestartIsPutBackWhileNoLockIsRenewed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for renewals of a lock of a minute")
	}
	box, p := owing(t, true, wire.Fault{Call: "k8s:update leases", Times: -1, Status: 503}, wire.Fault{Call: "k8s:create pods/eviction", Times: -1, Status: 503})
	failing := make(chan struct{})
	var first time.Time
	var once sync.Once
	box.Log().Watch(func(e wire.Entry) { // under the log's lock
		switch {
		case e.Call != "k8s:update leases" || e.Accepted:
		case first.IsZero():
			first = e.Time
		case e.Time.Sub(first) > 15*time.Second: // a renewal has been given up meanwhile
			once.Do(func() { close(failing) })
		}
	})
	p.reaches(t, failing)
	interrupt(t, p)
	if exit := p.exit(); exit != 130 {
		t.Errorf("exit %d, want 130\n%s", exit, p.out.String())
	}
	patches := 0
	for _, e := range requests(t, box) {
		if e.Call == "k8s:patch cronjobs" && e.Accepted {
			patches++
		}
	}
	if out := p.out.String(); patches != 2 || strings.Contains(out, "not put back") || strings.Contains(out, "withheld") {
		t.Errorf("%d patches of CronJobs\n%s", patches, out)
	}
}

// The API server refuses a restart for a while, and the machine sleeps: when it wakes
// up, somebody else has the lock. What was to be sent again is not (semantics 23).
func TestWhatWasRefusedIsNotSentAgainAfterATakeover(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("lets a lock of a minute grow old")
	}
	box := lagBox(t)
	for _, call := range []string{"k8s:create pods/eviction", "k8s:patch deployments"} {
		if err := box.Faults().Add(wire.Fault{Call: call, Times: -1, Status: 503}); err != nil {
			t.Fatal(err)
		}
	}
	refused := make(chan struct{})
	var once sync.Once
	box.Log().Watch(func(e wire.Entry) {
		if e.Call == "k8s:create pods/eviction" || e.Call == "k8s:patch deployments" {
			once.Do(func() { close(refused) })
		}
	})
	p := begin(t, box, restartArgs(box)...)
	p.reaches(t, refused)
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	foreignLock(t, box, "green")
	<-time.After(42 * time.Second) // a renewal is good for 40 s
	// The evictions go again; who has the lock cannot be read for a while.
	box.Faults().Clear()
	if err := box.Faults().Add(wire.Fault{Call: "k8s:* leases", Times: -1, Status: 503}); err != nil {
		t.Fatal(err)
	}
	before := restarted(requests(t, box))
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	<-time.After(3 * time.Second) // what is repeated without the lock goes at once
	box.Faults().Clear()
	if exit := p.exit(); exit != 6 {
		t.Errorf("exit %d, want 6\n%s", exit, p.out.String())
	}
	if n := restarted(requests(t, box)) - before; n != 0 {
		t.Errorf("%d changes under somebody else's lock\n%s", n, p.out.String())
	}
	says(t, p.out.String(), "was lost", "ops on bastion")
}
