package cluster_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/cluster"
)

// apiServer is as much of a Kubernetes API server as an inventory needs: TLS with
// its own certificate, bearer tokens, /version, and lists in protobuf with limit and
// continue.
type apiServer struct {
	*httptest.Server
	t testing.TB

	mu      sync.Mutex
	version string
	lists   map[string]runtime.Object
	// services by namespace/name.
	services map[string]*corev1.Service
	// before, if set, may answer a request instead.
	before func(n int, w http.ResponseWriter, r *http.Request) bool
	seen   []string
	tokens []string
	accept string
}

func newAPIServer(t testing.TB) *apiServer {
	t.Helper()
	s := &apiServer{t: t, version: "v1.31.14-eks-6ae7ca2", services: map[string]*corev1.Service{}, lists: map[string]runtime.Object{
		"pods": &corev1.PodList{}, "nodes": &corev1.NodeList{}, "replicationcontrollers": &corev1.ReplicationControllerList{},
		"deployments": &appsv1.DeploymentList{}, "replicasets": &appsv1.ReplicaSetList{}, "statefulsets": &appsv1.StatefulSetList{}, "daemonsets": &appsv1.DaemonSetList{},
		"jobs": &batchv1.JobList{}, "cronjobs": &batchv1.CronJobList{}, "poddisruptionbudgets": &policyv1.PodDisruptionBudgetList{},
		"priorityclasses":                 &schedulingv1.PriorityClassList{},
		"validatingwebhookconfigurations": &admissionv1.ValidatingWebhookConfigurationList{},
		"mutatingwebhookconfigurations":   &admissionv1.MutatingWebhookConfigurationList{},
	}}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ErrorLog = quietLog
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, r.Method+" "+r.URL.RequestURI())
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.tokens = append(s.tokens, token)
	s.accept = r.Header.Get("Accept")
	if s.before != nil && s.before(len(s.seen), w, r) {
		return
	}
	if r.URL.Path == "/version" {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"major":"1","minor":"31+","gitVersion":%q}`, s.version)
		return
	}
	if ns, name, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/"), "/services/"); ok {
		svc := s.services[ns+"/"+name]
		if svc == nil {
			status(w, http.StatusNotFound, metav1.StatusReasonNotFound)
			return
		}
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		_, _ = w.Write(s.encode(svc))
		return
	}
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	all, ok := s.lists[resource]
	if !ok {
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	s.page(w, r, all.DeepCopyObject())
}

// page cuts a list as limit and continue say and writes it in protobuf.
func (s *apiServer) page(w http.ResponseWriter, r *http.Request, list runtime.Object) {
	items, err := meta.ExtractList(list)
	if err != nil {
		s.t.Error(err)
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	to := len(items)
	m, err := meta.ListAccessor(list)
	if err != nil {
		s.t.Error(err)
	}
	if limit, _ := strconv.Atoi(r.URL.Query().Get("limit")); limit > 0 && from+limit < to {
		to = from + limit
		m.SetContinue(strconv.Itoa(to))
	}
	if err := meta.SetList(list, items[from:to]); err != nil {
		s.t.Error(err)
	}
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	_, _ = w.Write(s.encode(list))
}

func (s *apiServer) encode(obj runtime.Object) []byte {
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		s.t.Error("no protobuf serializer")
	}
	gvks, _, err := scheme.Scheme.ObjectKinds(obj)
	if err != nil {
		s.t.Error(err)
	}
	var buf bytes.Buffer
	if err := scheme.Codecs.EncoderForVersion(info.Serializer, gvks[0].GroupVersion()).Encode(obj, &buf); err != nil {
		s.t.Error(err)
	}
	return buf.Bytes()
}

func status(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":"no","code":%d}`, reason, code)
}

// requests are those that were served since the last call, without /version.
func (s *apiServer) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, r := range s.seen {
		if r != "GET /version" {
			out = append(out, r)
		}
	}
	s.seen = nil
	return out
}

func (s *apiServer) ca() string {
	b := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return base64.StdEncoding.EncodeToString(b)
}

func reset(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	_ = conn.Close()
}

// fakeEKS answers for one cluster.
type fakeEKS struct {
	cluster ekstypes.Cluster
	// cas, when set, are the CAs of one DescribeCluster after another.
	cas     []string
	updates []ekstypes.Update
	err     error

	described []string
	reads     int
}

func (f *fakeEKS) DescribeCluster(context.Context, *eks.DescribeClusterInput, ...func(*eks.Options)) (*eks.DescribeClusterOutput, error) {
	if f.err != nil {
		return nil, f.err
	}
	c := f.cluster
	if len(f.cas) > 0 {
		c.CertificateAuthority = &ekstypes.Certificate{Data: &f.cas[min(f.reads, len(f.cas)-1)]}
	}
	f.reads++
	return &eks.DescribeClusterOutput{Cluster: &c}, nil
}

func (f *fakeEKS) ListUpdates(_ context.Context, in *eks.ListUpdatesInput, _ ...func(*eks.Options)) (*eks.ListUpdatesOutput, error) {
	const page = 10
	from, _ := strconv.Atoi(awssdk.ToString(in.NextToken))
	out := &eks.ListUpdatesOutput{}
	for i := from; i < min(from+page, len(f.updates)); i++ {
		out.UpdateIds = append(out.UpdateIds, *f.updates[i].Id)
	}
	if from+page < len(f.updates) {
		out.NextToken = awssdk.String(strconv.Itoa(from + page))
	}
	return out, nil
}

func (f *fakeEKS) DescribeUpdate(_ context.Context, in *eks.DescribeUpdateInput, _ ...func(*eks.Options)) (*eks.DescribeUpdateOutput, error) {
	f.described = append(f.described, *in.UpdateId)
	for i := range f.updates {
		if *f.updates[i].Id == *in.UpdateId {
			return &eks.DescribeUpdateOutput{Update: &f.updates[i]}, nil
		}
	}
	return nil, &ekstypes.ResourceNotFoundException{Message: awssdk.String("No update found")}
}

// world is a cluster whose parts are all fakes.
type world struct {
	api  *apiServer
	eks  *fakeEKS
	opts cluster.Options
}

func newWorld(t testing.TB) *world {
	t.Helper()
	api := newAPIServer(t)
	fake := &fakeEKS{cluster: ekstypes.Cluster{
		Name: awssdk.String("shop-green"), Arn: awssdk.String("arn:aws:eks:eu-west-1:111122223333:cluster/shop-green"),
		Version: awssdk.String("1.31"), Status: ekstypes.ClusterStatusActive, Endpoint: awssdk.String(api.URL),
		CreatedAt:            awssdk.Time(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)),
		CertificateAuthority: &ekstypes.Certificate{Data: awssdk.String(api.ca())},
	}}
	return &world{api: api, eks: fake, opts: cluster.Options{
		EKS: fake, AWS: awsConfig("AKIDEXAMPLE"), Name: "shop-green",
		Retry: aws.Options{Backoff: aws.Backoff{Base: time.Millisecond, Cap: time.Millisecond}},
	}}
}

func awsConfig(key string) awssdk.Config {
	return awssdk.Config{Region: "eu-west-1", Credentials: awssdk.CredentialsProviderFunc(func(context.Context) (awssdk.Credentials, error) {
		return awssdk.Credentials{AccessKeyID: key, SecretAccessKey: "very-secret", SessionToken: "session"}, nil
	})}
}

func (w *world) open(t *testing.T) *cluster.Client {
	t.Helper()
	c, err := cluster.Open(context.Background(), w.opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// closedPort is an address that refuses connections.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return "https://" + l.Addr().String()
}

func manyPods(n int) *corev1.PodList {
	list := &corev1.PodList{}
	for i := range n {
		list.Items = append(list.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("cart-%04d", i)}})
	}
	return list
}
