package cluster

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// History limits of a CronJob that states none (batch/v1 CronJobSpec).
const (
	defaultKeepSucceeded = 3
	defaultKeepFailed    = 1
)

// job keeps what is used of a Job.
func job(j *batchv1.Job) Job {
	out := Job{
		Owner:     Owner{APIVersion: "batch/v1", Namespace: j.Namespace, Kind: "Job", Name: j.Name, UID: string(j.UID)},
		Active:    j.Status.Active,
		Suspended: j.Spec.Suspend != nil && *j.Spec.Suspend,
		CreatedAt: j.CreationTimestamp.Time,
		TTL:       j.Spec.TTLSecondsAfterFinished,
	}
	if ref := controller(&j.ObjectMeta); ref != nil {
		if by := ownerOf(j.Namespace, *ref); isCronJob(by) {
			out.CronJob = by
		} else {
			out.Controller = by
		}
	}
	for _, c := range j.Status.Conditions {
		if c.Status != corev1.ConditionTrue || c.Type != batchv1.JobComplete && c.Type != batchv1.JobFailed {
			continue
		}
		// The TTL controller counts from the same moment.
		out.Finished, out.Failed, out.FinishedAt = true, c.Type == batchv1.JobFailed, c.LastTransitionTime.Time
	}
	return out
}

// cronJob keeps what is used of a CronJob.
func cronJob(j *batchv1.CronJob) CronJob {
	out := CronJob{
		Owner:           Owner{APIVersion: "batch/v1", Namespace: j.Namespace, Kind: "CronJob", Name: j.Name, UID: string(j.UID)},
		ResourceVersion: j.ResourceVersion,
		Suspended:       j.Spec.Suspend != nil && *j.Spec.Suspend,
		KeepSucceeded:   defaultKeepSucceeded,
		KeepFailed:      defaultKeepFailed,
		TTL:             j.Spec.JobTemplate.Spec.TTLSecondsAfterFinished,
		Mark:            j.Annotations[SuspendAnnotation],
	}
	if n := j.Spec.SuccessfulJobsHistoryLimit; n != nil {
		out.KeepSucceeded = *n
	}
	if n := j.Spec.FailedJobsHistoryLimit; n != nil {
		out.KeepFailed = *n
	}
	return out
}

func isCronJob(o Owner) bool {
	return o.Kind == "CronJob" && group(o.APIVersion) == batchv1.GroupName
}
