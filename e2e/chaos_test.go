package e2e_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/eksbg/eksbg/e2e/cluster"
	"github.com/eksbg/eksbg/internal/sandbox"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// An API server that is killed in the middle of a restart of everything that there is, and
// comes back, delays it and changes nothing else: each pod is replaced once, and what was
// changed for a while is as it was.
func TestTheAPIServerIsKilledInTheMiddleOfARestart(t *testing.T) {
	box := world(t, "owners", true, busy, documented, func(sc *sandbox.Scenario) {
		// What is reverted while the API server is away may be restarted by then: see
		// TestTheOrderOfARestart.
		c := sc.Side(sandbox.Green)
		c.GitOps, c.Workloads = nil, slices.DeleteFunc(c.Workloads, func(w sandbox.Workload) bool { return w.Name == "kept" })
	})
	// A caller outside system:masters is denied everything while the API server loads its rules.
	asDocumented(t, box)
	green := realCluster(t, box, sandbox.Green)
	w, before := witness(t, green), settings(t, box)
	points := []<-chan struct{}{
		nth(box, "k8s:patch cronjobs", 1), nth(box, "k8s:create pods/eviction", 3), nth(box, "k8s:patch replicasets", 1),
	}
	p := begin(t, box, untilRestarted(box)...)
	for _, at := range points {
		p.reaches(t, at)
		if err := green.Plane().KillAPIServer(); err != nil {
			t.Fatal(err)
		}
		if err := green.Plane().StartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w.survives(t, box, p, before)
}

// Watches that are dropped, and answers of 410, 429 and 500, delay the restart of
// everything that there is and change nothing else.
func TestAnAPIServerThatErrs(t *testing.T) {
	t.Parallel() // most of it is waiting to ask again
	box := world(t, "owners", true, busy, func(sc *sandbox.Scenario) {
		sc.Faults = []wire.Fault{
			{Call: "k8s:watch *", Every: 3, Error: "Expired", Status: 410, Message: "too old resource version"},
			{Call: "k8s:list *", Every: 5, Error: "Expired", Status: 410, Message: "The provided continue parameter is too old"},
			{Call: "k8s:*", Every: 9, Error: "TooManyRequests", Status: 429},
			{Call: "k8s:*", Every: 7, Error: "InternalError", Status: 500},
			{Call: "k8s:patch *", Nth: 2, Reset: wire.After},
			{Call: "k8s:create pods/eviction", Nth: 2, Reset: wire.After},
		}
	})
	green := realCluster(t, box, sandbox.Green)
	w, before := witness(t, green), settings(t, box)
	p := begin(t, box, untilRestarted(box)...)
	// Now and then only: watches that end at once are begun again later each time.
	cut := time.NewTicker(1500 * time.Millisecond)
	defer cut.Stop()
	for cuts, running := 0, true; running; {
		select {
		case <-cut.C:
			if cuts++; cuts <= 8 {
				green.Cut()
			}
		case <-p.end:
			running = false
		}
	}
	w.survives(t, box, p, before)
}

// busy is a cluster with every owner, whose Job has not long to run when the restart comes
// to it. No pod is forgotten: what is slow to start because the API server is away must not
// be taken for it.
func busy(sc *sandbox.Scenario) {
	more(sc)
	sc.Plan.Pending = 100 * time.Hour
	for _, side := range []string{sandbox.Blue, sandbox.Green} {
		c := sc.Side(side)
		lasts(c, "migration", 2*time.Hour)
		for i := range c.Workloads {
			c.Workloads[i].Forget = 0
		}
	}
}

// untilRestarted is the run up to the end of the restart, which ends with exit 4.
func untilRestarted(box *sandbox.Sandbox) []string {
	return []string{"apply", box.PlanFile(), "--yes", "--until", "green/restart/1"}
}

// holdAt adds a hold and gives a channel that closes when it is met first.
func holdAt(t *testing.T, box *sandbox.Sandbox, f wire.Fault) <-chan struct{} {
	t.Helper()
	held := make(chan struct{})
	var once sync.Once
	box.Faults().OnHold(func(wire.Call) { once.Do(func() { close(held) }) })
	if err := box.Faults().Add(f); err != nil {
		t.Fatal(err)
	}
	return held
}

// observer sees every pod that there ever was.
type observer struct {
	client  kubernetes.Interface
	cluster *cluster.Cluster
	before  map[string]int64 // generation of each Deployment and StatefulSet, by owner

	mu   sync.Mutex
	pods map[string]map[types.UID]string // by owner: uid to name
	// first is the first pod of each owner, made the template of each pod.
	first map[string]types.UID
	made  map[types.UID]string
}

// witness begins to watch a cluster, past log and faults.
func witness(t *testing.T, c *cluster.Cluster) *observer {
	t.Helper()
	before := generations(t, c)
	o := watching(t, direct(t, c))
	o.cluster, o.before = c, before
	return o
}

// watching sees the pods of any cluster, from now on.
func watching(t *testing.T, k kubernetes.Interface) *observer {
	t.Helper()
	o := &observer{client: k, pods: map[string]map[types.UID]string{}, first: map[string]types.UID{}, made: map[types.UID]string{}}
	f := informers.NewSharedInformerFactory(k, 0)
	i := f.Core().V1().Pods().Informer()
	if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(x any) { o.saw(x.(*corev1.Pod)) },
		// One of the same name that was made anew while nothing could be watched is an update.
		UpdateFunc: func(_, x any) { o.saw(x.(*corev1.Pod)) },
	}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	f.Start(stop)
	t.Cleanup(func() {
		close(stop)
		f.Shutdown()
	})
	if !cache.WaitForCacheSync(stop, i.HasSynced) {
		t.Fatal("the pods of the cluster cannot be watched")
	}
	return o
}

func (o *observer) saw(p *corev1.Pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	owner := p.Namespace + "/" + p.Labels["app"]
	if o.pods[owner] == nil {
		o.pods[owner] = map[types.UID]string{}
		o.first[owner] = p.UID
	}
	o.made[p.UID] = p.Labels["pod-template-hash"]
	o.pods[owner][p.UID] = p.Name
}

// caughtUp waits until every pod that is there was seen: a watch that was cut is begun
// again only some time later.
func (o *observer) caughtUp(t *testing.T) {
	t.Helper()
	pods, err := o.client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func() string {
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, p := range pods.Items {
			if o.pods[p.Namespace+"/"+p.Labels["app"]][p.UID] == "" {
				return "the watch does not show pod " + p.Name
			}
		}
		return ""
	})
}

// generations are those of all Deployments and StatefulSets: each change of a spec
// counts one up.
func generations(t *testing.T, c *cluster.Cluster) map[string]int64 {
	t.Helper()
	k := direct(t, c)
	out := map[string]int64{}
	ds, err := k.AppsV1().Deployments("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range ds.Items {
		out[d.Namespace+"/Deployment/"+d.Name] = d.Generation
	}
	ss, err := k.AppsV1().StatefulSets("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range ss.Items {
		out[s.Namespace+"/StatefulSet/"+s.Name] = s.Generation
	}
	return out
}

// survives wants a run to end as if nothing had been in its way: each pod has had exactly
// one successor, each template was changed at most once, and what was changed for a while
// is as it was before.
func (o *observer) survives(t *testing.T, box *sandbox.Sandbox, p *process, before map[string]any) {
	t.Helper()
	if got := p.exit(); got != 4 {
		t.Fatalf("exit %d\n%s", got, p.out.String())
	}
	if diff := cmp.Diff(before, settings(t, box)); diff != "" {
		t.Errorf("replicas, suspend and the like (-before +after):\n%s", diff)
	}
	o.replacedOnce(t, box, nil)
	box.Faults().Clear()
	by := methods(true, usual)
	for name, now := range generations(t, o.cluster) {
		most := int64(0)
		if by[name] == "rollout" {
			most = 1
		}
		if changes := now - o.before[name]; changes > most && name != "shop/Deployment/kept" {
			t.Errorf("%s was changed %d times", name, changes)
		}
	}
	for owner := range lagOf(t, box, sandbox.Green, box.PlanFile()) {
		if by[owner] != "none" {
			t.Errorf("%s lags in the end", owner)
		}
	}
	fmt.Fprintln(logOf(t, "pods.log"), o.pods)
}
