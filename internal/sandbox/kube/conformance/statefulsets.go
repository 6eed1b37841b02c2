package conformance

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// severalAtOnce: a StatefulSet that states maxUnavailable replaces as many at a time, from
// the highest ordinal down to start + partition.
func severalAtOnce(c *Case) {
	sets := c.cs.AppsV1().StatefulSets(c.ns)
	plain := must(sets.Create(c.ctx, statefulSet("plain", 0), metav1.CreateOptions{}))(c)
	if ru := plain.Spec.UpdateStrategy.RollingUpdate; ru == nil || ru.MaxUnavailable == nil || ru.MaxUnavailable.IntValue() != 1 || *ru.Partition != 0 {
		c.Errorf("the default is %+v", plain.Spec.UpdateStrategy)
	}
	made := must(sets.Create(c.ctx, statefulSet("db", 5, func(s *appsv1.StatefulSet) {
		s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 3}
		s.Spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		s.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To[int32](1), MaxUnavailable: ptr.To(intstr.FromInt32(2))}
	}), metav1.CreateOptions{}))(c)
	old := map[string]types.UID{}
	for _, p := range c.awaitPods("app=db", "are ready", whole(5)) {
		old[p.Name] = p.UID
	}
	await(c, sets, "db", "is settled", func(s *appsv1.StatefulSet) bool { return s.Status.CurrentReplicas == 5 && s.Status.ReadyReplicas == 5 })
	must(sets.Patch(c.ctx, "db", types.StrategicMergePatchType, restart("2026-11-30T10:00:00Z"), metav1.PatchOptions{}))(c)
	most, news := 0, 0
	c.awaitPods("app=db", "are replaced", func(now []corev1.Pod) bool {
		away := 5
		news = 0
		for _, p := range now {
			if podReady(p) && p.DeletionTimestamp == nil {
				away--
			}
			if p.UID != old[p.Name] {
				news++
			}
		}
		most = max(most, away)
		return away > 2 || news == 4 && whole(5)(now)
	})
	if most != 2 {
		c.Errorf("%d were away at once", most)
	}
	// One more comes when nothing is left to be replaced.
	must(sets.Patch(c.ctx, "db", types.MergePatchType, []byte(`{"spec":{"replicas":6}}`), metav1.PatchOptions{}))(c)
	s := await(c, sets, "db", "counts them", func(s *appsv1.StatefulSet) bool {
		return s.Generation > made.Generation+1 && s.Status.ObservedGeneration == s.Generation && s.Status.UpdatedReplicas >= 5 && s.Status.ReadyReplicas == 6
	})
	if p := must(c.cs.CoreV1().Pods(c.ns).Get(c.ctx, "db-3", metav1.GetOptions{}))(c); p.UID != old["db-3"] || p.DeletionTimestamp != nil || s.Status.UpdateRevision == s.Status.CurrentRevision {
		c.Errorf("db-3 is below the partition and was replaced; revisions %s, %s", s.Status.CurrentRevision, s.Status.UpdateRevision)
	}
}

// heldBack: a StatefulSet that is scaled to 0 takes its pods one after the other; one that
// a finalizer keeps, Terminating, holds the others back.
func heldBack(c *Case) {
	sets, pods := c.cs.AppsV1().StatefulSets(c.ns), c.cs.CoreV1().Pods(c.ns)
	must(sets.Create(c.ctx, statefulSet("db", 2), metav1.CreateOptions{}))(c)
	c.awaitPods("app=db", "are ready", whole(2))
	finalizers := func(list string) {
		c.Helper()
		must(pods.Patch(c.ctx, "db-1", types.MergePatchType, []byte(`{"metadata":{"finalizers":`+list+`}}`), metav1.PatchOptions{}))(c)
	}
	finalizers(`["conformance.example.com/held"]`)
	must(sets.Patch(c.ctx, "db", types.MergePatchType, []byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{}))(c)
	// Its kubelet has ended it, and it is there all the same.
	p := await(c, pods, "db-1", "terminates", func(p *corev1.Pod) bool {
		return p.DeletionTimestamp != nil && ptr.Deref(p.DeletionGracePeriodSeconds, 30) == 0
	})
	if !slices.Equal(p.Finalizers, []string{"conformance.example.com/held"}) {
		c.Errorf("it has the finalizers %v", p.Finalizers)
	}
	s := await(c, sets, "db", "has been seen", func(s *appsv1.StatefulSet) bool { return s.Status.ObservedGeneration == s.Generation })
	if s.Status.Replicas != 2 {
		c.Errorf("it counts %d pods", s.Status.Replicas)
	}
	if p := must(pods.Get(c.ctx, "db-0", metav1.GetOptions{}))(c); p.DeletionTimestamp != nil {
		c.Error("db-0 goes before db-1 has gone")
	}
	finalizers("null")
	awaitGone(c, pods, "db-1", "")
	awaitGone(c, pods, "db-0", "")
	if l := must(pods.List(c.ctx, metav1.ListOptions{}))(c); slices.ContainsFunc(l.Items, func(p corev1.Pod) bool { return strings.HasPrefix(p.Name, "db-") }) {
		c.Error("pods of db are left")
	}
}
