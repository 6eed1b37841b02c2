package kube_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/eksbg/eksbg/internal/sandbox/kube"
)

// TestFargatePod checks what Fargate makes of a pod and what node it gives it.
func TestFargatePod(t *testing.T) {
	r := start(t, func(o *kube.Options) {
		o.Region = "us-east-1"
		o.Fargate.Subnets = []kube.Subnet{{ID: "subnet-1", CIDR: "10.0.1.0/24", Zone: "us-east-1b"}}
	})
	r.seed(pod("web"))
	r.settle()
	cs := r.client(mimeProto)
	p, err := cs.CoreV1().Pods("default").Get(deadline(t), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const name = "fargate-ip-10-0-1-4.ec2.internal"
	if p.Spec.NodeName != name || p.Spec.SchedulerName != "fargate-scheduler" || p.Labels["eks.amazonaws.com/fargate-profile"] != "all" ||
		p.Annotations["CapacityProvisioned"] != "0.25vCPU 0.5GB" || p.Status.PodIP != "10.0.1.4" || p.Status.HostIP != "10.0.1.4" {
		t.Errorf("pod: node %s, scheduler %s, labels %v, annotations %v, addresses %s and %s", p.Spec.NodeName, p.Spec.SchedulerName,
			p.Labels, p.Annotations, p.Status.PodIP, p.Status.HostIP)
	}
	n, err := cs.CoreV1().Nodes().Get(deadline(t), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range map[string]string{
		"eks.amazonaws.com/compute-type": "fargate", "kubernetes.io/hostname": "ip-10-0-1-4.ec2.internal",
		"topology.kubernetes.io/zone": "us-east-1b", "topology.kubernetes.io/region": "us-east-1", "failure-domain.beta.kubernetes.io/zone": "us-east-1b",
	} {
		if n.Labels[k] != want {
			t.Errorf("label %s of the node is %q, want %q", k, n.Labels[k], want)
		}
	}
	if len(n.Spec.Taints) != 1 || n.Spec.Taints[0] != (corev1.Taint{Key: "eks.amazonaws.com/compute-type", Value: "fargate", Effect: "NoSchedule"}) {
		t.Errorf("taints %v", n.Spec.Taints)
	}
	if eps := r.c.ReadyPods("default", map[string]string{"app": "web"}); len(eps) != 1 || eps[0] != (kube.PodEndpoint{Name: "web", IP: "10.0.1.4", Ready: true}) {
		t.Errorf("endpoints %v", eps)
	}
	r.minor.Store("1.32") // a kubelet never changes in place
	if got := r.c.Nodes(); len(got) != 1 || !strings.HasPrefix(got[0].Kubelet, "v1.31.") || got[0].Compute != "fargate" || got[0].Name != name {
		t.Errorf("nodes %v", got)
	}
}

// TestStartup checks the states a pod goes through: Pending without a node, on a node
// with containers being created, Running.
func TestStartup(t *testing.T) {
	r := start(t, nil)
	cs := r.client(mimeJSON)
	w, err := cs.CoreV1().Pods("default").Watch(deadline(t), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	r.seed(pod("web"))
	var got []string
	for e := range w.ResultChan() {
		p := e.Object.(*corev1.Pod)
		s := string(p.Status.Phase)
		switch {
		case p.Spec.NodeName == "":
			s += " unbound"
		case p.Status.ContainerStatuses[0].State.Waiting != nil:
			s += " " + p.Status.ContainerStatuses[0].State.Waiting.Reason
		case isReady(p):
			s += " ready"
		}
		if got = append(got, s); isReady(p) {
			break
		}
	}
	if want := "[Pending unbound Pending ContainerCreating Running ready]"; fmt.Sprint(got) != want {
		t.Errorf("states %v, want %s", got, want)
	}
}

// TestNoRoom checks the limits: nodes, addresses, profiles. Pods that find no room stay
// Pending with an event, and start in the order they came when there is room.
func TestNoRoom(t *testing.T) {
	for _, c := range []struct {
		name, event string
		adjust      func(*kube.Options)
		room        int
	}{
		{"nodes", "Fargate capacity is unavailable", func(o *kube.Options) { o.Fargate.MaxNodes = 2 }, 2},
		{"addresses", "no available IP addresses", func(o *kube.Options) {
			o.Fargate.Subnets = []kube.Subnet{{ID: "s", CIDR: "10.1.0.0/28", Zone: "a"}}
		}, 11},
		{"vCPUs", "limit on the number of Fargate pods", func(o *kube.Options) {
			o.Fargate.Account = kube.NewAccount(kube.Quota{VCPU: 0.75}) // of 0.25 each
		}, 3},
		{"addresses of a profile", "no available IP addresses", func(o *kube.Options) {
			o.Fargate.Subnets = []kube.Subnet{{ID: "wide", CIDR: "10.1.0.0/24", Zone: "a"}, {ID: "narrow", CIDR: "10.1.1.0/28", Zone: "a"}}
			o.Fargate.Profiles[0].Subnets = []string{"narrow"}
		}, 11},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, c.adjust)
			for i := range c.room + 2 {
				r.seed(pod(fmt.Sprintf("p%02d", i)))
			}
			r.settle()
			cs := r.client(mimeJSON)
			pending, err := cs.CoreV1().Pods("default").List(deadline(t), metav1.ListOptions{FieldSelector: "status.phase=Pending"})
			if err != nil || len(pending.Items) != 2 || len(r.c.Nodes()) != c.room {
				t.Fatalf("%d pods are Pending on %d nodes (%v), want 2 and %d", len(pending.Items), len(r.c.Nodes()), err, c.room)
			}
			first := pending.Items[0].Name
			events, err := cs.CoreV1().Events("default").List(deadline(t), metav1.ListOptions{FieldSelector: "reason=FailedScheduling,involvedObject.name=" + first})
			if err != nil || len(events.Items) != 1 || !strings.Contains(events.Items[0].Message, c.event) {
				t.Errorf("events of %s: %+v (%v)", first, events.Items, err)
			}
			if err := cs.CoreV1().Pods("default").Delete(deadline(t), "p00", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			follow(t, cs.CoreV1().Pods("default"), named(first), isReady)
		})
	}
}

// TestProfiles checks that pods which match no profile stay Pending, and that changed
// profiles count for new pods.
func TestProfiles(t *testing.T) {
	r := start(t, func(o *kube.Options) {
		o.Fargate.Profiles = []kube.Profile{{Name: "shop", Selectors: []kube.Selector{{Namespace: "sh*", Labels: map[string]string{"app": "ca?t"}}}}}
	})
	r.seed(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, pod("cart"),
		pod("cart", func(p *corev1.Pod) { p.Namespace = "shop" }), pod("web", func(p *corev1.Pod) { p.Namespace = "shop" }))
	r.settle()
	ready := func() (out []string) {
		for _, ns := range []string{"default", "shop"} {
			for _, e := range r.c.ReadyPods(ns, nil) {
				out = append(out, ns+"/"+e.Name)
			}
		}
		return out
	}
	if got := fmt.Sprint(ready()); got != "[shop/cart]" {
		t.Errorf("ready are %s, want the one pod that matches", got)
	}
	r.c.SetProfiles([]kube.Profile{{Name: "all", Selectors: []kube.Selector{{Namespace: "*"}}}})
	r.seed(pod("late"))
	r.settle()
	if got := fmt.Sprint(ready()); got != "[default/late shop/cart]" {
		t.Errorf("ready are %s, want the new pod as well, and no old one", got)
	}
}

// TestJob runs a Job to its end: completions in parallel, the finished pods and their
// nodes stay until the Job is deleted.
func TestJob(t *testing.T) {
	r := start(t, nil)
	tmpl := podTemplate("job")
	tmpl.Spec.RestartPolicy = corev1.RestartPolicyNever
	r.seed(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "migrate"},
		Spec: batchv1.JobSpec{Completions: ptr.To[int32](3), Parallelism: ptr.To[int32](2), Template: tmpl}})
	cs := r.client(mimeProto)
	jobs := cs.BatchV1().Jobs("default")
	follow(t, jobs, named("migrate"), func(j *batchv1.Job) bool {
		if j.Status.Active > 2 {
			t.Errorf("%d pods at once, 2 are allowed", j.Status.Active)
		}
		return j.Status.Succeeded == 3 && j.Status.CompletionTime != nil
	})
	if n, nodes := count(t, cs, "job-name=migrate"), len(r.c.Nodes()); n != 3 || nodes != 3 {
		t.Errorf("%d finished pods on %d nodes, want 3 and 3", n, nodes)
	}
	if err := jobs.Delete(deadline(t), "migrate", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}); err != nil {
		t.Fatal(err)
	}
	until(t, cs.CoreV1().Nodes(), func() bool { return len(r.c.Nodes()) == 0 })
}

// TestJobReplaces makes up for a pod that is deleted: while it is Terminating, or only
// when it is gone.
func TestJobReplaces(t *testing.T) {
	for policy, most := range map[batchv1.PodReplacementPolicy]int{batchv1.TerminatingOrFailed: 2, batchv1.Failed: 1} {
		t.Run(string(policy), func(t *testing.T) {
			r := start(t, func(o *kube.Options) { o.Fargate.Stop = 150 * time.Millisecond })
			tmpl := podTemplate("job")
			tmpl.Spec.RestartPolicy = corev1.RestartPolicyNever
			tmpl.Annotations = map[string]string{kube.AnnotationRun: "forever"}
			r.seed(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "long"}, Spec: batchv1.JobSpec{PodReplacementPolicy: &policy, Template: tmpl}})
			r.settle()
			cs := r.client(mimeJSON)
			pods := cs.CoreV1().Pods("default")
			old := r.c.ReadyPods("default", nil)[0].Name
			if err := pods.Delete(deadline(t), old, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			got := 0
			until(t, pods, func() bool {
				got = max(got, count(t, cs, "job-name=long"))
				_, err := pods.Get(deadline(t), old, metav1.GetOptions{})
				return apierrors.IsNotFound(err) && count(t, cs, "job-name=long") == 1
			})
			if got != most {
				t.Errorf("there were up to %d pods, want %d", got, most)
			}
		})
	}
}

// TestJobFails gives up after the backoff limit.
func TestJobFails(t *testing.T) {
	r := start(t, nil)
	tmpl := podTemplate("job")
	tmpl.Spec.RestartPolicy = corev1.RestartPolicyNever
	tmpl.Annotations = map[string]string{kube.AnnotationExit: "3", kube.AnnotationRun: "1ms"}
	r.seed(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "bad"}, Spec: batchv1.JobSpec{BackoffLimit: ptr.To[int32](1), Template: tmpl}})
	follow(t, r.client(mimeJSON).BatchV1().Jobs("default"), named("bad"), func(j *batchv1.Job) bool {
		for _, c := range j.Status.Conditions {
			if c.Type == batchv1.JobFailed {
				return j.Status.Failed == 2 && c.Reason == "BackoffLimitExceeded"
			}
		}
		return false
	})
}

// TestReadinessGates keeps a pod unready until somebody sets the gate's condition.
func TestReadinessGates(t *testing.T) {
	r := start(t, nil)
	const gate = "target-health.elbv2.k8s.aws/tg"
	r.seed(pod("web", func(p *corev1.Pod) { p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: gate}} }))
	r.settle()
	pods := r.client(mimeJSON).CoreV1().Pods("default")
	p, err := pods.Get(deadline(t), "web", metav1.GetOptions{})
	if err != nil || p.Status.Phase != corev1.PodRunning || isReady(p) {
		t.Fatalf("phase %s, ready %v (%v); want Running but not ready", p.Status.Phase, isReady(p), err)
	}
	patch := []byte(`{"status":{"conditions":[{"type":"` + gate + `","status":"True"}]}}`)
	if _, err := pods.Patch(deadline(t), "web", "application/strategic-merge-patch+json", patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	follow(t, pods, named("web"), isReady)
}

// TestNodeDeleted takes the pod with a node that somebody deletes.
func TestNodeDeleted(t *testing.T) {
	r := start(t, nil)
	r.seed(deployment("web", 1))
	r.settle()
	cs := r.client(mimeJSON)
	old := r.c.Nodes()[0].Name
	if err := cs.CoreV1().Nodes().Delete(deadline(t), old, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	follow(t, cs.CoreV1().Pods("default"), metav1.ListOptions{}, func(p *corev1.Pod) bool {
		return isReady(p) && p.Spec.NodeName != old
	})
}

// TestSeededNode runs pods that were bound by hand on a node that is none of Fargate's.
func TestSeededNode(t *testing.T) {
	r := start(t, nil)
	r.seed(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "ip-10-9-9-9"}, Status: corev1.NodeStatus{
		NodeInfo:  corev1.NodeSystemInfo{KubeletVersion: "v1.30.2-eks-1552ad0"},
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.9.9.9"}},
	}}, pod("agent", func(p *corev1.Pod) { p.Spec.NodeName = "ip-10-9-9-9" }))
	r.settle()
	p, err := r.client(mimeJSON).CoreV1().Pods("default").Get(deadline(t), "agent", metav1.GetOptions{})
	if err != nil || !isReady(p) || p.Status.HostIP != "10.9.9.9" || p.Labels["eks.amazonaws.com/fargate-profile"] != "" {
		t.Errorf("pod %+v (%v)", p.Status, err)
	}
	if got := r.c.Nodes(); len(got) != 1 || got[0].Compute != "ec2" || got[0].Kubelet != "v1.30.2-eks-1552ad0" {
		t.Errorf("nodes %v", got)
	}
}

// TestMinReady makes pods available only after minReadySeconds, except in Settle.
func TestMinReady(t *testing.T) {
	r := start(t, nil)
	d := deployment("web", 1)
	d.Spec.MinReadySeconds = 1
	r.seed(d)
	r.settle()
	cs := r.client(mimeJSON)
	if d, err := cs.AppsV1().Deployments("default").Get(deadline(t), "web", metav1.GetOptions{}); err != nil || !rolledOut(d) {
		t.Errorf("after Settle the status is %+v (%v)", d.Status, err)
	}
	if _, err := cs.AppsV1().Deployments("default").Patch(deadline(t), "web", "application/strategic-merge-patch+json", restart("x"), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	sawWaiting := false
	follow(t, cs.AppsV1().Deployments("default"), named("web"), func(d *appsv1.Deployment) bool {
		sawWaiting = sawWaiting || d.Status.ReadyReplicas == 2 && d.Status.AvailableReplicas == 1
		return d.Status.ObservedGeneration == 2 && rolledOut(d)
	})
	if !sawWaiting {
		t.Error("the new pod was available as soon as it was ready")
	}
}
