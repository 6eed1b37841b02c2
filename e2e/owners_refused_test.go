package e2e_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/eksbg/eksbg/internal/sandbox"
)

// What nobody allowed is not touched, the run says why, and stops before the traffic moves
// when the rest is restarted; once it is allowed the same command restarts it. The
// cluster that has the traffic is stricter.
func TestWhatIsNotAllowedIsNotTouched(t *testing.T) {
	for name, real := range map[string]bool{"real": true, "memory": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var allow []sandbox.Allow
			box := world(t, "owners", real, more, forbidden, twoBudgets, oneCoreDNS, fewOnBlue, func(sc *sandbox.Scenario) {
				allow, sc.Plan.Allow = sc.Plan.Allow, nil
				lasts(sc.Side(sandbox.Green), "migration", 0) // nothing is waited for here
			})
			w := watching(t, admin(t, box, sandbox.Green))
			notAllowed(t, box)
			allowed(t, box, allow)
			w.replacedOnce(t, box, refused)
			outage(t, box)
			for _, e := range requests(t, box) {
				if e.Accepted && e.Changing && strings.HasPrefix(e.Call, "elbv2:") {
					t.Errorf("the traffic was moved: %s", e.Call)
				}
			}
		})
	}
}

// notAllowed runs green's restart without any permission.
func notAllowed(t *testing.T, box *sandbox.Sandbox) {
	t.Helper()
	k := admin(t, box, sandbox.Green)
	apply(t, box, 4, "--until", "green/control-plane/1.32")
	if diff := cmp.Diff(methods(false, usual, refused), lagOf(t, box, sandbox.Green, box.PlanFile())); diff != "" {
		t.Errorf("the methods of owners (-want +got):\n%s", diff)
	}
	stuck := slices.DeleteFunc(slices.Concat(usual, refused), func(e example) bool { return e.says == "" })
	before := standing(t, k, stuck)
	untold(t, apply(t, box, 3), stuck)
	if diff := cmp.Diff(before, standing(t, k, stuck)); diff != "" {
		t.Errorf("what nobody allowed was touched (-before +after):\n%s", diff)
	}
	left := map[string]string{"shop/Deployment/kept": "rollout"}
	for owner, method := range methods(false, usual, refused) {
		if method == "none" {
			left[owner] = method
		}
	}
	if diff := cmp.Diff(left, lagOf(t, box, sandbox.Green, box.PlanFile())); diff != "" {
		t.Errorf("what lags in the end (-want +got):\n%s", diff)
	}
	for _, e := range requests(t, box) {
		if e.Accepted && e.Call == "k8s:create pods/eviction" && strings.HasPrefix(e.Object, "shop/kept-") {
			t.Errorf("%s was evicted", e.Object)
		}
	}
}

// allowed goes on with what the plan file allows, and one budget less.
func allowed(t *testing.T, box *sandbox.Sandbox, allow []sandbox.Allow) {
	t.Helper()
	permit(t, box.PlanFile(), allow...)
	budgets := admin(t, box, sandbox.Green).PolicyV1().PodDisruptionBudgets("legacy")
	err := budgets.Delete(t.Context(), "doubled-too", metav1.DeleteOptions{})
	if err == nil {
		// Of two budgets over a pod the controller has looked after one only, perhaps not
		// after this one: a change of it makes it look.
		_, err = budgets.Patch(t.Context(), "doubled", types.MergePatchType, []byte(`{"metadata":{"labels":{"left":"alone"}}}`), metav1.PatchOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	apply(t, box, 4, "--until", "green/restart/1")
	left := map[string]string{}
	for _, e := range usual {
		if e.method == "none" && e.action == "" {
			left[e.name] = e.method // skipped
		}
	}
	if diff := cmp.Diff(left, lagOf(t, box, sandbox.Green, box.PlanFile())); diff != "" {
		t.Errorf("what lags in the end (-want +got):\n%s", diff)
	}
}

// outage restarts the cluster that has the traffic, as a run of its own.
func outage(t *testing.T, box *sandbox.Sandbox) {
	t.Helper()
	if err := box.Raise(sandbox.Blue, "1.32"); err != nil {
		t.Fatal(err)
	}
	plan := filepath.Join(t.TempDir(), "plan.yaml")
	text, err := os.ReadFile(box.PlanFile())
	if err == nil {
		err = os.WriteFile(plan, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	k := admin(t, box, sandbox.Blue)
	w := watching(t, k)
	restart := func(want int) string {
		t.Helper()
		p := begin(t, box, "restart", plan, "--cluster", sandbox.Blue, "--yes", "--approve", "restart-live")
		if got := p.exit(); got != want {
			t.Fatalf("restart of blue: exit %d, want %d\n%s", got, want, p.out.String())
		}
		return p.out.String()
	}
	if diff := cmp.Diff(methods(false, live), lagOf(t, box, sandbox.Blue, plan)); diff != "" {
		t.Errorf("the methods of owners (-want +got):\n%s", diff)
	}
	stuck := slices.DeleteFunc(slices.Clone(live), func(e example) bool { return e.says == "" })
	before := standing(t, k, stuck)
	untold(t, restart(3), stuck)
	if diff := cmp.Diff(before, standing(t, k, stuck)); diff != "" {
		t.Errorf("what nobody allowed was touched (-before +after):\n%s", diff)
	}
	left := map[string]string{}
	for _, e := range stuck {
		left[e.name] = e.method
		permit(t, plan, sandbox.Allow{Owner: e.name, Action: e.action, Reason: "agreed with its team"})
	}
	if diff := cmp.Diff(left, lagOf(t, box, sandbox.Blue, box.PlanFile())); diff != "" {
		t.Errorf("what lags without it (-want +got):\n%s", diff)
	}
	restart(0)
	if diff := cmp.Diff(map[string]string{}, lagOf(t, box, sandbox.Blue, plan)); diff != "" {
		t.Errorf("what lags in the end (-want +got):\n%s", diff)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range live {
		wl := workloadOf(t, box, sandbox.Blue, e.name)
		if n := len(w.pods[wl.Namespace+"/"+wl.Name]); n != 2*int(replicas(wl)) {
			t.Errorf("%s has had %d pods", e.name, n)
		}
	}
}

// untold complains of what a run does not say of owners that it may not restart.
func untold(t *testing.T, out string, owners []example) {
	t.Helper()
	said := strings.Join(strings.Fields(out), " ")
	for _, e := range owners {
		if !strings.Contains(said, e.name) || !strings.Contains(said, e.says) {
			t.Errorf("it does not say of %s: %s\n%s", e.name, e.says, out)
		}
		if e.action != "" && !strings.Contains(said, "restart.allow {owner: "+e.name+", action: "+e.action) {
			t.Errorf("it does not say how to allow %s for %s\n%s", e.action, e.name, out)
		}
	}
}

// permit adds to restart.allow of a plan file, which has a restart.skip.
func permit(t *testing.T, plan string, allow ...sandbox.Allow) {
	t.Helper()
	text, err := os.ReadFile(plan)
	if err != nil {
		t.Fatal(err)
	}
	at := "\n  allow:\n"
	with := at
	if !strings.Contains(string(text), at) {
		at, with = "\n  skip:\n", "\n  allow:\n"
	}
	for _, a := range allow {
		with += fmt.Sprintf("    - {owner: %s, action: %s, reason: %q}\n", a.Owner, a.Action, a.Reason)
	}
	if at != "\n  allow:\n" {
		with += at[1:]
	}
	if n := strings.Count(string(text), at); n != 1 {
		t.Fatalf("%s has %q %d times:\n%s", plan, at, n, text)
	}
	if err := os.WriteFile(plan, []byte(strings.Replace(string(text), at, with, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// standing are the pods of owners, each with its uid, and how often the owner was changed.
func standing(t *testing.T, k kubernetes.Interface, owners []example) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, e := range owners {
		ns, kind, name := split(e.name)
		pods, err := k.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			t.Fatal(err)
		}
		out[e.name] = nil
		for _, p := range pods.Items {
			out[e.name] = append(out[e.name], p.Name+" "+string(p.UID))
		}
		slices.Sort(out[e.name])
		if kind == "Deployment" {
			d, err := k.AppsV1().Deployments(ns).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			out[e.name] = append(out[e.name], fmt.Sprint(d.Generation, " ", slices.Sorted(maps.Keys(d.Spec.Template.Annotations))))
		}
	}
	return out
}

// split takes the name of an owner apart: its namespace, kind and name.
func split(owner string) (namespace, kind, name string) {
	parts := strings.SplitN(owner, "/", 3)
	return parts[0], parts[1], parts[2]
}

// workloadOf is an owner as the scenario has it.
func workloadOf(t *testing.T, box *sandbox.Sandbox, side, owner string) sandbox.Workload {
	t.Helper()
	ns, kind, name := split(owner)
	for _, w := range box.Scenario().Side(side).Workloads {
		if w.Namespace == ns && w.Kind == kind && w.Name == name {
			return w
		}
	}
	t.Fatalf("%s has no %s", side, owner)
	return sandbox.Workload{}
}

func replicas(w sandbox.Workload) int32 {
	if w.Replicas == nil {
		return 1
	}
	return *w.Replicas
}
