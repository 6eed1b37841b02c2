package sandbox_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/eksbg/eksbg/internal/sandbox"
)

const alone = "in-place"

// instances are the kubelet minors of a node group's instances, with how many each.
func instances(t *testing.T, k kubernetes.Interface, group string) map[string]int {
	t.Helper()
	got := map[string]int{}
	for _, n := range must[*corev1.NodeList](t)(k.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "eks.amazonaws.com/nodegroup=" + group})).Items {
		minor := strings.Join(strings.SplitN(strings.TrimPrefix(n.Status.NodeInfo.KubeletVersion, "v"), ".", 3)[:2], ".")
		if n.Spec.Unschedulable {
			minor += " cordoned"
		}
		got[minor]++
	}
	return got
}

// raiseGroup updates a node group and waits for the end of it.
func (u *user) raiseGroup(group string, edit func(*eks.UpdateNodegroupVersionInput)) *ekstypes.Update {
	u.t.Helper()
	in := &eks.UpdateNodegroupVersionInput{ClusterName: awssdk.String(alone), NodegroupName: &group}
	if edit != nil {
		edit(in)
	}
	return u.untilGroup(group, must[*eks.UpdateNodegroupVersionOutput](u.t)(u.eks.UpdateNodegroupVersion(u.t.Context(), in)).Update)
}

func (u *user) untilGroup(group string, update *ekstypes.Update) *ekstypes.Update {
	u.t.Helper()
	id := *update.Id
	eventually(u.t, "the update of "+group+" ends", func() bool {
		out := must[*eks.DescribeUpdateOutput](u.t)(u.eks.DescribeUpdate(u.t.Context(), &eks.DescribeUpdateInput{Name: awssdk.String(alone), UpdateId: &id, NodegroupName: &group}))
		update = out.Update
		return update.Status != ekstypes.UpdateStatusInProgress
	})
	return update
}

// The instances of a group follow its version one by one, past a budget that leaves room
// for one pod at a time; the budget that leaves none fails the update until it is forced.
func TestNodegroupsHaveInstances(t *testing.T) {
	world := serve(t, load(t, "testdata/in-place.yaml"), fast)
	u := userOf(t, world, 3)
	k := u.kube(sandbox.Blue)
	if got := instances(t, k, "workers"); got["1.31"] != 2 || len(got) != 1 {
		t.Fatalf("it begins with %v", got)
	}
	own := must[*corev1.NodeList](t)(k.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "tier=own"}))
	if len(own.Items) != 1 || own.Items[0].Spec.Taints[0].Effect != corev1.TaintEffectNoSchedule || !strings.HasPrefix(own.Items[0].Name, "ip-10-74-") {
		t.Errorf("the instance of own is %+v", own.Items)
	}
	_, err := u.eks.UpdateClusterVersion(t.Context(), &eks.UpdateClusterVersionInput{Name: awssdk.String(alone), Version: awssdk.String("1.33")})
	if code(err) != "InvalidParameterException" || !strings.Contains(err.Error(), "Nodegroups own,workers must be updated to match cluster version 1.32") {
		t.Errorf("with groups behind: %v", err)
	}
	got := u.raiseGroup("workers", nil)
	if got.Status != ekstypes.UpdateStatusFailed || got.Errors[0].ErrorCode != ekstypes.ErrorCodePodEvictionFailure || !strings.HasPrefix(got.Errors[0].ResourceIds[0], "ip-10-74-") {
		t.Errorf("with a budget of none it is %s %+v", got.Status, got.Errors)
	}
	for minor := range instances(t, k, "workers") {
		if strings.Contains(minor, "cordoned") {
			t.Error("a node stays cordoned")
		}
	}
	got = u.raiseGroup("workers", func(in *eks.UpdateNodegroupVersionInput) { in.Force = true })
	if got.Status != ekstypes.UpdateStatusSuccessful {
		t.Fatalf("forced it is %s %+v", got.Status, got.Errors)
	}
	if diff := cmp.Diff(map[string]int{"1.32": 2}, instances(t, k, "workers")); diff != "" {
		t.Error(diff)
	}
	u.followsItsTemplate(k)
	eventually(t, "the pods run on the new instances", func() bool {
		return ready(t, k, "web", "web") == 4 && ready(t, k, "web", "fixed") == 1 && minors(t, k, "web", "app=web")["1.32"] == 4
	})
	if update := u.hop(alone, "1.33"); update.Status != ekstypes.UpdateStatusSuccessful {
		t.Errorf("the hop is %s", update.Status)
	}
}

// followsItsTemplate raises the group with an image of its own: as told it fails at first.
func (u *user) followsItsTemplate(k kubernetes.Interface) {
	u.t.Helper()
	for _, want := range []ekstypes.UpdateStatus{ekstypes.UpdateStatusFailed, ekstypes.UpdateStatusSuccessful} {
		got := u.raiseGroup("own", func(in *eks.UpdateNodegroupVersionInput) {
			in.LaunchTemplate = &ekstypes.LaunchTemplateSpecification{Name: awssdk.String("in-place-own"), Version: awssdk.String("2")}
		})
		if got.Status != want {
			u.t.Errorf("own is %s, want %s", got.Status, want)
		}
	}
	if diff := cmp.Diff(map[string]int{"1.32": 1}, instances(u.t, k, "own")); diff != "" {
		u.t.Error(diff)
	}
}

func TestANodegroupsInstancesGoAndComeBack(t *testing.T) {
	world := serve(t, load(t, "testdata/in-place.yaml"), fast)
	u := userOf(t, world, 3)
	k := u.kube(sandbox.Blue)
	size := func(lowest, desired int32) {
		t.Helper()
		out := must[*eks.UpdateNodegroupConfigOutput](t)(u.eks.UpdateNodegroupConfig(t.Context(), &eks.UpdateNodegroupConfigInput{ClusterName: awssdk.String(alone),
			NodegroupName: awssdk.String("workers"), ScalingConfig: &ekstypes.NodegroupScalingConfig{MinSize: &lowest, DesiredSize: &desired}}))
		if got := u.untilGroup("workers", out.Update); got.Status != ekstypes.UpdateStatusSuccessful {
			t.Fatalf("to %d it is %s", desired, got.Status)
		}
		eventually(t, "the instances are as many", func() bool { return instances(t, k, "workers")["1.31"] == int(desired) })
	}
	names := func() map[string]bool {
		got := map[string]bool{}
		for _, n := range must[*corev1.NodeList](t)(k.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "eks.amazonaws.com/nodegroup=workers"})).Items {
			got[n.Name] = true
		}
		return got
	}
	before := names()
	for _, name := range []string{"web", "fixed"} {
		scale, err := k.AppsV1().Deployments("web").GetScale(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		scale.Spec.Replicas = 0
		if _, err := k.AppsV1().Deployments("web").UpdateScale(t.Context(), name, scale, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	size(0, 0)
	agents := func() int {
		n := 0
		for _, p := range must[*corev1.PodList](t)(k.CoreV1().Pods("kube-system").List(t.Context(), metav1.ListOptions{LabelSelector: "app=agent"})).Items {
			if p.Status.Phase == corev1.PodRunning {
				n++
			}
		}
		return n
	}
	eventually(t, "the DaemonSet's pods go with them", func() bool { return agents() == 0 })
	size(1, 3)
	eventually(t, "and come back with them", func() bool { return agents() == 3 })
	for name := range names() {
		if before[name] {
			t.Errorf("an instance has the name of one that was: %s", name)
		}
	}
}

// The way back is open while no kubelet is newer, whichever kind of node it is on.
func TestAVersionGoesBackWhileKubeletsAllowIt(t *testing.T) {
	world := serve(t, load(t, "testdata/in-place.yaml"), fast)
	u := userOf(t, world, 3)
	back := func() (*ekstypes.Update, error) {
		out, err := u.eks.UpdateClusterVersion(t.Context(), &eks.UpdateClusterVersionInput{Name: awssdk.String(alone), Version: awssdk.String("1.31")})
		if err != nil {
			return nil, err
		}
		return out.Update, nil
	}
	insights := func() map[string]string {
		got := map[string]string{}
		out := must[*eks.ListInsightsOutput](t)(u.eks.ListInsights(t.Context(), &eks.ListInsightsInput{
			ClusterName: awssdk.String(alone), Filter: &ekstypes.InsightsFilter{Categories: []ekstypes.Category{"ROLLBACK_READINESS"}},
		}))
		for _, i := range out.Insights {
			got[*i.Name] = string(i.InsightStatus.Status)
		}
		return got
	}
	// Everything that the scenario begins with came up after the upgrade: the Fargate pods
	// run the new kubelet.
	if _, err := back(); code(err) != "InvalidStateException" || !strings.Contains(err.Error(), "Kubelet version skew is ERROR") {
		t.Fatalf("with Fargate pods of the new version: %v", err)
	}
	want := map[string]string{
		"Kubelet version skew": "ERROR", "kube-proxy version skew": "PASSING", "EKS add-on version compatibility": "PASSING",
		"Cluster health issues": "PASSING", "Kubernetes API usage": "WARNING",
	}
	if diff := cmp.Diff(want, insights()); diff != "" {
		t.Error(diff)
	}
	k := u.kube(sandbox.Blue)
	scale, err := k.AppsV1().Deployments("kube-system").GetScale(t.Context(), "coredns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	scale.Spec.Replicas = 0
	if _, err := k.AppsV1().Deployments("kube-system").UpdateScale(t.Context(), "coredns", scale, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	var update *ekstypes.Update
	eventually(t, "the way back is open", func() bool { update, err = back(); return err == nil })
	if update.Type != ekstypes.UpdateTypeVersionRollback {
		t.Errorf("it is a %s", update.Type)
	}
	eventually(t, "the version is the old one", func() bool { return world.Versions()[sandbox.Blue] == "1.31" })
	if v, err := k.Discovery().ServerVersion(); err != nil || v.Minor != "31" {
		t.Errorf("the API server says %v, %v", v, err)
	}
	scale.Spec.Replicas, scale.ResourceVersion = 1, ""
	if _, err := k.AppsV1().Deployments("kube-system").UpdateScale(t.Context(), "coredns", scale, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "new Fargate pods run the old kubelet", func() bool { return minors(t, k, "kube-system", "app=coredns")["1.31"] == 1 })
}

func TestOneClusterAlone(t *testing.T) {
	world := serve(t, load(t, "testdata/in-place.yaml"), fast)
	u := userOf(t, world, 3)
	if got := must[*eks.ListClustersOutput](t)(u.eks.ListClusters(t.Context(), nil)).Clusters; len(got) != 1 || got[0] != alone {
		t.Errorf("clusters are %v", got)
	}
	text, err := os.ReadFile(world.PlanFile())
	if err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]bool{"variant: in-place": true, "green:": false, "traffic:": false, "cutover:": false, "# Logs go to " + world.PlanFile()[:len(world.PlanFile())-len("/plan.yaml")] + ".": true} {
		if bytes.Contains(text, []byte(what)) != want {
			t.Errorf("%q: %t, want %t, in\n%s", what, !want, want, text)
		}
	}
}
