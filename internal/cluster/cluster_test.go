package cluster_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/ssocreds"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/aws-iam-authenticator/pkg/token"

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
		"cart-1-a": "shop/Deployment/cart", "cart-1-b": "shop/Deployment/cart", "waiting": "shop/Deployment/cart",
		"canary-1-a": "shop/Rollout/canary", "gone-1-a": "shop/ReplicaSet/gone-1", "report-1-a": "shop/CronJob/report",
		"import-a": "shop/Job/import", "db-0": "shop/StatefulSet/db", "bare": "shop/Pod/bare", "static": "Node/n-new",
	}
	if d := cmp.Diff(wantOwners, owners); d != "" {
		t.Errorf("owners (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"cart-1-a", "db-0", "bare"}, lags); d != "" {
		t.Errorf("lagging (-want +got):\n%s", d)
	}
	wantWork := []cluster.Workload{
		{Owner: cluster.Owner{APIVersion: "apps/v1", Namespace: "shop", Kind: "Deployment", Name: "cart", UID: "uid-cart"}, Replicas: 2, Ready: 1, Updated: 1, Current: 2, Paused: true, Strategy: "RollingUpdate", Generation: 3, Observed: 2, RestartedAt: "2026-11-30T10:00:00Z"},
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
	if ready, all := inv.PodCount(); ready != 7 || all != 9 {
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
		"GET /api/v1/pods?limit=500", "GET /api/v1/pods?continue=500&limit=500", "GET /api/v1/pods?continue=1000&limit=500",
		"GET /apis/apps/v1/replicasets?limit=500", "GET /apis/batch/v1/jobs?limit=500", "GET /api/v1/nodes?limit=500",
		"GET /apis/apps/v1/deployments?limit=500", "GET /apis/apps/v1/statefulsets?limit=500", "GET /apis/apps/v1/daemonsets?limit=500",
	}
	if d := cmp.Diff(want, w.api.requests()); d != "" {
		t.Errorf("requests (-want +got):\n%s", d)
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

func TestRequestsAreRepeated(t *testing.T) {
	for name, bad := range map[string]func(http.ResponseWriter){
		"429":   func(w http.ResponseWriter) { status(w, 429, metav1.StatusReasonTooManyRequests) },
		"503":   func(w http.ResponseWriter) { w.WriteHeader(503) },
		"500":   func(w http.ResponseWriter) { status(w, 500, metav1.StatusReasonInternalError) },
		"reset": reset,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.fill()
			c := w.open(t)
			n := 0
			w.api.before = func(_ int, rw http.ResponseWriter, _ *http.Request) bool {
				if n++; n > 15 {
					return false
				}
				bad(rw)
				return true
			}
			// Fifteen is more than client-go would repeat by itself.
			if _, err := c.Inventory(context.Background()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestAChangeIsSentAgainWithItsBody(t *testing.T) {
	w := newWorld(t)
	c := w.open(t)
	var bodies []string
	w.api.before = func(_ int, rw http.ResponseWriter, r *http.Request) bool {
		b, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(b))
		if len(bodies) < 3 {
			rw.WriteHeader(503)
			return true
		}
		rw.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		_, _ = rw.Write(w.api.encode(&appsv1.Deployment{}))
		return true
	}
	patch := []byte(`{"spec":{"paused":false}}`)
	_, err := c.Kubernetes().AppsV1().Deployments("shop").Patch(context.Background(), "cart", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil || !slices.Equal(bodies, []string{string(patch), string(patch), string(patch)}) {
		t.Fatalf("%v, bodies %q", err, bodies)
	}
}

func TestAnsweredForGood(t *testing.T) {
	w := newWorld(t)
	c := w.open(t)
	w.api.requests()
	w.api.before = func(_ int, rw http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			status(rw, 429, metav1.StatusReasonTooManyRequests)
		} else {
			status(rw, 500, metav1.StatusReasonInternalError)
		}
		return true
	}
	ctx := context.Background()
	evict := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart"}}
	if err := c.Kubernetes().CoreV1().Pods("shop").EvictV1(ctx, evict); err == nil {
		t.Error("a budget that forbids an eviction is an answer")
	}
	if got := w.api.requests(); len(got) != 1 {
		t.Errorf("eviction: %v", got)
	}
	if _, err := c.Kubernetes().AppsV1().Deployments("shop").Patch(ctx, "cart", types.StrategicMergePatchType, []byte(`{}`), metav1.PatchOptions{}); err == nil {
		t.Error("a webhook that fails for ever is an answer in the end")
	}
	if got := w.api.requests(); len(got) != 5 {
		t.Errorf("patch: %d requests", len(got))
	}
}

func TestDeadAPIServerIsGivenUpInTime(t *testing.T) {
	w := newWorld(t)
	w.eks.cluster.Endpoint = yes(closedPort(t))
	w.opts.Patience = 20 * time.Millisecond
	_, err := cluster.Open(context.Background(), w.opts)
	if err == nil || !aws.IsUnavailable(err) || !strings.Contains(err.Error(), "shop-green") || !strings.Contains(err.Error(), "public access CIDRs") {
		t.Fatalf("got %v", err)
	}
}

func TestResetsDoNotMultiply(t *testing.T) {
	w := newWorld(t)
	c := w.open(t)
	n := 0
	w.api.before = func(_ int, rw http.ResponseWriter, _ *http.Request) bool { n++; reset(rw); return true }
	_, _, err := c.ServerVersion(aws.WithPatience(context.Background(), 30*time.Millisecond))
	var gave *aws.GaveUpError
	// net/http itself sends a request again when a kept connection turns out dead.
	if !errors.As(err, &gave) || n < gave.Attempts || n > gave.Attempts+1 {
		t.Fatalf("%d requests for one call: %v", n, err)
	}
}

func TestCancelLetsAChangeInFlightFinish(t *testing.T) {
	w := newWorld(t)
	c := w.open(t)
	arrived, release := make(chan struct{}), make(chan struct{})
	w.api.before = func(_ int, rw http.ResponseWriter, _ *http.Request) bool {
		close(arrived)
		<-release
		rw.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		_, _ = rw.Write(w.api.encode(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "cart", Generation: 7}}))
		return true
	}
	ctx, cancel := context.WithCancel(context.Background())
	var d *appsv1.Deployment
	var err error
	var wg sync.WaitGroup
	wg.Go(func() {
		d, err = c.Kubernetes().AppsV1().Deployments("shop").Patch(ctx, "cart", types.StrategicMergePatchType, []byte(`{}`), metav1.PatchOptions{})
	})
	<-arrived
	cancel()
	close(release)
	wg.Wait()
	if err != nil || d.Generation != 7 {
		t.Fatalf("got %v", err)
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

func TestRotatedCAIsReadAnew(t *testing.T) {
	w := newWorld(t)
	w.eks.cas = []string{otherCA(t), w.api.ca()}
	if _, _, err := w.open(t).ServerVersion(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func otherCA(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, tpl, tpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// shape is a token without what changes from one to the next.
func shape(t *testing.T, tok string) string {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(tok, "k8s-aws-v1."))
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(string(raw))
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	for _, k := range []string{"X-Amz-Date", "X-Amz-Signature"} {
		if q.Get(k) == "" {
			t.Errorf("token without %s", k)
		}
		q.Set(k, "…")
	}
	return u.Scheme + "://" + u.Host + u.Path + "?" + q.Encode()
}

func TestTokenIsThatOfTheAuthenticator(t *testing.T) {
	w := newWorld(t)
	w.open(t)
	gen, err := token.NewGenerator(false, false)
	if err != nil {
		t.Fatal(err)
	}
	want, err := gen.GetWithSTS("shop-green", sts.NewFromConfig(w.opts.AWS))
	if err != nil {
		t.Fatal(err)
	}
	got := w.api.tokens[0]
	if !strings.HasPrefix(got, "k8s-aws-v1.") {
		t.Fatal("no EKS token was sent")
	}
	if d := cmp.Diff(shape(t, want.Token), shape(t, got)); d != "" {
		t.Errorf("(-authenticator +ours):\n%s", d)
	}
}

func TestTokenIsRenewed(t *testing.T) {
	w := newWorld(t)
	clk := clocktesting.NewFakeClock(time.Now())
	w.opts.Clock = clk
	key := "AKIDFIRST"
	w.opts.AWS.Credentials = awssdk.CredentialsProviderFunc(func(context.Context) (awssdk.Credentials, error) {
		return awssdk.Credentials{AccessKeyID: key, SecretAccessKey: "very-secret"}, nil
	})
	c := w.open(t)
	ask := func() string {
		t.Helper()
		if _, _, err := c.ServerVersion(context.Background()); err != nil {
			t.Fatal(err)
		}
		return shape(t, w.api.tokens[len(w.api.tokens)-1])
	}
	key = "AKIDSECOND"
	if clk.Step(9 * time.Minute); !strings.Contains(ask(), "AKIDFIRST") {
		t.Error("a good token is thrown away")
	}
	if clk.Step(2 * time.Minute); !strings.Contains(ask(), "AKIDSECOND") {
		t.Error("a token is used for longer than ten minutes")
	}
	// The session behind the token was replaced: 401 once, then a fresh token.
	key = "AKIDTHIRD"
	refused := 0
	w.api.before = func(_ int, rw http.ResponseWriter, r *http.Request) bool {
		tok, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if strings.Contains(shape(t, tok), "AKIDTHIRD") {
			return false
		}
		refused++
		status(rw, 401, metav1.StatusReasonUnauthorized)
		return true
	}
	if !strings.Contains(ask(), "AKIDTHIRD") || refused != 1 {
		t.Errorf("%d refusals", refused)
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
