package e2e_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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

// An API server that is killed in the middle of a wave, and comes back, delays the
// restart and changes nothing else.
func TestTheAPIServerIsKilledInTheMiddleOfAWave(t *testing.T) {
	box := world(t, "hot", true)
	green := realCluster(t, box, sandbox.Green)
	w := witness(t, green)
	wave := nth(box, "k8s:patch deployments", 3)
	p := begin(t, box, untilRestarted(box)...)
	p.reaches(t, wave)
	for range 2 {
		if err := green.Plane().KillAPIServer(); err != nil {
			t.Fatal(err)
		}
		if err := green.Plane().StartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := p.exit(); got != 4 {
		t.Fatalf("exit %d\n%s", got, p.out.String())
	}
	w.restartedOnce(t, box)
}

// eksbg is killed in the middle of a wave, again and again, and nothing is restarted
// twice.
func TestEksbgIsKilledInTheMiddleOfAWave(t *testing.T) {
	box := world(t, "hot", true)
	w := witness(t, realCluster(t, box, sandbox.Green))
	for _, at := range []wire.Fault{
		{Call: "k8s:patch deployments", Nth: 2, Hold: wire.Before},
		{Call: "k8s:patch deployments", Nth: 2, Hold: wire.After},
		{Call: "k8s:patch statefulsets", Nth: 1, Hold: wire.After},
	} {
		held := holdAt(t, box, at)
		p := begin(t, box, "apply", box.PlanFile(), "--yes")
		p.reaches(t, held)
		p.kill(t)
		box.Faults().Clear()
	}
	apply(t, box, 0)
	w.restartedOnce(t, box)
}

// Watches that are dropped, and answers of 410, 429 and 500, delay the restart and change
// nothing else.
func TestAnAPIServerThatErrs(t *testing.T) {
	box := world(t, "hot", true, func(sc *sandbox.Scenario) {
		sc.Faults = []wire.Fault{
			{Call: "k8s:watch *", Every: 3, Error: "Expired", Status: 410, Message: "too old resource version"},
			{Call: "k8s:list *", Every: 5, Error: "Expired", Status: 410, Message: "The provided continue parameter is too old"},
			{Call: "k8s:*", Every: 6, Error: "TooManyRequests", Status: 429},
			{Call: "k8s:*", Every: 7, Error: "InternalError", Status: 500},
			{Call: "k8s:patch *", Nth: 2, Reset: wire.After},
		}
	})
	green := realCluster(t, box, sandbox.Green)
	w := witness(t, green)
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
	if got := p.exit(); got != 4 {
		t.Fatalf("exit %d\n%s", got, p.out.String())
	}
	w.restartedOnce(t, box)
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
	cluster *cluster.Cluster
	before  map[string]int64 // generation of each Deployment and StatefulSet

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
	o := &observer{pods: map[string]map[types.UID]string{}, first: map[string]types.UID{}, made: map[types.UID]string{}}
	f := informers.NewSharedInformerFactory(k, 0)
	i := f.Core().V1().Pods().Informer()
	if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(x any) { o.saw(x.(*corev1.Pod)) }}); err != nil {
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
		out["Deployment "+d.Namespace+"/"+d.Name] = d.Generation
	}
	ss, err := k.AppsV1().StatefulSets("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range ss.Items {
		out["StatefulSet "+s.Namespace+"/"+s.Name] = s.Generation
	}
	return out
}

// restartedOnce holds the whole run to one restart: each pod template was changed at
// most once, and each pod has had exactly one successor.
func (o *observer) restartedOnce(t *testing.T, box *sandbox.Sandbox) {
	t.Helper()
	for name, now := range generations(t, o.cluster) {
		if changes := now - o.before[name]; changes > 1 {
			t.Errorf("%s was changed %d times", name, changes)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range box.Scenario().Side(sandbox.Green).Workloads {
		if w.Kind != "Deployment" && w.Kind != "StatefulSet" {
			continue
		}
		want := 2
		if w.Replicas != nil {
			want = 2 * int(*w.Replicas)
		}
		pods := o.pods[w.Namespace+"/"+w.Name]
		if len(pods) != want {
			names := slices.Sorted(maps.Values(pods))
			t.Errorf("%s/%s has had %d pods, want %d: %s", w.Namespace, w.Name, len(pods), want, strings.Join(names, " "))
		}
	}
	for _, n := range o.cluster.Nodes() {
		if want := "v" + box.Versions()[sandbox.Green] + "."; !strings.HasPrefix(n.Kubelet, want) {
			t.Errorf("node %s is at %s in the end", n.Name, n.Kubelet)
		}
	}
	fmt.Fprintln(logOf(t, "pods.log"), o.pods)
}
