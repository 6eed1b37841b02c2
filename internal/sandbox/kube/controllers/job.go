package controllers

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

var jobKind = batchv1.SchemeGroupVersion.WithKind("Job")

// syncJob starts the pods that a Job still needs and counts those that have ended, which
// stay. Completions have no indexes of their own.
func (m *Manager) syncJob(c *controller[string], key string) error {
	j, ok := get[*batchv1.Job](m, registry.Jobs, key)
	if !ok {
		return nil
	}
	if finished(j) {
		return m.expireJob(c, j)
	}
	if j.DeletionTimestamp != nil {
		return nil
	}
	s := j.Status.DeepCopy()
	s.Active, s.Succeeded, s.Failed = 0, 0, 0
	ready, terminating := int32(0), int32(0)
	var running []*corev1.Pod
	for _, p := range controlled[*corev1.Pod](m, j.UID, registry.Pods) {
		switch {
		case p.Status.Phase == corev1.PodSucceeded:
			s.Succeeded++
		case p.Status.Phase == corev1.PodFailed:
			s.Failed++
		case p.DeletionTimestamp != nil:
			terminating++
		default:
			running = append(running, p)
			if registry.PodReady(p) {
				ready++
			}
		}
	}
	s.Ready, s.Terminating = &ready, &terminating
	now := m.reg.Now()
	if s.StartTime == nil && !*j.Spec.Suspend {
		s.StartTime = &now
	}
	if err := m.jobPods(c, j, s, running, terminating); err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(*s, j.Status) {
		return nil
	}
	next := j.DeepCopy()
	next.Status = *s
	_, err := update(m, registry.Jobs, registry.Status, next)
	return err
}

// jobPods decides what becomes of a Job: failed, complete, or with how many pods it goes on.
func (m *Manager) jobPods(c *controller[string], j *batchv1.Job, s *batchv1.JobStatus, running []*corev1.Pod, terminating int32) error {
	end := func(t batchv1.JobConditionType, reason, message string) {
		now := m.reg.Now()
		add := func(t batchv1.JobConditionType) {
			s.Conditions = append(s.Conditions, batchv1.JobCondition{Type: t, Status: corev1.ConditionTrue,
				Reason: reason, Message: message, LastProbeTime: now, LastTransitionTime: now})
		}
		if t == batchv1.JobComplete {
			add(batchv1.JobSuccessCriteriaMet)
			s.CompletionTime = &now
		}
		add(t)
		s.Active, s.Ready = 0, ptr.To[int32](0)
		c.events.Event(j, corev1.EventTypeNormal, string(t), "Job %s", message)
	}
	switch want := j.Spec.Completions; {
	case s.Failed > *j.Spec.BackoffLimit:
		end(batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit")
		return m.deletePods(running)
	case want != nil && s.Succeeded >= *want, want == nil && s.Succeeded > 0 && len(running) == 0:
		end(batchv1.JobComplete, batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods")
		return m.deletePods(running)
	}
	target := *j.Spec.Parallelism
	switch {
	case *j.Spec.Suspend:
		target = 0
	case j.Spec.Completions != nil:
		target = min(target, *j.Spec.Completions-s.Succeeded)
	case s.Succeeded > 0:
		target = min(target, int32(len(running))) // a work queue: no new pods once one has succeeded
	}
	s.Active = int32(len(running))
	if n := int32(len(running)) - target; n > 0 {
		s.Active = target
		return m.deletePods(running[:n])
	}
	going := int32(0)
	if p := j.Spec.PodReplacementPolicy; p != nil && *p == batchv1.Failed {
		going = terminating // replaced only once they are gone
	}
	for n := int32(len(running)); n+going < target; n++ {
		p := podFrom(j.Spec.Template, j.Namespace, metav1.NewControllerRef(j, jobKind))
		p.GenerateName = j.Name + "-"
		o, err := m.reg.Create(registry.Pods, p, false)
		if err != nil {
			return fmt.Errorf("creating a pod of Job %s/%s: %w", j.Namespace, j.Name, err)
		}
		s.Active++
		c.events.Event(j, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %s", o.GetName())
	}
	return nil
}

func (m *Manager) deletePods(pods []*corev1.Pod) error {
	for _, p := range pods {
		if err := m.deletePod(p); err != nil {
			return err
		}
	}
	return nil
}

func finished(j *batchv1.Job) bool {
	for _, c := range j.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// expireJob deletes a finished Job when its ttlSecondsAfterFinished is over.
func (m *Manager) expireJob(c *controller[string], j *batchv1.Job) error {
	if j.Spec.TTLSecondsAfterFinished == nil || j.DeletionTimestamp != nil {
		return nil
	}
	var ended metav1.Time
	for _, cond := range j.Status.Conditions {
		ended = cond.LastTransitionTime
	}
	left := ended.Add(time.Duration(*j.Spec.TTLSecondsAfterFinished) * time.Second).Sub(m.reg.Clock())
	if left > 0 {
		c.AddAfter(store.KeyOf(j), left)
		return nil
	}
	_, _, err := m.reg.Delete(registry.Jobs, j.Namespace, j.Name, metav1.DeleteOptions{
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground), Preconditions: metav1.NewUIDPreconditions(string(j.UID)),
	})
	return err
}
