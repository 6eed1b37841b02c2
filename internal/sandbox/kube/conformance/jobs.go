package conformance

import (
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

var jobChecks = []check{
	{name: "Jobs", run: jobs},
	{name: "CronJobs", run: cronJobs},
	{name: "Suspend", run: suspend},
}

// job makes a Job whose pod runs that long and then exits with 0.
func job(name, runs string) *batchv1.Job {
	t := template(name)
	t.Annotations = map[string]string{annotationRun: runs}
	t.Spec.RestartPolicy = corev1.RestartPolicyNever
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{BackoffLimit: ptr.To[int32](0), Template: t}}
}

func jobIs(t batchv1.JobConditionType) func(*batchv1.Job) bool {
	return func(j *batchv1.Job) bool {
		return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == t && c.Status == corev1.ConditionTrue })
	}
}

// jobs: a finished Job keeps its pod until somebody deletes it; deleting it in the
// background takes the pod along; ttlSecondsAfterFinished does it alone; one that fails
// says so; a template cannot be changed.
func jobs(c *Case) {
	api := c.cs.BatchV1().Jobs(c.ns)
	must(api.Create(c.ctx, job("done", "0s"), metav1.CreateOptions{}))(c)
	j := await(c, api, "done", "is complete", jobIs(batchv1.JobComplete))
	if j.Status.CompletionTime == nil || j.Status.Succeeded != 1 || j.Status.Active != 0 {
		c.Errorf("status of the finished Job: %+v", j.Status)
	}
	p := c.awaitPods("app=done", "is kept", func(pods []corev1.Pod) bool { return len(pods) == 1 && pods[0].Status.Phase == corev1.PodSucceeded })[0]
	if ref := metav1.GetControllerOf(&p); ref == nil || ref.Kind != "Job" || ref.UID != j.UID {
		c.Errorf("the pod's controller is %+v", ref)
	}
	_, err := api.Patch(c.ctx, "done", "application/merge-patch+json", []byte(`{"spec":{"template":{"metadata":{"annotations":{"a":"b"}}}}}`), metav1.PatchOptions{})
	if !apierrors.IsInvalid(err) {
		c.Errorf("changing the template of a Job: %v", err)
	}
	background := metav1.DeletePropagationBackground
	if err := api.Delete(c.ctx, "done", metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: metav1.NewUIDPreconditions("other")}); !apierrors.IsConflict(err) {
		c.Errorf("deleting by another uid: %v", err)
	}
	if err := api.Delete(c.ctx, "done", metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: metav1.NewUIDPreconditions(string(j.UID))}); err != nil {
		c.Fatal(err)
	}
	awaitGone(c, c.cs.CoreV1().Pods(c.ns), p.Name, string(p.UID))

	short := job("short", "0s")
	short.Spec.TTLSecondsAfterFinished = ptr.To[int32](0)
	must(api.Create(c.ctx, short, metav1.CreateOptions{}))(c)
	awaitGone(c, api, "short", "")

	bad := job("bad", "0s")
	bad.Spec.Template.Annotations[annotationExit] = "3"
	must(api.Create(c.ctx, bad, metav1.CreateOptions{}))(c)
	if j := await(c, api, "bad", "has failed", jobIs(batchv1.JobFailed)); j.Status.Failed != 1 || j.Status.CompletionTime != nil {
		c.Errorf("status of the failed Job: %+v", j.Status)
	}
}

func cronJob(name, runs string) *batchv1.CronJob {
	// Once a year, so that nothing runs but what a check asks for.
	return &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.CronJobSpec{
		Schedule: "0 0 1 1 *", SuccessfulJobsHistoryLimit: ptr.To[int32](1),
		JobTemplate: batchv1.JobTemplateSpec{Spec: job(name, runs).Spec},
	}}
}

// miss makes a CronJob believe that it last ran that long ago, every minute since being
// missed.
func (c *Case) miss(name string, ago time.Duration) {
	c.Helper()
	api := c.cs.BatchV1().CronJobs(c.ns)
	at := time.Now().Add(-ago).UTC().Format(time.RFC3339)
	must(api.Patch(c.ctx, name, "application/merge-patch+json", []byte(`{"status":{"lastScheduleTime":"`+at+`"}}`), metav1.PatchOptions{}, "status"))(c)
	must(api.Patch(c.ctx, name, "application/merge-patch+json", []byte(`{"spec":{"schedule":"* * * * *"}}`), metav1.PatchOptions{}))(c)
}

// cronJobs: a run is a Job named after its minute, owned by the CronJob and listed as
// active while it runs; Jobs beyond the history limit go.
func cronJobs(c *Case) {
	api := c.cs.BatchV1().CronJobs(c.ns)
	must(api.Create(c.ctx, cronJob("tick", "0s"), metav1.CreateOptions{}))(c)
	c.miss("tick", 90*time.Second)
	cj := await(c, api, "tick", "has run", func(cj *batchv1.CronJob) bool {
		return cj.Status.LastSuccessfulTime != nil && len(cj.Status.Active) == 0
	})
	l := must(c.cs.BatchV1().Jobs(c.ns).List(c.ctx, metav1.ListOptions{}))(c)
	if len(l.Items) != 1 {
		c.Fatalf("there are %d Jobs", len(l.Items))
	}
	j := l.Items[0]
	if ref := metav1.GetControllerOf(&j); ref == nil || ref.Kind != "CronJob" || ref.UID != cj.UID || !strings.HasPrefix(j.Name, "tick-") {
		c.Errorf("Job %s is controlled by %+v", j.Name, ref)
	}
	if !cj.Status.LastScheduleTime.After(time.Now().Add(-2 * time.Minute)) {
		c.Errorf("last scheduled at %s", cj.Status.LastScheduleTime)
	}
	must(api.Patch(c.ctx, "tick", "application/merge-patch+json", []byte(`{"spec":{"successfulJobsHistoryLimit":0}}`), metav1.PatchOptions{}))(c)
	awaitGone(c, c.cs.BatchV1().Jobs(c.ns), j.Name, string(j.UID))
}

// suspend: a suspended CronJob starts nothing; the run that it missed comes when it goes on.
func suspend(c *Case) {
	api := c.cs.BatchV1().CronJobs(c.ns)
	cj := cronJob("held", "forever")
	cj.Spec.Suspend = ptr.To(true)
	must(api.Create(c.ctx, cj, metav1.CreateOptions{}))(c)
	c.miss("held", 90*time.Second)
	made := must(api.Get(c.ctx, "held", metav1.GetOptions{}))(c)
	if len(made.Status.Active) != 0 || made.Generation != 2 {
		c.Errorf("a suspended CronJob has %d active, generation %d", len(made.Status.Active), made.Generation)
	}
	must(api.Patch(c.ctx, "held", "application/merge-patch+json", []byte(`{"spec":{"suspend":false}}`), metav1.PatchOptions{}))(c)
	now := await(c, api, "held", "runs", func(cj *batchv1.CronJob) bool { return len(cj.Status.Active) == 1 })
	if ref := now.Status.Active[0]; ref.Kind != "Job" || ref.UID == "" || ref.Namespace != c.ns {
		c.Errorf("active is %+v", ref)
	}
}
