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
	{name: "StatefulSetPartition", run: partition},
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
