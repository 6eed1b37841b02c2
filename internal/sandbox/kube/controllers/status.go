package controllers

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

// Reasons of the condition Progressing.
const (
	reasonPaused    = "DeploymentPaused"
	reasonResumed   = "DeploymentResumed"
	reasonAvailable = "NewReplicaSetAvailable"
	reasonUpdated   = "ReplicaSetUpdated"
	reasonTimedOut  = "ProgressDeadlineExceeded"
)

func (m *Manager) condition(t appsv1.DeploymentConditionType, s corev1.ConditionStatus, reason, message string) appsv1.DeploymentCondition {
	now := m.reg.Now()
	return appsv1.DeploymentCondition{Type: t, Status: s, Reason: reason, Message: message, LastUpdateTime: now, LastTransitionTime: now}
}

func condition(s appsv1.DeploymentStatus, t appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}

// setDeploymentCondition sets a condition unless it is there with that status and reason.
func setDeploymentCondition(s *appsv1.DeploymentStatus, c appsv1.DeploymentCondition) {
	old := condition(*s, c.Type)
	if old != nil && old.Status == c.Status && old.Reason == c.Reason {
		return
	}
	if old != nil && old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	dropCondition(s, c.Type)
	s.Conditions = append(s.Conditions, c)
}

func dropCondition(s *appsv1.DeploymentStatus, t appsv1.DeploymentConditionType) {
	var out []appsv1.DeploymentCondition
	for _, c := range s.Conditions {
		if c.Type != t {
			out = append(out, c)
		}
	}
	s.Conditions = out
}

// notePause says in the condition Progressing that the Deployment was paused or resumed,
// so that the time in between counts for no deadline.
func (r *rollout) notePause() (bool, error) {
	if r.d.Spec.ProgressDeadlineSeconds == nil {
		return false, nil
	}
	c := condition(r.d.Status, appsv1.DeploymentProgressing)
	if c != nil && c.Reason == reasonTimedOut {
		return false, nil
	}
	noted := c != nil && c.Reason == reasonPaused
	if r.d.Spec.Paused == noted {
		return false, nil
	}
	next := r.d.DeepCopy()
	if r.d.Spec.Paused {
		setDeploymentCondition(&next.Status, r.m.condition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, reasonPaused, "Deployment is paused"))
	} else {
		setDeploymentCondition(&next.Status, r.m.condition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, reasonResumed, "Deployment is resumed"))
	}
	_, err := update(r.m, registry.Deployments, registry.Status, next)
	return true, err
}

// status counts over the ReplicaSets.
func (r *rollout) status() appsv1.DeploymentStatus {
	s := *r.d.Status.DeepCopy()
	s.ObservedGeneration = r.d.Generation
	s.Replicas, s.UpdatedReplicas, s.ReadyReplicas, s.AvailableReplicas = 0, 0, 0, 0
	want := int32(0)
	for _, rs := range r.all() {
		want += *rs.Spec.Replicas
		s.Replicas += rs.Status.Replicas
		s.ReadyReplicas += rs.Status.ReadyReplicas
		s.AvailableReplicas += rs.Status.AvailableReplicas
	}
	if r.new != nil {
		s.UpdatedReplicas = r.new.Status.Replicas
	}
	s.UnavailableReplicas = max(want-s.AvailableReplicas, 0)
	if s.AvailableReplicas >= *r.d.Spec.Replicas-maxUnavailable(r.d) {
		setDeploymentCondition(&s, r.m.condition(appsv1.DeploymentAvailable, corev1.ConditionTrue,
			"MinimumReplicasAvailable", "Deployment has minimum availability."))
	} else {
		setDeploymentCondition(&s, r.m.condition(appsv1.DeploymentAvailable, corev1.ConditionFalse,
			"MinimumReplicasUnavailable", "Deployment does not have minimum availability."))
	}
	return s
}

// complete is true when every replica is new and available and no old one is left.
func (r *rollout) complete(s appsv1.DeploymentStatus) bool {
	want := *r.d.Spec.Replicas
	return s.UpdatedReplicas == want && s.Replicas == want && s.AvailableReplicas == want && s.ObservedGeneration >= r.d.Generation
}

// progress writes the status during a rollout, with the condition Progressing.
func (r *rollout) progress() error {
	d, s := r.d, r.status()
	if d.Spec.ProgressDeadlineSeconds == nil {
		dropCondition(&s, appsv1.DeploymentProgressing)
		return r.writeStatus(s)
	}
	now := condition(d.Status, appsv1.DeploymentProgressing)
	if s.Replicas == s.UpdatedReplicas && now != nil && now.Reason == reasonAvailable {
		return r.writeStatus(s) // long complete: nothing to estimate
	}
	what := fmt.Sprintf("Deployment %q", d.Name)
	if r.new != nil {
		what = fmt.Sprintf("ReplicaSet %q", r.new.Name)
	}
	switch {
	case r.complete(s):
		setDeploymentCondition(&s, r.m.condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonAvailable, what+" has successfully progressed."))
	case progressing(d.Status, s):
		c := r.m.condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonUpdated, what+" is progressing.")
		if now != nil {
			if now.Status == corev1.ConditionTrue {
				c.LastTransitionTime = now.LastTransitionTime
			}
			dropCondition(&s, appsv1.DeploymentProgressing)
		}
		setDeploymentCondition(&s, c)
	case now != nil && r.timedOut(*now):
		setDeploymentCondition(&s, r.m.condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, reasonTimedOut, what+" has timed out progressing."))
	}
	return r.writeStatus(s)
}

// progressing is true when there are more new, fewer old, or more ready replicas.
func progressing(was, is appsv1.DeploymentStatus) bool {
	return is.UpdatedReplicas > was.UpdatedReplicas ||
		is.Replicas-is.UpdatedReplicas < was.Replicas-was.UpdatedReplicas ||
		is.ReadyReplicas > was.ReadyReplicas || is.AvailableReplicas > was.AvailableReplicas
}

func (r *rollout) deadline(c appsv1.DeploymentCondition) time.Duration {
	end := c.LastUpdateTime.Add(time.Duration(*r.d.Spec.ProgressDeadlineSeconds) * time.Second)
	return end.Sub(r.m.reg.Clock())
}

func (r *rollout) timedOut(c appsv1.DeploymentCondition) bool {
	switch c.Reason {
	case reasonAvailable:
		return false
	case reasonTimedOut:
		return true
	}
	return r.deadline(c) < 0
}

// writeStatus writes a status that differs, and looks again when the deadline is over.
func (r *rollout) writeStatus(s appsv1.DeploymentStatus) error {
	if c := condition(s, appsv1.DeploymentProgressing); c != nil && r.d.Spec.ProgressDeadlineSeconds != nil && !r.d.Spec.Paused &&
		c.Reason != reasonTimedOut && c.Reason != reasonAvailable && !r.complete(s) {
		r.c.AddAfter(store.KeyOf(r.d), max(r.deadline(*c), 0)+10*time.Millisecond)
	}
	if equality.Semantic.DeepEqual(s, r.d.Status) {
		return nil
	}
	next := r.d.DeepCopy()
	next.Status = s
	_, err := update(r.m, registry.Deployments, registry.Status, next)
	return err
}
