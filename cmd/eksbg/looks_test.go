package main

import (
	"strings"
	"testing"

	"github.com/eksbg/eksbg/internal/sandbox"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// looks counts how often clusters were listed. Nothing but an inventory lists DaemonSets,
// and each lists them once.
func looks(entries []wire.Entry) (n int) {
	for _, e := range entries {
		if e.Call == "k8s:list daemonsets" {
			n++
		}
	}
	return n
}

// described counts how often EKS was asked for the updates of a cluster: once for each
// inventory of it, and for each look at what EKS alone says.
func described(entries []wire.Entry, cluster string) (n int) {
	for _, e := range entries {
		if e.Call == "eks:ListUpdates" && e.Object == cluster {
			n++
		}
	}
	return n
}

// lookedBetween tells whether a cluster was listed between the last accepted change that
// before is true of and the next one that after is true of, or the end.
func lookedBetween(entries []wire.Entry, before, after func(call string) bool) bool {
	changed, looked := false, false
	for _, e := range entries {
		switch {
		case e.Changing && e.Accepted && before(e.Call):
			changed, looked = true, false
		case e.Call == "k8s:list daemonsets":
			looked = true
		case changed && e.Changing && after(e.Call):
			return looked
		}
	}
	return changed && looked
}

// toPods tells whether a call changes what runs in a cluster, which the lock does not.
func toPods(call string) bool {
	return strings.HasPrefix(call, "k8s:") && !strings.HasSuffix(call, " leases") && !strings.Contains(call, "selfsubject")
}

func nothing(string) bool { return false }

// A look at a cluster is a dozen lists of all that it has. A restart takes one of the
// cluster before and one that proves the end, and one of the other for what both use of
// the vCPU quota; what is changed in between costs one more.
func TestARestartLooksAtItsClusterTwice(t *testing.T) {
	t.Parallel()
	keeps := func(t *testing.T) *sandbox.Sandbox {
		box := lagBox(t)
		editPlan(t, box, "finishedJobs: delete", "finishedJobs: keep")
		return box
	}
	for name, tt := range map[string]struct {
		box         func(*testing.T) *sandbox.Sandbox
		all, others int
	}{
		"alone":               {keeps, 3, 1},
		"after finished Jobs": {lagBox, 4, 1}, // one sees that they are gone
		"resumed": {func(t *testing.T) *sandbox.Sandbox {
			box := keeps(t)
			held := holdAt(t, box, wire.Fault{Call: "k8s:create pods/eviction", Nth: 2, Hold: "after"})
			p := begin(t, box, restartArgs(box)...)
			p.reaches(t, held)
			kill(t, p)
			box.Faults().Clear()
			return box
		}, 3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box := tt.box(t)
			before := requests(t, box)
			if out, exit := runOnce(t, box, nil, restartArgs(box)...); exit != 0 {
				t.Fatalf("exit %d\n%s", exit, out)
			}
			made := requests(t, box)[len(before):]
			if all, others := looks(made), described(made, "ledger-blue"); all > tt.all || others > tt.others {
				t.Errorf("%d looks, %d of them at the other cluster; want %d and %d at most", all, others, tt.all, tt.others)
			}
			if !lookedBetween(made, toPods, nothing) {
				t.Error("the end was told from a look before the last change")
			}
		})
	}
}

// The whole way looks at both clusters for the plan, at the one that is restarted before
// and after, at the serving one for the capacity, and at both for the last word.
func TestAnApplyLooksNoMoreThanItHasTo(t *testing.T) {
	t.Parallel()
	box := startSandbox(t, "hot", testSpeed)
	mustApply(t, box)
	made := requests(t, box)
	t.Logf("%d looks, %d of them at blue", looks(made), described(made, "shop-blue"))
	if n := looks(made); n > 7 {
		t.Errorf("%d looks, want 7 at most", n)
	}
	hop := func(call string) bool { return call == "eks:UpdateClusterVersion" }
	if !lookedBetween(made, hop, toPods) {
		t.Error("the restart goes by a look from before the hop")
	}
	if !lookedBetween(made, toPods, func(call string) bool { return strings.HasPrefix(call, "elbv2:") }) {
		t.Error("the traffic was moved by a look from before the restart")
	}
}
