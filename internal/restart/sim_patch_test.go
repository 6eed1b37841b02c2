package restart

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	clienttesting "k8s.io/client-go/testing"
)

// patched applies a patch as the API server does and sets the rollout going.
func (s *sim) patched(action clienttesting.Action) (bool, runtime.Object, error) {
	a := action.(clienttesting.PatchAction)
	if r := a.GetResource().Resource; r != "deployments" && r != "statefulsets" {
		return s.merged(a)
	}
	kind := map[string]string{"deployments": "Deployment", "statefulsets": "StatefulSet"}[a.GetResource().Resource]
	owner := a.GetNamespace() + "/" + kind + "/" + a.GetName()
	obj, err := s.client.Tracker().Get(a.GetResource(), a.GetNamespace(), a.GetName())
	if err != nil {
		return true, nil, err
	}
	old, err := json.Marshal(obj)
	must(err)
	merged, err := strategicpatch.StrategicMergePatch(old, a.GetPatch(), obj)
	must(err)
	if a.GetPatchType() != types.StrategicMergePatchType {
		panic("patch type " + a.GetPatchType())
	}
	changed := obj.DeepCopyObject()
	must(json.Unmarshal(merged, changed))
	stamp := template(changed).Annotations[restartedAt]
	if s.before != nil {
		if err := s.before(owner, stamp); err != nil {
			return true, nil, err
		}
	}
	if template(obj).Annotations[restartedAt] != stamp {
		s.restart(owner, changed, stamp)
	}
	if s.after != nil {
		if err := s.after(owner, stamp); err != nil {
			return true, nil, err
		}
	}
	return true, changed, nil
}

func template(obj runtime.Object) *corev1.PodTemplateSpec {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		return &o.Spec.Template
	case *appsv1.StatefulSet:
		return &o.Spec.Template
	}
	panic("no template")
}

// restart stores the changed template and rolls it out.
func (s *sim) restart(owner string, obj runtime.Object, stamp string) {
	m := obj.(metav1.Object)
	m.SetGeneration(m.GetGeneration() + 1)
	s.mu.Lock()
	s.stamps[owner] = append(s.stamps[owner], stamp)
	s.order = append(s.order, owner)
	s.rolling[owner] = true
	s.most = max(s.most, len(s.rolling))
	if s.rolling["kube-system/Deployment/coredns"] {
		s.beside = append(s.beside, slices.Sorted(maps.Keys(s.rolling))...)
	}
	number, gate := len(s.stamps[owner]), s.gate[owner]
	s.mu.Unlock()
	switch o := obj.(type) {
	case *appsv1.Deployment:
		s.put(appsGVR["Deployment"], o)
		s.wg.Go(func() {
			s.roll(owner, gate, func() {
				s.mu.Lock()
				off := s.noRoll && owner == "shop/Deployment/cart"
				s.mu.Unlock()
				if !off {
					s.rollDeployment(owner, o.DeepCopy(), number)
				}
			})
		})
	case *appsv1.StatefulSet:
		s.put(appsGVR["StatefulSet"], o)
		s.wg.Go(func() { s.roll(owner, gate, func() { s.rollStatefulSet(owner, o.DeepCopy(), number) }) })
	}
}

// expectWatches holds everything until one more step watches.
func (s *sim) expectWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = s.watches + 6
	if l, err := s.client.Tracker().List(controllersGVR, corev1.SchemeGroupVersion.WithKind("ReplicationController"), ""); err == nil {
		if len(l.(*corev1.ReplicationControllerList).Items) > 0 {
			s.wanted++
		}
	}
}

// roll runs one rollout once all watches stand, for the fake clientset forgets
// deletions between a list and its watch.
func (s *sim) roll(owner string, gate chan struct{}, do func()) {
	if gate != nil {
		select {
		case <-gate:
		case <-s.ctx.Done():
		}
	}
	s.mu.Lock()
	for s.watches < s.wanted && s.ctx.Err() == nil {
		s.cond.Wait()
	}
	s.mu.Unlock()
	if s.ctx.Err() == nil {
		do()
	}
}

func (s *sim) settled(owner string) {
	s.mu.Lock()
	delete(s.rolling, owner)
	s.mu.Unlock()
}

// newPod makes the next pod of an owner; false when it does not get ready. The last are
// called before anybody can see that it is.
func (s *sim) newPod(owner, ns, name string, number int, of *metav1.OwnerReference, last ...func()) bool {
	kubelet := newKubelet
	if k := s.kubelet[owner]; number <= len(k) {
		kubelet = k[number-1]
	}
	p := s.addPod(ns, name, "", of).DeepCopy()
	s.schedule(p, kubelet)
	if f := s.pod[owner]; f != nil && !f(p) {
		s.put(podsGVR, p)
		return false
	}
	for _, f := range last { // before a watch can show the end
		f()
	}
	ready(p)
	s.put(podsGVR, p)
	return true
}

// remove deletes a pod as a kubelet does, its node with it.
func (s *sim) remove(owner string, p *corev1.Pod) {
	s.writing.Lock() // a patch at the same moment would bring it back
	defer s.writing.Unlock()
	p = p.DeepCopy()
	p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	s.put(podsGVR, p)
	if s.linger[owner] {
		return
	}
	must(s.client.Tracker().Delete(podsGVR, p.Namespace, p.Name))
	if p.Spec.NodeName != "" {
		must(s.client.Tracker().Delete(nodesGVR, "", p.Spec.NodeName))
	}
}

// podsOf lists the pods whose controller is not the given one but of the workload.
func (s *sim) podsOf(ns string, owned func(types.UID) bool) []*corev1.Pod {
	l, err := s.client.Tracker().List(podsGVR, schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, ns)
	must(err)
	var out []*corev1.Pod
	for i := range l.(*corev1.PodList).Items {
		p := &l.(*corev1.PodList).Items[i]
		if c := metav1.GetControllerOf(p); c != nil && owned(c.UID) && p.DeletionTimestamp == nil {
			out = append(out, p)
		}
	}
	return out
}

func (s *sim) setsOf(d *appsv1.Deployment) map[types.UID]bool {
	l, err := s.client.Tracker().List(replicaSetsGVR, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}, d.Namespace)
	must(err)
	out := map[types.UID]bool{}
	for i := range l.(*appsv1.ReplicaSetList).Items {
		rs := &l.(*appsv1.ReplicaSetList).Items[i]
		if c := metav1.GetControllerOf(rs); c != nil && c.UID == d.UID {
			out[rs.UID] = true
		}
	}
	return out
}
