package sandbox_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/eksbg/eksbg/internal/sandbox"
)

// create makes a cluster of the cold scenario, and waits until it is active.
func (u *user) create(name, version string, subnets ...string) *ekstypes.Cluster {
	u.t.Helper()
	must[*eks.CreateClusterOutput](u.t)(u.eks.CreateCluster(u.t.Context(), &eks.CreateClusterInput{
		Name: &name, Version: &version, RoleArn: awssdk.String("arn:aws:iam::111122223333:role/control-plane"),
		ResourcesVpcConfig: &ekstypes.VpcConfigRequest{SubnetIds: subnets},
	}))
	return u.until(name, ekstypes.ClusterStatusActive)
}

// until waits for a cluster's status; no status is that it is gone.
func (u *user) until(name string, status ekstypes.ClusterStatus) (c *ekstypes.Cluster) {
	u.t.Helper()
	eventually(u.t, name+" is "+string(status), func() bool {
		out, err := u.eks.DescribeCluster(u.t.Context(), &eks.DescribeClusterInput{Name: &name})
		if err != nil {
			return code(err) == "ResourceNotFoundException" && status == ""
		}
		c = out.Cluster
		return c.Status == status
	})
	return c
}

// profile makes a Fargate profile and waits for it.
func (u *user) profile(cluster, name, namespace string) {
	u.t.Helper()
	must[*eks.CreateFargateProfileOutput](u.t)(u.eks.CreateFargateProfile(u.t.Context(), &eks.CreateFargateProfileInput{
		ClusterName: &cluster, FargateProfileName: &name, PodExecutionRoleArn: awssdk.String("arn:aws:iam::111122223333:role/pods"),
		Selectors: []ekstypes.FargateProfileSelector{{Namespace: &namespace}},
	}))
	eventually(u.t, "profile "+name+" is active", func() bool {
		out := must[*eks.DescribeFargateProfileOutput](u.t)(u.eks.DescribeFargateProfile(u.t.Context(), &eks.DescribeFargateProfileInput{ClusterName: &cluster, FargateProfileName: &name}))
		return out.FargateProfile.Status == ekstypes.FargateProfileStatusActive
	})
}

// apply makes the objects of a file of manifests.
func apply(t *testing.T, k kubernetes.Interface, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{
		"Namespace": "/api/v1/namespaces", "Service": "/api/v1/namespaces/NS/services", "Deployment": "/apis/apps/v1/namespaces/NS/deployments",
		"StatefulSet": "/apis/apps/v1/namespaces/NS/statefulsets", "PodDisruptionBudget": "/apis/policy/v1/namespaces/NS/poddisruptionbudgets",
	}
	for _, item := range list.Items {
		var o struct {
			Kind     string
			Metadata struct{ Namespace string }
		}
		if err := json.Unmarshal(item, &o); err != nil {
			t.Fatal(err)
		}
		path := strings.Replace(paths[o.Kind], "NS", o.Metadata.Namespace, 1)
		if err := k.CoreV1().RESTClient().Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body([]byte(item)).Do(t.Context()).Error(); err != nil {
			t.Fatalf("%s: %v", item, err)
		}
	}
}

func ready(t *testing.T, k kubernetes.Interface, namespace, name string) int32 {
	t.Helper()
	d, err := k.AppsV1().Deployments(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return -1
	}
	return d.Status.ReadyReplicas
}

// The cold variant by hand: a standby is created at a version two minors up, gets its
// profiles and workloads, is registered where the scenario says, and goes again.
func TestAStandbyIsBuiltAndTornDown(t *testing.T) {
	world := serve(t, load(t, "testdata/cold.yaml"), fast)
	u := userOf(t, world, 3)
	if _, err := u.eks.DescribeCluster(t.Context(), &eks.DescribeClusterInput{Name: awssdk.String("cold-green")}); code(err) != "ResourceNotFoundException" {
		t.Fatalf("before: %v", err)
	}
	groups := must[*elb.DescribeTargetGroupsOutput](t)(u.elb.DescribeTargetGroups(t.Context(), &elb.DescribeTargetGroupsInput{Names: []string{"cold-green"}}))
	arn := *groups.TargetGroups[0].TargetGroupArn
	if h := u.health(arn); len(h) > 0 {
		t.Errorf("targets before: %v", h)
	}
	b := &browser{t: t, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	record := func() (int, string) { return b.get(fmt.Sprintf("http://127.31.6.2:%d/", world.DataPort())) }
	if status, _ := record(); status == http.StatusOK {
		t.Error("the record leads somewhere before")
	}
	text, err := os.ReadFile(world.Kubeconfig())
	if err != nil || bytes.Contains(text, []byte("cold-green")) {
		t.Errorf("the kubeconfig names a cluster that is not there: %v", err)
	}

	c := u.create("cold-green", "1.33", "subnet-0e6a000000000000a", "subnet-0e6c000000000000c")
	if want := must[*eks.DescribeClusterOutput](t)(u.eks.DescribeCluster(t.Context(), &eks.DescribeClusterInput{Name: awssdk.String("cold-blue")})); *c.Endpoint == *want.Cluster.Endpoint ||
		*c.Identity.Oidc.Issuer == *want.Cluster.Identity.Oidc.Issuer || *c.CertificateAuthority.Data == *want.Cluster.CertificateAuthority.Data {
		t.Errorf("it is blue's: %s %s", *c.Endpoint, *c.Identity.Oidc.Issuer)
	}
	green := u.client(restConfig(t, c, u.token("cold-green")))
	if v, err := green.Discovery().ServerVersion(); err != nil || v.Minor != "33" {
		t.Fatalf("its API server is %v, %v", v, err)
	}
	namespaces := must[*corev1.NamespaceList](t)(green.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}))
	deployments := must[*appsv1.DeploymentList](t)(green.AppsV1().Deployments("").List(t.Context(), metav1.ListOptions{}))
	if len(namespaces.Items) != 4 || len(deployments.Items) != 1 || deployments.Items[0].Name != "coredns" || deployments.Items[0].Status.ReadyReplicas != 0 {
		t.Errorf("it begins with %d namespaces and %+v", len(namespaces.Items), deployments.Items)
	}

	u.profile("cold-green", "system", "kube-system")
	u.profile("cold-green", "apps", "shop")
	// The pods of CoreDNS are older than the profile, so they are not Fargate's yet.
	if n := ready(t, green, "kube-system", "coredns"); n != 0 {
		t.Errorf("%d pods of CoreDNS are ready", n)
	}
	patch := `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"2026-11-30T10:00:00Z"}}}}}`
	must[*appsv1.Deployment](t)(green.AppsV1().Deployments("kube-system").Patch(t.Context(), "coredns", "application/strategic-merge-patch+json", []byte(patch), metav1.PatchOptions{}))
	apply(t, green, world.Manifests(sandbox.Green))
	eventually(t, "everything is ready", func() bool {
		return ready(t, green, "kube-system", "coredns") == 2 && ready(t, green, "shop", "storefront") == 2
	})
	if m := minors(t, green, "shop", "app=storefront"); m["1.33"] != 2 {
		t.Errorf("its kubelets are %v", m)
	}
	eventually(t, "its pods are targets", func() bool { return u.health(arn)["healthy"] == 2 })
	if status, served := record(); status != http.StatusOK || served != "cold-green" {
		t.Errorf("the record leads to %d of %q", status, served)
	}
	// Whoever reads the kubeconfig of the sandbox finds it by its side.
	if n := ready(t, u.kube(sandbox.Green), "shop", "storefront"); n != 2 {
		t.Errorf("by the kubeconfig %d are ready", n)
	}
	u.tearDown(green, arn)
}

// tearDown takes the green cluster away, profile by profile, and looks that the rest stays.
func (u *user) tearDown(green kubernetes.Interface, arn string) {
	u.t.Helper()
	name := awssdk.String("cold-green")
	if _, err := u.eks.DeleteCluster(u.t.Context(), &eks.DeleteClusterInput{Name: name}); code(err) != "ResourceInUseException" {
		u.t.Errorf("deleted with its profiles: %v", err)
	}
	for _, p := range []string{"apps", "system"} {
		must[*eks.DeleteFargateProfileOutput](u.t)(u.eks.DeleteFargateProfile(u.t.Context(), &eks.DeleteFargateProfileInput{ClusterName: name, FargateProfileName: &p}))
		eventually(u.t, p+" is gone", func() bool {
			_, err := u.eks.DescribeFargateProfile(u.t.Context(), &eks.DescribeFargateProfileInput{ClusterName: name, FargateProfileName: &p})
			return code(err) == "ResourceNotFoundException"
		})
	}
	eventually(u.t, "the profile's pods are gone and nothing takes new ones", func() bool {
		pods := must[*corev1.PodList](u.t)(green.CoreV1().Pods("shop").List(u.t.Context(), metav1.ListOptions{}))
		return !slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	})
	must[*eks.DeleteClusterOutput](u.t)(u.eks.DeleteCluster(u.t.Context(), &eks.DeleteClusterInput{Name: name}))
	u.until("cold-green", "")
	if _, err := green.Discovery().ServerVersion(); err == nil {
		u.t.Error("its API server answers still")
	}
	eventually(u.t, "its targets are gone", func() bool { h := u.health(arn); return h["healthy"]+h["initial"]+h["unhealthy"] == 0 })
	text, err := os.ReadFile(u.kubeconfig)
	if err != nil || bytes.Contains(text, []byte("cold-green")) || !bytes.Contains(text, []byte("cold-blue")) {
		u.t.Errorf("the kubeconfig is %s, %v", text, err)
	}
	// And once more.
	u.create("cold-green", "1.32", "subnet-0e6a000000000000a", "subnet-0e6c000000000000c")
}

// CoreDNS as an add-on is Fargate's from the start when the profile came first, and it
// follows the add-on's version.
func TestCoreDNSAsAnAddon(t *testing.T) {
	world := serve(t, load(t, "testdata/cold.yaml"), fast)
	u := userOf(t, world, 3)
	no := false
	must[*eks.CreateClusterOutput](t)(u.eks.CreateCluster(t.Context(), &eks.CreateClusterInput{
		Name: awssdk.String("cold-green"), Version: awssdk.String("1.32"), RoleArn: awssdk.String("arn:aws:iam::111122223333:role/control-plane"),
		BootstrapSelfManagedAddons: &no, ResourcesVpcConfig: &ekstypes.VpcConfigRequest{SubnetIds: []string{"subnet-0e6a000000000000a", "subnet-0e6c000000000000c"}},
	}))
	green := u.client(restConfig(t, u.until("cold-green", ekstypes.ClusterStatusActive), u.token("cold-green")))
	if n := ready(t, green, "kube-system", "coredns"); n != -1 {
		t.Errorf("CoreDNS is there, %d ready", n)
	}
	status := func() ekstypes.AddonStatus {
		out := must[*eks.DescribeAddonOutput](t)(u.eks.DescribeAddon(t.Context(), &eks.DescribeAddonInput{ClusterName: awssdk.String("cold-green"), AddonName: awssdk.String("coredns")}))
		return out.Addon.Status
	}
	image := func() string {
		d := must[*appsv1.Deployment](t)(green.AppsV1().Deployments("kube-system").Get(t.Context(), "coredns", metav1.GetOptions{}))
		_, tag, _ := strings.Cut(d.Spec.Template.Spec.Containers[0].Image, ":")
		return tag
	}
	u.profile("cold-green", "system", "kube-system")
	must[*eks.CreateAddonOutput](t)(u.eks.CreateAddon(t.Context(), &eks.CreateAddonInput{
		ClusterName: awssdk.String("cold-green"), AddonName: awssdk.String("coredns"), AddonVersion: awssdk.String("v1.11.3-eksbuild.2"),
	}))
	eventually(t, "the add-on is active", func() bool { return status() == ekstypes.AddonStatusActive })
	if got := image(); got != "v1.11.3-eksbuild.2" {
		t.Errorf("it runs %s", got)
	}
	must[*eks.UpdateAddonOutput](t)(u.eks.UpdateAddon(t.Context(), &eks.UpdateAddonInput{
		ClusterName: awssdk.String("cold-green"), AddonName: awssdk.String("coredns"), AddonVersion: awssdk.String("v1.11.4-eksbuild.28"),
	}))
	eventually(t, "its pods run the new version", func() bool { return image() == "v1.11.4-eksbuild.28" && ready(t, green, "kube-system", "coredns") == 2 })
	must[*eks.DeleteAddonOutput](t)(u.eks.DeleteAddon(t.Context(), &eks.DeleteAddonInput{ClusterName: awssdk.String("cold-green"), AddonName: awssdk.String("coredns")}))
	eventually(t, "it goes with the add-on", func() bool { return ready(t, green, "kube-system", "coredns") == -1 })
}

// A cluster that nothing of the scenario names is one nonetheless, where there is room.
func TestAClusterOfAnotherName(t *testing.T) {
	world := serve(t, load(t, "testdata/cold.yaml"), fast)
	u := userOf(t, world, 3)
	u.create("other", "1.32", "subnet-0e6a000000000000a", "subnet-0e6c000000000000c")
	if k := world.Kubernetes("other"); k == nil || world.Kubernetes(sandbox.Green) != nil {
		t.Error("it is not known by its name alone")
	}
	must[*eks.CreateClusterOutput](t)(u.eks.CreateCluster(t.Context(), &eks.CreateClusterInput{
		Name: awssdk.String("third"), RoleArn: awssdk.String("arn:aws:iam::111122223333:role/control-plane"),
		ResourcesVpcConfig: &ekstypes.VpcConfigRequest{SubnetIds: []string{"subnet-0e6a000000000000a", "subnet-0e6c000000000000c"}},
	}))
	c := u.until("third", ekstypes.ClusterStatusFailed)
	if !strings.Contains(*c.Health.Issues[0].Message, "room for one") {
		t.Errorf("it says %v", *c.Health.Issues[0].Message)
	}
}

// What serves can go as well, and everything that named it lives on.
func TestTheServingClusterGoes(t *testing.T) {
	world := serve(t, load(t, "testdata/cold.yaml"), fast)
	u := userOf(t, world, 3)
	for _, p := range []string{"apps", "system"} {
		eventually(t, p+" goes", func() bool {
			_, err := u.eks.DeleteFargateProfile(t.Context(), &eks.DeleteFargateProfileInput{ClusterName: awssdk.String("cold-blue"), FargateProfileName: &p})
			return code(err) == "ResourceNotFoundException"
		})
	}
	must[*eks.DeleteClusterOutput](t)(u.eks.DeleteCluster(t.Context(), &eks.DeleteClusterInput{Name: awssdk.String("cold-blue")}))
	u.until("cold-blue", "")
	if diff := cmp.Diff(map[string]string{"blue": "", "green": ""}, world.Versions()); diff != "" {
		t.Error(diff)
	}
}

func TestAnIdleStandby(t *testing.T) {
	world := serve(t, load(t, "testdata/warm.yaml"), fast)
	u := userOf(t, world, 3)
	for side, want := range map[string]struct {
		storefront, coredns int32
		pods                int
	}{sandbox.Blue: {2, 2, 7}, sandbox.Green: {0, 2, 2}} {
		k := u.kube(side)
		if a, b := ready(t, k, "shop", "storefront"), ready(t, k, "kube-system", "coredns"); a != want.storefront || b != want.coredns {
			t.Errorf("%s: %d and %d are ready", side, a, b)
		}
		if pods := must[*corev1.PodList](t)(k.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})); len(pods.Items) != want.pods {
			t.Errorf("%s has %d pods, want %d", side, len(pods.Items), want.pods)
		}
	}
	crons, err := u.kube(sandbox.Green).BatchV1().CronJobs("batch").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(crons.Items) != 1 || !*crons.Items[0].Spec.Suspend {
		t.Errorf("green's CronJobs are %+v, %v", crons, err)
	}
	text, err := os.ReadFile(world.Manifests(sandbox.Green))
	if err != nil || !bytes.Contains(text, []byte(`"replicas": 2`)) || bytes.Contains(text, []byte("coredns")) {
		t.Errorf("its manifests are %s, %v", text, err)
	}
	if _, err := os.Stat(world.Manifests(sandbox.Blue)); err == nil {
		t.Error("blue has manifests too")
	}
}
