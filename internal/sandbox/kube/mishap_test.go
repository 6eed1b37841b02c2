package kube_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eksbg/eksbg/internal/sandbox/kube"
)

// annotated makes a Deployment whose pods have an annotation.
func annotated(name string, replicas int32, key, value string) *appsv1.Deployment {
	return deployment(name, replicas, func(d *appsv1.Deployment) { d.Spec.Template.Annotations = map[string]string{key: value} })
}

// TestForget: the scheduler forgets one of the pods that come after the world has begun;
// deleted it comes anew, and that one is not forgotten.
func TestForget(t *testing.T) {
	r := start(t, nil)
	r.seed(annotated("web", 2, kube.AnnotationForget, "1"))
	r.settle()
	cs := r.client(mimeJSON)
	deps, pods := cs.AppsV1().Deployments("default"), cs.CoreV1().Pods("default")
	if _, err := deps.Patch(deadline(t), "web", types.StrategicMergePatchType, restart("2026-11-30T10:00:00Z"), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	r.settle()
	l, err := pods.List(deadline(t), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var lost string
	for _, p := range l.Items {
		if p.Spec.NodeName == "" {
			lost += p.Name
		}
	}
	if err := pods.Delete(deadline(t), lost, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("forgotten is %q: %v", lost, err)
	}
	until(t, deps, func() bool {
		d, err := deps.Get(deadline(t), "web", metav1.GetOptions{})
		return err == nil && rolledOut(d)
	})
}

// TestFail: pods made after the world has begun never get ready, and say why; those
// before stay as they are.
func TestFail(t *testing.T) {
	for fail, want := range map[string]string{"image": "ImagePullBackOff", "crash": "CrashLoopBackOff"} {
		t.Run(fail, func(t *testing.T) {
			r := start(t, nil)
			r.seed(annotated("web", 1, kube.AnnotationFail, fail))
			r.settle()
			cs := r.client(mimeJSON)
			pods := cs.CoreV1().Pods("default")
			if _, err := cs.AppsV1().Deployments("default").Patch(deadline(t), "web", types.StrategicMergePatchType, restart("2026-11-30T10:00:00Z"), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			until(t, pods, func() bool {
				l, err := pods.List(deadline(t), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				why, ready := "", 0
				for _, p := range l.Items {
					for _, c := range p.Status.ContainerStatuses {
						if c.State.Waiting != nil && strings.HasSuffix(c.State.Waiting.Reason, "BackOff") && c.State.Waiting.Message != "" {
							why = c.State.Waiting.Reason
						}
						if c.Ready {
							ready++
						}
					}
				}
				return why == want && ready == 1
			})
		})
	}
}
