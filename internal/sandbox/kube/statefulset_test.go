package kube_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

func restartSet(t *testing.T, cs *kubernetes.Clientset, name string) {
	t.Helper()
	_, err := cs.AppsV1().StatefulSets("default").Patch(context.Background(), name, types.StrategicMergePatchType, restart("now"), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// TestStatefulSetRollsInOrder restarts a StatefulSet after an upgrade: from the highest
// ordinal down, one pod at a time whatever its policy, each on a new node with the new
// kubelet.
func TestStatefulSetRollsInOrder(t *testing.T) {
	for _, policy := range []appsv1.PodManagementPolicyType{appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement} {
		t.Run(string(policy), func(t *testing.T) {
			r := start(t, nil)
			r.seed(statefulSet("db", 4, func(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = policy }))
			r.settle()
			cs := r.client(mimeProto)
			pods, err := cs.CoreV1().Pods("default").Watch(deadline(t), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer pods.Stop()
			r.minor.Store("1.32")
			restartSet(t, cs, "db")
			var gone []string
			down := map[string]bool{}
			for e := range pods.ResultChan() {
				p, ok := e.Object.(*corev1.Pod)
				if !ok {
					t.Fatalf("the watch ended: %v", e.Object)
				}
				down[p.Name] = !isReady(p) || p.DeletionTimestamp != nil
				if n := len(trues(down)); n > 1 {
					t.Fatalf("pods %v are down at once", trues(down))
				}
				if e.Type == "DELETED" {
					gone = append(gone, p.Name)
				}
				if len(gone) == 4 && len(trues(down)) == 0 {
					break
				}
			}
			if want := []string{"db-3", "db-2", "db-1", "db-0"}; !slices.Equal(gone, want) {
				t.Errorf("pods went in the order %v, want %v", gone, want)
			}
			follow(t, cs.AppsV1().StatefulSets("default"), named("db"), setRolledOut)
			checkKubelets(t, cs, "1.32", 4)
		})
	}
}

func trues(m map[string]bool) []string {
	var out []string
	for k, v := range m {
		if v {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// TestStatefulSetPartition rolls only the ordinals from the partition on, and the rest
// when it is lifted.
func TestStatefulSetPartition(t *testing.T) {
	r := start(t, nil)
	r.seed(statefulSet("db", 3, func(s *appsv1.StatefulSet) {
		s.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To[int32](2)}
	}))
	r.settle()
	cs := r.client(mimeJSON)
	sets := cs.AppsV1().StatefulSets("default")
	restartSet(t, cs, "db")
	follow(t, sets, named("db"), func(s *appsv1.StatefulSet) bool {
		return s.Status.UpdatedReplicas == 1 && s.Status.CurrentReplicas == 2 && s.Status.ReadyReplicas == 3 && s.Status.UpdateRevision != s.Status.CurrentRevision
	})
	// A pod below the partition comes back at the old revision.
	before, err := sets.Get(deadline(t), "db", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	old, err := cs.CoreV1().Pods("default").Get(deadline(t), "db-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := cs.CoreV1().Pods("default").Delete(deadline(t), "db-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	follow(t, cs.CoreV1().Pods("default"), named("db-0"), func(p *corev1.Pod) bool {
		return p.UID != old.UID && p.Labels[appsv1.ControllerRevisionHashLabelKey] == before.Status.CurrentRevision
	})
	patch := []byte(`{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}`)
	if _, err := sets.Patch(deadline(t), "db", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	follow(t, sets, named("db"), func(s *appsv1.StatefulSet) bool { return setRolledOut(s) && s.Status.UpdatedReplicas == 3 })
}

// TestStatefulSetOnDelete keeps old pods until somebody deletes them.
func TestStatefulSetOnDelete(t *testing.T) {
	r := start(t, nil)
	r.seed(statefulSet("db", 2, func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType }))
	r.settle()
	cs := r.client(mimeJSON)
	sets := cs.AppsV1().StatefulSets("default")
	restartSet(t, cs, "db")
	observed := func(updated int32) func(*appsv1.StatefulSet) bool {
		return func(s *appsv1.StatefulSet) bool {
			return s.Status.ObservedGeneration == s.Generation && s.Generation == 2 && s.Status.ReadyReplicas == 2 && s.Status.UpdatedReplicas == updated
		}
	}
	follow(t, sets, named("db"), observed(0))
	if err := cs.CoreV1().Pods("default").Delete(deadline(t), "db-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	follow(t, sets, named("db"), observed(1))
}

// TestStatefulSetRollback goes back to an older template: its revision is raised, no new
// one is made.
func TestStatefulSetRollback(t *testing.T) {
	r := start(t, nil)
	r.seed(statefulSet("db", 1))
	r.settle()
	cs := r.client(mimeJSON)
	sets := cs.AppsV1().StatefulSets("default")
	first := ""
	for i, image := range []string{"db:1", "db:2", "db:1"} {
		patch := `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"` + image + `"}]}}}}`
		if _, err := sets.Patch(deadline(t), "db", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		last := ""
		follow(t, sets, named("db"), func(s *appsv1.StatefulSet) bool {
			last = s.Status.UpdateRevision
			return setRolledOut(s)
		})
		if i == 0 {
			first = last
		}
		if same := last == first; same != (image == "db:1") {
			t.Errorf("revision %s for %s, that of db:1 is %s", last, image, first)
		}
	}
	l, err := cs.AppsV1().ControllerRevisions("default").List(deadline(t), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, rev := range l.Items {
		got[rev.Name] = rev.Revision
	}
	if len(got) != 2 || got[first] != 3 {
		t.Errorf("revisions %v, want two, and %s at 3", got, first)
	}
}

// TestStatefulSetScale creates in order and removes in reverse order; with Parallel all
// at once. Claims stay.
func TestStatefulSetScale(t *testing.T) {
	for _, policy := range []appsv1.PodManagementPolicyType{appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement} {
		t.Run(string(policy), func(t *testing.T) {
			r := start(t, nil)
			r.seed(statefulSet("db", 1, func(s *appsv1.StatefulSet) {
				s.Spec.PodManagementPolicy = policy
				s.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
					Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				}}}
			}))
			r.settle()
			cs := r.client(mimeJSON)
			ctx := deadline(t)
			pods, err := cs.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{ResourceVersion: "0"})
			if err != nil {
				t.Fatal(err)
			}
			defer pods.Stop()
			scale := func(n int32) {
				t.Helper()
				p := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n)
				if _, err := cs.AppsV1().StatefulSets("default").Patch(ctx, "db", types.MergePatchType, p, metav1.PatchOptions{}, "scale"); err != nil {
					t.Fatal(err)
				}
				follow(t, cs.AppsV1().StatefulSets("default"), named("db"), func(s *appsv1.StatefulSet) bool {
					return s.Status.ObservedGeneration == s.Generation && s.Status.ReadyReplicas == n && s.Status.Replicas == n
				})
			}
			scale(4)
			scale(1)
			most, live, gone := 0, map[string]bool{}, []string(nil)
			for len(gone) < 3 {
				e := <-pods.ResultChan()
				p := e.Object.(*corev1.Pod)
				live[p.Name] = !isReady(p) && e.Type != "DELETED"
				most = max(most, len(trues(live)))
				if e.Type == "DELETED" {
					gone = append(gone, p.Name)
				}
			}
			if policy == appsv1.OrderedReadyPodManagement {
				if most > 1 || !slices.Equal(gone, []string{"db-3", "db-2", "db-1"}) {
					t.Errorf("%d pods were starting at once, and they went in the order %v", most, gone)
				}
			} else if most < 2 {
				t.Error("pods of a parallel set started one by one")
			}
			claims, err := cs.CoreV1().PersistentVolumeClaims("default").List(ctx, metav1.ListOptions{})
			if err != nil || len(claims.Items) != 4 {
				t.Errorf("there are %d claims (%v), want 4", len(claims.Items), err)
			}
		})
	}
}
