package restart

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/state"
)

// owned is the index of pods and replica sets by the UID of their controller.
const owned = "controller"

// mirror keeps the pods, nodes and workloads of a cluster as one list and one watch
// per resource show them, for as long as the step acts.
type mirror struct {
	factory informers.SharedInformerFactory
	stop    context.CancelFunc
	// wake gets a token when anything has changed since it was last taken.
	wake chan struct{}

	deployments, statefulSets, replicaSets, pods, nodes cache.SharedIndexInformer

	mu sync.Mutex
	// complaint is what the watches last failed with; fatal is set when they will not
	// come back by themselves.
	complaint string
	fatal     error
}

// openMirror starts the watches; they show the whole cluster once all of informers
// have synced.
// The caller closes the mirror.
func openMirror(ctx context.Context, client kubernetes.Interface) (*mirror, error) {
	m := &mirror{factory: informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(slim)),
		wake: make(chan struct{}, 1)}
	m.deployments = m.factory.Apps().V1().Deployments().Informer()
	m.statefulSets = m.factory.Apps().V1().StatefulSets().Informer()
	m.replicaSets = m.factory.Apps().V1().ReplicaSets().Informer()
	m.pods = m.factory.Core().V1().Pods().Informer()
	m.nodes = m.factory.Core().V1().Nodes().Informer()
	index := cache.Indexers{owned: func(obj any) ([]string, error) {
		if o, ok := obj.(metav1.Object); ok {
			if c := metav1.GetControllerOfNoCopy(o); c != nil {
				return []string{string(c.UID)}, nil
			}
		}
		return nil, nil
	}}
	if err := errors.Join(m.replicaSets.AddIndexers(index), m.pods.AddIndexers(index)); err != nil {
		return nil, fmt.Errorf("index the watches: %w", err)
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { m.notify() },
		UpdateFunc: func(any, any) { m.notify() },
		DeleteFunc: func(any) { m.notify() },
	}
	for _, i := range m.informers() {
		if err := i.SetWatchErrorHandlerWithContext(m.failed); err != nil {
			return nil, fmt.Errorf("prepare the watches: %w", err)
		}
		if _, err := i.AddEventHandler(handler); err != nil {
			return nil, fmt.Errorf("prepare the watches: %w", err)
		}
	}
	// The reflectors log what they are given to log; what matters of it reaches failed.
	ctx, m.stop = context.WithCancel(klog.NewContext(ctx, klog.Logger{}))
	m.factory.StartWithContext(ctx)
	return m, nil
}

func (m *mirror) informers() []cache.SharedIndexInformer {
	return []cache.SharedIndexInformer{m.deployments, m.statefulSets, m.replicaSets, m.pods, m.nodes}
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

// failed is called for every list or watch that ended with an error; the reflector
// tries again by itself, with a growing pause.
func (m *mirror) failed(_ context.Context, r *cache.Reflector, err error) {
	if errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, context.Canceled) {
		return // ordinary ends of a watch
	}
	m.mu.Lock()
	m.complaint = state.Clean(fmt.Sprintf("watch of %s: %v", r.TypeDescription(), err))
	if m.fatal == nil && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || aws.IsExpired(err)) {
		m.fatal = fmt.Errorf("watch %s: %w", r.TypeDescription(), err)
	}
	m.mu.Unlock()
	m.notify()
}

// trouble gives what the watches last complained of, and an error when they will
// not come back.
func (m *mirror) trouble() (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.complaint, m.fatal
}

// view gives one workload with its pods, and those of the given pods that are still
// there though their owner no longer leads to them.
func (m *mirror) view(owner cluster.Owner, pods []cluster.Pod, minor string) view {
	v := view{Kind: owner.Kind, UID: owner.UID}
	var mine []*corev1.Pod
	if rollable(owner) {
		m.fill(&v, owner)
		mine = m.podsOf(v.UID)
	}
	seen := map[string]bool{}
	for _, p := range mine {
		seen[string(p.UID)] = true
		if !finished(p) {
			v.Pods = append(v.Pods, m.podView(p, minor))
		}
	}
	for _, known := range pods {
		obj, ok, err := m.pods.GetStore().GetByKey(known.Namespace + "/" + known.Name)
		if p, isPod := obj.(*corev1.Pod); err == nil && ok && isPod && string(p.UID) == known.UID && !seen[known.UID] && !finished(p) {
			v.Pods = append(v.Pods, m.podView(p, minor))
		}
	}
	slices.SortFunc(v.Pods, func(a, b podView) int { return cmp.Compare(a.Name, b.Name) })
	return v
}

// fill reads the workload itself; one that was made again under the same name is
// taken as it is now.
func (m *mirror) fill(v *view, owner cluster.Owner) {
	store := m.deployments.GetStore()
	if owner.Kind == "StatefulSet" {
		store = m.statefulSets.GetStore()
	}
	obj, ok, err := store.GetByKey(owner.Namespace + "/" + owner.Name)
	if err != nil || !ok {
		return
	}
	switch o := obj.(type) {
	case *appsv1.Deployment:
		fillDeployment(v, o)
	case *appsv1.StatefulSet:
		fillStatefulSet(v, o)
	}
}

func fillDeployment(v *view, d *appsv1.Deployment) {
	v.Found, v.UID, v.Generation, v.Observed = true, string(d.UID), d.Generation, d.Status.ObservedGeneration
	v.Desired = replicas(d.Spec.Replicas)
	v.Replicas, v.Updated, v.Ready = d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.ReadyReplicas
	v.Paused, v.Strategy = d.Spec.Paused, string(d.Spec.Strategy.Type)
	v.Stamp = d.Spec.Template.Annotations[restartedAt]
	for _, c := range d.Status.Conditions {
		switch {
		case c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse && c.Reason == "ProgressDeadlineExceeded":
			v.Deadline = tidy(c.Reason + ": " + c.Message)
		case c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue:
			v.Note = tidy(c.Reason + ": " + c.Message)
		}
	}
}

func fillStatefulSet(v *view, s *appsv1.StatefulSet) {
	v.Found, v.UID, v.Generation, v.Observed = true, string(s.UID), s.Generation, s.Status.ObservedGeneration
	v.Desired = replicas(s.Spec.Replicas)
	v.Replicas, v.Updated, v.Ready = s.Status.Replicas, s.Status.UpdatedReplicas, s.Status.ReadyReplicas
	v.Strategy = string(s.Spec.UpdateStrategy.Type)
	v.Stamp = s.Spec.Template.Annotations[restartedAt]
	if r := s.Spec.UpdateStrategy.RollingUpdate; r != nil && r.Partition != nil {
		v.Partition = *r.Partition
	}
	if s.Spec.Ordinals != nil {
		v.Start = s.Spec.Ordinals.Start
	}
}

// replicas reads spec.replicas; the API defaults it to 1.
func replicas(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

// podsOf gives the pods whose controller is the object with the UID, or one of its
// replica sets.
func (m *mirror) podsOf(uid string) []*corev1.Pod {
	if uid == "" {
		return nil
	}
	owners := []string{uid}
	sets, err := m.replicaSets.GetIndexer().ByIndex(owned, uid)
	if err != nil {
		return nil
	}
	for _, obj := range sets {
		if rs, ok := obj.(*appsv1.ReplicaSet); ok {
			owners = append(owners, string(rs.UID))
		}
	}
	var out []*corev1.Pod
	for _, o := range owners {
		objs, err := m.pods.GetIndexer().ByIndex(owned, o)
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

func (m *mirror) podView(p *corev1.Pod, minor string) podView {
	v := podView{Name: p.Name, Place: m.place(p.Spec.NodeName, minor), Terminating: p.DeletionTimestamp != nil, Note: podNote(p)}
	v.Trouble, v.Fatal = podTrouble(p)
	if c := podCondition(p, corev1.PodReady); c != nil {
		v.Ready = c.Status == corev1.ConditionTrue
	}
	return v
}

func (m *mirror) place(node, minor string) place {
	if node == "" {
		return nowhere
	}
	obj, ok, err := m.nodes.GetStore().GetByKey(node)
	n, isNode := obj.(*corev1.Node)
	if err != nil || !ok || !isNode {
		return nowhere
	}
	kubelet, err := cluster.Minor(n.Status.NodeInfo.KubeletVersion)
	if err != nil {
		return nowhere
	}
	return placeOf(kubelet, minor)
}

// count gives the unfinished pods of the cluster and how many of them are on nodes
// at the wanted minor.
func (m *mirror) count(minor string) (all, at int) {
	for _, obj := range m.pods.GetStore().List() {
		if p, ok := obj.(*corev1.Pod); ok && !finished(p) {
			all++
			if m.place(p.Spec.NodeName, minor) == current {
				at++
			}
		}
	}
	return all, at
}

func finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}
