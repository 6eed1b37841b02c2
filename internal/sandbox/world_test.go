package sandbox_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/sandbox"
)

// fast is the speed of tests: a control plane takes about a second.
const fast = 600

// patience is how long anything may take on a busy machine.
const patience = time.Minute

// serve starts a scenario and ends it with the test.
func serve(t *testing.T, s *sandbox.Scenario, speed float64) *sandbox.Sandbox {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	world, err := sandbox.Start(ctx, sandbox.Options{Scenario: s, Dir: filepath.Join(t.TempDir(), "world"), Speed: speed})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := world.Close(); err != nil {
			t.Error(err)
		}
	})
	return world
}

func load(t *testing.T, name string) *sandbox.Scenario {
	t.Helper()
	s, err := sandbox.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// user is somebody who has nothing but the environment and the files.
type user struct {
	t   *testing.T
	cfg awssdk.Config
	eks *eks.Client
	r53 *route53.Client
	elb *elb.Client
	sts *sts.Client
	kubeconfig,
	plan string
}

func userOf(t *testing.T, world *sandbox.Sandbox, attempts int) *user {
	t.Helper()
	for _, kv := range world.Env() {
		k, v, _ := strings.Cut(kv, "=")
		t.Setenv(k, v)
	}
	// Connections of their own, so that none is left over at the end.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	cfg, err := config.LoadDefaultConfig(t.Context(), config.WithHTTPClient(client), config.WithRetryMaxAttempts(attempts))
	if err != nil {
		t.Fatal(err)
	}
	return &user{
		t: t, cfg: cfg, eks: eks.NewFromConfig(cfg), r53: route53.NewFromConfig(cfg), elb: elb.NewFromConfig(cfg), sts: sts.NewFromConfig(cfg),
		kubeconfig: os.Getenv("KUBECONFIG"), plan: world.PlanFile(),
	}
}

// kube is a client for a context of the kubeconfig.
func (u *user) kube(side string) kubernetes.Interface {
	u.t.Helper()
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: u.kubeconfig}, &clientcmd.ConfigOverrides{CurrentContext: side}).ClientConfig()
	if err != nil {
		u.t.Fatal(err)
	}
	return u.client(cfg)
}

func (u *user) client(cfg *rest.Config) kubernetes.Interface {
	u.t.Helper()
	cfg.QPS, cfg.Burst = 1000, 1000
	h, err := rest.HTTPClientFor(cfg)
	if err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(h.CloseIdleConnections)
	c, err := kubernetes.NewForConfigAndClient(cfg, h)
	if err != nil {
		u.t.Fatal(err)
	}
	return c
}

// token is an EKS bearer token as `aws eks get-token` makes one.
func (u *user) token(cluster string) string {
	u.t.Helper()
	presigned, err := sts.NewPresignClient(u.sts).PresignGetCallerIdentity(u.t.Context(), nil, func(o *sts.PresignOptions) {
		o.ClientOptions = append(o.ClientOptions, func(o *sts.Options) {
			o.APIOptions = append(o.APIOptions, smithyhttp.SetHeaderValue("x-k8s-aws-id", cluster), smithyhttp.SetHeaderValue("X-Amz-Expires", "60"))
		})
	})
	if err != nil {
		u.t.Fatal(err)
	}
	return "k8s-aws-v1." + base64.RawURLEncoding.EncodeToString([]byte(presigned.URL))
}

// eventually polls until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			t.Fatalf("it never came to this: %s", what)
		case <-tick.C:
		}
	}
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// minors are the kubelet minors under the pods of a namespace, with how many each.
func minors(t *testing.T, k kubernetes.Interface, namespace, selector string) map[string]int {
	t.Helper()
	got := map[string]int{}
	pods, err := k.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return map[string]int{err.Error(): 1}
	}
	for _, p := range pods.Items {
		if p.Spec.NodeName == "" {
			got["none"]++
			continue
		}
		n, err := k.CoreV1().Nodes().Get(t.Context(), p.Spec.NodeName, metav1.GetOptions{})
		if err != nil {
			got["gone"]++
			continue
		}
		v := strings.SplitN(strings.TrimPrefix(n.Status.NodeInfo.KubeletVersion, "v"), ".", 3)
		got[v[0]+"."+v[1]]++
	}
	return got
}

// browser meets the entrances by name, as the gate of the plan file does.
type browser struct {
	t      *testing.T
	client *http.Client
	urls   []string
}

func browserOf(t *testing.T, plan string) *browser {
	t.Helper()
	file, err := planfile.Load(plan)
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{t: t}
	var server string
	for _, g := range file.Cutover.Gates {
		if g.HTTP != nil {
			b.urls, server = append(b.urls, g.HTTP.URL), g.HTTP.Resolver
		}
	}
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server)
	}}
	b.client = &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{Resolver: resolver}).DialContext},
	}
	return b
}

// get answers status and cluster.
func (b *browser) get(url string) (int, string) {
	b.t.Helper()
	resp, err := b.client.Get(url)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	var a struct{ Cluster string }
	_ = json.Unmarshal(body, &a) // what is no answer of a cluster has none
	return resp.StatusCode, a.Cluster
}

// spread counts who answers n requests; anything but 200 counts under its status.
func (b *browser) spread(url string, n int) map[string]int {
	b.t.Helper()
	got := map[string]int{}
	for range n {
		status, cluster := b.get(url)
		if status != http.StatusOK {
			cluster = http.StatusText(status)
		}
		got[cluster]++
	}
	return got
}
