package restart

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eksbg/eksbg/internal/restart/survey"
)

// rollDeployment surges by one: a new pod first, then an old one goes.
func (s *sim) rollDeployment(owner string, d *appsv1.Deployment, number int) {
	sets := s.setsOf(d)
	old := s.podsOf(d.Namespace, func(u types.UID) bool { return sets[u] })
	rs := s.replicaSet(d)
	d.Status.ObservedGeneration, d.Status.UpdatedReplicas = d.Generation, 0
	s.put(appsGVR["Deployment"], d.DeepCopy())
	for i, p := range old {
		d.Status.Replicas++
		d.Status.UpdatedReplicas++
		s.put(appsGVR["Deployment"], d.DeepCopy())
		if !s.newPod(owner, d.Namespace, fmt.Sprintf("%s-%d", rs.Name, i), number, ref("apps/v1", "ReplicaSet", rs.Name, rs.UID)) {
			return
		}
		s.remove(owner, p)
		d.Status.Replicas--
		if i == len(old)-1 {
			s.settled(owner)
		}
		s.put(appsGVR["Deployment"], d.DeepCopy())
	}
}

// rollStatefulSet replaces from the highest ordinal down, down to the partition.
func (s *sim) rollStatefulSet(owner string, st *appsv1.StatefulSet, number int) {
	st.Status.ObservedGeneration, st.Status.UpdatedReplicas = st.Generation, 0
	s.put(appsGVR["StatefulSet"], st.DeepCopy())
	old := s.podsOf(st.Namespace, func(u types.UID) bool { return u == st.UID })
	slices.SortFunc(old, func(a, b *corev1.Pod) int {
		na, _ := survey.Ordinal(a.Name)
		nb, _ := survey.Ordinal(b.Name)
		return nb - na
	})
	low := 0
	if r := st.Spec.UpdateStrategy.RollingUpdate; r != nil && r.Partition != nil {
		low = int(*r.Partition)
	}
	for _, p := range old {
		if n, _ := survey.Ordinal(p.Name); n < low {
			break
		}
		st.Status.ReadyReplicas--
		s.put(appsGVR["StatefulSet"], st.DeepCopy())
		s.remove(owner, p)
		if !s.newPod(owner, st.Namespace, p.Name, number, ref("apps/v1", "StatefulSet", st.Name, st.UID)) {
			return
		}
		st.Status.ReadyReplicas++
		st.Status.UpdatedReplicas++
		if int(st.Status.UpdatedReplicas) == len(old)-low {
			s.settled(owner)
		}
		s.put(appsGVR["StatefulSet"], st.DeepCopy())
	}
}
