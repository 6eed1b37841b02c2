package e2e_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/eksbg/eksbg/internal/sandbox"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// more are owners that the scenario lacks, and a Job that runs until the restart has come
// to it: with it every row of the table in
// docs/restart.md whose pods restart has an owner here.
func more(sc *sandbox.Scenario) {
	for _, side := range []string{sandbox.Blue, sandbox.Green} {
		c := sc.Side(side)
		c.Workloads = slices.Clone(c.Workloads)
		for i := range c.Workloads {
			if c.Workloads[i].Name == "migration" {
				c.Workloads[i].Runs = 5 * time.Hour
			}
		}
		c.Workloads = append(c.Workloads,
			sandbox.Workload{Namespace: "shop", Kind: "Deployment", Name: "recreated", Image: "shop", Replicas: ptr.To[int32](2), Strategy: "Recreate"},
			sandbox.Workload{Namespace: "legacy", Kind: "ReplicationController", Name: "single", Image: "legacy"},
		)
	}
}

// oneCoreDNS leaves one replica of CoreDNS, without a budget.
func oneCoreDNS(sc *sandbox.Scenario) {
	for _, side := range []string{sandbox.Blue, sandbox.Green} {
		c := sc.Side(side)
		c.Workloads = slices.Clone(c.Workloads)
		for i := range c.Workloads {
			if w := &c.Workloads[i]; w.Name == "coredns" {
				w.Replicas, w.MinAvailable = ptr.To[int32](1), ""
			}
		}
	}
}

// methods are what each owner of the scenario is restarted by, as `eksbg lag` has it.
var methods = map[string]string{
	"kube-system/Deployment/coredns":                   "evict",
	"policy/Deployment/admission":                      "rollout",
	"shop/Deployment/storefront":                       "rollout",
	"shop/Deployment/ledger":                           "rollout",
	"shop/Deployment/cart":                             "evict",
	"shop/Deployment/frozen":                           "evict",
	"shop/Deployment/kept":                             "rollout",
	"shop/Deployment/search":                           "rollout",
	"shop/Deployment/recreated":                        "evict",
	"shop/StatefulSet/queue":                           "rollout",
	"shop/StatefulSet/shards":                          "in-order",
	"shop/StatefulSet/ring":                            "rollout",
	"shop/StatefulSet/manual":                          "in-order",
	"legacy/ReplicaSet/pair":                           "evict",
	"legacy/ReplicaSet/solo":                           "surge",
	"legacy/ReplicationController/oldest":              "evict",
	"legacy/ReplicationController/single":              "surge",
	"legacy/CloneSet/clones":                           "evict",
	"legacy/Rollout/canary":                            "restart-at",
	"batch/Job/migration":                              "wait",
	"batch/Pod/shell":                                  "recreate",
	"metal/Deployment/encoder":                         "none",
	"kube-system/DaemonSet/node-agent":                 "none",
	"Node/ip-10-51-0-10.eu-central-1.compute.internal": "none",
}

// lagOf is `eksbg lag` of green: method by owner.
func lagOf(t *testing.T, box *sandbox.Sandbox) map[string]string {
	t.Helper()
	p := begin(t, box, "lag", box.PlanFile(), "--cluster", "green", "-o", "json")
	p.exit()
	var doc struct {
		Clusters map[string]struct {
			Owners []struct{ Owner, Method string }
		}
	}
	if err := json.Unmarshal(p.data.Bytes(), &doc); err != nil {
		t.Fatalf("%v\n%s", err, p.out.String())
	}
	out := map[string]string{}
	for _, o := range doc.Clusters["green"].Owners {
		out[o.Owner] = o.Method
	}
	return out
}

// Every kind of owner is restarted in its own way, on a real control plane as in memory,
// and nothing is left otherwise than it was.
func TestEveryOwner(t *testing.T) {
	real := world(t, "owners", true, more)
	memory := world(t, "owners", false, more)
	inMemory := begin(t, memory, "apply", memory.PlanFile(), "--yes")
	green := realCluster(t, real, sandbox.Green)
	w := witness(t, green)
	before := settings(t, real)

	apply(t, real, 4, "--until", "green/control-plane/1.32")
	if diff := cmp.Diff(methods, lagOf(t, real)); diff != "" {
		t.Errorf("the methods of owners (-want +got):\n%s", diff)
	}
	apply(t, real, 0)
	if got := inMemory.exit(); got != 0 {
		t.Fatalf("in memory: exit %d\n%s", got, inMemory.out.String())
	}

	eventually(t, time.Minute, func() string { return cmp.Diff(ends(t, memory), ends(t, real)) })
	if diff := cmp.Diff(before, settings(t, real)); diff != "" {
		t.Errorf("replicas, suspend and the like (-before +after):\n%s", diff)
	}
	w.replacedOnce(t, real)
}

// eksbg is killed at every third of its changes, and resumed each time: nothing is
// restarted twice, and nothing stays as it was only meant to be meanwhile.
func TestEksbgIsKilledAtEveryThirdChange(t *testing.T) {
	const runs = 60 // many more than it takes
	box := world(t, "owners", true, more, oneCoreDNS)
	w := witness(t, realCluster(t, box, sandbox.Green))
	before := settings(t, box)
	var victim atomic.Pointer[os.Process]
	var changes atomic.Int64
	box.Log().Watch(func(e wire.Entry) {
		if !e.Changing || !e.Accepted || !strings.HasPrefix(e.Call, "k8s:") || strings.HasSuffix(e.Call, " leases") {
			return
		}
		if p := victim.Load(); p != nil && changes.Add(1)%3 == 0 {
			_ = p.Kill() // one that has ended is fine
		}
	})
	killed := 0
	for run := 0; ; run++ {
		if run == runs {
			t.Fatalf("killed %d times, it is still not done", killed)
		}
		p := begin(t, box, "apply", box.PlanFile(), "--yes")
		victim.Store(p.cmd.Process)
		exit := p.exit()
		victim.Store(nil)
		if exit == 0 {
			break
		}
		if exit != -1 {
			t.Fatalf("exit %d after %d kills\n%s", exit, killed, p.out.String())
		}
		killed++
	}
	if killed < 5 {
		t.Errorf("it was killed %d times only", killed)
	}
	if diff := cmp.Diff(before, settings(t, box)); diff != "" {
		t.Errorf("replicas, suspend and the like (-before +after):\n%s", diff)
	}
	w.replacedOnce(t, box)
}

// What nobody allowed is not touched; the rest is restarted, and the run stops before the
// traffic moves.
func TestWhatIsNotAllowedIsNotTouched(t *testing.T) {
	box := world(t, "owners", true, func(sc *sandbox.Scenario) { sc.Plan.Allow = nil })
	said := strings.Join(strings.Fields(apply(t, box, 3)), " ")
	stuck := map[string]string{
		"shop/Deployment/frozen": "paused", "shop/StatefulSet/shards": "partition", "batch/Pod/shell": "recreate", "shop/Deployment/kept": "evict",
	}
	for owner, why := range stuck {
		if !strings.Contains(said, owner) || !strings.Contains(said, why) {
			t.Errorf("does not say that %s stays, for %q:\n%s", owner, why, said)
		}
	}
	for _, e := range requests(t, box) {
		switch {
		case !e.Accepted || !e.Changing:
		case strings.HasPrefix(e.Call, "elbv2:"):
			t.Errorf("the traffic was moved: %s", e.Call)
		case e.Call == "k8s:create pods/eviction" && stuckPod.MatchString(e.Object):
			t.Errorf("%s was evicted", e.Object)
		case strings.HasPrefix(e.Call, "k8s:patch ") && (e.Object == "shop/frozen" || e.Object == "shop/shards"):
			t.Errorf("%s %s", e.Call, e.Object)
		}
	}
	left := lagOf(t, box)
	for owner := range methods {
		if _, lags := left[owner]; lags != (stuck[owner] != "" || methods[owner] == "none") {
			t.Errorf("%s lags in the end: %v", owner, lags)
		}
	}
}

var stuckPod = regexp.MustCompile(`^(shop/(frozen|kept|shards)-|batch/shell$)`)

// settings are what a restart may change for a while and has to leave as it was.
func settings(t *testing.T, box *sandbox.Sandbox) map[string]any {
	t.Helper()
	k := direct(t, realCluster(t, box, sandbox.Green))
	out := map[string]any{}
	rs, err := k.AppsV1().ReplicaSets("legacy").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rs.Items {
		out["ReplicaSet "+r.Name] = *r.Spec.Replicas
	}
	rcs, err := k.CoreV1().ReplicationControllers("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rcs.Items {
		out["ReplicationController "+r.Name] = *r.Spec.Replicas
	}
	crons, err := k.BatchV1().CronJobs("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range crons.Items {
		out["CronJob "+c.Name] = *c.Spec.Suspend
	}
	sets, err := k.AppsV1().StatefulSets("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sets.Items {
		out["StatefulSet "+s.Name] = s.Spec.UpdateStrategy
	}
	ds, err := k.AppsV1().Deployments("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range ds.Items {
		out["Deployment "+d.Name] = []any{*d.Spec.Replicas, d.Spec.Paused}
	}
	left, err := k.CoreV1().PodTemplates("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range left.Items {
		out["PodTemplate "+p.Name] = "there"
	}
	return out
}

// replacedOnce wants two pods ever for each replica that restarts: the one that lagged
// and its successor. search has one more, which the Fargate scheduler forgot. Of kept only
// the pods of the template that Git has count: a rollout that is reverted has begun.
func (o *observer) replacedOnce(t *testing.T, box *sandbox.Sandbox) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range box.Scenario().Side(sandbox.Green).Workloads {
		method := methods[w.Namespace+"/"+w.Kind+"/"+w.Name]
		if method == "" || method == "none" || method == "wait" {
			continue
		}
		want := 2*int(ptr.Deref(w.Replicas, 1)) + w.Forget
		pods := maps.Clone(o.pods[w.Namespace+"/"+w.Name])
		if w.Name == "kept" {
			maps.DeleteFunc(pods, func(uid types.UID, _ string) bool { return o.made[uid] != o.made[o.first[w.Namespace+"/"+w.Name]] })
		}
		if len(pods) != want {
			t.Errorf("%s/%s has had %d pods, want %d: %v", w.Namespace, w.Name, len(pods), want, slices.Sorted(maps.Values(pods)))
		}
	}
}
