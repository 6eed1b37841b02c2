package conformance

import (
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

var fargateChecks = []check{
	{name: "FargatePod", run: fargatePod},
	{name: "FargateEnd", run: fargateEnd},
	{name: "Kubelets", run: kubelets, alone: true},
}

// fargatePod: a pod that a profile takes is marked, scheduled by Fargate, and gets a node
// of its own that goes with it.
func fargatePod(c *Case) {
	pods, nodes := c.cs.CoreV1().Pods(c.ns), c.cs.CoreV1().Nodes()
	p := must(pods.Create(c.ctx, pod("one"), metav1.CreateOptions{}))(c)
	if p.Spec.SchedulerName != "fargate-scheduler" || p.Labels["eks.amazonaws.com/fargate-profile"] == "" || p.Annotations["CapacityProvisioned"] != "0.25vCPU 0.5GB" {
		c.Errorf("scheduler %q, labels %v, annotations %v", p.Spec.SchedulerName, p.Labels, p.Annotations)
	}
	p = await(c, pods, "one", "is ready", func(p *corev1.Pod) bool { return podReady(*p) })
	if p.Status.PodIP == "" || p.Status.Phase != corev1.PodRunning || p.Status.StartTime == nil || !strings.HasPrefix(p.Spec.NodeName, "fargate-ip-") {
		c.Errorf("node %q, status %+v", p.Spec.NodeName, p.Status)
	}
	n := must(nodes.Get(c.ctx, p.Spec.NodeName, metav1.GetOptions{}))(c)
	if n.Labels["eks.amazonaws.com/compute-type"] != "fargate" || !strings.HasPrefix(n.Status.NodeInfo.KubeletVersion, "v"+c.Minor+".") || !nodeReady(n) {
		c.Errorf("node %s has labels %v, kubelet %s", n.Name, n.Labels, n.Status.NodeInfo.KubeletVersion)
	}
	if !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == "eks.amazonaws.com/compute-type" && t.Effect == corev1.TaintEffectNoSchedule
	}) {
		c.Errorf("taints %v", n.Spec.Taints)
	}
	if err := pods.Delete(c.ctx, "one", metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
	awaitGone(c, pods, "one", string(p.UID))
	awaitGone(c, nodes, n.Name, string(n.UID))
	_, err := pods.Patch(c.ctx, "one", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		c.Errorf("a patch of the pod that is gone: %v", err)
	}
}

func nodeReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// fargateEnd: a pod that has ended keeps its node until it is deleted.
func fargateEnd(c *Case) {
	pods, nodes := c.cs.CoreV1().Pods(c.ns), c.cs.CoreV1().Nodes()
	must(pods.Create(c.ctx, pod("once", func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		p.Annotations = map[string]string{annotationRun: "0s"}
	}), metav1.CreateOptions{}))(c)
	p := await(c, pods, "once", "has ended", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	st := p.Status.ContainerStatuses
	if len(st) != 1 || st[0].State.Terminated == nil || st[0].State.Terminated.Reason != "Completed" || st[0].State.Terminated.FinishedAt.IsZero() {
		c.Errorf("container statuses %+v", st)
	}
	n := must(nodes.Get(c.ctx, p.Spec.NodeName, metav1.GetOptions{}))(c)
	if err := pods.Delete(c.ctx, "once", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](1)}); err != nil {
		c.Fatal(err)
	}
	awaitGone(c, pods, "once", string(p.UID))
	awaitGone(c, nodes, n.Name, string(n.UID))
}

// kubelets: pods that run keep their kubelet when the control plane is raised; those that
// a restart makes have the new one.
func kubelets(c *Case) {
	if c.Raise == nil {
		c.Skip("this target cannot be raised")
	}
	deps := c.cs.AppsV1().Deployments(c.ns)
	must(deps.Create(c.ctx, deployment("web", 2), metav1.CreateOptions{}))(c)
	pods := c.awaitPods("app=web", "are ready", whole(2))
	major, minor, _ := strings.Cut(c.Minor, ".")
	next := major + "." + increment(minor)
	c.Raise(c.T, next)
	defer c.Raise(c.T, c.Minor)
	if v := must(c.cs.Discovery().ServerVersion())(c); v.Major+"."+v.Minor != next {
		c.Errorf("/version says %s.%s", v.Major, v.Minor)
	}
	if err := c.evict(pods[0].Name, nil); err != nil {
		c.Fatal(err)
	}
	c.awaitPods("app=web", "are two again", func(now []corev1.Pod) bool { return whole(2)(now) && !slices.Contains(names(now), pods[0].Name) })
	if got := c.minors("app=web"); !slices.Equal(got, []string{c.Minor, next}) {
		c.Errorf("after one eviction the kubelets are %v", got)
	}
	must(deps.Patch(c.ctx, "web", types.StrategicMergePatchType, restart("2026-11-30T10:00:00Z"), metav1.PatchOptions{}))(c)
	await(c, deps, "web", "is rolled out", func(d *appsv1.Deployment) bool { return rolledOut(d) && d.Generation == 2 })
	c.awaitPods("app=web", "are two", whole(2))
	if got := c.minors("app=web"); !slices.Equal(got, []string{next, next}) {
		c.Errorf("after the restart the kubelets are %v", got)
	}
}

func increment(n string) string {
	v, _ := strconv.Atoi(n) // a minor of ours
	return strconv.Itoa(v + 1)
}

// minors lists the kubelet minors under the pods that a selector matches, sorted.
func (c *Case) minors(selector string) []string {
	var out []string
	for _, p := range must(c.cs.CoreV1().Pods(c.ns).List(c.ctx, metav1.ListOptions{LabelSelector: selector}))(c).Items {
		n := must(c.cs.CoreV1().Nodes().Get(c.ctx, p.Spec.NodeName, metav1.GetOptions{}))(c)
		parts := strings.SplitN(strings.TrimPrefix(n.Status.NodeInfo.KubeletVersion, "v"), ".", 3)
		out = append(out, parts[0]+"."+parts[1])
	}
	slices.Sort(out)
	return out
}
