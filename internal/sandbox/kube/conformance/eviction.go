package conformance

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

var evictionChecks = []check{
	{name: "BudgetStatus", run: budgetStatus},
	{name: "BudgetOfJobs", run: budgetOfJobs},
	{name: "Eviction", run: eviction},
	{name: "EvictionPreconditions", run: evictionPreconditions},
	{name: "EvictionOfUnready", run: evictionOfUnready},
	{name: "TwoBudgets", run: twoBudgets},
}

func budget(name, app string, change func(*policyv1.PodDisruptionBudgetSpec)) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector(app)}}
	change(&b.Spec)
	return b
}

func minAvailable(v string) func(*policyv1.PodDisruptionBudgetSpec) {
	return func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable = ptr.To(intstr.Parse(v)) }
}

func maxUnavailable(v string) func(*policyv1.PodDisruptionBudgetSpec) {
	return func(s *policyv1.PodDisruptionBudgetSpec) { s.MaxUnavailable = ptr.To(intstr.Parse(v)) }
}

// guarded makes a Deployment with a budget and waits until both have settled.
func (c *Case) guarded(name string, replicas int32, change func(*policyv1.PodDisruptionBudgetSpec)) []corev1.Pod {
	c.Helper()
	pdbs := c.cs.PolicyV1().PodDisruptionBudgets(c.ns)
	must(pdbs.Create(c.ctx, budget(name, name, change), metav1.CreateOptions{}))(c)
	must(c.cs.AppsV1().Deployments(c.ns).Create(c.ctx, deployment(name, replicas), metav1.CreateOptions{}))(c)
	pods := c.awaitPods("app="+name, "are ready", whole(int(replicas)))
	await(c, pdbs, name, "counts its pods", func(b *policyv1.PodDisruptionBudget) bool {
		return b.Status.CurrentHealthy == replicas && b.Status.ExpectedPods == replicas && b.Status.ObservedGeneration == b.Generation
	})
	return pods
}

// budgetStatus: what a budget allows, in its own words.
func budgetStatus(c *Case) {
	for i, of := range []struct {
		spec                                func(*policyv1.PodDisruptionBudgetSpec)
		allowed, healthy, desired, expected int32
	}{
		{minAvailable("2"), 1, 3, 2, 3},
		{minAvailable("50%"), 1, 3, 2, 3},
		{maxUnavailable("1"), 1, 3, 2, 3},
		{maxUnavailable("0"), 0, 3, 3, 3},
	} {
		name := fmt.Sprintf("b%d", i)
		c.guarded(name, 3, of.spec)
		b := must(c.cs.PolicyV1().PodDisruptionBudgets(c.ns).Get(c.ctx, name, metav1.GetOptions{}))(c)
		s := b.Status
		if s.DisruptionsAllowed != of.allowed || s.CurrentHealthy != of.healthy || s.DesiredHealthy != of.desired || s.ExpectedPods != of.expected {
			c.Errorf("%+v: allowed %d, healthy %d, desired %d, expected %d", b.Spec, s.DisruptionsAllowed, s.CurrentHealthy, s.DesiredHealthy, s.ExpectedPods)
		}
		want := "SufficientPods"
		if of.allowed == 0 {
			want = "InsufficientPods"
		}
		if len(s.Conditions) != 1 || s.Conditions[0].Type != policyv1.DisruptionAllowedCondition || s.Conditions[0].Reason != want {
			c.Errorf("%+v: conditions %+v", b.Spec, s.Conditions)
		}
	}
}

// budgetOfJobs: a share of pods whose owner has no scale cannot be worked out; nothing is
// allowed then, and the condition says why.
func budgetOfJobs(c *Case) {
	pdbs := c.cs.PolicyV1().PodDisruptionBudgets(c.ns)
	must(pdbs.Create(c.ctx, budget("work", "work", maxUnavailable("1")), metav1.CreateOptions{}))(c)
	must(c.cs.BatchV1().Jobs(c.ns).Create(c.ctx, job("work", "forever"), metav1.CreateOptions{}))(c)
	b := await(c, pdbs, "work", "fails", func(b *policyv1.PodDisruptionBudget) bool {
		return len(b.Status.Conditions) == 1 && b.Status.Conditions[0].Reason == policyv1.SyncFailedReason
	})
	if cond := b.Status.Conditions[0]; cond.Status != metav1.ConditionFalse || !strings.Contains(cond.Message, "does not implement the scale subresource") || b.Status.DisruptionsAllowed != 0 {
		c.Errorf("allowed %d, condition %+v", b.Status.DisruptionsAllowed, cond)
	}
}

func (c *Case) evict(name string, o *metav1.DeleteOptions) error {
	return c.cs.CoreV1().Pods(c.ns).EvictV1(c.ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name}, DeleteOptions: o})
}

// eviction: nothing while the budget allows nothing, with 429 that names the budget and
// what it counts; a pod that goes says why; the budget allows the next one when the
// replacement is ready.
func eviction(c *Case) {
	pods := c.guarded("web", 3, minAvailable("3"))
	err := c.evict(pods[0].Name, nil)
	s := statusOf(err)
	if !apierrors.IsTooManyRequests(err) || s.Message != "Cannot evict pod as it would violate the pod's disruption budget." {
		c.Fatalf("an eviction that the budget does not allow: %v", err)
	}
	want := "The disruption budget web needs 3 healthy pods and has 3 currently"
	if len(s.Details.Causes) != 1 || s.Details.Causes[0].Type != policyv1.DisruptionBudgetCause || s.Details.Causes[0].Message != want || s.Details.RetryAfterSeconds != 0 {
		c.Errorf("details %+v", s.Details)
	}
	pdbs, api := c.cs.PolicyV1().PodDisruptionBudgets(c.ns), c.cs.CoreV1().Pods(c.ns)
	allows := func(b *policyv1.PodDisruptionBudget) bool {
		return b.Status.DisruptionsAllowed == 1 && len(b.Status.DisruptedPods) == 0 && b.Status.ObservedGeneration == 2
	}
	must(pdbs.Patch(c.ctx, "web", types.MergePatchType, []byte(`{"spec":{"minAvailable":2}}`), metav1.PatchOptions{}))(c)
	await(c, pdbs, "web", "allows one", allows)
	must(api.Patch(c.ctx, pods[1].Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":["eksbg.dev/look"]}}`), metav1.PatchOptions{}))(c)
	if err := c.evict(pods[1].Name, nil); err != nil {
		c.Fatalf("an eviction that the budget allows: %v", err)
	}
	going := await(c, api, pods[1].Name, "is going", func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	why := ""
	for _, cond := range going.Status.Conditions {
		if cond.Type == corev1.DisruptionTarget && cond.Status == corev1.ConditionTrue {
			why = cond.Reason
		}
	}
	if why != "EvictionByEvictionAPI" {
		c.Errorf("the evicted pod's condition DisruptionTarget has reason %q", why)
	}
	if err := c.evict(pods[1].Name, nil); err != nil {
		c.Errorf("eviction of a pod that is going already: %v", err)
	}
	must(api.Patch(c.ctx, pods[1].Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))(c)
	awaitGone(c, api, pods[1].Name, string(going.UID))
	await(c, pdbs, "web", "allows the next", allows)
	if err := c.evict("none", nil); !apierrors.IsNotFound(err) {
		c.Errorf("eviction of no pod: %v", err)
	}
}

// evictionPreconditions: another uid is a Conflict, and costs a disruption all the same;
// a dry run costs nothing.
func evictionPreconditions(c *Case) {
	pods := c.guarded("web", 3, minAvailable("1"))
	pdbs := c.cs.PolicyV1().PodDisruptionBudgets(c.ns)
	if err := c.evict(pods[0].Name, &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		c.Errorf("dry run: %v", err)
	}
	if b := must(pdbs.Get(c.ctx, "web", metav1.GetOptions{}))(c); b.Status.DisruptionsAllowed != 2 {
		c.Errorf("after a dry run %d are allowed", b.Status.DisruptionsAllowed)
	}
	err := c.evict(pods[0].Name, metav1.NewPreconditionDeleteOptions("0a1b2c3d-0000-4000-8000-000000000000"))
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "does not match the UID in record") {
		c.Errorf("another uid: %v", err)
	}
	b := must(pdbs.Get(c.ctx, "web", metav1.GetOptions{}))(c)
	if _, noted := b.Status.DisruptedPods[pods[0].Name]; !noted || b.Status.DisruptionsAllowed != 1 {
		c.Errorf("after an eviction by another uid %d are allowed, disrupted %v", b.Status.DisruptionsAllowed, b.Status.DisruptedPods)
	}
	if err := c.evict(pods[0].Name, metav1.NewPreconditionDeleteOptions(string(pods[0].UID))); err != nil {
		c.Errorf("its own uid: %v", err)
	}
}

// evictionOfUnready: pods that are not ready count for nothing, so they go while the
// budget is whole without them, or when the budget says so; finished ones always go.
func evictionOfUnready(c *Case) {
	pdbs := c.cs.PolicyV1().PodDisruptionBudgets(c.ns)
	must(pdbs.Create(c.ctx, budget("sick", "sick", minAvailable("1")), metav1.CreateOptions{}))(c)
	must(c.cs.AppsV1().Deployments(c.ns).Create(c.ctx, deployment("sick", 1, func(d *appsv1.Deployment) {
		d.Spec.Template.Annotations = map[string]string{annotationReady: "never"}
	}), metav1.CreateOptions{}))(c)
	p := c.awaitPods("app=sick", "runs unready", func(pods []corev1.Pod) bool {
		return len(pods) == 1 && pods[0].Status.Phase == corev1.PodRunning && !podReady(pods[0])
	})[0]
	await(c, pdbs, "sick", "knows", func(b *policyv1.PodDisruptionBudget) bool { return b.Status.ExpectedPods == 1 })
	if err := c.evict(p.Name, nil); !apierrors.IsTooManyRequests(err) {
		c.Errorf("while the budget wants one: %v", err)
	}
	must(pdbs.Patch(c.ctx, "sick", "application/merge-patch+json", []byte(`{"spec":{"unhealthyPodEvictionPolicy":"AlwaysAllow"}}`), metav1.PatchOptions{}))(c)
	if err := c.evict(p.Name, nil); err != nil {
		c.Errorf("under AlwaysAllow: %v", err)
	}
	must(pdbs.Create(c.ctx, budget("done", "done", minAvailable("1")), metav1.CreateOptions{}))(c)
	must(c.cs.BatchV1().Jobs(c.ns).Create(c.ctx, job("done", "0s"), metav1.CreateOptions{}))(c)
	await(c, c.cs.BatchV1().Jobs(c.ns), "done", "is complete", jobIs(batchv1.JobComplete))
	done := c.awaitPods("app=done", "has ended", func(pods []corev1.Pod) bool { return len(pods) == 1 && pods[0].Status.Phase == corev1.PodSucceeded })[0]
	if err := c.evict(done.Name, nil); err != nil {
		c.Errorf("of a finished pod: %v", err)
	}
}

// twoBudgets: a pod under two budgets can never be evicted. (Their statuses are no guide:
// the disruption controller keeps only one of them up to date with the pod.)
func twoBudgets(c *Case) {
	must(c.cs.AppsV1().Deployments(c.ns).Create(c.ctx, deployment("web", 1), metav1.CreateOptions{}))(c)
	pods := c.awaitPods("app=web", "are ready", whole(1))
	for _, name := range []string{"one", "two"} {
		must(c.cs.PolicyV1().PodDisruptionBudgets(c.ns).Create(c.ctx, budget(name, "web", minAvailable("0")), metav1.CreateOptions{}))(c)
	}
	err := c.evict(pods[0].Name, nil)
	if s := statusOf(err); s.Code != 500 || !strings.Contains(s.Message, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.") {
		c.Errorf("eviction under two budgets: %v", err)
	}
}
