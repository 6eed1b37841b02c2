package controllers

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

var cronJobKind = batchv1.SchemeGroupVersion.WithKind("CronJob")

// scheduleDelta is added to every wait for a scheduled time, as the original does.
const scheduleDelta = 100 * time.Millisecond

// syncCronJob drops Jobs beyond the history limits, keeps the list of active ones, and
// starts the run that is due. Of several that were missed (suspended meanwhile, say) only
// the last is made up for.
func (m *Manager) syncCronJob(c *controller[string], key string) error {
	cj, ok := get[*batchv1.CronJob](m, registry.CronJobs, key)
	if !ok {
		return nil
	}
	next := cj.DeepCopy()
	jobs := controlled[*batchv1.Job](m, cj.UID, registry.Jobs)
	if err := m.dropJobs(c, cj, jobs); err != nil {
		return err
	}
	m.activeJobs(c, next, jobs)
	err := m.startJob(c, next)
	if !equality.Semantic.DeepEqual(next.Status, cj.Status) {
		if _, failed := update(m, registry.CronJobs, registry.Status, next); failed != nil {
			return failed
		}
	}
	return err
}

// dropJobs deletes the oldest finished Jobs beyond the history limits.
func (m *Manager) dropJobs(c *controller[string], cj *batchv1.CronJob, jobs []*batchv1.Job) error {
	var good, bad []*batchv1.Job
	for _, j := range jobs {
		switch {
		case !finished(j):
		case succeeded(j):
			good = append(good, j)
		default:
			bad = append(bad, j)
		}
	}
	for _, of := range []struct {
		jobs []*batchv1.Job
		keep *int32
	}{{good, cj.Spec.SuccessfulJobsHistoryLimit}, {bad, cj.Spec.FailedJobsHistoryLimit}} {
		if of.keep == nil {
			continue
		}
		sort.SliceStable(of.jobs, func(i, j int) bool {
			a, b := of.jobs[i].Status.StartTime, of.jobs[j].Status.StartTime
			return a != nil && (b == nil || a.Before(b))
		})
		for i := 0; i < len(of.jobs)-int(*of.keep); i++ {
			j := of.jobs[i]
			_, _, err := m.reg.Delete(registry.Jobs, j.Namespace, j.Name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			c.events.Event(cj, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted job %v", j.Name)
		}
	}
	return nil
}

func succeeded(j *batchv1.Job) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
	})
}

// activeJobs brings status.active and lastSuccessfulTime up to date.
func (m *Manager) activeJobs(c *controller[string], cj *batchv1.CronJob, jobs []*batchv1.Job) {
	here := map[types.UID]bool{}
	for _, j := range jobs {
		here[j.UID] = true
		if !finished(j) {
			continue
		}
		if n := len(cj.Status.Active); n > 0 {
			cj.Status.Active = slices.DeleteFunc(cj.Status.Active, func(r corev1.ObjectReference) bool { return r.UID == j.UID })
			if len(cj.Status.Active) < n {
				c.events.Event(cj, corev1.EventTypeNormal, "SawCompletedJob", "Saw completed job: %s", j.Name)
			}
		}
		if t := j.Status.CompletionTime; t != nil && (cj.Status.LastSuccessfulTime == nil || cj.Status.LastSuccessfulTime.Before(t)) {
			cj.Status.LastSuccessfulTime = t
		}
	}
	cj.Status.Active = slices.DeleteFunc(cj.Status.Active, func(r corev1.ObjectReference) bool { return !here[r.UID] })
	if len(cj.Status.Active) == 0 {
		cj.Status.Active = nil
	}
}

// startJob makes the Job that is due, and looks again when the next one is.
func (m *Manager) startJob(c *controller[string], cj *batchv1.CronJob) error {
	if cj.DeletionTimestamp != nil || *cj.Spec.Suspend {
		return nil
	}
	sched, err := parseSchedule(cj.Spec.Schedule, cj.Spec.TimeZone)
	if err != nil {
		c.events.Event(cj, corev1.EventTypeWarning, "UnparseableSchedule", "unparseable schedule: %q : %s", cj.Spec.Schedule, err)
		return nil // waits for somebody to mend it
	}
	now := m.reg.Clock()
	if t := sched.next(now); !t.IsZero() {
		c.AddAfter(store.KeyOf(cj), t.Sub(now)+scheduleDelta)
	}
	since := cj.CreationTimestamp.Time
	if cj.Status.LastScheduleTime != nil {
		since = cj.Status.LastScheduleTime.Time
	}
	if d := cj.Spec.StartingDeadlineSeconds; d != nil {
		if limit := now.Add(-time.Duration(*d) * time.Second); limit.After(since) {
			since = limit
		}
	}
	at, due := sched.latest(since, now)
	if !due {
		return nil
	}
	if len(cj.Status.Active) > 0 {
		switch cj.Spec.ConcurrencyPolicy {
		case batchv1.ForbidConcurrent:
			c.events.Event(cj, corev1.EventTypeNormal, "JobAlreadyActive", "Not starting job because prior execution is running and concurrency policy is Forbid")
			return nil
		case batchv1.ReplaceConcurrent:
			if err := m.replaceJobs(cj); err != nil {
				return err
			}
		}
	}
	return m.newJob(c, cj, at)
}

func (m *Manager) replaceJobs(cj *batchv1.CronJob) error {
	for _, r := range cj.Status.Active {
		_, _, err := m.reg.Delete(registry.Jobs, r.Namespace, r.Name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	cj.Status.Active = nil
	return nil
}

// newJob makes the Job of a scheduled time. Its name tells the time, so that there is
// never a second one.
func (m *Manager) newJob(c *controller[string], cj *batchv1.CronJob, at time.Time) error {
	t := cj.Spec.JobTemplate.DeepCopy()
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cj.Namespace, Name: fmt.Sprintf("%s-%d", cj.Name, at.Unix()/60), Labels: t.Labels, Annotations: maps.Clone(t.Annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cj, cronJobKind)},
		},
		Spec: t.Spec,
	}
	j.Annotations = with(j.Annotations, batchv1.CronJobScheduledTimestampAnnotation, at.Format(time.RFC3339))
	o, err := m.reg.Create(registry.Jobs, j, false)
	if apierrors.IsAlreadyExists(err) {
		o, err = m.reg.Get(registry.Jobs, cj.Namespace, j.Name)
	} else if err == nil {
		c.events.Event(cj, corev1.EventTypeNormal, "SuccessfulCreate", "Created job %v", j.Name)
	}
	if err != nil {
		c.events.Event(cj, corev1.EventTypeWarning, "FailedCreate", "Error creating job: %v", err)
		return err
	}
	if !finished(o.(*batchv1.Job)) && !slices.ContainsFunc(cj.Status.Active, func(r corev1.ObjectReference) bool { return r.UID == o.GetUID() }) {
		cj.Status.Active = append(cj.Status.Active, corev1.ObjectReference{
			Kind: "Job", APIVersion: "batch/v1", Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
		})
	}
	last := metav1.NewTime(at.UTC())
	cj.Status.LastScheduleTime = &last
	return nil
}
