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

// lagOf is `eksbg lag` of a side: method by owner.
func lagOf(t *testing.T, box *sandbox.Sandbox, side string, plan string) map[string]string {
	t.Helper()
	p := begin(t, box, "lag", plan, "--cluster", side, "-o", "json")
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
	for _, o := range doc.Clusters[side].Owners {
		out[o.Owner] = o.Method
	}
	return out
}

// Every kind of owner is restarted in its own way, on a real control plane as in memory,
// what goes by itself is waited for, and nothing is left otherwise than it was.
func TestEveryOwner(t *testing.T) {
	boxes := map[string]*sandbox.Sandbox{}
	for name, real := range map[string]bool{"real": true, "memory": false} {
		boxes[name] = world(t, "owners", real, more, forbidden, goings, documented)
	}
	// On the real one with nothing but what the guide asks for.
	asDocumented(t, boxes["real"])
	t.Run("in", func(t *testing.T) {
		for name, box := range boxes {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				everyOwner(t, box)
			})
		}
	})
	eventually(t, time.Minute, func() string { return cmp.Diff(ends(t, boxes["memory"]), ends(t, boxes["real"])) })
}

func everyOwner(t *testing.T, box *sandbox.Sandbox) {
	w := watching(t, admin(t, box, sandbox.Green))
	before := settings(t, box)
	apply(t, box, 4, "--until", "green/control-plane/1.32")
	held := holdBack(t, box)
	if diff := cmp.Diff(methods(true, usual, waiting), lagOf(t, box, sandbox.Green, box.PlanFile())); diff != "" {
		t.Errorf("the methods of owners (-want +got):\n%s", diff)
	}

	var gone, early atomic.Bool
	box.Log().Watch(func(e wire.Entry) {
		if e.Changing && e.Accepted && strings.HasPrefix(e.Call, "elbv2:") && !gone.Load() {
			early.Store(true)
		}
	})
	p := begin(t, box, "apply", box.PlanFile(), "--yes")
	stays := []string{"batch/Job/migration", "kube-system/DaemonSet/node-agent", "legacy/CloneSet/runners", "metal/Deployment/encoder",
		"shop/Deployment/leaving", "shop/Deployment/parked", "shop/StatefulSet/retired"}
	eventually(t, deadline, func() string {
		select {
		case <-p.end:
			t.Fatalf("the run did not wait for what goes by itself:\n%s", p.out.String())
		default:
		}
		if diff := cmp.Diff(stays, laggards(t, box)); diff != "" {
			return diff
		}
		return waitsOnlyFor(t, box, methods(true, waiting))
	})
	gone.Store(true)
	held.letGo(t)
	if got := p.exit(); got != 0 {
		t.Fatalf("exit %d\n%s", got, p.out.String())
	}
	if early.Load() {
		t.Error("the traffic was moved before all pods had gone")
	}
	for _, e := range requests(t, box) {
		if e.Changing && e.Accepted && goer.MatchString(e.Object) && e.Call != "k8s:patch cronjobs" {
			t.Errorf("what goes by itself was changed: %s %s", e.Call, e.Object)
		}
	}
	if diff := cmp.Diff(before, settings(t, box)); diff != "" {
		t.Errorf("replicas, suspend and the like (-before +after):\n%s", diff)
	}
	w.replacedOnce(t, box, waiting)
}

// goer matches what goes by itself, and its pods.
var goer = regexp.MustCompile(`^(shop/(leaving|retired)|batch/(migration|sweep)|legacy/runners)\b`)

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
	w.replacedOnce(t, box, nil)
}

// settings are what a restart may change for a while and has to leave as it was.
func settings(t *testing.T, box *sandbox.Sandbox) map[string]any {
	t.Helper()
	k := admin(t, box, sandbox.Green)
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
func (o *observer) replacedOnce(t *testing.T, box *sandbox.Sandbox, others []example) {
	t.Helper()
	all := methods(true, usual, others)
	if all["legacy/ReplicaSet/doubled"] == "none" {
		all["legacy/ReplicaSet/doubled"] = "evict" // with one budget less
	}
	o.caughtUp(t)
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range box.Scenario().Side(sandbox.Green).Workloads {
		method := all[w.Namespace+"/"+w.Kind+"/"+w.Name]
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
