package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eksbg/eksbg/internal/sandbox"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// ownersBox is a sandbox with every kind of owner whose green cluster lags.
func ownersBox(t *testing.T, change ...func(*sandbox.Scenario)) *sandbox.Sandbox {
	t.Helper()
	box := startSandbox(t, "owners", testSpeed, change...)
	if err := hop(func(key string) string { return envOf(box, key) }, "owners-green", "1.32"); err != nil {
		t.Fatal(err)
	}
	return box
}

// deny takes something away from whoever calls green's API server.
func deny(d ...sandbox.Denial) func(*sandbox.Scenario) {
	return func(s *sandbox.Scenario) { s.Clusters.Green.Deny = append(s.Clusters.Green.Deny, d...) }
}

// questions are what API servers were asked about, "patch deployments", and the namespaces
// that were asked about each ("" for all of them).
func questions(entries []wire.Entry) map[string][]string {
	out := map[string][]string{}
	for _, e := range entries {
		if e.Call != "k8s:create selfsubjectaccessreviews" {
			continue
		}
		what, ns, _ := strings.Cut(e.Object, " in ")
		verb, resource, _ := strings.Cut(what, " ")
		key := verb + " " + withoutGroup(resource)
		out[key] = append(out[key], ns)
	}
	return out
}

// untouched fails when anything was changed but the lock.
func untouched(t *testing.T, box *sandbox.Sandbox) {
	t.Helper()
	for _, e := range requests(t, box) {
		if e.Changing && strings.HasPrefix(e.Call, "k8s:") && !strings.HasSuffix(e.Call, " leases") {
			t.Errorf("%s %s was sent", e.Call, e.Object)
		}
	}
}

// A restart of every kind of owner calls nothing that it has not asked about before, beside
// the lists that the plan was made from.
func TestARestartAsksAboutWhatItWillDo(t *testing.T) {
	t.Parallel()
	box := ownersBox(t)
	if out, exit := runOnce(t, box, nil, restartArgs(box)...); exit != 0 {
		t.Fatalf("exit %d\n%s", exit, out)
	}
	asked := map[string]bool{}
	n := 0
	for _, e := range requests(t, box) {
		op, ok := strings.CutPrefix(e.Call, "k8s:")
		verb, resource, _ := strings.Cut(op, " ")
		switch {
		case !ok, strings.HasPrefix(resource, "/"), verb == "list", op == "get services", strings.HasPrefix(resource, "selfsubjectreviews"):
		case resource == "leases" && n == 0: // the lock is taken first
		case resource == "selfsubjectaccessreviews":
			n++
			for key := range questions([]wire.Entry{e}) {
				asked[key] = true
			}
		case resource == "rollouts" && asked[verb+" rollouts.argoproj.io"]:
		case !asked[op]:
			t.Errorf("%s %s was not asked about", e.Call, e.Object)
		}
	}
	if n < 20 || n > 40 {
		t.Errorf("%d questions; there are some tens of verbs and resources", n)
	}
}

// denied are the findings that a run names.
func denied(out string) []string {
	var names []string
	for _, word := range strings.Fields(out) {
		if name := strings.TrimSuffix(word, ":"); strings.HasPrefix(name, "access/") && name != word {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Whoever may change nothing is told so before the first change, all of it at once: who
// it is, what is missing, where, and the rules that allow it.
func TestWhatIsDeniedIsFoundBeforeTheFirstChange(t *testing.T) {
	t.Parallel()
	box := ownersBox(t, deny(
		sandbox.Denial{Verbs: []string{"watch"}, Resources: []string{"nodes", "pods", "deployments", "statefulsets", "replicasets", "replicationcontrollers", "poddisruptionbudgets"}},
		sandbox.Denial{Verbs: []string{"patch"}, Resources: []string{"deployments", "statefulsets", "replicasets", "pods", "cronjobs", "rollouts"}},
		sandbox.Denial{Verbs: []string{"create", "update", "delete", "get"}, Resources: []string{"pods/eviction", "pods/portforward", "podtemplates"}},
		sandbox.Denial{Verbs: []string{"create", "delete"}, Resources: []string{"pods"}}, sandbox.Denial{Verbs: []string{"delete"}, Resources: []string{"jobs"}}))
	out, exit := runOnce(t, box, nil, restartArgs(box)...)
	if exit != 3 {
		t.Fatalf("exit %d, want 3\n%s", exit, out)
	}
	want := []string{
		"access/create/pods", "access/create/pods/eviction", "access/create/pods/portforward", "access/create/podtemplates",
		"access/delete/jobs.batch", "access/delete/pods", "access/delete/podtemplates", "access/get/podtemplates",
		"access/patch/cronjobs.batch", "access/patch/deployments.apps", "access/patch/pods", "access/patch/replicasets.apps",
		"access/patch/rollouts.argoproj.io", "access/patch/statefulsets.apps", "access/update/podtemplates",
		"access/watch/deployments.apps", "access/watch/nodes", "access/watch/poddisruptionbudgets.policy", "access/watch/pods", "access/watch/replicasets.apps",
		"access/watch/replicationcontrollers", "access/watch/statefulsets.apps",
	}
	if d := cmp.Diff(want, denied(out)); d != "" {
		t.Errorf("(-want +got):\n%s\n%s", d, out)
	}
	says(t, out, "arn:aws:iam::111122223333:user/", "may not patch deployments.apps in", "of cluster owners-green", `- {apiGroups: [apps], resources: [deployments], verbs: [patch]}`,
		`- {apiGroups: [""], resources: [pods/eviction], verbs: [create]}`, "docs/permissions.md", "nothing has been changed")
	untouched(t, box)
}

// A Role in some namespaces is enough for these, and too little for others.
func TestWhatIsDeniedInANamespaceIsNamed(t *testing.T) {
	t.Parallel()
	box := startSandbox(t, "hot", testSpeed, deny(sandbox.Denial{Verbs: []string{"patch"}, Resources: []string{"deployments"}, Namespaces: []string{"shop", "unused"}}))
	out := applyExit(t, box, 3, "--until", "green/restart/1")
	if d := cmp.Diff([]string{"access/patch/deployments.apps"}, denied(out)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	says(t, out, "may not patch deployments.apps in namespace shop of cluster shop-green")
	untouched(t, box)
	for _, e := range requests(t, box) {
		if strings.HasPrefix(e.Call, "eks:Update") {
			t.Errorf("%s %s was sent", e.Call, e.Object)
		}
	}
	asked := questions(requests(t, box))
	slices.Sort(asked["patch deployments"])
	if d := cmp.Diff([]string{"", "orders", "platform", "shop"}, asked["patch deployments"]); d != "" {
		t.Errorf("asked about patch deployments in (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{""}, asked["watch pods"]); d != "" {
		t.Errorf("asked about watch pods in (-want +got):\n%s", d)
	}
}

// waiveCheck adds a waiver to the plan file.
func waiveCheck(t *testing.T, box *sandbox.Sandbox, check string) {
	t.Helper()
	editPlan(t, box, "restart:\n", "waive:\n  - {check: "+check+", reason: known, until: 2099-01-01}\nrestart:\n")
}

// A waiver lets the run begin, and the API server refuses all the same.
func TestWhatIsDeniedAndWaivedIsRefusedInUse(t *testing.T) {
	t.Parallel()
	box := ownersBox(t, deny(sandbox.Denial{Verbs: []string{"patch"}, Resources: []string{"deployments"}}))
	waiveCheck(t, box, "access/patch/deployments.apps")
	out, exit := runOnce(t, box, nil, restartArgs(box)...)
	if exit != 3 {
		t.Errorf("exit %d, want 3\n%s", exit, out)
	}
	says(t, out, "refuses to restart", `cannot patch resource "deployments" in API group "apps"`)
	refused := false
	for _, e := range requests(t, box) {
		refused = refused || e.Call == "k8s:patch deployments" && e.Status == 403
	}
	if !refused {
		t.Error("no patch was refused")
	}
}

// Where nobody may ask, what is allowed is not known: that blocks until it is waived by
// its name, and then the run goes on.
func TestWhatMayNotBeAskedBlocksUntilWaived(t *testing.T) {
	t.Parallel()
	box := ownersBox(t, deny(sandbox.Denial{Resources: []string{"selfsubjectaccessreviews"}}))
	out, exit := runOnce(t, box, nil, restartArgs(box)...)
	if exit != 3 {
		t.Errorf("exit %d, want 3\n%s", exit, out)
	}
	says(t, out, "UNKNOWN access/unknown", "selfsubjectaccessreviews", "system:basic-user")
	untouched(t, box)
	waiveCheck(t, box, "access/unknown")
	if out, exit := runOnce(t, box, nil, restartArgs(box)...); exit != 0 {
		t.Errorf("exit %d\n%s", exit, out)
	}
}

// killedInARestart is a sandbox whose restart of green was killed in the middle.
func killedInARestart(t *testing.T, change ...func(*sandbox.Scenario)) *sandbox.Sandbox {
	t.Helper()
	box := ownersBox(t, change...)
	editPlan(t, box, "cronJobs: suspend", "cronJobs: run")
	held := holdAt(t, box, wire.Fault{Call: "k8s:create pods/eviction", Nth: 2, Hold: "after"})
	p := begin(t, box, restartArgs(box)...)
	p.reaches(t, held)
	kill(t, p)
	box.Faults().Clear()
	return box
}

// askedOf counts the questions of a run, all of which come before its changes.
func askedOf(t *testing.T, entries []wire.Entry) (asked int) {
	t.Helper()
	changed := ""
	for _, e := range entries {
		switch {
		case e.Call == "k8s:create selfsubjectaccessreviews":
			asked++
			if changed != "" {
				t.Errorf("asked %s after %s", e.Object, changed)
			}
		case e.Changing && toPods(e.Call):
			changed = e.Call + " " + e.Object
		}
	}
	return asked
}

// A run that goes on with other credentials, or by another plan file, asks again before it
// changes anything more; with the same it does not.
func TestARunThatGoesOnAsksAgain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		scenario []func(*sandbox.Scenario)
		change   func(*testing.T, *sandbox.Sandbox) []string
		exit     int
		asks     bool
		says     string
	}{
		"the same": {exit: 0},
		"somebody else": {change: func(_ *testing.T, box *sandbox.Sandbox) []string {
			box.Keys().Add(wire.Key{AccessKey: "AKIAOTHER", Secret: "other", ARN: "arn:aws:iam::111122223333:user/other", UserID: "AIDAOTHER"})
			return []string{"AWS_ACCESS_KEY_ID=AKIAOTHER", "AWS_SECRET_ACCESS_KEY=other"}
		}, exit: 0, asks: true, says: "user/other went on"},
		"another plan file": {scenario: []func(*sandbox.Scenario){deny(sandbox.Denial{Verbs: []string{"patch"}, Resources: []string{"cronjobs"}})},
			change: func(t *testing.T, box *sandbox.Sandbox) []string {
				editPlan(t, box, "cronJobs: run", "cronJobs: suspend")
				return nil
			}, exit: 3, asks: true, says: "access/patch/cronjobs.batch"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box := killedInARestart(t, tt.scenario...)
			var env []string
			if tt.change != nil {
				env = tt.change(t, box)
			}
			before := len(requests(t, box))
			out, exit := runOnce(t, box, env, restartArgs(box)...)
			if exit != tt.exit {
				t.Fatalf("exit %d, want %d\n%s", exit, tt.exit, out)
			}
			says(t, out, tt.says)
			if asked := askedOf(t, requests(t, box)[before:]); (asked > 0) != tt.asks {
				t.Errorf("%d questions\n%s", asked, out)
			}
		})
	}
}

// The lock is taken before the first step asks: a refused one says what else is missing,
// and leaves no Lease behind.
func TestARefusedLockSaysWhatElseIsMissing(t *testing.T) {
	t.Parallel()
	box := ownersBox(t, deny(sandbox.Denial{Verbs: []string{"create", "update"}, Resources: []string{"leases"}},
		sandbox.Denial{Verbs: []string{"patch"}, Resources: []string{"deployments"}}, sandbox.Denial{Verbs: []string{"create"}, Resources: []string{"pods/eviction"}}))
	out, exit := runOnce(t, box, nil, restartArgs(box)...)
	if exit != 3 {
		t.Errorf("exit %d, want 3\n%s", exit, out)
	}
	says(t, strings.Join(strings.Fields(out), " "), "not allowed to take the lock in cluster owners-green", `cannot create resource "leases"`,
		"in cluster owners-green they may not: patch deployments.apps, update leases.coordination.k8s.io, create pods/eviction", "docs/permissions.md")
	untouched(t, box)
}
