package restart

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

var rolloutsGVR = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "rollouts"}

// argo is a client for Argo Rollouts whose controller restarts pods as the real one
// does: those older than spec.restartAt, one after the other.
func (s *sim) argo() *fake.FakeDynamicClient {
	s.dynamic = fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{rolloutsGVR: "RolloutList"})
	s.dynamic.PrependReactor("patch", "rollouts", func(action clienttesting.Action) (bool, runtime.Object, error) {
		a := action.(clienttesting.PatchAction)
		owner := a.GetNamespace() + "/Rollout/" + a.GetName()
		var p struct{ Spec struct{ RestartAt string } }
		must(json.Unmarshal(a.GetPatch(), &p))
		if s.before != nil {
			if err := s.before(owner, p.Spec.RestartAt); err != nil {
				return true, nil, err
			}
		}
		obj, err := s.dynamic.Tracker().Get(rolloutsGVR, a.GetNamespace(), a.GetName())
		if err != nil {
			return true, nil, err
		}
		ro := obj.DeepCopyObject().(*unstructured.Unstructured)
		if was, _, _ := unstructured.NestedString(ro.Object, "spec", "restartAt"); was != p.Spec.RestartAt {
			must(unstructured.SetNestedField(ro.Object, p.Spec.RestartAt, "spec", "restartAt"))
			ro.SetGeneration(ro.GetGeneration() + 1)
			must(s.dynamic.Tracker().Update(rolloutsGVR, ro, a.GetNamespace()))
			at, err := time.Parse(time.RFC3339, p.Spec.RestartAt)
			must(err)
			s.mu.Lock()
			s.stamps[owner] = append(s.stamps[owner], p.Spec.RestartAt)
			s.order = append(s.order, owner)
			s.rolling[owner] = true
			number, gate := len(s.stamps[owner]), s.gate[owner]
			s.mu.Unlock()
			s.wg.Go(func() {
				s.roll(owner, gate, func() { s.restartPods(owner, ro.GetUID(), a.GetNamespace(), at, number) })
			})
		}
		if s.after != nil {
			if err := s.after(owner, p.Spec.RestartAt); err != nil {
				return true, nil, err
			}
		}
		return true, ro, nil
	})
	return s.dynamic
}

// rollout makes an Argo Rollout with a ReplicaSet and n pods.
func (s *sim) rollout(ns, name string, n int, kubelet string) {
	uid := types.UID(fmt.Sprint("uid-rollout-", s.next()))
	ro := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout",
		"metadata": map[string]any{"namespace": ns, "name": name, "uid": string(uid)}, "spec": map[string]any{"replicas": int64(n)}}}
	must(s.dynamic.Tracker().Create(rolloutsGVR, ro, ns))
	rs := s.setOf(ns, name, ref("argoproj.io/v1alpha1", "Rollout", name, uid))
	for range n {
		s.addPod(ns, fmt.Sprintf("%s-%d", rs.Name, s.next()), kubelet, ref("apps/v1", "ReplicaSet", rs.Name, rs.UID))
	}
}

func (s *sim) restartPods(owner string, uid types.UID, ns string, at time.Time, number int) {
	wait := time.NewTimer(time.Until(at)) // a moment yet to come is waited for
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-s.ctx.Done():
		return
	}
	var old []*corev1.Pod
	for _, p := range s.podsOf(ns, func(u types.UID) bool { return s.above(ns, u) == uid }) {
		if p.CreationTimestamp.Time.Before(at) {
			old = append(old, p)
		}
	}
	if len(old) == 0 {
		s.settled(owner)
	}
	for i, p := range old {
		s.mu.Lock()
		s.takes[owner] = append(s.takes[owner], p.Name)
		s.mu.Unlock()
		c := metav1.GetControllerOf(p)
		s.remove(owner, p)
		end := func() {
			if i == len(old)-1 {
				s.settled(owner)
			}
		}
		if !s.newPod(owner, ns, fmt.Sprintf("%s-%d", c.Name, s.next()), number, c, end) {
			return
		}
	}
}
