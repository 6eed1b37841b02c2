package kube_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eksbg/eksbg/internal/sandbox/kube"
)

// A node that is cordoned gets no new pods until it is so no more.
func TestCordonedNodesGetNoPods(t *testing.T) {
	r := start(t, func(o *kube.Options) { o.Fargate.Profiles = nil })
	r.seed(ec2("n1"), ec2("n2"))
	cs := r.client(mimeJSON)
	cordon := func(node, on string) {
		t.Helper()
		_, err := cs.CoreV1().Nodes().Patch(deadline(t), node, types.MergePatchType, []byte(`{"spec":{"unschedulable":`+on+`}}`), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	cordon("n1", "true")
	r.seed(deployment("web", 3))
	r.settle()
	if got := on(t, cs, "web"); got != "map[n2:3]" {
		t.Errorf("the pods are on %s", got)
	}
	cordon("n2", "true")
	r.seed(deployment("late", 1))
	r.settle()
	if got := on(t, cs, "late"); got != "map[:1]" {
		t.Errorf("with both cordoned the pod is on %s", got)
	}
	cordon("n1", "false")
	until(t, cs.CoreV1().Pods("default"), func() bool { return on(t, cs, "late") == "map[n1:1]" })
}
