package kube_test

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/eksbg/eksbg/internal/sandbox/kube"
)

func ec2(name string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"disk": "ssd"}}}
	n.Status.NodeInfo.KubeletVersion = "v1.30.1-eks-0000000"
	for _, f := range change {
		f(n)
	}
	return n
}

// on counts the pods of an app by node.
func on(t *testing.T, cs *kubernetes.Clientset, app string) string {
	t.Helper()
	l, err := cs.CoreV1().Pods("default").List(deadline(t), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		t.Fatal(err)
	}
	nodes := map[string]int{}
	for _, p := range l.Items {
		nodes[p.Spec.NodeName]++
	}
	return fmt.Sprint(nodes)
}

// TestDaemonSet: one pod for each EC2 node that wants one, none on Fargate nodes although
// a profile takes the namespace; a changed template replaces them one by one; a node that
// comes gets its own.
func TestDaemonSet(t *testing.T) {
	r := start(t, nil)
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent"},
		Spec: appsv1.DaemonSetSpec{Selector: appSelector("agent"), Template: podTemplate("agent")}}
	set.Spec.Template.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	tainted := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	}
	plain := func(n *corev1.Node) { n.Labels = nil }
	r.seed(ec2("n1"), ec2("n2"), ec2("n3", tainted), ec2("n4", plain), deployment("web", 1), set)
	r.settle()
	cs := r.client(mimeJSON)
	if got := on(t, cs, "agent"); got != "map[n1:1 n2:1]" {
		t.Errorf("the pods are on %s", got)
	}
	sets := cs.AppsV1().DaemonSets("default")
	ds, err := sets.Get(deadline(t), "agent", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s := ds.Status; s.DesiredNumberScheduled != 2 || s.NumberReady != 2 || s.UpdatedNumberScheduled != 2 || s.ObservedGeneration != 1 {
		t.Errorf("status %+v", s)
	}
	if _, err := sets.Patch(deadline(t), "agent", types.StrategicMergePatchType, restart("2026-11-30T10:00:00Z"), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	least := int32(2)
	follow(t, sets, named("agent"), func(d *appsv1.DaemonSet) bool {
		least = min(least, d.Status.NumberAvailable)
		return d.Status.ObservedGeneration == 2 && d.Status.UpdatedNumberScheduled == 2 && d.Status.NumberReady == 2
	})
	if least < 1 {
		t.Error("both were away at once")
	}
	r.seed(ec2("n5"))
	r.settle()
	if got := on(t, cs, "agent"); got != "map[n1:1 n2:1 n5:1]" {
		t.Errorf("with another node the pods are on %s", got)
	}
}

// TestDefaultScheduler: pods that no profile takes wait for an EC2 node and spread over
// those that there are.
func TestDefaultScheduler(t *testing.T) {
	r := start(t, func(o *kube.Options) { o.Fargate.Profiles = nil })
	r.seed(deployment("web", 4))
	r.settle()
	cs := r.client(mimeProto)
	if got := on(t, cs, "web"); got != "map[:4]" {
		t.Errorf("without nodes the pods are on %s", got)
	}
	r.seed(ec2("n1"))
	r.settle()
	if got := on(t, cs, "web"); got != "map[n1:4]" {
		t.Errorf("with a node the pods are on %s", got)
	}
	r.seed(ec2("n2"), deployment("more", 6))
	r.settle()
	if got := on(t, cs, "more"); got != "map[n1:1 n2:5]" {
		t.Errorf("the others are on %s", got)
	}
}
