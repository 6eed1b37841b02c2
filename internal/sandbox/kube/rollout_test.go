package kube_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

func rolling(surge, unavailable string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{
			MaxSurge: ptr.To(intstr.Parse(surge)), MaxUnavailable: ptr.To(intstr.Parse(unavailable)),
		}
	}
}

// observer keeps the pods and ReplicaSets of default in step with a watch.
type observer struct {
	pods map[string]*corev1.Pod
	sets map[string]*appsv1.ReplicaSet
}

func (o *observer) wanted() (n int32) {
	for _, rs := range o.sets {
		n += *rs.Spec.Replicas
	}
	return n
}

func (o *observer) available() (n int32) {
	for _, p := range o.pods {
		if p.DeletionTimestamp == nil && isReady(p) {
			n++
		}
	}
	return n
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// watching reads the initial state of pods and ReplicaSets, calls begin, and then applies
// each event until done, with a check after every one of them.
func watching(t *testing.T, cs *kubernetes.Clientset, begin func(), check func(*observer), done func(*observer) bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(deadline(t))
	defer cancel()
	pods, err := cs.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer pods.Stop()
	sets, err := cs.AppsV1().ReplicaSets("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer sets.Stop()
	o := &observer{pods: map[string]*corev1.Pod{}, sets: map[string]*appsv1.ReplicaSet{}}
	ready := false
	for {
		select {
		case e := <-pods.ResultChan():
			p, ok := e.Object.(*corev1.Pod)
			if !ok {
				t.Fatalf("watch of pods ended: %v", e.Object)
			}
			if o.pods[p.Name] = p; e.Type == "DELETED" {
				delete(o.pods, p.Name)
			}
		case e := <-sets.ResultChan():
			rs, ok := e.Object.(*appsv1.ReplicaSet)
			if !ok {
				t.Fatalf("watch of ReplicaSets ended: %v", e.Object)
			}
			if o.sets[rs.Name] = rs; e.Type == "DELETED" {
				delete(o.sets, rs.Name)
			}
		case <-ctx.Done():
			t.Fatal("the rollout never got there")
		}
		// The initial state comes in pieces; it counts once it is whole.
		if !ready && o.wanted() > 0 && o.available() == o.wanted() {
			ready = true
			begin()
		}
		if ready {
			check(o)
			if done(o) {
				return
			}
		}
	}
}

// TestDeploymentRollsWithinItsBounds restarts Deployments of many shapes after an upgrade
// of the control plane. The most replicas wanted at a moment are those that maxSurge
// allows and the fewest available those that maxUnavailable does; in the end every pod
// has the new kubelet and the old nodes are gone.
func TestDeploymentRollsWithinItsBounds(t *testing.T) {
	for _, c := range []struct {
		replicas           int32
		surge, unavailable string
		most, least        int32
	}{
		{1, "25%", "25%", 2, 1}, // rounds to 1 and 0
		{4, "25%", "25%", 5, 3},
		{5, "25%", "25%", 7, 4}, // 1.25: surge up to 2, unavailable down to 1
		{10, "25%", "25%", 13, 8},
		{3, "0", "1", 3, 2},
		{3, "1", "0", 4, 3},
		{4, "100%", "0", 8, 4},
		{4, "0", "100%", 4, 0},
		{2, "0%", "1%", 2, 1}, // both round to 0: one is taken away all the same
	} {
		t.Run(fmt.Sprintf("%d surge %s unavailable %s", c.replicas, c.surge, c.unavailable), func(t *testing.T) {
			r := start(t, nil)
			r.seed(deployment("web", c.replicas, rolling(c.surge, c.unavailable)))
			r.settle()
			r.minor.Store("1.32")
			cs := r.client(mimeProto)
			most, least := int32(0), c.replicas
			watching(t, cs, func() {
				_, err := cs.AppsV1().Deployments("default").Patch(deadline(t), "web", types.StrategicMergePatchType, restart("2025-01-01T00:00:00Z"), metav1.PatchOptions{})
				if err != nil {
					t.Fatalf("restart: %v", err)
				}
			}, func(o *observer) {
				most, least = max(most, o.wanted()), min(least, o.available())
			}, func(o *observer) bool {
				return len(o.sets) == 2 && int32(len(o.pods)) == c.replicas && o.available() == c.replicas && allAnnotated(o.pods)
			})
			if most != c.most || least != c.least {
				t.Errorf("up to %d replicas were wanted and down to %d pods available, want %d and %d", most, least, c.most, c.least)
			}
			follow(t, cs.AppsV1().Deployments("default"), named("web"), func(d *appsv1.Deployment) bool {
				return rolledOut(d) && reasons(d) == "MinimumReplicasAvailable NewReplicaSetAvailable"
			})
			checkKubelets(t, cs, "1.32", int(c.replicas))
		})
	}
}

// reasons are those of the conditions, in order.
func reasons(d *appsv1.Deployment) string {
	var out []string
	for _, c := range d.Status.Conditions {
		out = append(out, c.Reason)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestRollover changes the template again in the middle of a rollout: with two old sets
// the bounds hold as with one.
func TestRollover(t *testing.T) {
	r := start(t, nil)
	r.seed(deployment("web", 8, rolling("2", "1")))
	r.settle()
	cs := r.client(mimeProto)
	again := func(at string) {
		if _, err := cs.AppsV1().Deployments("default").Patch(deadline(t), "web", types.StrategicMergePatchType, restart(at), metav1.PatchOptions{}); err != nil {
			t.Fatalf("restart: %v", err)
		}
	}
	rounds := 1
	watching(t, cs, func() { again("round 1") }, func(o *observer) {
		if o.wanted() > 10 || o.available() < 7 {
			t.Errorf("round %d: %d replicas wanted and %d available, want at most 10 and at least 7", rounds, o.wanted(), o.available())
		}
		fresh := 0
		for _, p := range o.pods {
			if isReady(p) && p.Annotations["kubectl.kubernetes.io/restartedAt"] == fmt.Sprint("round ", rounds) {
				fresh++
			}
		}
		if fresh == 3 && rounds < 4 {
			rounds++
			again(fmt.Sprint("round ", rounds))
		}
	}, func(o *observer) bool {
		n := 0
		for _, p := range o.pods {
			if p.Annotations["kubectl.kubernetes.io/restartedAt"] == "round 4" && isReady(p) {
				n++
			}
		}
		return n == 8 && len(o.pods) == 8
	})
}

func allAnnotated(pods map[string]*corev1.Pod) bool {
	for _, p := range pods {
		if p.Annotations["kubectl.kubernetes.io/restartedAt"] == "" {
			return false
		}
	}
	return true
}

// checkKubelets checks that there are n nodes, one under each pod, all at a minor.
func checkKubelets(t *testing.T, cs *kubernetes.Clientset, minor string, n int) {
	t.Helper()
	follow(t, cs.CoreV1().Nodes(), metav1.ListOptions{}, func(*corev1.Node) bool {
		l, err := cs.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
		return err != nil || len(l.Items) == n
	})
	pods, err := cs.CoreV1().Pods("").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != n {
		t.Errorf("there are %d pods, want %d", len(pods.Items), n)
	}
	seen := map[string]bool{}
	for _, p := range pods.Items {
		node, err := cs.CoreV1().Nodes().Get(context.Background(), p.Spec.NodeName, metav1.GetOptions{})
		if err != nil {
			t.Errorf("node of pod %s: %v", p.Name, err)
			continue
		}
		if v := node.Status.NodeInfo.KubeletVersion; !strings.HasPrefix(v, "v"+minor+".") {
			t.Errorf("pod %s has kubelet %s, want %s", p.Name, v, minor)
		}
		if seen[node.Name] {
			t.Errorf("node %s has two pods", node.Name)
		}
		seen[node.Name] = true
	}
}

// TestRecreate checks that old pods are gone before the first new one is made.
func TestRecreate(t *testing.T) {
	r := start(t, nil)
	r.seed(deployment("web", 3, func(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType }))
	r.settle()
	cs := r.client(mimeJSON)
	ctx := deadline(t)
	if _, err := cs.AppsV1().Deployments("default").Patch(ctx, "web", types.StrategicMergePatchType, restart("now"), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	mixed := false
	pods := map[string]bool{}
	follow(t, cs.CoreV1().Pods("default"), metav1.ListOptions{}, func(p *corev1.Pod) bool {
		l, err := cs.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var old, fresh, ready int
		for _, p := range l.Items {
			if p.Annotations["kubectl.kubernetes.io/restartedAt"] == "" {
				old++
			} else {
				fresh++
				if isReady(&p) {
					ready++
				}
			}
			pods[p.Name] = true
		}
		mixed = mixed || old > 0 && fresh > 0
		return ready == 3
	})
	if mixed {
		t.Error("old and new pods were there at the same time")
	}
	follow(t, cs.AppsV1().Deployments("default"), named("web"), rolledOut)
}

// TestRevisions rolls a Deployment on and back: revisions count up, the ReplicaSet of a
// template is used again, and the history is cut to its limit.
func TestRevisions(t *testing.T) {
	r := start(t, nil)
	r.seed(deployment("web", 1, func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = ptr.To[int32](1) }))
	r.settle()
	cs := r.client(mimeJSON)
	ctx := deadline(t)
	for i, image := range []string{"web:2", "web:3", "web:2"} {
		patch := `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"` + image + `"}]}}}}`
		d, err := cs.AppsV1().Deployments("default").Patch(ctx, "web", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprint(i + 2)
		progressed, since := false, named("web")
		since.ResourceVersion = d.ResourceVersion
		follow(t, cs.AppsV1().Deployments("default"), since, func(d *appsv1.Deployment) bool {
			progressed = progressed || strings.Contains(reasons(d), "ReplicaSetUpdated")
			return rolledOut(d) && d.Annotations["deployment.kubernetes.io/revision"] == want
		})
		if !progressed {
			t.Errorf("the rollout of %s was never said to progress", image)
		}
	}
	images := map[string]string{}
	follow(t, cs.AppsV1().ReplicaSets("default"), metav1.ListOptions{}, func(*appsv1.ReplicaSet) bool {
		l, err := cs.AppsV1().ReplicaSets("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		clear(images)
		for _, rs := range l.Items {
			images[rs.Spec.Template.Spec.Containers[0].Image] = rs.Annotations["deployment.kubernetes.io/revision"] + " " +
				rs.Annotations["deployment.kubernetes.io/revision-history"]
		}
		return len(images) == 2
	})
	if images["web:2"] != "4 2" || images["web:3"] != "3 " {
		t.Errorf("revisions and histories by image: %q, want web:2 at 4 (2 before) and web:3 at 3", images)
	}
}

// TestPausedAndStuck checks the condition Progressing of a Deployment that is paused,
// resumed and then cannot get on.
func TestPausedAndStuck(t *testing.T) {
	r := start(t, nil)
	r.seed(deployment("web", 2, func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = ptr.To[int32](1) }))
	r.settle()
	cs := r.client(mimeJSON)
	ctx := deadline(t)
	patch := func(p string) {
		t.Helper()
		if _, err := cs.AppsV1().Deployments("default").Patch(ctx, "web", types.StrategicMergePatchType, []byte(p), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	until := func(reason string) *appsv1.Deployment {
		t.Helper()
		var last *appsv1.Deployment
		follow(t, cs.AppsV1().Deployments("default"), named("web"), func(d *appsv1.Deployment) bool {
			last = d
			for _, c := range d.Status.Conditions {
				if c.Type == appsv1.DeploymentProgressing && c.Reason == reason {
					return true
				}
			}
			return false
		})
		return last
	}
	patch(`{"spec":{"paused":true,"template":{"metadata":{"annotations":{"sandbox.eksbg/ready":"never"}}}}}`)
	until("DeploymentPaused")
	sets, err := cs.AppsV1().ReplicaSets("default").List(ctx, metav1.ListOptions{})
	if err != nil || len(sets.Items) != 1 {
		t.Fatalf("a paused Deployment has %d ReplicaSets (%v), want the old one alone", len(sets.Items), err)
	}
	patch(`{"spec":{"paused":false}}`)
	d := until("ProgressDeadlineExceeded")
	if d.Status.AvailableReplicas != 2 || d.Status.UnavailableReplicas != 1 {
		t.Errorf("stuck with %d available and %d unavailable, want the 2 old ones and 1", d.Status.AvailableReplicas, d.Status.UnavailableReplicas)
	}
}

// TestScale scales through the subresource, also in the middle of a rollout.
func TestScale(t *testing.T) {
	r := start(t, nil)
	r.seed(deployment("web", 4))
	r.settle()
	cs := r.client(mimeProto)
	ctx := deadline(t)
	deps := cs.AppsV1().Deployments("default")
	if _, err := deps.Patch(ctx, "web", types.StrategicMergePatchType, restart("now"), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int32{9, 2, 0, 3} {
		sc, err := deps.GetScale(ctx, "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if sc.Status.Selector != "app=web" {
			t.Errorf("selector of the scale is %q", sc.Status.Selector)
		}
		sc.Spec.Replicas = n
		sc.ResourceVersion = ""
		if _, err := deps.UpdateScale(ctx, "web", sc, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		follow(t, deps, named("web"), func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == n && rolledOut(d) })
	}
	checkKubelets(t, cs, "1.31", 3)
}
