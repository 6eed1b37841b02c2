package controllers

import (
	"sort"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
)

// fenceposts resolves maxSurge (rounded up) and maxUnavailable (rounded down). When both
// come to 0, maxUnavailable is 1, or nothing could ever move.
func fenceposts(d *appsv1.Deployment) (surge, unavailable int32) {
	ru := d.Spec.Strategy.RollingUpdate
	if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || ru == nil {
		return 0, 0
	}
	zero := intstr.FromInt32(0)
	s, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(ru.MaxSurge, zero), int(*d.Spec.Replicas), true)
	if err != nil {
		s = 0
	}
	u, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(ru.MaxUnavailable, zero), int(*d.Spec.Replicas), false)
	if err != nil {
		u = 0
	}
	if s == 0 && u == 0 {
		u = 1
	}
	return int32(s), int32(u)
}

func maxSurge(d *appsv1.Deployment) int32 {
	s, _ := fenceposts(d)
	return s
}

// maxUnavailable is never more than there are replicas.
func maxUnavailable(d *appsv1.Deployment) int32 {
	if *d.Spec.Replicas == 0 {
		return 0
	}
	_, u := fenceposts(d)
	return min(u, *d.Spec.Replicas)
}

func wanted(sets []*appsv1.ReplicaSet) int32 {
	var n int32
	for _, rs := range sets {
		n += *rs.Spec.Replicas
	}
	return n
}

// availableOf counts the pods that are available and will stay: a status may still count
// some that its ReplicaSet is about to delete. The original takes the status as it is; at
// the pace of the sandbox that would take too many pods away.
func availableOf(sets []*appsv1.ReplicaSet) int32 {
	var n int32
	for _, rs := range sets {
		n += min(rs.Status.AvailableReplicas, *rs.Spec.Replicas)
	}
	return n
}

// newReplicas is how many replicas the new set may have beside the others, when it has
// now so many.
func newReplicas(d *appsv1.Deployment, others []*appsv1.ReplicaSet, now int32) int32 {
	if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return *d.Spec.Replicas
	}
	room := *d.Spec.Replicas + maxSurge(d) - wanted(others) - now
	if room <= 0 {
		return now
	}
	return now + min(room, *d.Spec.Replicas-now)
}

// setReplicas scales a ReplicaSet and notes the Deployment's size on it.
func (r *rollout) setReplicas(rs *appsv1.ReplicaSet, n int32) error {
	next := rs.DeepCopy()
	next.Spec.Replicas = &n
	r.size(next)
	if _, err := update(r.m, registry.ReplicaSets, registry.Whole, next); err != nil {
		return err
	}
	if old := *rs.Spec.Replicas; old != n {
		how := "up"
		if n < old {
			how = "down"
		}
		r.c.events.Event(r.d, corev1.EventTypeNormal, "ScalingReplicaSet", "Scaled %s replica set %s from %d to %d", how, rs.Name, old, n)
	}
	return nil
}

func (r *rollout) scaleUpNew() (bool, error) {
	now, want := *r.new.Spec.Replicas, *r.d.Spec.Replicas
	n := want
	if now < want {
		n = newReplicas(r.d, r.olds, now)
	}
	if n == now {
		return false, nil
	}
	return true, r.setReplicas(r.new, n)
}

// scaleDownOld takes away old replicas: the unhealthy ones first, then as many as leave
// enough pods available.
func (r *rollout) scaleDownOld() (bool, error) {
	if wanted(r.olds) == 0 {
		return false, nil
	}
	atLeast := *r.d.Spec.Replicas - maxUnavailable(r.d)
	room := wanted(r.all()) - atLeast - (*r.new.Spec.Replicas - r.new.Status.AvailableReplicas)
	if room <= 0 {
		return false, nil
	}
	target := map[*appsv1.ReplicaSet]int32{}
	cleaned := int32(0)
	for _, rs := range r.olds {
		n := *rs.Spec.Replicas
		if unhealthy := n - rs.Status.AvailableReplicas; n > 0 && unhealthy > 0 {
			cut := min(room-cleaned, unhealthy)
			cleaned += cut
			n -= cut
		}
		target[rs] = n
	}
	spare := availableOf(r.all()) - atLeast
	for _, rs := range r.olds {
		cut := min(target[rs], max(spare, 0))
		target[rs] -= cut
		spare -= cut
	}
	changed := false
	for _, rs := range r.olds {
		if target[rs] == *rs.Spec.Replicas {
			continue
		}
		changed = true
		if err := r.setReplicas(rs, target[rs]); err != nil {
			return true, err
		}
	}
	return changed, nil
}

// scaled is true when the Deployment's size has changed since its active ReplicaSets
// were last sized.
func (r *rollout) scaled() bool {
	for _, rs := range r.all() {
		if *rs.Spec.Replicas == 0 {
			continue
		}
		n, err := strconv.Atoi(rs.Annotations[annDesired])
		if err == nil && int32(n) != *r.d.Spec.Replicas {
			return true
		}
	}
	return false
}

// scale follows a change of size outside of a rollout's own steps: the only active set
// takes it; several in a rolling update take it in proportion to their sizes.
func (r *rollout) scale() (bool, error) {
	var active []*appsv1.ReplicaSet
	for _, rs := range r.all() {
		if *rs.Spec.Replicas > 0 {
			active = append(active, rs)
		}
	}
	want := *r.d.Spec.Replicas
	if len(active) <= 1 {
		only := r.new
		if len(active) == 1 {
			only = active[0]
		} else if only == nil && len(r.olds) > 0 {
			only = r.olds[len(r.olds)-1]
		}
		if only == nil || *only.Spec.Replicas == want && only.Annotations[annDesired] == strconv.Itoa(int(want)) {
			return false, nil
		}
		return true, r.setReplicas(only, want)
	}
	if r.new != nil && *r.new.Spec.Replicas == want && r.new.Annotations[annDesired] == strconv.Itoa(int(want)) && r.new.Status.AvailableReplicas == want {
		changed := false
		for _, rs := range r.olds {
			if *rs.Spec.Replicas > 0 {
				changed = true
				if err := r.setReplicas(rs, 0); err != nil {
					return true, err
				}
			}
		}
		return changed, nil
	}
	if r.d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return false, nil
	}
	return r.scaleInProportion(active)
}

func (r *rollout) scaleInProportion(active []*appsv1.ReplicaSet) (bool, error) {
	allowed := int32(0)
	if *r.d.Spec.Replicas > 0 {
		allowed = *r.d.Spec.Replicas + maxSurge(r.d)
	}
	add := allowed - wanted(active)
	up := add > 0
	sort.SliceStable(active, func(i, j int) bool { // larger ones first; of equals the newer when growing
		a, b := active[i], active[j]
		if *a.Spec.Replicas != *b.Spec.Replicas {
			return *a.Spec.Replicas > *b.Spec.Replicas
		}
		if up {
			return revisionOf(a) > revisionOf(b)
		}
		return revisionOf(a) < revisionOf(b)
	})
	added, size := int32(0), make([]int32, len(active))
	for i, rs := range active {
		size[i] = *rs.Spec.Replicas
		if add != 0 {
			part := r.proportion(rs, add, added)
			size[i] += part
			added += part
		}
	}
	if add != 0 { // rounding leaves the rest to the largest
		size[0] = max(size[0]+add-added, 0)
	}
	changed := false
	for i, rs := range active {
		if size[i] == *rs.Spec.Replicas && rs.Annotations[annDesired] == strconv.Itoa(int(*r.d.Spec.Replicas)) {
			continue
		}
		changed = true
		if err := r.setReplicas(rs, size[i]); err != nil {
			return true, err
		}
	}
	return changed, nil
}

// proportion is the share of a ReplicaSet in a change of add replicas, of which added
// have been given out.
func (r *rollout) proportion(rs *appsv1.ReplicaSet, add, added int32) int32 {
	n := *rs.Spec.Replicas
	if n == 0 {
		return 0
	}
	before := *r.d.Spec.Replicas
	if v, err := strconv.Atoi(rs.Annotations[annMax]); err == nil && v > 0 {
		before = int32(v)
	} else if before == 0 {
		return -n
	}
	size := float64(n) * float64(*r.d.Spec.Replicas+maxSurge(r.d)) / float64(before)
	share := int32(size+0.5) - n
	if *r.d.Spec.Replicas == 0 {
		share = -n
	}
	if add > 0 {
		return min(max(share, 0), add-added)
	}
	return max(min(share, 0), add-added)
}
