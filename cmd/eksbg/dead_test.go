package main

import (
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/eksbg/eksbg/internal/sandbox"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// An API server that always answers with errors is an error soon, as long as nothing has
// been changed: nobody waits ten minutes for it, whatever asks.
func TestAnAPIServerThatOnlyFailsIsAnErrorBeforeTheFirstChange(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fault wire.Fault
		args  []string
		says  string
	}{
		"restart, planning": {wire.Fault{Call: "k8s:list pods", Times: -1, Status: 500}, []string{"restart", "--cluster", "green"}, "list pods of cluster ledger-"},
		"jobs clean":        {wire.Fault{Call: "k8s:list pods", Times: -1, Status: 500}, []string{"jobs clean", "--cluster", "green"}, "list pods of cluster ledger-"},
		"apply":             {wire.Fault{Call: "k8s:list pods", Times: -1, Status: 500}, []string{"apply"}, "list pods of cluster ledger-"},
		"the lock":          {wire.Fault{Call: "k8s:create leases", Times: -1, Status: 500}, []string{"restart", "--cluster", "green"}, "take the lock in cluster ledger-"},
		"the watches":       {wire.Fault{Call: "k8s:* pods", Onset: 3, Times: -1, Status: 500}, []string{"restart", "--cluster", "green"}, "watch of pods"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box := lagBox(t)
			editPlan(t, box, "finishedJobs: delete", "finishedJobs: keep")
			if err := box.Faults().Add(tt.fault); err != nil {
				t.Fatal(err)
			}
			args := append(strings.Fields(tt.args[0]), box.PlanFile(), "--yes")
			out, exit := runOnce(t, box, nil, append(args, tt.args[1:]...)...)
			if exit != 1 {
				t.Errorf("exit %d, want 1\n%s", exit, out)
			}
			says(t, out, tt.says)
			if n := restarted(requests(t, box)); n != 0 {
				t.Errorf("%d changes", n)
			}
		})
	}
}

// gone is an API server that answers nothing.
var gone = wire.Fault{Call: "k8s:*", Times: -1, Reset: "before"}

// owing is a sandbox in which a restart has begun, and has suspended a CronJob if asked,
// before the faults are there.
func owing(t *testing.T, suspend bool, faults ...wire.Fault) (*sandbox.Sandbox, *process) {
	t.Helper()
	box := startSandbox(t, "stuck", testSpeed, func(sc *sandbox.Scenario) {
		sc.Updates = nil
		sc.Clusters.Green.Workloads = append(sc.Clusters.Green.Workloads,
			sandbox.Workload{Namespace: "ledger", Kind: "CronJob", Name: "nightly", Schedule: "0 4 1 1 *", Image: "report:1"})
	})
	if suspend {
		editPlan(t, box, "restart:\n", "restart:\n  cronJobs: suspend\n")
	}
	if err := hop(func(key string) string { return envOf(box, key) }, "ledger-green", "1.32"); err != nil {
		t.Fatal(err)
	}
	begun := make(chan struct{})
	var once sync.Once
	box.Log().Watch(func(e wire.Entry) {
		if e.Call == "k8s:create pods/eviction" && e.Accepted {
			once.Do(func() {
				close(begun)
			})
		}
	})
	p := begin(t, box, restartArgs(box)...)
	p.reaches(t, begun)
	for _, f := range faults {
		if err := box.Faults().Add(f); err != nil {
			t.Fatal(err)
		}
	}
	return box, p
}

func interrupt(t *testing.T, p *process) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
}

// With the API server gone an interrupt is one all the same: 130, and the run goes on
// when the API server does.
func TestAnInterruptWhileTheAPIServerIsGone(t *testing.T) {
	t.Parallel()
	box, p := owing(t, false, gone)
	interrupt(t, p)
	if exit := p.exit(); exit != 130 {
		t.Errorf("exit %d, want 130\n%s", exit, p.out.String())
	}
	says(t, p.out.String(), "interrupted during green/restart/1", "eksbg restart "+box.PlanFile()+" --cluster green")
	box.Faults().Clear()
	if out, exit := runOnce(t, box, nil, restartArgs(box)...); exit != 0 {
		t.Errorf("resumed: exit %d\n%s", exit, out)
	}
}

// What has to be put back is tried and said meanwhile; the second signal leaves at once.
func TestASecondInterruptLeavesWhatCannotBePutBack(t *testing.T) {
	t.Parallel()
	box, p := owing(t, true, gone)
	tried := make(chan struct{})
	var once sync.Once
	box.Log().Watch(func(e wire.Entry) {
		if e.Call == "k8s:get cronjobs" {
			once.Do(func() { close(tried) })
		}
	})
	interrupt(t, p)
	p.reaches(t, tried)
	interrupt(t, p)
	if exit := p.exit(); exit != 130 {
		t.Errorf("exit %d, want 130\n%s", exit, p.out.String())
	}
	says(t, p.out.String(), "putting back 1 change before the run stops", "Once more leaves at once")
	box.Faults().Clear()
	before := len(requests(t, box))
	if out, exit := runOnce(t, box, nil, restartArgs(box)...); exit != 0 {
		t.Errorf("resumed: exit %d\n%s", exit, out)
	}
	put := false
	for _, e := range requests(t, box)[before:] {
		put = put || e.Call == "k8s:patch cronjobs" && e.Accepted
	}
	if !put {
		t.Error("the CronJob stays suspended")
	}
}
