package cluster_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/eksbg/eksbg/e2e/cluster"
	"github.com/eksbg/eksbg/internal/sandbox/kube"
)

// serve brings a cluster up at 1.31 and serves it without sandbox. The token "good" opens it.
func serve(t *testing.T) (*cluster.Cluster, *rest.Config) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	c, err := cluster.New(ctx, t.TempDir(), kube.Options{
		Name: "one", Region: "eu-west-1", Version: func() string { return "1.31" },
		Authenticate: func(bearer string) (string, []string, error) {
			if bearer != "good" {
				return "", nil, errors.New("no such token")
			}
			return "arn:aws:iam::111122223333:user/somebody", []string{"system:masters"}, nil
		},
		Fargate: kube.FargateOptions{
			Startup: 50 * time.Millisecond, Stop: 50 * time.Millisecond,
			Profiles: []kube.Profile{{Name: "all", Selectors: []kube.Selector{{Namespace: "*"}}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.Start(context.WithoutCancel(ctx)); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Serve(l, nil) }()
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), <-done); err != nil {
			t.Error(err)
		}
	})
	cfg := &rest.Config{Host: "https://" + l.Addr().String(), BearerToken: "good"}
	cfg.CAData = c.CA()
	return c, cfg
}

func TestFargateRunsADeploymentOnARealControlPlane(t *testing.T) {
	c, cfg := serve(t)
	k, err := clientset.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	v, err := k.Discovery().ServerVersion()
	if err != nil || !strings.HasPrefix(v.GitVersion, "v1.31.") {
		t.Errorf("/version says %v, %v", v, err)
	}
	meta := metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"}
	app := map[string]string{"k8s-app": "kube-dns"}
	err = c.Create(&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: app},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "coredns", Image: "coredns"}}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.Settle(ctx); err != nil {
		t.Fatal(err)
	}
	pods, err := k.CoreV1().Pods("kube-system").List(ctx, metav1.ListOptions{})
	if err != nil || len(pods.Items) != 2 {
		t.Fatalf("there are %d pods, %v", len(pods.Items), err)
	}
	for _, p := range pods.Items {
		if p.Labels["eks.amazonaws.com/fargate-profile"] != "all" || p.Spec.SchedulerName != "fargate-scheduler" ||
			p.Annotations["CapacityProvisioned"] != "0.25vCPU 0.5GB" || p.Spec.PriorityClassName != "system-node-critical" {
			t.Errorf("Fargate has not taken pod %s: labels %v, annotations %v, scheduler %s", p.Name, p.Labels, p.Annotations, p.Spec.SchedulerName)
		}
		n, err := k.CoreV1().Nodes().Get(ctx, p.Spec.NodeName, metav1.GetOptions{})
		if err != nil || !strings.HasPrefix(n.Status.NodeInfo.KubeletVersion, "v1.31.") {
			t.Errorf("the node of %s is %v, %v", p.Name, n, err)
		}
	}
	if got := c.ReadyPods("kube-system", app); len(got) != 2 || !got[0].Ready {
		t.Errorf("ready are %v", got)
	}
	// A node goes with its pod.
	if err := k.AppsV1().Deployments("kube-system").Delete(ctx, "coredns", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for len(c.Nodes()) > 0 {
		if ctx.Err() != nil {
			t.Fatalf("the nodes %v stay", c.Nodes())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Only who the authenticator knows gets in.
func TestTokensAreAskedAbout(t *testing.T) {
	_, cfg := serve(t)
	for token, ok := range map[string]bool{"good": true, "bad": false, "": false} {
		cfg := rest.CopyConfig(cfg)
		cfg.BearerToken = token
		k, err := clientset.NewForConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); (err == nil) != ok {
			t.Errorf("with the token %q: %v", token, err)
		}
		if _, err := k.Discovery().ServerVersion(); err != nil && token == "" {
			t.Errorf("/version without a token: %v", err)
		}
	}
}
