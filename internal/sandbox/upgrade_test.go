package sandbox_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/sandbox"
)

type (
	podList     = corev1.PodList
	deployment  = appsv1.Deployment
	statefulSet = appsv1.StatefulSet
)

// hop raises a control plane and waits for it.
func (u *user) hop(cluster, minor string) *ekstypes.Update {
	u.t.Helper()
	out := must[*eks.UpdateClusterVersionOutput](u.t)(u.eks.UpdateClusterVersion(u.t.Context(), &eks.UpdateClusterVersionInput{Name: &cluster, Version: &minor}))
	update := out.Update
	eventually(u.t, "the update of "+cluster+" to "+minor+" ends", func() bool {
		got := must[*eks.DescribeUpdateOutput](u.t)(u.eks.DescribeUpdate(u.t.Context(), &eks.DescribeUpdateInput{Name: &cluster, UpdateId: update.Id}))
		update = got.Update
		return update.Status != ekstypes.UpdateStatusInProgress
	})
	return update
}

// restart rolls a Deployment as kubectl does and waits until only new pods are there.
func (u *user) restart(k kubernetes.Interface, namespace, name, stamp, minor string) {
	u.t.Helper()
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`, stamp)
	eventually(u.t, "the patch of "+name+" gets through", func() bool {
		_, err := k.AppsV1().Deployments(namespace).Patch(u.t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		return err == nil
	})
	eventually(u.t, "all pods of "+name+" are on "+minor, func() bool {
		d, err := k.AppsV1().Deployments(namespace).Get(u.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		m := minors(u.t, k, namespace, "app="+name)
		return d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas == *d.Spec.Replicas &&
			d.Status.ReadyReplicas == *d.Spec.Replicas && len(m) == 1 && m[minor] == int(*d.Spec.Replicas)
	})
}

// weigh moves a weighted record, by DELETE of the exact old sets and CREATE of new ones.
func (u *user) weigh(record string, weights map[string]int64) {
	u.t.Helper()
	zones := must[*route53.ListHostedZonesOutput](u.t)(u.r53.ListHostedZones(u.t.Context(), nil))
	zone := zones.HostedZones[0].Id
	list := must[*route53.ListResourceRecordSetsOutput](u.t)(u.r53.ListResourceRecordSets(u.t.Context(), &route53.ListResourceRecordSetsInput{HostedZoneId: zone}))
	var changes []r53types.Change
	for _, old := range list.ResourceRecordSets {
		if *old.Name != record+"." || old.SetIdentifier == nil {
			continue
		}
		changed := old
		changed.Weight = awssdk.Int64(weights[*old.SetIdentifier])
		changes = append(changes,
			r53types.Change{Action: r53types.ChangeActionDelete, ResourceRecordSet: &old},
			r53types.Change{Action: r53types.ChangeActionCreate, ResourceRecordSet: &changed})
	}
	out := must[*route53.ChangeResourceRecordSetsOutput](u.t)(u.r53.ChangeResourceRecordSets(u.t.Context(), &route53.ChangeResourceRecordSetsInput{
		HostedZoneId: zone, ChangeBatch: &r53types.ChangeBatch{Changes: changes},
	}))
	if out.ChangeInfo.Status != r53types.ChangeStatusPending {
		u.t.Errorf("a change begins as %s", out.ChangeInfo.Status)
	}
	eventually(u.t, "the change of "+record+" is in sync", func() bool {
		c := must[*route53.GetChangeOutput](u.t)(u.r53.GetChange(u.t.Context(), &route53.GetChangeInput{Id: out.ChangeInfo.Id}))
		return c.ChangeInfo.Status == r53types.ChangeStatusInsync
	})
}

// forward sets the weights of a listener's default action.
func (u *user) forward(a planfile.ALB, blue, green int32) {
	u.t.Helper()
	_, err := u.elb.ModifyListener(u.t.Context(), &elb.ModifyListenerInput{ListenerArn: &a.Listener, DefaultActions: []elbtypes.Action{{
		Type: elbtypes.ActionTypeEnumForward,
		ForwardConfig: &elbtypes.ForwardActionConfig{TargetGroups: []elbtypes.TargetGroupTuple{
			{TargetGroupArn: &a.Blue.TargetGroup, Weight: &blue}, {TargetGroupArn: &a.Green.TargetGroup, Weight: &green},
		}},
	}}})
	if err != nil {
		u.t.Fatal(err)
	}
}

// health counts the targets of a group by state.
func (u *user) health(arn string) map[string]int {
	u.t.Helper()
	out := must[*elb.DescribeTargetHealthOutput](u.t)(u.elb.DescribeTargetHealth(u.t.Context(), &elb.DescribeTargetHealthInput{TargetGroupArn: &arn}))
	got := map[string]int{}
	for _, d := range out.TargetHealthDescriptions {
		got[string(d.TargetHealth.State)]++
	}
	return got
}

// A hop, a restart and a cutover by hand, with clients that have the environment alone.
func TestUpgradeByHand(t *testing.T) {
	world := serve(t, load(t, "hot"), fast)
	u := userOf(t, world, 5)
	green := u.kube(sandbox.Green)

	if got := minors(t, green, "shop", "app=storefront"); got["1.31"] != 3 || len(got) != 1 {
		t.Fatalf("at first storefront's kubelets are %v", got)
	}
	if update := u.hop("shop-green", "1.32"); update.Status != ekstypes.UpdateStatusSuccessful {
		t.Fatalf("the update ended as %s: %+v", update.Status, update.Errors)
	}
	if got := world.Versions(); got[sandbox.Green] != "1.32" || got[sandbox.Blue] != "1.31" {
		t.Errorf("versions are %v", got)
	}
	v, err := green.Discovery().ServerVersion()
	if err != nil || !strings.HasPrefix(v.GitVersion, "v1.32.") {
		t.Errorf("the API server says %v, %v", v, err)
	}
	if got := minors(t, green, "shop", "app=storefront"); got["1.31"] != 3 {
		t.Errorf("after the hop alone the kubelets are %v", got)
	}
	u.restart(green, "shop", "storefront", "2026-11-30T10:00:00Z", "1.32")
	if got := minors(t, green, "shop", "app=catalog"); got["1.31"] != 2 {
		t.Errorf("what was not restarted is at %v", got)
	}
	u.cutover(world)
}

// cutover moves a part of both entrances of hot and looks from outside.
func (u *user) cutover(world *sandbox.Sandbox) {
	u.t.Helper()
	b := browserOf(u.t, world.PlanFile())
	file, err := planfile.Load(world.PlanFile())
	if err != nil {
		u.t.Fatal(err)
	}
	api, web, alb := b.urls[0], b.urls[1], *file.Traffic[1].ALB
	for _, url := range b.urls {
		if got := b.spread(url, 10); got["shop-blue"] != 10 {
			u.t.Errorf("before the cutover %s is answered by %v", url, got)
		}
	}
	u.weigh("api.shop.example.com", map[string]int64{"blue": 90, "green": 10})
	if got := b.spread(api, 20); got["shop-blue"] != 18 || got["shop-green"] != 2 {
		u.t.Errorf("at 10 %% the record is answered by %v", got)
	}
	if got := u.health(alb.Green.TargetGroup); got["unused"] == 0 || len(got) != 1 {
		u.t.Errorf("on no listener green's targets are %v", got)
	}
	u.forward(alb, 100, 0)
	eventually(u.t, "green's targets are healthy", func() bool {
		got := u.health(alb.Green.TargetGroup)
		return got["healthy"] == 3 && len(got) == 1
	})
	if got := b.spread(web, 10); got["shop-blue"] != 10 {
		u.t.Errorf("at weight 0 green answers: %v", got)
	}
	u.forward(alb, 0, 100)
	if got := b.spread(web, 10); got["shop-green"] != 10 {
		u.t.Errorf("at 100 %% the load balancer is answered by %v", got)
	}
	world.Fail(sandbox.Failure{Cluster: sandbox.Green, Status: 502, Percent: 10})
	if got := b.spread(web, 20); got["shop-green"] != 18 || got["Bad Gateway"] != 2 {
		u.t.Errorf("with a tenth failing: %v", got)
	}
	world.Heal(sandbox.Green)
}

// A token made from the environment alone opens the cluster that it names, and no other.
func TestTokensOpenTheirCluster(t *testing.T) {
	world := serve(t, tiny(t), fast)
	u := userOf(t, world, 1)
	out := must[*eks.DescribeClusterOutput](t)(u.eks.DescribeCluster(t.Context(), &eks.DescribeClusterInput{Name: awssdk.String("tiny-green")}))
	for name, c := range map[string]struct {
		token string
		ok    bool
	}{
		"its own":        {u.token("tiny-green"), true},
		"of another":     {u.token("tiny-blue"), false},
		"tampered":       {u.token("tiny-green") + "AAAA", false},
		"nothing at all": {"x", false},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := restConfig(t, out.Cluster, c.token)
			_, err := u.client(cfg).CoreV1().Pods("web").List(t.Context(), metav1.ListOptions{})
			if (err == nil) != c.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestScenariosSettle(t *testing.T) {
	for _, name := range sandbox.Names() {
		t.Run(name, func(t *testing.T) {
			scenario := load(t, name)
			scenario.Faults = nil // they are the subject of another test
			world := serve(t, scenario, fast)
			file, err := planfile.Load(world.PlanFile())
			if err != nil {
				t.Fatal(err)
			}
			if file.Name != scenario.Plan.Name || file.Version != scenario.Plan.Version || file.Clusters.Green.Name != scenario.Side(sandbox.Green).Name {
				t.Errorf("the plan file is of %s to %s for %s", file.Name, file.Version, file.Clusters.Green.Name)
			}
			if len(file.Traffic) != len(scenario.Plan.Traffic) || len(file.Cutover.Gates) != len(scenario.Plan.Gates) {
				t.Errorf("the plan file has %d entrances and %d gates", len(file.Traffic), len(file.Cutover.Gates))
			}
			if file.Cutover.Hold.D() > 5*time.Second || file.Upgrade.Polling.D() > time.Second {
				t.Errorf("hold %s and polling %s are not small at speed %d", file.Cutover.Hold, file.Upgrade.Polling, fast)
			}
			u := userOf(t, world, 3)
			for _, side := range []string{sandbox.Blue, sandbox.Green} {
				settled(t, u.kube(side), scenario.Side(side))
			}
			for _, path := range []string{world.EnvPath(), world.Kubeconfig(), world.PlanFile(), world.RequestsPath(), world.WorldPath()} {
				info, err := os.Stat(path)
				if err != nil {
					t.Fatal(err)
				}
				if info.Mode().Perm() != 0o600 {
					t.Errorf("%s has mode %v", path, info.Mode().Perm())
				}
			}
		})
	}
}

// settled wants every workload ready on kubelets of the cluster's version, and
// finished Jobs finished.
func settled(t *testing.T, k kubernetes.Interface, c *sandbox.Cluster) {
	t.Helper()
	for _, w := range c.Workloads {
		want := 1
		if w.Replicas != nil {
			want = int(*w.Replicas)
		}
		pods := must[*podList](t)(k.CoreV1().Pods(w.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + w.Name}))
		phases := map[corev1.PodPhase]int{}
		for _, p := range pods.Items {
			phases[p.Status.Phase]++
		}
		phase := corev1.PodRunning
		switch {
		case w.Kind == "Job" && w.Runs == 0:
			phase = corev1.PodSucceeded
		case w.Kind == "CronJob":
			phase, want = corev1.PodSucceeded, w.Ran
		case w.Kind == "DaemonSet":
			want = len(c.Nodes)
		}
		if phases[phase] != want || len(pods.Items) != want {
			t.Errorf("%s %s/%s/%s has pods %v, want %d %s", c.Name, w.Namespace, w.Kind, w.Name, phases, want, phase)
		}
		if got := minors(t, k, w.Namespace, "app="+w.Name); got[c.Version] != want {
			t.Errorf("%s %s/%s: kubelets %v, want %s", c.Name, w.Namespace, w.Name, got, c.Version)
		}
	}
}

// Two worlds that went through the same are the same, whatever their ids and times.
func TestWorldsWithOneHistoryAreEqual(t *testing.T) {
	run := func(t *testing.T, faults string) map[string]any {
		world := serve(t, tiny(t, faults), fast)
		u := userOf(t, world, 10)
		before := world.WorldPath()
		first := readWorld(t, before)
		u.hop("tiny-green", "1.32")
		u.restart(u.kube(sandbox.Green), "web", "web", "2026-11-30T10:00:00Z", "1.32")
		u.weigh("a.tiny.example.com", map[string]int64{"blue": 0, "green": 100})
		eventually(t, "world.json shows it", func() bool {
			got := readWorld(t, before)
			return fmt.Sprint(got) != fmt.Sprint(first) && strings.Contains(fmt.Sprint(got), "1.32")
		})
		eventually(t, "the old pods are gone", func() bool {
			return world.Kube(sandbox.Green) != nil && len(world.Kube(sandbox.Green).Nodes()) == 2
		})
		if err := world.Close(); err != nil {
			t.Fatal(err)
		}
		return readWorld(t, before)
	}
	var worlds []map[string]any
	for _, faults := range []string{"", `faults: [{call: "*", every: 7, error: Throttling, status: 429}, {call: "*", every: 9, reset: before}]`} {
		worlds = append(worlds, run(t, faults))
	}
	a, b := asJSON(t, worlds[0]), asJSON(t, worlds[1])
	if a != b {
		t.Errorf("the worlds differ:\n%s\n---\n%s", a, b)
	}
	if keys := fmt.Sprint(len(worlds[0])); keys != "4" {
		t.Errorf("the world has %v", maps.Keys(worlds[0]))
	}
}

func readWorld(t *testing.T, path string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var w map[string]any
	if err := json.Unmarshal(text, &w); err != nil {
		t.Fatal(err)
	}
	return w
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
