package cluster_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"slices"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/ssocreds"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quietLog takes what the test server says about broken connections.
var quietLog = log.New(io.Discard, "", 0)

func yes[T any](v T) *T { return &v }

func owner(kind, name, uid string) []metav1.OwnerReference {
	api := map[string]string{"ReplicaSet": "apps/v1", "Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "Job": "batch/v1", "CronJob": "batch/v1", "Rollout": "argoproj.io/v1alpha1"}
	return []metav1.OwnerReference{{APIVersion: api[kind], Kind: kind, Name: name, UID: types.UID(uid), Controller: yes(true)}}
}

func podOn(name, node string, owners []metav1.OwnerReference, change ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), OwnerReferences: owners},
		Spec:       corev1.PodSpec{NodeName: node},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

func nodeAt(name, kubelet string) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			"eks.amazonaws.com/compute-type": "fargate", "topology.kubernetes.io/zone": "eu-west-1a", "eks.amazonaws.com/fargate-profile": "shop",
		}},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: kubelet}, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

// fill puts a small but varied cluster on the API server.
func (w *world) fill() {
	meta := func(name string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), OwnerReferences: owners, Generation: 3}
	}
	w.api.lists["replicasets"] = &appsv1.ReplicaSetList{Items: []appsv1.ReplicaSet{
		{ObjectMeta: meta("cart-1", owner("Deployment", "cart", "uid-cart")...)},
		{ObjectMeta: meta("canary-1", owner("Rollout", "canary", "uid-canary")...)},
		{ObjectMeta: meta("lone"), Spec: appsv1.ReplicaSetSpec{Replicas: yes(int32(2))}, Status: appsv1.ReplicaSetStatus{ReadyReplicas: 1, Replicas: 2}},
	}}
	w.api.lists["jobs"] = &batchv1.JobList{Items: []batchv1.Job{
		{ObjectMeta: meta("report-1", owner("CronJob", "report", "uid-report")...)}, {ObjectMeta: meta("import")},
	}}
	w.api.lists["pods"] = &corev1.PodList{Items: []corev1.Pod{
		podOn("cart-1-a", "n-old", owner("ReplicaSet", "cart-1", "uid-cart-1")),
		podOn("cart-1-b", "n-new", owner("ReplicaSet", "cart-1", "uid-cart-1"), func(p *corev1.Pod) { p.DeletionTimestamp = yes(metav1.Unix(1, 0)) }),
		podOn("cart-1-c", "n-old", owner("ReplicaSet", "cart-1", "uid-cart-1"), func(p *corev1.Pod) { p.DeletionTimestamp = yes(metav1.Unix(1, 0)) }),
		podOn("canary-1-a", "n-new", owner("ReplicaSet", "canary-1", "uid-canary-1")),
		podOn("gone-1-a", "n-new", owner("ReplicaSet", "gone-1", "uid-gone-1")),
		podOn("report-1-a", "n-old", owner("Job", "report-1", "uid-report-1"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		podOn("import-a", "n-patch", owner("Job", "import", "uid-import")),
		podOn("db-0", "n-old", owner("StatefulSet", "db", "uid-db")),
		podOn("bare", "n-old", nil),
		podOn("waiting", "", owner("ReplicaSet", "cart-1", "uid-cart-1"), func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodPending} }),
		podOn("static", "n-new", nil, func(p *corev1.Pod) { p.Annotations = map[string]string{"kubernetes.io/config.mirror": "x"} }),
	}}
	w.api.lists["nodes"] = &corev1.NodeList{Items: []corev1.Node{
		nodeAt("n-old", "v1.30.9-eks-1a2b3c4"), nodeAt("n-new", "v1.31.14-eks-6ae7ca2"), nodeAt("n-patch", "v1.31.2-eks-6ae7ca2"),
	}}
	w.api.lists["deployments"] = &appsv1.DeploymentList{Items: []appsv1.Deployment{{
		ObjectMeta: meta("cart"),
		Spec: appsv1.DeploymentSpec{Replicas: yes(int32(2)), Paused: true, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{cluster.RestartedAtAnnotation: "2026-11-30T10:00:00Z"}},
		}},
		Status: appsv1.DeploymentStatus{ObservedGeneration: 2, ReadyReplicas: 1, UpdatedReplicas: 1, Replicas: 2},
	}}}
	w.api.lists["statefulsets"] = &appsv1.StatefulSetList{Items: []appsv1.StatefulSet{{
		ObjectMeta: meta("db"),
		Spec: appsv1.StatefulSetSpec{UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
			Type: appsv1.OnDeleteStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: yes(int32(1))},
		}},
	}}}
	w.api.lists["daemonsets"] = &appsv1.DaemonSetList{Items: []appsv1.DaemonSet{{
		ObjectMeta: meta("agent"), Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, NumberReady: 2, UpdatedNumberScheduled: 1, CurrentNumberScheduled: 3},
	}}}
}

func TestInventory(t *testing.T) {
	w := newWorld(t)
	w.fill()
	inv, err := w.open(t).Inventory(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	owners, lags := map[string]string{}, []string{}
	for _, p := range inv.Pods {
		owners[p.Name] = p.Owner.String()
	}
	for _, p := range inv.Lagging() {
		lags = append(lags, p.Name)
	}
	wantOwners := map[string]string{
		"cart-1-a": "shop/Deployment/cart", "cart-1-b": "shop/Deployment/cart", "cart-1-c": "shop/Deployment/cart", "waiting": "shop/Deployment/cart",
		"canary-1-a": "shop/Rollout/canary", "gone-1-a": "shop/ReplicaSet/gone-1", "report-1-a": "shop/CronJob/report",
		"import-a": "shop/Job/import", "db-0": "shop/StatefulSet/db", "bare": "shop/Pod/bare", "static": "Node/n-new",
	}
	if d := cmp.Diff(wantOwners, owners); d != "" {
		t.Errorf("owners (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"cart-1-a", "cart-1-c", "db-0", "bare"}, lags); d != "" {
		t.Errorf("lagging (-want +got):\n%s", d)
	}
	wantWork := []cluster.Workload{
		{Owner: cluster.Owner{APIVersion: "apps/v1", Namespace: "shop", Kind: "Deployment", Name: "cart", UID: "uid-cart"}, Replicas: 2, Ready: 1, Updated: 1, Current: 2, Paused: true, Strategy: "RollingUpdate", MaxSurge: 1, Generation: 3, Observed: 2, RestartedAt: "2026-11-30T10:00:00Z"},
		{Owner: cluster.Owner{APIVersion: "apps/v1", Namespace: "shop", Kind: "StatefulSet", Name: "db", UID: "uid-db"}, Replicas: 1, Strategy: "OnDelete", Partition: 1, Generation: 3},
		{Owner: cluster.Owner{APIVersion: "apps/v1", Namespace: "shop", Kind: "DaemonSet", Name: "agent", UID: "uid-agent"}, Replicas: 3, Ready: 2, Updated: 1, Current: 3, Strategy: "RollingUpdate", Generation: 3},
		{Owner: cluster.Owner{APIVersion: "apps/v1", Namespace: "shop", Kind: "ReplicaSet", Name: "lone", UID: "uid-lone"}, Replicas: 2, Ready: 1, Current: 2, Generation: 3},
	}
	if d := cmp.Diff(wantWork, inv.Workloads); d != "" {
		t.Errorf("workloads (-want +got):\n%s", d)
	}
	n, ok := inv.Node("n-old")
	if want := (cluster.Node{Name: "n-old", Kubelet: "v1.30.9-eks-1a2b3c4", Minor: "1.30", Compute: "fargate", Profile: "shop", Zone: "eu-west-1a", Ready: true}); !ok || n != want {
		t.Errorf("node %+v", n)
	}
	if inv.Server != "v1.31.14-eks-6ae7ca2" || inv.Version != "1.31" || inv.ARN == "" || inv.CreatedAt.IsZero() || inv.OldestKubelet() != "1.30" {
		t.Errorf("head %+v", inv)
	}
	if ready, all := inv.PodCount(); ready != 7 || all != 10 {
		t.Errorf("%d ready of %d", ready, all)
	}
}

func TestInventoryCostsOneListEach(t *testing.T) {
	w := newWorld(t)
	w.fill()
	w.api.lists["pods"] = manyPods(1201)
	c := w.open(t)
	w.api.requests()
	inv, err := c.Inventory(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"GET /api/v1/nodes?limit=500", "GET /api/v1/pods?continue=1000&limit=500", "GET /api/v1/pods?continue=500&limit=500", "GET /api/v1/pods?limit=500",
		"GET /api/v1/replicationcontrollers?limit=500",
		"GET /apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations?limit=500", "GET /apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations?limit=500",
		"GET /apis/apps/v1/daemonsets?limit=500", "GET /apis/apps/v1/deployments?limit=500", "GET /apis/apps/v1/replicasets?limit=500", "GET /apis/apps/v1/statefulsets?limit=500",
		"GET /apis/batch/v1/cronjobs?limit=500", "GET /apis/batch/v1/jobs?limit=500",
		"GET /apis/policy/v1/poddisruptionbudgets?limit=500", "GET /apis/scheduling.k8s.io/v1/priorityclasses?limit=500",
	}
	got := w.api.requests()
	if d := cmp.Diff(want, slices.Sorted(slices.Values(got))); d != "" {
		t.Errorf("requests (-want +got):\n%s", d)
	}
	pods := slices.Index(got, "GET /api/v1/pods?limit=500")
	for _, later := range want {
		if strings.Contains(later, "policy") || strings.Contains(later, "priority") || strings.Contains(later, "webhook") {
			if slices.Index(got, later) > pods {
				t.Errorf("%s comes after the pods that it chooses", later)
			}
		} else if slices.Index(got, later) < pods {
			t.Errorf("%s comes before the pods that refer to it", later)
		}
	}
	if len(inv.Pods) != 1201 || inv.Pods[1200].Name != "cart-1200" {
		t.Errorf("%d pods", len(inv.Pods))
	}
	if !strings.HasPrefix(w.api.accept, runtime.ContentTypeProtobuf) {
		t.Errorf("asks for %s", w.api.accept)
	}
}

func TestListBeginsAnewWhenItsTokenExpires(t *testing.T) {
	w := newWorld(t)
	w.fill()
	w.api.lists["pods"] = manyPods(700)
	expired := false
	w.api.before = func(_ int, rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("continue") == "" || expired {
			return false
		}
		expired = true
		status(rw, http.StatusGone, metav1.StatusReasonExpired)
		return true
	}
	inv, err := w.open(t).Inventory(context.Background())
	if err != nil || len(inv.Pods) != 700 || !expired {
		t.Fatalf("%v, expired %v", err, expired)
	}
}

func TestUpdatesInProgress(t *testing.T) {
	update := func(i int, status ekstypes.UpdateStatus) ekstypes.Update {
		return ekstypes.Update{Id: yes(fmt.Sprintf("u-%03d", i)), Status: status, Type: ekstypes.UpdateTypeVersionUpdate,
			Params: []ekstypes.UpdateParam{{Type: ekstypes.UpdateParamTypePlatformVersion, Value: yes("eks.2")}, {Type: ekstypes.UpdateParamTypeVersion, Value: yes("1.32")}}}
	}
	w := newWorld(t)
	w.fill()
	w.eks.updates = []ekstypes.Update{update(0, "Successful"), update(1, "InProgress"), update(2, "Cancelling"), update(3, "Failed")}
	c := w.open(t)
	ids := func() (out []string) {
		inv, err := c.Inventory(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range inv.Updates {
			out = append(out, u.ID+" "+u.Type+" "+u.Version)
		}
		return out
	}
	want := []string{"u-001 VersionUpdate 1.32", "u-002 VersionUpdate 1.32"}
	if d := cmp.Diff(want, ids()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	w.eks.described = nil
	if d := cmp.Diff(want, ids()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"u-001", "u-002"}, w.eks.described); d != "" {
		t.Errorf("ended updates are not described twice (-want +got):\n%s", d)
	}

	w.eks.updates, w.eks.described = nil, nil
	for i := range 200 {
		w.eks.updates = append(w.eks.updates, update(100+i, "Successful"))
	}
	inv, err := c.Inventory(context.Background())
	if err != nil || len(w.eks.described) > 60 || inv.UpdatesUnread == 0 || inv.UpdatesUnread+len(w.eks.described) != 200 {
		t.Errorf("described %d, unread %d, %v", len(w.eks.described), inv.UpdatesUnread, err)
	}
}

func TestOpenNamesThingAndCure(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world)
		want   []string
	}{
		"unknown cluster": {func(w *world) { w.eks.err = &ekstypes.ResourceNotFoundException{Message: yes("No cluster found")} }, []string{"no cluster shop-green", "list-clusters"}},
		"denied":          {func(w *world) { w.eks.err = &ekstypes.AccessDeniedException{Message: yes("no")} }, []string{"shop-green", "eks:DescribeCluster"}},
		"creating": {func(w *world) {
			w.eks.cluster.Endpoint, w.eks.cluster.Status = nil, ekstypes.ClusterStatusCreating
		}, []string{"shop-green is CREATING", "wait"}},
		"no access": {func(w *world) {
			w.api.before = func(_ int, rw http.ResponseWriter, _ *http.Request) bool {
				status(rw, 401, metav1.StatusReasonUnauthorized)
				return true
			}
		}, []string{"shop-green", "create-access-entry"}},
		"CA is rubbish": {func(w *world) { w.eks.cluster.CertificateAuthority.Data = yes("bm90IGEgY2VydA==") }, []string{"shop-green", "certificate"}},
		"wrong CA":      {func(w *world) { w.eks.cluster.CertificateAuthority.Data = yes(otherCA(t)) }, []string{"shop-green", "certificate"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.change(w)
			_, err := cluster.Open(context.Background(), w.opts)
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range append(tc.want, "shop-green") {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in: %v", part, err)
				}
			}
			w.noSecret(t, err.Error())
		})
	}
}

// noSecret fails when the text holds a token or a key.
func (w *world) noSecret(t *testing.T, text string) {
	t.Helper()
	for _, secret := range append(slices.Clone(w.api.tokens), "very-secret", "k8s-aws-v1.") {
		if secret != "" && strings.Contains(text, secret) {
			t.Errorf("a secret is in: %s", text)
		}
	}
}

func TestExpiredCredentialsAreNotAnAPIServerFault(t *testing.T) {
	w := newWorld(t)
	w.opts.AWS.Credentials = awssdk.CredentialsProviderFunc(func(context.Context) (awssdk.Credentials, error) {
		return awssdk.Credentials{}, &ssocreds.InvalidTokenError{}
	})
	_, err := cluster.Open(context.Background(), w.opts)
	if !aws.IsExpired(err) || aws.IsUnavailable(err) {
		t.Fatalf("got %v", err)
	}
}

func TestHandMadeInventory(t *testing.T) {
	inv := &cluster.Inventory{Version: "1.33", Nodes: []cluster.Node{{Name: "a", Minor: "1.31"}, {Name: "new"}}}
	if lag, ok := inv.Lag(cluster.Pod{Node: "a"}); lag != 2 || !ok {
		t.Errorf("lag %d, %v", lag, ok)
	}
	for _, node := range []string{"", "new", "unseen"} {
		if _, ok := inv.Lag(cluster.Pod{Node: node}); ok {
			t.Errorf("a pod on %q has no known lag", node)
		}
	}
}
