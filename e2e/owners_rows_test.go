package e2e_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/eksbg/eksbg/internal/sandbox"
)

// row is a line of the table in docs/restart.md: who owns the pods, and the case.
type row struct{ owner, when string }

// example is an owner in one of these worlds that a row is about.
type example struct {
	row
	// name is the owner as `eksbg lag` has it, method how it is restarted unasked. With the
	// permission for action it is by allowed.
	name, method    string
	action, allowed string
	// says is what a run says of it that it may not restart.
	says string
}

// usual are in both worlds: where all is allowed, and where nothing is.
var usual = []example{
	{row: row{"Deployment", ""}, name: "shop/Deployment/storefront", method: "rollout"},
	{row: row{"Deployment", ""}, name: "shop/Deployment/search", method: "rollout"},
	{row: row{"Deployment", ""}, name: "shop/Deployment/ledger", method: "rollout"},
	{row: row{"Deployment", ""}, name: "policy/Deployment/admission", method: "rollout"},
	// Whose restart somebody takes back is known only once it was tried.
	{row: row{"Deployment", ""}, name: "shop/Deployment/kept", method: "rollout"},
	{row: row{"Deployment", "the rollout would take all of several replicas at once"}, name: "shop/Deployment/recreated", method: "evict"},
	{row: row{"Deployment", "paused"}, name: "shop/Deployment/frozen", method: "none", action: "evict", allowed: "evict", says: "paused Deployment"},
	{row: row{"Deployment", "CoreDNS with several replicas"}, name: "kube-system/Deployment/coredns", method: "evict"},
	{row: row{"StatefulSet", ""}, name: "shop/StatefulSet/queue", method: "rollout"},
	{row: row{"StatefulSet", ""}, name: "shop/StatefulSet/ring", method: "rollout"},
	{row: row{"StatefulSet", "a partition keeps lagging pods"}, name: "shop/StatefulSet/shards", method: "none", action: "evict", allowed: "in-order",
		says: "partition 2 keeps ordinals below 2"},
	{row: row{"StatefulSet", "OnDelete"}, name: "shop/StatefulSet/manual", method: "in-order"},
	{row: row{"ReplicaSet", "without an owner, several replicas"}, name: "legacy/ReplicaSet/pair", method: "evict"},
	{row: row{"ReplicaSet", "without an owner, one replica"}, name: "legacy/ReplicaSet/solo", method: "surge"},
	{row: row{"ReplicationController", "several replicas"}, name: "legacy/ReplicationController/oldest", method: "evict"},
	{row: row{"ReplicationController", "one replica"}, name: "legacy/ReplicationController/single", method: "surge"},
	{row: row{"Rollout (argoproj.io)", ""}, name: "legacy/Rollout/canary", method: "restart-at"},
	{row: row{"another custom kind", ""}, name: "legacy/CloneSet/clones", method: "evict"},
	{row: row{"Pod", "bare"}, name: "batch/Pod/shell", method: "none", action: "recreate", allowed: "recreate", says: "nothing would make it again"},
	{row: row{"Pod", "static or mirror"}, name: "Node/ip-10-51-0-10.eu-central-1.compute.internal", method: "none"},
	{row: row{"DaemonSet", ""}, name: "kube-system/DaemonSet/node-agent", method: "none"},
	{row: row{"any", "all lagging pods on nodes that are not Fargate"}, name: "metal/Deployment/encoder", method: "none"},
	{row: row{"any", "behind a fail-closed webhook, no ready pod meanwhile"}, name: "policy/Deployment/guard", method: "none", action: "outage", allowed: "rollout",
		says: "its only pod goes before the new one is ready, and webhook guard/guard.policy.example.com fails closed meanwhile"},
	{row: row{"any", "a budget never allows the rollout, but one pod"}, name: "shop/Deployment/cart", method: "evict"},
	{row: row{"any", "a budget never allows the rollout, but one pod"}, name: "shop/StatefulSet/wide", method: "in-order"},
	{row: row{"any", "a budget never allows a pod to go"}, name: "shop/Deployment/pinned", method: "none", action: "outage", allowed: "rollout",
		says: "PodDisruptionBudget shop/pinned never allows 1 pod to go at once: 0 allowed now, 2 healthy, 2 desired of 2 expected"},
	{row: row{"any", "in restart.skip"}, name: "shop/Deployment/parked", method: "none"},
}

// waiting are those that a run waits for. They are where all is allowed.
var waiting = []example{
	{row: row{"another custom kind", "pods that end by themselves"}, name: "legacy/CloneSet/runners", method: "wait"},
	{row: row{"Job", ""}, name: "batch/Job/migration", method: "wait"},
	{row: row{"CronJob", ""}, name: "batch/CronJob/sweep", method: "wait"},
	{row: row{"any", "all lagging pods terminating"}, name: "shop/Deployment/leaving", method: "wait"},
	{row: row{"any", "scaled to 0"}, name: "shop/StatefulSet/retired", method: "wait"},
}

// refused are where nothing is allowed: what no permission helps, and what the other world
// has otherwise.
var refused = []example{
	{row: row{"Deployment", "CoreDNS with one replica"}, name: "kube-system/Deployment/coredns", method: "rollout"},
	{row: row{"any", "evicted, and two budgets select a pod"}, name: "legacy/ReplicaSet/doubled", method: "none",
		says: "eviction always fails: PodDisruptionBudgets legacy/doubled, legacy/doubled-too all select pod legacy/doubled-"},
}

// live are on the cluster that has the traffic.
var live = []example{
	{row: row{"Deployment", ""}, name: "shop/Deployment/storefront", method: "rollout"},
	{row: row{"Deployment", "CoreDNS with one replica"}, name: "kube-system/Deployment/coredns", method: "rollout"},
	{row: row{"any", "no ready pod meanwhile, and the cluster has the traffic"}, name: "shop/Deployment/ledger", method: "none", action: "outage", allowed: "rollout",
		says: "its only pod goes before the new one is ready, and the cluster has the traffic"},
}

// methods are what the owners are restarted by, with every permission or without any; of
// an owner that is there twice the last example counts.
func methods(allowed bool, lists ...[]example) map[string]string {
	out := map[string]string{}
	for _, e := range slices.Concat(lists...) {
		out[e.name] = e.method
		if allowed && e.action != "" {
			out[e.name] = e.allowed
		}
	}
	return out
}

// Each row of the table in the guide is shown by an owner of these tests, on a real
// control plane and in memory, with the method and the permission that the row has; and
// no owner is of a row that there is not.
func TestEveryRowHasAnOwner(t *testing.T) {
	text, err := os.ReadFile("../docs/restart.md")
	if err != nil {
		t.Fatal(err)
	}
	words := map[string]string{
		"rollout": "rolling restart", "evict": "one by one", "in-order": "one by one, in order", "restart-at": "`spec.restartAt`",
		"surge": "one more first", "recreate": "made anew", "wait": "waited for", "none": "**nothing**",
	}
	owners := map[row]int{}
	all := slices.Concat(usual, waiting, refused, live)
	table := regexp.MustCompile(`(?m)^\| owner \| case \|.*\n\|.*\n((?:\|.*\n)+)`).FindSubmatch(text)
	if table == nil {
		t.Fatal("docs/restart.md has no table of owners")
	}
	for line := range strings.Lines(string(table[1])) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 5 {
			t.Fatalf("%d columns in %s", len(cells), line)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		r := row{cells[0], cells[1]}
		owners[r] = 0
		for _, e := range all {
			if e.row != r {
				continue
			}
			allowed := ""
			if e.action != "" {
				allowed = fmt.Sprintf("`%s`: %s", e.action, words[e.allowed])
			}
			method := words[e.method]
			if e.method == "in-order" && strings.Contains(cells[4], "(a StatefulSet: in order)") {
				method = words["evict"]
			}
			if method != cells[2] || allowed != cells[3] {
				t.Errorf("%s shows %q, allowed %q; its row is %s", e.name, words[e.method], allowed, line)
			}
			owners[r]++
		}
	}
	for _, r := range slices.SortedFunc(maps.Keys(owners), func(a, b row) int { return strings.Compare(a.owner+a.when, b.owner+b.when) }) {
		if owners[r] == 0 {
			t.Errorf("no owner shows %q, %q", r.owner, r.when)
		}
	}
	for _, e := range all {
		if _, ok := owners[e.row]; !ok {
			t.Errorf("%s is of no row: %q, %q", e.name, e.owner, e.when)
		}
	}
}

// more are owners that the scenario lacks, and a Job that runs until the restart has come
// to it.
func more(sc *sandbox.Scenario) {
	for _, side := range []string{sandbox.Blue, sandbox.Green} {
		c := sc.Side(side)
		c.Workloads = slices.Clone(c.Workloads)
		lasts(c, "migration", 5*time.Hour)
		c.Workloads = append(c.Workloads,
			sandbox.Workload{Namespace: "shop", Kind: "Deployment", Name: "recreated", Image: "shop", Replicas: ptr.To[int32](2), Strategy: "Recreate"},
			sandbox.Workload{Namespace: "legacy", Kind: "ReplicationController", Name: "single", Image: "legacy"},
		)
	}
}

// lasts is how long a Job of a cluster runs.
func lasts(c *sandbox.Cluster, job string, runs time.Duration) {
	for i := range c.Workloads {
		if c.Workloads[i].Name == job {
			c.Workloads[i].Runs = runs
		}
	}
}

// forbidden are owners that a rollout would harm: a webhook that nobody would answer for,
// budgets that never allow it, and one that the plan file skips.
func forbidden(sc *sandbox.Scenario) {
	for _, side := range []string{sandbox.Blue, sandbox.Green} {
		c := sc.Side(side)
		c.Workloads = append(slices.Clone(c.Workloads),
			sandbox.Workload{Namespace: "policy", Kind: "Deployment", Name: "guard", Image: "guard", Strategy: "Recreate", Port: 9444, Webhook: "guard.policy.example.com"},
			sandbox.Workload{Namespace: "shop", Kind: "Deployment", Name: "pinned", Image: "shop", Replicas: ptr.To[int32](2), Strategy: "RollingUpdate",
				MaxSurge: "0", MaxUnavailable: "1", MinAvailable: "2"},
			sandbox.Workload{Namespace: "shop", Kind: "StatefulSet", Name: "wide", Image: "shop", Replicas: ptr.To[int32](4), Strategy: "RollingUpdate",
				MaxUnavailable: "2", MinAvailable: "3"},
			sandbox.Workload{Namespace: "shop", Kind: "Deployment", Name: "parked", Image: "shop", Strategy: "RollingUpdate"},
		)
	}
	sc.Plan.Allow = append(slices.Clone(sc.Plan.Allow),
		sandbox.Allow{Owner: "policy/Deployment/guard", Action: "outage", Reason: "nobody makes widgets now"},
		sandbox.Allow{Owner: "shop/Deployment/pinned", Action: "outage", Reason: "agreed with the shop team"},
	)
	sc.Plan.Skip = append(slices.Clone(sc.Plan.Skip), sandbox.Skip{Owner: "shop/Deployment/parked", Reason: "is taken down next week", Days: 7})
}

// goings are owners of green whose pods go by themselves, but not before the test says so.
func goings(sc *sandbox.Scenario) {
	const long = 1000 * time.Hour
	c := sc.Side(sandbox.Green)
	c.Workloads = slices.Clone(c.Workloads)
	lasts(c, "migration", long)
	c.Workloads = append(c.Workloads,
		sandbox.Workload{Namespace: "shop", Kind: "Deployment", Name: "leaving", Image: "shop", Strategy: "RollingUpdate"},
		sandbox.Workload{Namespace: "shop", Kind: "StatefulSet", Name: "retired", Image: "shop", Replicas: ptr.To[int32](2), Strategy: "RollingUpdate"},
		sandbox.Workload{Namespace: "batch", Kind: "CronJob", Name: "sweep", Image: "sweep", Schedule: "0 0 1 1 *", Running: 1, Runs: long},
		sandbox.Workload{Namespace: "legacy", Kind: "CloneSet", Name: "runners", Image: "runner", RestartPolicy: "Never", Runs: long},
	)
	// The bounds are no part of this.
	sc.Plan.Timeout, sc.Plan.JobTimeout = long, long
}

// twoBudgets are over the pods of an owner that has to be evicted.
func twoBudgets(sc *sandbox.Scenario) {
	c := sc.Side(sandbox.Green)
	c.Workloads = append(slices.Clone(c.Workloads), sandbox.Workload{
		Namespace: "legacy", Kind: "ReplicaSet", Name: "doubled", Image: "legacy", Replicas: ptr.To[int32](2), MinAvailable: "1",
	})
	c.Budgets = append(slices.Clone(c.Budgets), sandbox.Budget{
		Namespace: "legacy", Name: "doubled-too", Selector: map[string]string{"app": "doubled"}, MinAvailable: "1",
	})
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

// fewOnBlue leaves blue what serves the traffic, and what cannot be restarted without an
// outage.
func fewOnBlue(sc *sandbox.Scenario) {
	c := sc.Side(sandbox.Blue)
	c.GitOps, c.Nodes = nil, nil
	c.Workloads = slices.DeleteFunc(slices.Clone(c.Workloads), func(w sandbox.Workload) bool {
		return !slices.Contains([]string{"coredns", "storefront", "ledger"}, w.Name)
	})
}
