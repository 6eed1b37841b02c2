package kube_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eksbg/eksbg/internal/sandbox/kube"
)

// world builds a cluster with a seed, restarts a workload some times, and returns its
// snapshot as JSON.
func world(t *testing.T, seed int64, restarts ...string) string {
	t.Helper()
	r := start(t, func(o *kube.Options) { o.Seed = seed })
	tmpl := podTemplate("job")
	tmpl.Spec.RestartPolicy = corev1.RestartPolicyNever
	tmpl.Annotations = map[string]string{kube.AnnotationRun: "0s"}
	r.seed(deployment("web", 2), statefulSet("db", 2), pod("bare"), budget("b", "web", minAvailable("1")),
		&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "done"}, Spec: batchv1.JobSpec{Template: tmpl}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	r.settle()
	r.minor.Store("1.32")
	cs := r.client(mimeJSON)
	for _, at := range restarts {
		if _, err := cs.AppsV1().Deployments("default").Patch(deadline(t), "web", "application/strategic-merge-patch+json", restart(at), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		r.settle()
	}
	b, err := json.MarshalIndent(r.c.Snapshot(), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestSnapshot checks that worlds which stand the same compare equal, whatever their
// names, times and ways there, and that others do not.
func TestSnapshot(t *testing.T) {
	one, two := world(t, 1, "2025-01-01T00:00:00Z"), world(t, 2, "2025-02-02T00:00:00Z", "2025-02-03T00:00:00Z")
	if d := cmp.Diff(one, two); d != "" {
		t.Errorf("two equal worlds differ:\n%s", d)
	}
	if strings.Contains(one, "2025") || strings.Contains(one, "fargate-ip") {
		t.Errorf("the snapshot holds times or names:\n%s", one)
	}
	var w kube.World
	if err := json.Unmarshal([]byte(one), &w); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]kube.Workload{
		"default/Deployment/web": {Restarted: true, Pods: map[string]int{"ready": 2}, Kubelets: map[string]int{"1.32": 2}},
		"default/StatefulSet/db": {Pods: map[string]int{"ready": 2}, Kubelets: map[string]int{"1.31": 2}},
		"default/Pod/bare":       {Pods: map[string]int{"ready": 1}, Kubelets: map[string]int{"1.31": 1}},
		"default/Job/done":       {Pods: map[string]int{"succeeded": 1}},
	} {
		got := w.Workloads[name]
		got.Spec = nil
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	if d := cmp.Diff(map[string]int{"fargate 1.31": 4, "fargate 1.32": 2}, w.Nodes); d != "" {
		t.Errorf("nodes (-want +got):\n%s", d)
	}
	if three := world(t, 1); three == one {
		t.Error("a world without the restart has the same snapshot")
	}
}

// TestOnChange is told of changes, and not from inside of them.
func TestOnChange(t *testing.T) {
	r := start(t, nil)
	told := make(chan int, 1000)
	r.c.OnChange(func() { told <- len(r.c.Nodes()) })
	r.seed(deployment("web", 2))
	for n := range told {
		if n == 2 {
			return
		}
	}
}

// TestManyPods settles and restarts a large cluster.
func TestManyPods(t *testing.T) {
	r := start(t, nil)
	for _, app := range []string{"a", "b", "c", "d"} {
		r.seed(deployment(app, 150), budget(app, app, minAvailable("50%")))
	}
	r.settle()
	if n := len(r.c.Nodes()); n != 600 {
		t.Fatalf("%d nodes, want 600", n)
	}
	r.minor.Store("1.32")
	cs := r.client(mimeProto)
	for _, app := range []string{"a", "b", "c", "d"} {
		if _, err := cs.AppsV1().Deployments("default").Patch(deadline(t), app, "application/strategic-merge-patch+json", restart("now"), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r.settle()
	for _, n := range r.c.Nodes() {
		if !strings.HasPrefix(n.Kubelet, "v1.32.") {
			t.Fatalf("node %s still has %s", n.Name, n.Kubelet)
		}
	}
}
