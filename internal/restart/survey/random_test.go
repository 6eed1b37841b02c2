package survey

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/planfile"
)

// drawOwner is an owner of any kind, some of them with names that nobody expects.
func drawOwner(t *rapid.T) cluster.Owner {
	kind := rapid.SampledFrom([][2]string{{"apps/v1", "Deployment"}, {"apps/v1", "Deployment"}, {"apps/v1", "Deployment"},
		{"apps/v1", "StatefulSet"}, {"apps/v1", "StatefulSet"}, {"apps/v1", "ReplicaSet"},
		{"apps/v1", "DaemonSet"}, {"v1", "ReplicationController"}, {"v1", "Pod"}, {"v1", "Node"}, {"batch/v1", "Job"},
		{"batch/v1", "CronJob"}, {"argoproj.io/v1alpha1", "Rollout"}, {"apps.kruise.io/v1beta1", "StatefulSet"}, {"v1", "Widget"},
		{"", ""}, {"/", "Odd"}, {"a/b/c", "Deployment"}}).Draw(t, "kind")
	o := cluster.Owner{APIVersion: kind[0], Kind: kind[1], Name: rapid.SampledFrom([]string{"a", "b", "coredns", ""}).Draw(t, "name")}
	if o.Kind != "Node" {
		o.Namespace = rapid.SampledFrom([]string{"kube-system", "shop", "data"}).Draw(t, "namespace")
	}
	o.UID = key(o)
	return o
}

// drawInventory is a cluster that need not make sense.
func drawInventory(t *rapid.T) *cluster.Inventory {
	w := newWorld()
	owners := rapid.SliceOfNDistinct(rapid.Custom(drawOwner), 1, 8, func(o cluster.Owner) string { return o.UID }).Draw(t, "owners")
	small := rapid.Int32Range(0, 4)
	for i := range rapid.IntRange(0, 3).Draw(t, "budgets") {
		w.Budgets = append(w.Budgets, cluster.Budget{Namespace: "shop", Name: fmt.Sprint("pdb", i), Allowed: small.Draw(t, "allowed"),
			Healthy: small.Draw(t, "healthy"), Desired: small.Draw(t, "desired"), Expected: small.Draw(t, "expected"), Current: rapid.Bool().Draw(t, "current")})
	}
	for _, o := range owners {
		if rapid.IntRange(0, 4).Draw(t, "workload") > 0 {
			w.Workloads = append(w.Workloads, cluster.Workload{Owner: o, Replicas: small.Draw(t, "replicas"), Paused: rapid.IntRange(0, 2).Draw(t, "paused") == 0,
				Strategy: rapid.SampledFrom([]string{"RollingUpdate", "Recreate", "OnDelete", ""}).Draw(t, "strategy"),
				MaxSurge: small.Draw(t, "surge"), MaxUnavailable: small.Draw(t, "unavailable"), Partition: small.Draw(t, "partition"),
				Start: small.Draw(t, "start"), Updated: small.Draw(t, "updated"), Priority: small.Draw(t, "priority")})
		}
		if rapid.IntRange(0, 2).Draw(t, "webhook") == 0 {
			w.webhook("w", o)
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "pods") {
			p := cluster.Pod{Namespace: o.Namespace, Name: rapid.SampledFrom([]string{"x-0", "x-1", "x-3", "x-", "x", fmt.Sprint("p-", i)}).Draw(t, "pod"), Owner: o,
				UID: fmt.Sprint(o.UID, i), Node: rapid.SampledFrom([]string{"old", "old", "old", "new", "patch", "mute", "metal", "auto", "", "unseen"}).Draw(t, "node"),
				Finished: rapid.IntRange(0, 5).Draw(t, "finished") == 0, Terminating: rapid.IntRange(0, 4).Draw(t, "terminating") == 0,
				Once: o.Kind == "Job" || rapid.IntRange(0, 5).Draw(t, "once") == 0, Static: o.Kind == "Node" && rapid.Bool().Draw(t, "static")}
			p.Budgets = rapid.SliceOfNDistinct(rapid.IntRange(0, max(len(w.Budgets)-1, 0)), 0, len(w.Budgets), rapid.ID[int]).Draw(t, "under")
			w.Pods = append(w.Pods, p)
		}
	}
	return w.Inventory
}

func drawOptions(t *rapid.T, inv *cluster.Inventory) Options {
	o := Options{Now: day, Live: rapid.Bool().Draw(t, "live"), Order: rapid.SliceOfN(rapid.SampledFrom([]string{"shop", "data", "none"}), 0, 3).Draw(t, "order")}
	for _, p := range inv.Pods {
		for _, a := range []string{planfile.ActionEvict, planfile.ActionOutage, planfile.ActionRecreate} {
			if rapid.IntRange(0, 3).Draw(t, a) == 0 {
				o.Allow = append(o.Allow, permit(p.Owner, a))
			}
		}
		if rapid.IntRange(0, 9).Draw(t, "skip") == 0 {
			o.Skips = append(o.Skips, planfile.Skip{Owner: p.Owner.String(), Reason: "later", Until: planfile.Date{Time: day}})
		}
	}
	return o
}

// surveyHolds is what must be true of every survey.
func surveyHolds(t *rapid.T) {
	inv := drawInventory(t)
	o := drawOptions(t, inv)
	items := Survey(inv, o)
	seen := map[string]int{}
	for _, it := range items {
		for _, p := range it.Pods {
			seen[p.UID]++
			if key(p.Owner) != key(it.Owner) {
				t.Fatalf("pod %s of %s is listed under %s", p.Name, p.Owner, it.Owner)
			}
		}
		itemHolds(t, inv, o, it)
		if it.Method == Rollout {
			evictingHolds(t, o, it)
		}
	}
	for _, p := range inv.Pods {
		want := 0
		if !p.Finished && slices.Contains([]string{"old", "metal", "auto"}, p.Node) {
			want = 1
		}
		if seen[p.UID] != want {
			t.Fatalf("pod %s on %q is in %d items, want %d", p.UID, p.Node, seen[p.UID], want)
		}
	}
	if !slices.IsSortedFunc(items, func(a, b Item) int { return int(a.Group) - int(b.Group) }) {
		t.Fatalf("groups out of order: %q", rows(items))
	}
	other := *inv
	other.Pods = slices.Clone(inv.Pods)
	rand.New(rand.NewSource(1)).Shuffle(len(other.Pods), func(i, j int) { other.Pods[i], other.Pods[j] = other.Pods[j], other.Pods[i] })
	if diff := cmp.Diff(rows(items), rows(Survey(&other, o))); diff != "" {
		t.Fatalf("the order of the pods counts: %s", diff)
	}
}

// itemHolds is what must be true of every item.
func itemHolds(t *rapid.T, inv *cluster.Inventory, o Options, it Item) {
	consent := o.consents(it)
	switch states := []bool{it.Skipped, it.Stuck(), it.Waits(), it.Works()}; {
	case len(slices.DeleteFunc(states, func(b bool) bool { return !b })) != 1:
		t.Fatalf("%s is in more or less than one state", row(it))
	case (it.Stuck() || it.Waits()) && it.Reason == "", it.Stuck() && it.Cure == "":
		t.Fatalf("%s is stuck or waits without reason or cure", row(it))
	case !it.Works() && (it.Takes != 0 || it.Extra != 0 || it.Outage != "" || len(it.Breaks) > 0):
		t.Fatalf("%s does not work and takes pods", row(it))
	case it.Takes < 0 || it.Extra < 0 || it.Works() && it.Takes == 0 && it.Extra == 0:
		t.Fatalf("%s cannot make a new pod", row(it))
	case it.Works() && it.Outage != "" && it.Method != Recreate && (o.Live || len(it.Webhooks) > 0) && !consent(planfile.ActionOutage):
		t.Fatalf("%s is an outage without consent", row(it))
	case it.Works() && it.Replicas > 0 && it.Takes >= int(it.Replicas) && it.Outage == "":
		t.Fatalf("%s is an outage that is not said", row(it))
	case it.Method == Recreate && !consent(planfile.ActionRecreate):
		t.Fatalf("%s is made anew unasked", row(it))
	case evicts(it.Method) && it.Overlap != "":
		t.Fatalf("%s: the Eviction API refuses that", row(it))
	case len(it.Breaks) > 0 && !consent(planfile.ActionOutage):
		t.Fatalf("%s breaks budgets without consent", row(it))
	}
	for _, w := range inv.Workloads {
		if key(w.Owner) == key(it.Owner) && w.Paused && it.Owner.Kind == "Deployment" && it.Works() && !consent(planfile.ActionEvict) && kindOf(it.Owner) == "Deployment.apps" {
			t.Fatalf("%s is paused and restarted unasked", row(it))
		}
	}
	for _, b := range inv.Budgets {
		if it.Works() && it.Takes > 0 && b.Current && int(b.Expected-b.Desired) < it.Takes &&
			slices.Contains(it.Budgets, b.String()) && !slices.Contains(it.Breaks, b.String()) {
			t.Fatalf("%s: %s never allows that", row(it), b)
		}
	}
}

func (o Options) consents(it Item) func(action string) bool {
	return func(action string) bool {
		return slices.ContainsFunc(o.Allow, func(a planfile.Allow) bool { return a.Owner == it.Owner.String() && a.Action == action })
	}
}

// evictingHolds is what must be true of an item whose rollout is taken back.
func evictingHolds(t *rapid.T, o Options, it Item) {
	consent := o.consents(it)
	switch it = o.Evicting(it, "taken back"); {
	case it.Works() == it.Stuck():
		t.Fatalf("%s neither works nor is stuck", row(it))
	case it.Stuck() && (it.Takes != 0 || it.Extra != 0 || it.Cure == "" || !strings.HasPrefix(it.Reason, "taken back")):
		t.Fatalf("%s is stuck and takes pods or does not say why", row(it))
	case it.Stuck():
	case !evicts(it.Method) || !consent(planfile.ActionEvict):
		t.Fatalf("%s is evicted unasked", row(it))
	case it.Takes != 1 || it.Extra > 1 || len(it.Breaks) > 0 || (it.Outage != "") != (it.Replicas <= 1):
		t.Fatalf("%s is no eviction one by one", row(it))
	case it.Outage != "" && (o.Live || len(it.Webhooks) > 0) && !consent(planfile.ActionOutage):
		t.Fatalf("%s is an outage without consent", row(it))
	case it.Overlap != "":
		t.Fatalf("%s: the Eviction API refuses that", row(it))
	}
}

func TestRandomClusters(t *testing.T) { check(t, surveyHolds) }

// check draws more cases than rapid does of itself: a bound that is missing shows in few of
// them.
func check(t *testing.T, property func(*rapid.T)) {
	for range 10 {
		rapid.Check(t, property)
	}
}

// FuzzSurvey looks for clusters that break what holds of every survey.
func FuzzSurvey(f *testing.F) {
	for _, s := range seeds() {
		f.Add(s)
	}
	f.Fuzz(rapid.MakeFuzz(surveyHolds))
}

// seeds are clusters to begin with: rapid draws from their bytes until none are left, so
// they have plenty.
func seeds() (out [][]byte) {
	for i := range 8 {
		b := make([]byte, 8<<10)
		rand.New(rand.NewSource(int64(i))).Read(b)
		out = append(out, b)
	}
	return out
}

func TestSeedsDrawWholeClusters(t *testing.T) {
	whole := 0
	for i, s := range seeds() {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			rapid.MakeFuzz(func(t *rapid.T) {
				surveyHolds(t)
				whole++
			})(t, s)
		})
	}
	if whole != len(seeds()) {
		t.Errorf("%d of %d seeds are drawn to the end", whole, len(seeds()))
	}
}

// FuzzOrdinal reads names back.
func FuzzOrdinal(f *testing.F) {
	for _, s := range []string{"db-0", "db-10", "db-", "-", "", "db-2147483648"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		n, ok := Ordinal(name)
		if n < 0 || !ok && n != 0 {
			t.Errorf("Ordinal(%q) = %d, %v", name, n, ok)
		}
		if again, ok2 := Ordinal(fmt.Sprintf("db-%d", n)); ok && (!ok2 || again != n) {
			t.Errorf("Ordinal(%q) = %d does not read back", name, n)
		}
	})
}
