package controllers

import (
	"sort"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

var rolloutKind = registry.RolloutGroup.WithKind("Rollout")

// rolloutHash is the label that tells the ReplicaSets of a Rollout apart.
const rolloutHash = "rollouts-pod-template-hash"

// recheckRestart is how soon a Rollout looks again for pods to restart when a budget
// refused one. Argo Rollouts waits 30 s; the sandbox's clusters are quicker than that.
const recheckRestart = 100 * time.Millisecond

// argo is one look at a Rollout.
type argo struct {
	m    *Manager
	c    *controller[string]
	ro   *registry.Rollout
	new  *appsv1.ReplicaSet
	olds []*appsv1.ReplicaSet
}

// syncRollout does for a Rollout what Argo Rollouts does for a canary without steps, and
// restarts its pods when spec.restartAt asks for it.
func (m *Manager) syncRollout(c *controller[string], key string) error {
	ro, ok := get[*registry.Rollout](m, registry.Rollouts, key)
	if !ok || ro.DeletionTimestamp != nil {
		return nil
	}
	a := &argo{m: m, c: c, ro: ro}
	hash := templateHash(&ro.Spec.Template, nil)
	for _, rs := range controlled[*appsv1.ReplicaSet](m, ro.UID, registry.ReplicaSets) {
		if rs.Labels[rolloutHash] == hash {
			a.new = rs
		} else {
			a.olds = append(a.olds, rs)
		}
	}
	if a.new == nil {
		return a.create(hash)
	}
	if changed, err := a.roll(); changed || err != nil {
		return err
	}
	restarted, err := a.restart()
	if err != nil {
		return err
	}
	return a.status(hash, restarted)
}

func (a *argo) create(hash string) error {
	ro := a.ro
	t := ro.Spec.Template.DeepCopy()
	t.Labels = with(t.Labels, rolloutHash, hash)
	sel := ro.Spec.Selector.DeepCopy()
	sel.MatchLabels = with(sel.MatchLabels, rolloutHash, hash)
	none := int32(0)
	_, err := a.m.reg.Create(registry.ReplicaSets, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ro.Namespace, Name: ro.Name + "-" + hash, Labels: t.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(ro, rolloutKind)},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: &none, MinReadySeconds: ro.Spec.MinReadySeconds, Selector: sel, Template: *t},
	}, false)
	return err
}

// bounds resolves maxSurge and maxUnavailable, 25 % each by default.
func (a *argo) bounds() (surge, unavailable int32) {
	of := func(v *intstr.IntOrString, up bool) int32 {
		quarter := intstr.FromString("25%")
		n, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(v, quarter), int(*a.ro.Spec.Replicas), up)
		if err != nil {
			return 0
		}
		return int32(n)
	}
	var c registry.CanaryStrategy
	if s := a.ro.Spec.Strategy.Canary; s != nil {
		c = *s
	}
	if surge, unavailable = of(c.MaxSurge, true), of(c.MaxUnavailable, false); surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, unavailable
}

// roll scales the new ReplicaSet up and the old ones down, one step at a time.
func (a *argo) roll() (bool, error) {
	want := *a.ro.Spec.Replicas
	surge, unavailable := a.bounds()
	all := append([]*appsv1.ReplicaSet{a.new}, a.olds...)
	now := *a.new.Spec.Replicas
	if now > want || now < want && !a.ro.Spec.Paused {
		if n := min(want, now+max(want+surge-wanted(all), 0)); n != now {
			return true, a.scale(a.new, n)
		}
	}
	spare := availableOf(all) - (want - unavailable)
	for _, rs := range a.olds {
		unhealthy := *rs.Spec.Replicas - min(rs.Status.AvailableReplicas, *rs.Spec.Replicas)
		if cut := min(*rs.Spec.Replicas, max(spare, 0)+unhealthy); cut > 0 && !a.ro.Spec.Paused {
			return true, a.scale(rs, *rs.Spec.Replicas-cut)
		}
	}
	return false, nil
}

func (a *argo) scale(rs *appsv1.ReplicaSet, n int32) error {
	next := rs.DeepCopy()
	next.Spec.Replicas = &n
	_, err := update(a.m, registry.ReplicaSets, registry.Whole, next)
	return err
}

// restart evicts pods that were made before spec.restartAt, no more at a time than
// maxUnavailable lets go, and at least one (rollout/restart.go of argo-rollouts). It
// returns when the last restart was complete.
func (a *argo) restart() (*metav1.Time, error) {
	at, done := a.ro.Spec.RestartAt, a.ro.Status.RestartedAt
	if at == nil || done != nil && done.Equal(at) {
		return done, nil
	}
	if left := at.Sub(a.m.reg.Clock()); left > 0 {
		a.c.AddAfter(store.KeyOf(a.ro), left)
		return done, nil
	}
	var old []*corev1.Pod
	ready := int32(0)
	for _, rs := range append([]*appsv1.ReplicaSet{a.new}, a.olds...) {
		for _, p := range controlled[*corev1.Pod](a.m, rs.UID, registry.Pods) {
			if !active(p) {
				continue
			}
			if ok, _ := available(p, a.ro.Spec.MinReadySeconds, a.m.reg.Clock()); ok {
				ready++
			}
			if p.CreationTimestamp.Before(at) {
				old = append(old, p)
			}
		}
	}
	if len(old) == 0 {
		return at, nil
	}
	sort.Slice(old, func(i, j int) bool { return old[i].CreationTimestamp.Before(&old[j].CreationTimestamp) })
	_, unavailable := a.bounds()
	room := ready - (*a.ro.Spec.Replicas - max(unavailable, 1))
	for _, p := range old {
		if room <= 0 {
			break
		}
		err := a.m.reg.Evict(p.Namespace, p.Name, *metav1.NewPreconditionDeleteOptions(string(p.UID)))
		switch {
		case apierrors.IsTooManyRequests(err):
			a.c.AddAfter(store.KeyOf(a.ro), recheckRestart)
		case err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
			return done, err
		}
		room--
	}
	return done, nil
}

func (a *argo) status(hash string, restarted *metav1.Time) error {
	s := registry.RolloutStatus{
		ObservedGeneration: strconv.FormatInt(a.ro.Generation, 10), CurrentPodHash: hash, StableRS: a.ro.Status.StableRS, RestartedAt: restarted,
		Selector: metav1.FormatLabelSelector(a.ro.Spec.Selector),
	}
	for _, rs := range append([]*appsv1.ReplicaSet{a.new}, a.olds...) {
		s.Replicas += rs.Status.Replicas
		s.ReadyReplicas += rs.Status.ReadyReplicas
		s.AvailableReplicas += rs.Status.AvailableReplicas
	}
	s.UpdatedReplicas = a.new.Status.Replicas
	want := *a.ro.Spec.Replicas
	s.Phase = "Progressing"
	switch {
	case a.ro.Spec.Paused:
		s.Phase, s.Message = "Paused", "manually paused"
	case s.UpdatedReplicas == want && s.Replicas == want && s.AvailableReplicas == want:
		s.Phase, s.StableRS = "Healthy", hash
	default:
		s.Message = "more replicas need to be updated"
	}
	if equality.Semantic.DeepEqual(s, a.ro.Status) {
		return nil
	}
	next := a.ro.DeepCopy()
	next.Status = s
	_, err := update(a.m, registry.Rollouts, registry.Status, next)
	return err
}
