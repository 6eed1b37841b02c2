package e2e_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/eksbg/eksbg/e2e/cluster"
	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
)

// history is everything that became of the pods, the workloads and the CronJobs of a
// cluster. Resource versions are revisions of one etcd, so they put changes of different
// objects in the order in which they happened.
type history struct {
	cluster *cluster.Cluster

	mu      sync.Mutex
	changes []change
}

// change is one object after it was changed, or the last state of one that is gone.
type change struct {
	at   uint64 // revision
	gone bool
	obj  metav1.Object
}

// chronicle begins to follow a cluster, past log and faults.
func chronicle(t *testing.T, c *cluster.Cluster) *history {
	t.Helper()
	h := &history{cluster: c}
	f := informers.NewSharedInformerFactory(direct(t, c), 0)
	stop := make(chan struct{})
	t.Cleanup(func() {
		close(stop)
		f.Shutdown()
	})
	all := []cache.SharedIndexInformer{
		f.Core().V1().Pods().Informer(), f.Apps().V1().Deployments().Informer(),
		f.Apps().V1().StatefulSets().Informer(), f.Batch().V1().CronJobs().Informer(),
	}
	for _, i := range all {
		_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { h.add(o, false) }, UpdateFunc: func(_, o any) { h.add(o, false) }, DeleteFunc: func(o any) { h.add(o, true) },
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	f.Start(stop)
	for _, i := range all {
		if !cache.WaitForCacheSync(stop, i.HasSynced) {
			t.Fatal("the cluster cannot be watched")
		}
	}
	return h
}

func (h *history) add(o any, gone bool) {
	if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	obj, ok := o.(metav1.Object)
	if !ok {
		return
	}
	at, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return // the API server writes nothing else
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changes = append(h.changes, change{at, gone, obj})
}

// sorted is the history in its order, once the watches have shown what is there now.
func (h *history) sorted(t *testing.T) []change {
	t.Helper()
	there := h.there(t)
	eventually(t, time.Minute, func() string {
		h.mu.Lock()
		defer h.mu.Unlock()
		seen := map[types.UID]uint64{}
		for _, c := range h.changes {
			seen[c.obj.GetUID()] = max(seen[c.obj.GetUID()], c.at)
		}
		for _, c := range there {
			if seen[c.obj.GetUID()] < c.at {
				return fmt.Sprintf("the watch does not show %s/%s as it is", c.obj.GetNamespace(), c.obj.GetName())
			}
		}
		return ""
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	all := slices.Clone(h.changes)
	slices.SortStableFunc(all, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	return all
}

// there is everything that is followed as it is now.
func (h *history) there(t *testing.T) []change {
	t.Helper()
	k, ctx, all := direct(t, h.cluster), t.Context(), metav1.ListOptions{}
	now := &history{}
	pods, err := k.CoreV1().Pods("").List(ctx, all)
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		now.add(&pods.Items[i], false)
	}
	deployments, err := k.AppsV1().Deployments("").List(ctx, all)
	if err != nil {
		t.Fatal(err)
	}
	for i := range deployments.Items {
		now.add(&deployments.Items[i], false)
	}
	sets, err := k.AppsV1().StatefulSets("").List(ctx, all)
	if err != nil {
		t.Fatal(err)
	}
	for i := range sets.Items {
		now.add(&sets.Items[i], false)
	}
	crons, err := k.BatchV1().CronJobs("").List(ctx, all)
	if err != nil {
		t.Fatal(err)
	}
	for i := range crons.Items {
		now.add(&crons.Items[i], false)
	}
	return now.changes
}

// restartKey is where a rolling restart leaves its stamp.
const restartKey = "kubectl.kubernetes.io/restartedAt"

// life is what became of one workload, named by namespace and the label app.
type life struct {
	// from and to are the revisions of the first thing that was done to it, a stamp or the
	// end of a pod, and of the last that came of it: a pod ready, or gone.
	from, to uint64
	// least is how few of its pods were ready at once since from.
	least int
	// pods are all that it has had, by uid; old those that were there at the beginning.
	pods, old map[types.UID]string
	// replaced has a line for each pod that began to end, in order: the revision, and how
	// many pods other than old ones were ready then.
	replaced []replacement
}

type replacement struct {
	at    uint64
	fresh int
}

// lives tells the history by workload. What happens until the revision since is the
// beginning.
func (h *history) lives(t *testing.T, since uint64) map[string]*life {
	t.Helper()
	out := map[string]*life{}
	ready, ending, stamps := map[types.UID]bool{}, map[types.UID]bool{}, map[types.UID]string{}
	for _, c := range h.sorted(t) {
		name := c.obj.GetNamespace() + "/" + c.obj.GetLabels()["app"]
		l := out[name]
		if l == nil {
			l = &life{least: math.MaxInt, pods: map[types.UID]string{}, old: map[types.UID]string{}}
			out[name] = l
		}
		begun := c.at > since
		switch o := c.obj.(type) {
		case *appsv1.Deployment:
			l.stamped(c, o.Spec.Template, stamps, begun)
		case *appsv1.StatefulSet:
			l.stamped(c, o.Spec.Template, stamps, begun)
		case *corev1.Pod:
			l.pod(c, o, ready, ending, begun)
		}
	}
	return out
}

func (l *life) begin(at uint64) {
	if l.from == 0 {
		l.from = at
	}
}

func (l *life) stamped(c change, tpl corev1.PodTemplateSpec, stamps map[types.UID]string, begun bool) {
	now, uid := tpl.Annotations[restartKey], c.obj.GetUID()
	if begun && now != "" && now != stamps[uid] {
		l.begin(c.at)
	}
	stamps[uid] = now
}

func (l *life) pod(c change, p *corev1.Pod, ready, ending map[types.UID]bool, begun bool) {
	uid := p.UID
	if l.pods[uid] = p.Name; !begun {
		l.old[uid] = p.Name
	}
	ends := c.gone || p.DeletionTimestamp != nil
	if begun && ends && !ending[uid] {
		l.begin(c.at)
		l.replaced = append(l.replaced, replacement{c.at, l.ready(ready, true)})
	}
	was := ready[uid]
	ready[uid], ending[uid] = !ends && registry.PodReady(p), ends
	if !begun {
		return
	}
	if c.gone || ready[uid] && !was {
		l.to = c.at
	}
	if l.from != 0 {
		l.least = min(l.least, l.ready(ready, false))
	}
}

// ready counts the pods that are ready, those that were there at the beginning left out
// where only fresh ones are asked for.
func (l *life) ready(ready map[types.UID]bool, fresh bool) (n int) {
	for uid := range l.pods {
		if _, old := l.old[uid]; ready[uid] && (!fresh || !old) {
			n++
		}
	}
	return n
}

// suspends is each state of spec.suspend that a CronJob has had, in order.
func (h *history) suspends(t *testing.T, name string) []bool {
	t.Helper()
	var out []bool
	for _, c := range h.sorted(t) {
		cj, ok := c.obj.(*batchv1.CronJob)
		if !ok || cj.Name != name {
			continue
		}
		if s := ptr.Deref(cj.Spec.Suspend, false); len(out) == 0 || out[len(out)-1] != s {
			out = append(out, s)
		}
	}
	return out
}

// now is a revision after all that has happened so far.
func (h *history) now(t *testing.T) uint64 {
	t.Helper()
	pods, err := direct(t, h.cluster).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	at, err := strconv.ParseUint(pods.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return at
}
