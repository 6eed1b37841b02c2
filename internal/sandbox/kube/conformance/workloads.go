package conformance

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

var workloadChecks = []check{
	{name: "Rollout", run: rollout},
	{name: "Recreate", run: recreate},
	{name: "Paused", run: paused},
	{name: "Deadline", run: progressDeadline},
	{name: "StatefulSetOrder", run: inOrder},
	{name: "StatefulSetPartition", run: partition},
	{name: "StatefulSetMaxUnavailable", run: severalAtOnce},
	{name: "StatefulSetHeldBack", run: heldBack},
	{name: "OnDelete", run: onDelete},
}

// rollout: a restart of a Deployment makes a new generation, replaces every pod without
// ever having fewer available than allowed, and says so in its status.
func rollout(c *Case) {
	deps := c.cs.AppsV1().Deployments(c.ns)
	must(deps.Create(c.ctx, deployment("web", 3), metav1.CreateOptions{}))(c)
	d := await(c, deps, "web", "is rolled out", rolledOut)
	before := names(c.awaitPods("app=web", "are ready", whole(3)))
	if d.Generation != 1 || d.Annotations["deployment.kubernetes.io/revision"] != "1" {
		c.Errorf("generation %d, revision %q", d.Generation, d.Annotations["deployment.kubernetes.io/revision"])
	}
	d = must(deps.Patch(c.ctx, "web", types.StrategicMergePatchType, restart("2026-11-30T10:00:00Z"), metav1.PatchOptions{}))(c)
	if d.Generation != 2 || d.Status.ObservedGeneration != 1 && d.Status.ObservedGeneration != 2 {
		c.Errorf("after the patch generation %d, observed %d", d.Generation, d.Status.ObservedGeneration)
	}
	least := int32(3)
	d = await(c, deps, "web", "is rolled out again", func(d *appsv1.Deployment) bool {
		least = min(least, d.Status.AvailableReplicas)
		return rolledOut(d) && d.Generation == 2
	})
	if least < 3 { // 25 % of 3, rounded down, may be away
		c.Errorf("only %d of 3 were available meanwhile", least)
	}
	after := names(c.awaitPods("app=web", "are three new ones", whole(3)))
	for _, n := range after {
		if slices.Contains(before, n) {
			c.Errorf("pod %s outlived the restart", n)
		}
	}
	for _, cond := range d.Status.Conditions {
		if cond.Type == appsv1.DeploymentProgressing && cond.Reason != "NewReplicaSetAvailable" {
			c.Errorf("condition Progressing: %s", cond.Reason)
		}
	}
}

// partition: a StatefulSet updates from the highest ordinal down to its partition, one at
// a time; a pod below it that is deleted comes back at the old revision.
func partition(c *Case) {
	sets := c.cs.AppsV1().StatefulSets(c.ns)
	must(sets.Create(c.ctx, statefulSet("db", 3, func(s *appsv1.StatefulSet) {
		s.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To[int32](2)}
	}), metav1.CreateOptions{}))(c)
	c.awaitPods("app=db", "are ready", whole(3))
	before := await(c, sets, "db", "is ready", func(s *appsv1.StatefulSet) bool { return s.Status.ReadyReplicas == 3 && s.Status.CurrentReplicas == 3 })
	must(sets.Patch(c.ctx, "db", types.StrategicMergePatchType, restart("2026-11-30T10:00:00Z"), metav1.PatchOptions{}))(c)
	s := await(c, sets, "db", "has one updated pod", func(s *appsv1.StatefulSet) bool {
		return s.Status.ObservedGeneration == s.Generation && s.Status.UpdatedReplicas == 1 && s.Status.ReadyReplicas == 3 &&
			s.Status.UpdateRevision != before.Status.UpdateRevision
	})
	if s.Status.CurrentRevision != before.Status.CurrentRevision || s.Status.UpdateRevision == s.Status.CurrentRevision {
		c.Errorf("revisions are %s and %s, were %s", s.Status.CurrentRevision, s.Status.UpdateRevision, before.Status.CurrentRevision)
	}
	pods := c.awaitPods("app=db", "are ready again", whole(3))
	for i, want := range []string{s.Status.CurrentRevision, s.Status.CurrentRevision, s.Status.UpdateRevision} {
		if got := pods[i].Labels[appsv1.ControllerRevisionHashLabelKey]; got != want {
			c.Errorf("pod %s has revision %s, want %s", pods[i].Name, got, want)
		}
	}
	uid := pods[0].UID
	if err := c.cs.CoreV1().Pods(c.ns).Delete(c.ctx, "db-0", metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
	p := await(c, c.cs.CoreV1().Pods(c.ns), "db-0", "is a new pod", func(p *corev1.Pod) bool { return p.UID != uid && podReady(*p) })
	if got := p.Labels[appsv1.ControllerRevisionHashLabelKey]; got != s.Status.CurrentRevision {
		c.Errorf("the new db-0 has revision %s, want %s", got, s.Status.CurrentRevision)
	}
}

func names(pods []corev1.Pod) []string {
	var out []string
	for _, p := range pods {
		out = append(out, strings.Clone(p.Name))
	}
	return out
}

// recreate: no new pod before the last old one is gone.
func recreate(c *Case) {
	deps := c.cs.AppsV1().Deployments(c.ns)
	must(deps.Create(c.ctx, deployment("web", 2, func(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType }), metav1.CreateOptions{}))(c)
	before := names(c.awaitPods("app=web", "are ready", whole(2)))
	must(deps.Patch(c.ctx, "web", types.StrategicMergePatchType, restart("2026-11-30T10:00:00Z"), metav1.PatchOptions{}))(c)
	c.awaitPods("app=web", "are two new ones", func(now []corev1.Pod) bool {
		olds, news := 0, 0
		for _, p := range now {
			if slices.Contains(before, p.Name) {
				olds++
			} else {
				news++
			}
		}
		if olds > 0 && news > 0 {
			c.Errorf("old and new pods at once:%s", describePods(now))
			return true
		}
		return olds == 0 && whole(2)(now)
	})
}

// paused: a paused Deployment does not roll; its pods come back at the old template.
func paused(c *Case) {
	deps := c.cs.AppsV1().Deployments(c.ns)
	must(deps.Create(c.ctx, deployment("web", 1), metav1.CreateOptions{}))(c)
	old := c.awaitPods("app=web", "is ready", whole(1))[0]
	must(deps.Patch(c.ctx, "web", types.MergePatchType, []byte(`{"spec":{"paused":true}}`), metav1.PatchOptions{}))(c)
	must(deps.Patch(c.ctx, "web", types.StrategicMergePatchType, restart("2026-11-30T10:00:00Z"), metav1.PatchOptions{}))(c)
	d := await(c, deps, "web", "is observed", func(d *appsv1.Deployment) bool { return d.Status.ObservedGeneration == 3 })
	if d.Status.UpdatedReplicas != 0 || d.Status.Replicas != 1 {
		c.Errorf("paused, and %d of %d are updated", d.Status.UpdatedReplicas, d.Status.Replicas)
	}
	if err := c.evict(old.Name, nil); err != nil {
		c.Fatal(err)
	}
	p := c.awaitPods("app=web", "is a new one", func(now []corev1.Pod) bool { return whole(1)(now) && now[0].Name != old.Name })[0]
	if p.Labels["pod-template-hash"] != old.Labels["pod-template-hash"] {
		c.Errorf("the new pod is of template %s, the old one was of %s", p.Labels["pod-template-hash"], old.Labels["pod-template-hash"])
	}
}

// progressDeadline: a rollout whose pods do not get ready is said to have exceeded its
// deadline; the old pods stay.
func progressDeadline(c *Case) {
	deps := c.cs.AppsV1().Deployments(c.ns)
	must(deps.Create(c.ctx, deployment("web", 1, func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = ptr.To[int32](2) }), metav1.CreateOptions{}))(c)
	old := c.awaitPods("app=web", "is ready", whole(1))[0]
	await(c, deps, "web", "is rolled out", rolledOut)
	broken := `{"spec":{"template":{"metadata":{"annotations":{"` + annotationReady + `":"never"}}}}}`
	must(deps.Patch(c.ctx, "web", types.MergePatchType, []byte(broken), metav1.PatchOptions{}))(c)
	d := await(c, deps, "web", "exceeds its deadline", func(d *appsv1.Deployment) bool {
		return slices.ContainsFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
			return c.Type == appsv1.DeploymentProgressing && c.Reason == "ProgressDeadlineExceeded" && c.Status == corev1.ConditionFalse
		})
	})
	if d.Status.AvailableReplicas != 1 {
		c.Errorf("%d are available", d.Status.AvailableReplicas)
	}
	if p := must(c.cs.CoreV1().Pods(c.ns).Get(c.ctx, old.Name, metav1.GetOptions{}))(c); p.DeletionTimestamp != nil {
		c.Error("the old pod goes")
	}
}

// inOrder: a StatefulSet replaces its pods from the highest ordinal down, each under its
// own name, never two at once.
func inOrder(c *Case) {
	sets := c.cs.AppsV1().StatefulSets(c.ns)
	must(sets.Create(c.ctx, statefulSet("db", 3), metav1.CreateOptions{}))(c)
	old := map[string]types.UID{}
	for _, p := range c.awaitPods("app=db", "are ready", whole(3)) {
		old[p.Name] = p.UID
	}
	await(c, sets, "db", "is settled", func(s *appsv1.StatefulSet) bool { return s.Status.CurrentReplicas == 3 && s.Status.ReadyReplicas == 3 })
	must(sets.Patch(c.ctx, "db", types.StrategicMergePatchType, restart("2026-11-30T10:00:00Z"), metav1.PatchOptions{}))(c)
	var replaced []string
	c.awaitPods("app=db", "are replaced", func(now []corev1.Pod) bool {
		away := 3
		for _, p := range now {
			if podReady(p) && p.DeletionTimestamp == nil {
				away--
			}
			if p.UID != old[p.Name] && !slices.Contains(replaced, p.Name) {
				replaced = append(replaced, p.Name)
			}
		}
		if away > 1 {
			c.Errorf("%d are away at once:%s", away, describePods(now))
			return true
		}
		return len(replaced) == 3 && whole(3)(now)
	})
	if want := []string{"db-2", "db-1", "db-0"}; !slices.Equal(replaced, want) {
		c.Errorf("replaced in the order %v, want %v", replaced, want)
	}
	await(c, sets, "db", "has one revision", func(s *appsv1.StatefulSet) bool {
		return s.Status.CurrentRevision == s.Status.UpdateRevision && s.Status.UpdatedReplicas == 3 && s.Status.ReadyReplicas == 3 && s.Status.ObservedGeneration == 2
	})
}

// onDelete: a restart of an OnDelete StatefulSet replaces nothing; a pod that is deleted
// comes back at the new revision.
func onDelete(c *Case) {
	sets := c.cs.AppsV1().StatefulSets(c.ns)
	must(sets.Create(c.ctx, statefulSet("db", 2, func(s *appsv1.StatefulSet) {
		s.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
	}), metav1.CreateOptions{}))(c)
	pods := c.awaitPods("app=db", "are ready", whole(2))
	must(sets.Patch(c.ctx, "db", types.StrategicMergePatchType, restart("2026-11-30T10:00:00Z"), metav1.PatchOptions{}))(c)
	s := await(c, sets, "db", "is observed", func(s *appsv1.StatefulSet) bool {
		return s.Status.ObservedGeneration == 2 && s.Status.UpdateRevision != pods[0].Labels[appsv1.ControllerRevisionHashLabelKey]
	})
	if s.Status.UpdatedReplicas != 0 {
		c.Errorf("%d are updated", s.Status.UpdatedReplicas)
	}
	if err := c.evict("db-1", nil); err != nil {
		c.Fatal(err)
	}
	p := await(c, c.cs.CoreV1().Pods(c.ns), "db-1", "is a new pod", func(p *corev1.Pod) bool { return p.UID != pods[1].UID && podReady(*p) })
	if got := p.Labels[appsv1.ControllerRevisionHashLabelKey]; got != s.Status.UpdateRevision {
		c.Errorf("the new db-1 has revision %s, want %s", got, s.Status.UpdateRevision)
	}
	await(c, sets, "db", "counts it", func(s *appsv1.StatefulSet) bool { return s.Status.UpdatedReplicas == 1 && s.Status.ReadyReplicas == 2 })
}
