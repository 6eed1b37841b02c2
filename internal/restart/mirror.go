package restart

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/state"
)

// The indexes of pods and replica sets.
const (
	// byController goes by the UID of the controller, byNode by the name of the node.
	byController = "controller"
	byNode       = "node"
)

// mirror keeps the pods, nodes, workloads and budgets of a cluster as one list and one
// watch per resource show them, for as long as the step acts.
//
// The watches come back by themselves: client-go's reflector begins one anew where it
// was (by the resourceVersion of the last event or bookmark), lists anew after a 410,
// and asks the API server to end each after five to ten minutes. A connection that died
// without a word is found by the HTTP/2 pings of client-go's transport within 45 s. What
// slips through both is found when a workload does not get done in time (see stale).
type mirror struct {
	factory informers.SharedInformerFactory
	stop    context.CancelFunc
	minor   string
	// times is the API server's clock as far as its objects show it.
	times *serverTimes
	// wake gets a token when anything has changed since it was last taken.
	wake chan struct{}

	// workloads are by kind; there is one for ReplicationControllers only where asked.
	workloads         map[string]cache.SharedIndexInformer
	replicaSets, pods cache.SharedIndexInformer
	nodes, budgets    cache.SharedIndexInformer

	// told are what the watches tell of all changes: done with the first list, each, once
	// this mirror has heard of all that it holds.
	told []cache.ResourceEventHandlerRegistration

	mu sync.Mutex
	// complaints are what the watches fail with by resource, until they work again; fatal
	// is set when one will not come back by itself.
	complaints map[string]complaint
	fatal      error
	// dirty are the keys (see touch) of what has changed since they were last taken.
	dirty map[string]bool
	// limits is true once a budget has changed since that was last asked.
	limits bool
	// counted are the unfinished pods by namespace/name, true where the node is at the
	// wanted minor; at is how many are.
	counted map[string]bool
	at      int
}

// complaint is what a watch failed with, where it was then, and how often in a row it
// was denied.
type complaint struct {
	text, at string
	denied   int
}

// mostDenied is how often in a row a watch may be denied: an API server that has just
// started answers so until its authorizer knows the rules. The reflector's own pauses
// (0.8 s, doubled each time) make that some ten seconds.
const mostDenied = 5

// openMirror starts the watches; they show the whole cluster, and count counts all of
// it, once all of told have synced. minor is the one that kubelets must have. The caller
// closes the mirror.
func openMirror(ctx context.Context, client kubernetes.Interface, clk clock.PassiveClock, minor string, replicationControllers bool) (*mirror, error) {
	times := &serverTimes{clk: clk}
	m := &mirror{factory: informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(times.slim)),
		times: times, minor: minor, wake: make(chan struct{}, 1), dirty: map[string]bool{}, counted: map[string]bool{}, complaints: map[string]complaint{}}
	apps, core := m.factory.Apps().V1(), m.factory.Core().V1()
	m.replicaSets, m.pods, m.nodes = apps.ReplicaSets().Informer(), core.Pods().Informer(), core.Nodes().Informer()
	m.budgets = m.factory.Policy().V1().PodDisruptionBudgets().Informer()
	m.workloads = map[string]cache.SharedIndexInformer{"Deployment": apps.Deployments().Informer(),
		"StatefulSet": apps.StatefulSets().Informer(), "ReplicaSet": m.replicaSets}
	if replicationControllers {
		m.workloads["ReplicationController"] = core.ReplicationControllers().Informer()
	}
	err := errors.Join(m.replicaSets.AddIndexers(cache.Indexers{byController: controllerOf}),
		m.pods.AddIndexers(cache.Indexers{byController: controllerOf, byNode: nodeOf}))
	for _, i := range m.informers() {
		resource := m.resource(i)
		err = errors.Join(err, i.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { m.failed(i, resource, err) }))
		changed := func(obj any) { m.works(resource); m.changed(obj) }
		if i == m.budgets {
			changed = func(obj any) { m.works(resource); m.budgetChanged(obj) }
		}
		told, handlerErr := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: changed, UpdateFunc: func(_, obj any) { changed(obj) }, DeleteFunc: changed,
		})
		m.told, err = append(m.told, told), errors.Join(err, handlerErr)
	}
	if err != nil {
		return nil, fmt.Errorf("prepare the watches: %w", err)
	}
	// The reflectors log what they are given to log; what matters of it reaches failed.
	ctx, m.stop = context.WithCancel(klog.NewContext(ctx, klog.Logger{}))
	m.factory.StartWithContext(ctx)
	return m, nil
}

func controllerOf(obj any) ([]string, error) {
	if o, ok := obj.(metav1.Object); ok {
		if c := metav1.GetControllerOfNoCopy(o); c != nil {
			return []string{string(c.UID)}, nil
		}
	}
	return nil, nil
}

func nodeOf(obj any) ([]string, error) {
	if p, ok := obj.(*corev1.Pod); ok && p.Spec.NodeName != "" {
		return []string{p.Spec.NodeName}, nil
	}
	return nil, nil
}

func (m *mirror) informers() []cache.SharedIndexInformer {
	out := []cache.SharedIndexInformer{m.pods, m.nodes, m.budgets}
	for _, kind := range []string{"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"} {
		if i := m.workloads[kind]; i != nil {
			out = append(out, i)
		}
	}
	return out
}

// close stops the watches and waits until they have ended.
func (m *mirror) close() {
	m.stop()
	m.factory.Shutdown()
}

func (m *mirror) notify() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// resource names what an informer watches, as RBAC does.
func (m *mirror) resource(i cache.SharedIndexInformer) string {
	switch i {
	case m.pods:
		return "pods"
	case m.nodes:
		return "nodes"
	case m.budgets:
		return "poddisruptionbudgets.policy"
	case m.replicaSets:
		return "replicasets.apps"
	case m.workloads["Deployment"]:
		return "deployments.apps"
	case m.workloads["StatefulSet"]:
		return "statefulsets.apps"
	}
	return "replicationcontrollers"
}

// failed is called for every list or watch that ended with an error; the reflector
// tries again by itself, with a growing pause.
func (m *mirror) failed(i cache.SharedIndexInformer, resource string, err error) {
	if errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, context.Canceled) {
		return // ordinary ends of a watch
	}
	m.mu.Lock()
	c := complaint{text: state.Clean(fmt.Sprintf("watch of %s: %v", resource, err)), at: i.LastSyncResourceVersion()}
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		c.denied = m.complaints[resource].denied + 1
	}
	m.complaints[resource] = c
	switch {
	case m.fatal != nil:
	case c.denied >= mostDenied && apierrors.IsForbidden(err):
		m.fatal = &state.Stop{Code: state.ExitBlocked, Why: "the API server refuses the " + c.text,
			Cure: "allow eksbg to list and watch " + resource + " in all namespaces (RBAC); then run the same command again"}
	case c.denied >= mostDenied, aws.IsExpired(err):
		m.fatal = fmt.Errorf("watch %s: %w", resource, err)
	}
	m.mu.Unlock()
	m.notify()
}

// works forgets what the watch of a resource failed with: it shows something again.
func (m *mirror) works(resource string) {
	m.mu.Lock()
	delete(m.complaints, resource)
	m.mu.Unlock()
}

// trouble gives what the watches complain of, and an error when they will not come back.
func (m *mirror) trouble() (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for _, i := range m.informers() {
		resource := m.resource(i)
		c, ok := m.complaints[resource]
		if ok && c.at != i.LastSyncResourceVersion() {
			delete(m.complaints, resource) // listed anew, or a bookmark has come
		} else if ok {
			all = append(all, c.text)
		}
	}
	return strings.Join(all, "; "), m.fatal
}

// view gives one workload with its pods, and those of the given pods that are still
// there though their owner no longer leads to them.
func (m *mirror) view(owner cluster.Owner, pods []cluster.Pod) view {
	v := view{Kind: owner.Kind, UID: owner.UID}
	m.fill(&v, owner)
	seen := map[string]bool{}
	for _, p := range m.podsOf(v.UID) {
		seen[string(p.UID)] = true
		if !finished(p) {
			v.Pods = append(v.Pods, m.podView(p))
		}
	}
	for _, known := range pods {
		p := m.pod(known.Namespace, known.Name)
		if p != nil && string(p.UID) == known.UID && !seen[known.UID] && !finished(p) {
			v.Pods = append(v.Pods, m.podView(p))
		}
	}
	slices.SortFunc(v.Pods, func(a, b podView) int { return cmp.Compare(a.Name, b.Name) })
	return v
}

// pod gives a pod by its name; nil where there is none.
func (m *mirror) pod(namespace, name string) *corev1.Pod {
	obj, ok, err := m.pods.GetStore().GetByKey(namespace + "/" + name)
	if p, isPod := obj.(*corev1.Pod); err == nil && ok && isPod {
		return p
	}
	return nil
}

// podsOf gives the pods whose controller is the object with the UID, or one of its
// replica sets.
func (m *mirror) podsOf(uid string) []*corev1.Pod {
	if uid == "" {
		return nil
	}
	owners := []string{uid}
	sets, err := m.replicaSets.GetIndexer().ByIndex(byController, uid)
	if err != nil {
		return nil
	}
	for _, obj := range sets {
		if o, ok := obj.(metav1.Object); ok {
			owners = append(owners, string(o.GetUID()))
		}
	}
	var out []*corev1.Pod
	for _, o := range owners {
		objs, err := m.pods.GetIndexer().ByIndex(byController, o)
		if err != nil {
			return nil
		}
		for _, obj := range objs {
			if p, ok := obj.(*corev1.Pod); ok {
				out = append(out, p)
			}
		}
	}
	return out
}

// place is where a pod stands by the name of its node.
func (m *mirror) place(name string) place {
	if name == "" {
		return nowhere
	}
	obj, ok, err := m.nodes.GetStore().GetByKey(name)
	n, isNode := obj.(*node)
	if err != nil || !ok || !isNode {
		return nowhere
	}
	return placeOf(n.minor, m.minor)
}

// budget gives a PodDisruptionBudget by namespace/name.
func (m *mirror) budget(name string) (*policyv1.PodDisruptionBudget, bool) {
	obj, ok, err := m.budgets.GetStore().GetByKey(name)
	b, isBudget := obj.(*policyv1.PodDisruptionBudget)
	return b, err == nil && ok && isBudget
}

// allowances are how many disruptions each budget allows now; none while its
// controller has not seen the newest spec.
func (m *mirror) allowances() map[string]int {
	out := map[string]int{}
	for _, obj := range m.budgets.GetStore().List() {
		b, ok := obj.(*policyv1.PodDisruptionBudget)
		if !ok {
			continue
		}
		n := int(b.Status.DisruptionsAllowed)
		if b.Status.ObservedGeneration < b.Generation {
			n = 0
		}
		out[b.Namespace+"/"+b.Name] = n
	}
	return out
}

func finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}
