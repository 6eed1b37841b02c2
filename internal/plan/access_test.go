package plan_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/plan"
	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

// lagging is green at 1.32 with nothing in it but what add puts there.
func lagging(add ...func(*cluster.Inventory)) *cluster.Inventory {
	inv := inventory(state.Green, "1.32")
	for _, f := range add {
		f(inv)
	}
	return inv
}

// owns puts an owner with n lagging pods into a cluster.
func owns(apiVersion, namespace, kind, name string, n int, change ...func(*cluster.Workload)) func(*cluster.Inventory) {
	return func(inv *cluster.Inventory) {
		o := cluster.Owner{APIVersion: apiVersion, Namespace: namespace, Kind: kind, Name: name, UID: namespace + kind + name}
		w := cluster.Workload{Owner: o, Replicas: int32(n), Ready: int32(n), Updated: int32(n), Strategy: "RollingUpdate", MaxSurge: 1}
		for _, f := range change {
			f(&w)
		}
		inv.Workloads = append(inv.Workloads, w)
		for i := range n {
			node := fmt.Sprintf("fargate-%s-%s-%d", namespace, name, i)
			inv.Nodes = append(inv.Nodes, cluster.Node{Name: node, Minor: "1.31", Kubelet: "v1.31.9", Compute: cluster.ComputeFargate, Ready: true})
			inv.Pods = append(inv.Pods, cluster.Pod{Namespace: namespace, Name: fmt.Sprintf("%s-%d", name, i), UID: node, Node: node, Phase: "Running", Ready: true, Owner: o})
		}
	}
}

// uses are the accesses of green in a plan, "verb resource namespaces [name]".
func uses(p *state.Plan) []string {
	var out []string
	for _, a := range p.Access[state.Green] {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s", a, strings.Join(a.Namespaces, ","), a.Name)))
	}
	slices.Sort(out)
	return out
}

const lock = "get leases.coordination.k8s.io kube-system eksbg;update leases.coordination.k8s.io kube-system eksbg;"

// watches are what every restart needs.
const watches = lock + "watch deployments.apps;watch nodes;watch poddisruptionbudgets.policy;watch pods;watch replicasets.apps;watch statefulsets.apps;"

// What a plan says that it uses follows from what is done about each owner.
func TestAccessOfARestart(t *testing.T) {
	allow := func(owner, action string) func(*planfile.File) {
		return func(f *planfile.File) {
			f.Restart.Allow = append(f.Restart.Allow, planfile.Allow{Owner: owner, Action: action, Reason: "agreed"})
		}
	}
	paused := func(w *cluster.Workload) { w.Paused = true }
	for name, tt := range map[string]struct {
		green []func(*cluster.Inventory)
		file  func(*planfile.File)
		want  string
	}{
		"Deployments of two namespaces": {
			green: []func(*cluster.Inventory){owns("apps/v1", "shop", "Deployment", "cart", 2), owns("apps/v1", "orders", "Deployment", "api", 2), owns("apps/v1", "shop", "Deployment", "web", 2)},
			want:  watches + "get deployments.apps orders,shop;patch deployments.apps orders,shop;get pods orders,shop;delete pods orders,shop"},
		"a StatefulSet": {
			green: []func(*cluster.Inventory){owns("apps/v1", "shop", "StatefulSet", "queue", 2)},
			want:  watches + "get statefulsets.apps shop;patch statefulsets.apps shop;get pods shop;delete pods shop"},
		"one by one": {
			green: []func(*cluster.Inventory){owns("apps/v1", "shop", "StatefulSet", "manual", 2, func(w *cluster.Workload) { w.Strategy = cluster.StrategyOnDelete }),
				owns("apps.kruise.io/v1alpha1", "legacy", "CloneSet", "clones", 2)},
			want: watches + "create pods/eviction legacy,shop;get pods legacy,shop;delete pods legacy,shop"},
		"CoreDNS": {
			green: []func(*cluster.Inventory){owns("apps/v1", "kube-system", "Deployment", "coredns", 2)},
			file:  func(f *planfile.File) { f.Restart.Resolve = "kubernetes.default.svc.cluster.local" },
			want:  watches + "create pods/portforward kube-system;create pods/eviction kube-system;get pods kube-system;delete pods kube-system"},
		"CoreDNS, nothing resolved": {
			green: []func(*cluster.Inventory){owns("apps/v1", "kube-system", "Deployment", "coredns", 2)},
			file:  func(f *planfile.File) { f.Restart.Resolve = planfile.ResolveOff },
			want:  watches + "create pods/eviction kube-system;get pods kube-system;delete pods kube-system"},
		"an Argo Rollout": {
			green: []func(*cluster.Inventory){owns("argoproj.io/v1alpha1", "shop", "Rollout", "canary", 2)},
			want:  watches + "get rollouts.argoproj.io shop;patch rollouts.argoproj.io shop;get pods shop;delete pods shop"},
		"one replica more": {
			green: []func(*cluster.Inventory){owns("apps/v1", "shop", "ReplicaSet", "solo", 1), owns("v1", "legacy", "ReplicationController", "oldest", 1)},
			want: watches + "watch replicationcontrollers;get replicasets.apps shop;patch replicasets.apps shop;get replicationcontrollers legacy;" +
				"patch replicationcontrollers legacy;patch pods legacy,shop;get pods legacy,shop;delete pods legacy,shop"},
		"a bare pod": {
			green: []func(*cluster.Inventory){owns("v1", "ops", "Pod", "shell", 1)}, file: allow("ops/Pod/shell", planfile.ActionRecreate),
			want: watches + "create pods ops;create pods/eviction ops;get namespaces ops;get pods ops;get podtemplates ops;create podtemplates ops;update podtemplates ops;delete podtemplates ops"},
		"what may not be restarted is not touched": {
			green: []func(*cluster.Inventory){owns("v1", "ops", "Pod", "shell", 1), owns("apps/v1", "shop", "Deployment", "frozen", 2, paused)},
			want:  strings.TrimSuffix(watches, ";")},
		"allowed evictions": {
			green: []func(*cluster.Inventory){owns("apps/v1", "shop", "Deployment", "frozen", 2, paused)}, file: allow("shop/Deployment/frozen", planfile.ActionEvict),
			want: watches + "create pods/eviction shop;get pods shop;delete pods shop"},
		"evictions should the restart be taken back": {
			green: []func(*cluster.Inventory){owns("apps/v1", "shop", "Deployment", "kept", 2)}, file: allow("shop/Deployment/kept", planfile.ActionEvict),
			want: watches + "get deployments.apps shop;patch deployments.apps shop;create pods/eviction shop;get pods shop;delete pods shop"},
		"CronJobs held": {
			green: []func(*cluster.Inventory){owns("apps/v1", "shop", "Deployment", "cart", 2), func(inv *cluster.Inventory) {
				inv.CronJobs = []cluster.CronJob{{Owner: cluster.Owner{Namespace: "batch", Kind: "CronJob", Name: "nightly"}},
					{Owner: cluster.Owner{Namespace: "old", Kind: "CronJob", Name: "never"}, Suspended: true}}
			}}, file: func(f *planfile.File) { f.Restart.CronJobs = "suspend" },
			want: watches + "get cronjobs.batch batch;patch cronjobs.batch batch;get deployments.apps shop;patch deployments.apps shop;get pods shop;delete pods shop"},
		"a pod without a place": {
			green: []func(*cluster.Inventory){owns("apps/v1", "shop", "Deployment", "frozen", 2, paused), func(inv *cluster.Inventory) {
				inv.Pods = append(inv.Pods, cluster.Pod{Namespace: "new", Name: "web-0", Owner: cluster.Owner{APIVersion: "apps/v1", Namespace: "new", Kind: "Deployment", Name: "web"}},
					cluster.Pod{Namespace: "batch", Name: "import-0", Once: true, Owner: cluster.Owner{APIVersion: "batch/v1", Namespace: "batch", Kind: "Job", Name: "import"}})
			}}, want: watches + "delete pods new"},
	} {
		t.Run(name, func(t *testing.T) {
			f := file("1.32")
			if tt.file != nil {
				tt.file(f)
			}
			w := world(inventory(state.Blue, "1.32"), lagging(tt.green...), share(100, 0))
			p := plan.Restart(f, w, state.Green, plan.Identity{})
			want := strings.Split(tt.want, ";")
			slices.Sort(want)
			if d := cmp.Diff(want, uses(p)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if got := p.Access[state.Blue]; len(got) != 2 || got[0].Resource != "leases.coordination.k8s.io" {
				t.Errorf("blue, which is only locked: %+v", got)
			}
			for _, a := range p.Access[state.Green] {
				if a.For == "" || strings.Contains(a.For, "`") {
					t.Errorf("%s is for %q", a, a.For)
				}
			}
		})
	}
}

// What lags only after a hop is restarted too; finished Jobs go where the plan deletes
// them; a pair that has nothing to do needs nothing.
func TestAccessOfTheWholeWay(t *testing.T) {
	f := file("1.33")
	f.Restart.FinishedJobs, f.Restart.FinishedAge = "delete", planfile.Duration(time.Hour)
	green := inventory(state.Green, "1.32", "1.32", "1.32")
	withJobs(green, 1)
	green.Pods = append(green.Pods, cluster.Pod{Namespace: "ops", Name: "once", UID: "once", Finished: true, FinishedAt: at.Add(-2 * time.Hour), Phase: "Succeeded",
		Owner: cluster.Owner{APIVersion: "v1", Namespace: "ops", Kind: "Pod", Name: "once"}})
	for i := range green.Workloads {
		green.Workloads[i].MaxSurge = 1
	}
	w := world(inventory(state.Blue, "1.32", "1.32"), green, share(100, 0))
	p := mustMake(t, f, w)
	want := strings.Split(watches+"get deployments.apps shop;patch deployments.apps shop;get pods shop;delete pods ops,shop;delete jobs.batch shop", ";")
	slices.Sort(want)
	if d := cmp.Diff(want, uses(p)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	clean := plan.Jobs(f, w, state.Green, plan.Identity{})
	want = strings.Split(lock+"delete jobs.batch shop;delete pods ops", ";")
	slices.Sort(want)
	if d := cmp.Diff(want, uses(clean)); d != "" {
		t.Errorf("jobs clean (-want +got):\n%s", d)
	}
	if p := plan.Restart(f, w, state.Blue, plan.Identity{}); len(p.Steps) > 0 || p.Access != nil {
		t.Errorf("nothing to do: %+v", p.Access)
	}
	// What a plan uses is no part of what makes it stale: the namespaces follow from the
	// owners, and those count.
	sum := p.Sum()
	p.Access = nil
	if p.Sum() != sum {
		t.Error("the access is in the fingerprint")
	}
}

// The table has each verb of a resource for one thing once, and words for it.
func TestPermissions(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range plan.Permissions() {
		if p.For == "" || len(p.Verbs) == 0 || len(p.Resources) == 0 {
			t.Errorf("%+v", p)
		}
		for _, v := range p.Verbs {
			for _, r := range p.Resources {
				if key := v + " " + r + " " + p.For; seen[key] {
					t.Errorf("%s is there twice", key)
				} else {
					seen[key] = true
				}
			}
		}
	}
}

// apiServers answer what their caller may do: nothing that one of the words is in.
func apiServers(denies ...string) (func(context.Context, state.Side) (kubernetes.Interface, error), *int) {
	asked := 0
	return func(context.Context, state.Side) (kubernetes.Interface, error) {
		k := fake.NewClientset()
		var mu sync.Mutex
		k.PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
			mu.Lock()
			defer mu.Unlock()
			asked++
			r := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
			attrs := r.Spec.ResourceAttributes
			what := attrs.Verb + " " + attrs.Resource + "/" + attrs.Subresource
			r.Status.Allowed = !slices.ContainsFunc(denies, func(word string) bool { return strings.Contains(what, word) })
			if slices.Contains(denies, "!") {
				r.Status.EvaluationError = "away"
			}
			if slices.Contains(denies, "gone") {
				return true, nil, errors.New("connection refused")
			}
			return true, r, nil
		})
		return k, nil
	}, &asked
}

// Who plans is told what a run would miss; it blocks nothing, and makes no saved plan
// stale.
func TestWhoPlansIsToldWhatARunWouldMiss(t *testing.T) {
	green := lagging(owns("apps/v1", "shop", "Deployment", "cart", 2), owns("apps/v1", "kube-system", "Deployment", "coredns", 2))
	w := world(inventory(state.Blue, "1.32"), green, share(100, 0))
	f := file("1.32")
	p := plan.Restart(f, w, state.Green, plan.Identity{})
	gaps := func(denies ...string) []state.Finding {
		t.Helper()
		open, asked := apiServers(denies...)
		found, err := plan.AccessGaps(t.Context(), f, p, open)
		if err != nil || *asked == 0 {
			t.Fatalf("%v, asked %d times", err, *asked)
		}
		return found
	}
	if got := gaps(); len(got) > 0 {
		t.Errorf("everything allowed: %+v", got)
	}
	got := gaps("patch deployments", "eviction")
	if len(got) != 1 || got[0].Check != "access/run" || got[0].Severity != state.SeverityInfo || got[0].Side != state.Green ||
		!strings.HasSuffix(got[0].Text, "in cluster shop-green they may not: patch deployments.apps, create pods/eviction") {
		t.Errorf("found %+v", got)
	}
	sum := p.Sum()
	p.Findings = append(p.Findings, got...)
	if p.Sum() != sum {
		t.Error("what somebody else may do makes a saved plan stale")
	}
	if got := gaps("watch", "!"); len(got) != 1 || got[0].Check != "access/unknown" || got[0].Severity != state.SeverityInfo || got[0].Blocks() {
		t.Errorf("not known: %+v", got)
	}
	if got := gaps("gone"); len(got) != 2 || got[1].Check != "access/unknown" || got[1].Severity != state.SeverityInfo || !strings.Contains(got[1].Text, "connection refused") {
		t.Errorf("an API server that went away: %+v", got)
	}
	if got := gaps("leases"); len(got) != 2 || got[0].Side != state.Blue {
		t.Errorf("the lock is taken in both: %+v", got)
	}
	f.Waive = []planfile.Waiver{{Check: "access/create/pods/eviction", Reason: "known", Until: planfile.Date{Time: at.AddDate(1, 0, 0)}}}
	p.CreatedAt = at
	if got := gaps("eviction"); len(got) > 0 {
		t.Errorf("waived: %+v", got)
	}
}
