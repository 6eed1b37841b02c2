package kube_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/eksbg/eksbg/internal/sandbox/kube"
)

// A SPDY connection that was closed waits a second for somebody to ask how it went.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/moby/spdystream.(*Connection).shutdown"))
}

const (
	token     = "sesame"
	mimeJSON  = "application/json"
	mimeProto = "application/vnd.kubernetes.protobuf"
)

// rig is a running cluster behind TLS.
type rig struct {
	t     *testing.T
	c     *kube.Cluster
	minor atomic.Value
	host  string
}

// start runs a cluster whose Fargate takes every namespace, with short delays. adjust
// may change the options.
func start(t *testing.T, adjust func(*kube.Options)) *rig {
	t.Helper()
	r := &rig{t: t}
	r.minor.Store("1.31")
	o := kube.Options{
		Name: "blue", Region: "eu-central-1", Seed: 7,
		Version: func() string { return r.minor.Load().(string) },
		Authenticate: func(b string) (string, []string, error) {
			if b != token {
				return "", nil, errors.New("who?")
			}
			return "tester", nil, nil
		},
		Fargate: kube.FargateOptions{
			Startup: 12 * time.Millisecond, Jitter: 6 * time.Millisecond, Stop: 4 * time.Millisecond,
			Profiles: []kube.Profile{{Name: "all", Selectors: []kube.Selector{{Namespace: "*"}}}},
		},
	}
	if adjust != nil {
		adjust(&o)
	}
	c, err := kube.New(o)
	if err != nil {
		t.Fatal(err)
	}
	r.c = c
	if err := c.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.host = "https://" + l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- c.Serve(l, nil) }()
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return r
}

func (r *rig) config(media string) *rest.Config {
	cfg := &rest.Config{Host: r.host, BearerToken: token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: r.c.CA()}}
	cfg.ContentType = media
	if media == mimeProto {
		cfg.AcceptContentTypes = mimeProto + "," + mimeJSON
	}
	return cfg
}

// client is a real clientset; its connections end with the test.
func (r *rig) client(media string) *kubernetes.Clientset {
	r.t.Helper()
	cfg := r.config(media)
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(hc.CloseIdleConnections)
	cs, err := kubernetes.NewForConfigAndClient(cfg, hc)
	if err != nil {
		r.t.Fatal(err)
	}
	return cs
}

func (r *rig) seed(objs ...runtime.Object) {
	r.t.Helper()
	for _, o := range objs {
		if err := r.c.Create(o); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) settle() {
	r.t.Helper()
	if err := r.c.Settle(deadline(r.t)); err != nil {
		r.t.Fatal(err)
	}
}

// deadline is a context that ends long after anything here should have.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// podTemplate is a template with one container and the label app.
func podTemplate(app string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: app + ":1"}}},
	}
}

func appSelector(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

func deployment(name string, replicas int32, change ...func(*appsv1.Deployment)) *appsv1.Deployment {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: appSelector(name), Template: podTemplate(name)},
	}
	for _, f := range change {
		f(d)
	}
	return d
}

func statefulSet(name string, replicas int32, change ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	s := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       appsv1.StatefulSetSpec{Replicas: &replicas, ServiceName: name, Selector: appSelector(name), Template: podTemplate(name)},
	}
	for _, f := range change {
		f(s)
	}
	return s
}

func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	t := podTemplate(name)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: t.Labels}, Spec: t.Spec}
	for _, f := range change {
		f(p)
	}
	return p
}

// restart is the patch of kubectl rollout restart.
func restart(at string) []byte {
	return []byte(`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"` + at + `"}}}}}`)
}

// follow watches a resource of namespace default from now on and calls f for every state
// of an object until f is true.
func follow[T runtime.Object](t *testing.T, w watcher, o metav1.ListOptions, f func(T) bool) {
	t.Helper()
	ctx := deadline(t)
	for ctx.Err() == nil {
		wi, err := w.Watch(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		for e := range wi.ResultChan() {
			if x, ok := e.Object.(T); ok && f(x) {
				wi.Stop()
				return
			}
		}
	}
	t.Fatalf("waited in vain for a %T", *new(T))
}

func named(name string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: "metadata.name=" + name}
}

// rolledOut is kubectl's condition for a finished Deployment rollout.
func rolledOut(d *appsv1.Deployment) bool {
	return d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas == *d.Spec.Replicas &&
		d.Status.Replicas == d.Status.UpdatedReplicas && d.Status.AvailableReplicas == d.Status.UpdatedReplicas
}

// setRolledOut is the same for a StatefulSet without a partition.
func setRolledOut(s *appsv1.StatefulSet) bool {
	return s.Status.ObservedGeneration >= s.Generation && s.Status.ReadyReplicas == *s.Spec.Replicas && s.Status.UpdateRevision == s.Status.CurrentRevision
}

// watcher is the Watch method of every typed client.
type watcher interface {
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// codecs are client-go's, without conversion.
var codecs = scheme.Codecs.WithoutConversion()
