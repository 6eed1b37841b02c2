package sandbox_test

import (
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/eksbg/eksbg/internal/sandbox"
)

// Strict is as strict as EKS was: a control plane goes up only when no pod lags.
func TestStrictRefusesLaggingPods(t *testing.T) {
	world := serve(t, load(t, "article"), fast)
	u := userOf(t, world, 1)
	green := u.kube(sandbox.Green)
	const name = "fargate-demo-green"
	if update := u.hop(name, "1.26"); update.Status != ekstypes.UpdateStatusSuccessful {
		t.Fatalf("the first hop ended as %s", update.Status)
	}
	next := func() error {
		_, err := u.eks.UpdateClusterVersion(t.Context(), &eks.UpdateClusterVersionInput{Name: awssdk.String(name), Version: awssdk.String("1.27")})
		return err
	}
	err := next()
	if code(err) != "InvalidRequestException" || !strings.Contains(err.Error(), "recycle all offending pod replicas") {
		t.Fatalf("with lagging pods EKS answered %v", err)
	}
	u.restart(green, "kube-system", "coredns", "2026-11-30T10:00:00Z", "1.26")
	u.restart(green, "fargate-demo", "nginx", "2026-11-30T10:00:00Z", "1.26")
	// The finished Job keeps its node, and with it an old kubelet, until it is deleted.
	background := metav1.DeletePropagationBackground
	if err := green.BatchV1().Jobs("fargate-demo").Delete(t.Context(), "nightly-report", metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no node lags", func() bool {
		for _, n := range world.Kube(sandbox.Green).Nodes() {
			if !strings.HasPrefix(n.Kubelet, "v1.26.") {
				return false
			}
		}
		return true
	})
	if err := next(); err != nil {
		t.Errorf("without lagging pods: %v", err)
	}
}

// Whatever a scenario may hold comes up.
func TestEveryKindComesUp(t *testing.T) {
	text := strings.Replace(minimal, "      - {namespace: web, kind: Deployment, name: web, replicas: 2}\n", `      - {namespace: web, kind: Deployment, name: web, replicas: 2, strategy: RollingUpdate, maxSurge: 25%, maxUnavailable: "1", port: 8080, minAvailable: "1"}
      - {namespace: web, kind: Deployment, name: still, replicas: 1, paused: true, labels: {tier: back}}
      - {namespace: web, kind: Deployment, name: none, replicas: 0}
      - {namespace: data, kind: StatefulSet, name: ordered, replicas: 2, partition: 1}
      - {namespace: data, kind: StatefulSet, name: manual, replicas: 1, strategy: OnDelete, graceSeconds: 5}
      - {namespace: jobs, kind: Job, name: finished}
      - {namespace: jobs, kind: Job, name: running, runs: 24h}
      - {namespace: jobs, kind: CronJob, name: nightly, schedule: "0 4 * * *", suspend: true}
      - {namespace: jobs, kind: CronJob, name: hourly, schedule: "0 * * * *", ran: 2}
      - {namespace: jobs, kind: CronJob, name: yearly, schedule: "0 0 1 1 *", ran: 1, running: 1, runs: 1000h}
      - {namespace: jobs, kind: Pod, name: bare}
      - {namespace: old, kind: ReplicaSet, name: set, replicas: 2, priorityClass: urgent}
      - {namespace: old, kind: ReplicationController, name: rc, replicas: 2, maxDisrupted: "1"}
      - {namespace: old, kind: CloneSet, name: clones, replicas: 2}
      - {namespace: old, kind: CloneSet, name: runners, restartPolicy: Never, runs: 1000h}
      - {namespace: old, kind: Rollout, name: canary, replicas: 2, maxSurge: "1"}
      - {namespace: old, kind: StatefulSet, name: ring, replicas: 2, start: 5, parallel: true}
      - {namespace: old, kind: Deployment, name: hook, port: 9443, webhook: hook.example.com}
      - {namespace: old, kind: DaemonSet, name: agent}
      - {namespace: old, kind: Pod, name: probe, static: true, node: n1}
    nodes: [{name: n1, kubelet: "1.30", zone: eu-west-1a}]
    priorityClasses: {urgent: 7}
    budgets: [{namespace: old, name: all, selector: {app: set}, minAvailable: "1"}, {namespace: old, name: more, selector: {app: set}, maxDisrupted: "1"}]
`, 1)
	s, err := sandbox.Parse("kinds", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	world := serve(t, s, fast)
	u := userOf(t, world, 3)
	blue := u.kube(sandbox.Blue)
	for pod, want := range map[string]corev1.PodPhase{
		"web/app=web": "Running Running", "web/tier=back": "Running", "web/app=none": "",
		"data/app=ordered": "Running Running", "data/app=manual": "Running",
		"jobs/app=finished": corev1.PodSucceeded, "jobs/app=running": "Running", "jobs/app=nightly": "", "jobs/app=bare": "Running",
		"jobs/app=hourly": "Succeeded Succeeded", "jobs/app=yearly": "Succeeded Running", "old/app=runners": "Running",
		"old/app=set": "Running Running", "old/app=rc": "Running Running", "old/app=clones": "Running Running", "old/app=canary": "Running Running",
		"old/app=ring": "Running Running", "old/app=hook": "Running", "old/app=agent": "Running", "old/app=probe": "Running",
	} {
		ns, selector, _ := strings.Cut(pod, "/")
		if got := phases(t, blue, ns, selector); got != string(want) {
			t.Errorf("%s: pods are %q, want %q", pod, got, want)
		}
	}
	ctx := t.Context()
	still := must[*deployment](t)(blue.AppsV1().Deployments("web").Get(ctx, "still", metav1.GetOptions{}))
	manual := must[*statefulSet](t)(blue.AppsV1().StatefulSets("data").Get(ctx, "manual", metav1.GetOptions{}))
	ordered := must[*statefulSet](t)(blue.AppsV1().StatefulSets("data").Get(ctx, "ordered", metav1.GetOptions{}))
	if !still.Spec.Paused || manual.Spec.UpdateStrategy.Type != "OnDelete" || *ordered.Spec.UpdateStrategy.RollingUpdate.Partition != 1 {
		t.Errorf("got paused %v, strategy %s, partition %v", still.Spec.Paused, manual.Spec.UpdateStrategy.Type, ordered.Spec.UpdateStrategy.RollingUpdate)
	}
	if _, err := blue.CoreV1().Services("web").Get(ctx, "web", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	pdb, err := blue.PolicyV1().PodDisruptionBudgets("web").Get(ctx, "web", metav1.GetOptions{})
	if err != nil || pdb.Status.DisruptionsAllowed != 1 {
		t.Errorf("the budget is %+v, %v", pdb, err)
	}
	runners := must[*podList](t)(blue.CoreV1().Pods("old").List(ctx, metav1.ListOptions{LabelSelector: "app=runners"}))
	if runners.Items[0].Spec.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("runners are restarted %s", runners.Items[0].Spec.RestartPolicy)
	}
	budgets, err := blue.PolicyV1().PodDisruptionBudgets("old").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	over := 0
	for _, b := range budgets.Items {
		if b.Spec.Selector.MatchLabels["app"] == "set" && b.Status.ExpectedPods == 2 && b.Status.DisruptionsAllowed == 1 {
			over++
		}
	}
	if over != 2 {
		t.Errorf("%d budgets over old/set: %+v", over, budgets.Items)
	}
	cron, err := blue.BatchV1().CronJobs("jobs").Get(ctx, "nightly", metav1.GetOptions{})
	if err != nil || cron.Spec.Schedule != "0 4 * * *" {
		t.Errorf("the CronJob is %+v, %v", cron, err)
	}
}

// A control plane that somebody else has raised is at once what every client sees, and
// what runs on it lags.
func TestRaise(t *testing.T) {
	world := serve(t, tiny(t), fast)
	if err := world.Raise(sandbox.Blue, "1.32"); err != nil {
		t.Fatal(err)
	}
	if v := world.Versions(); v[sandbox.Blue] != "1.32" || v[sandbox.Green] != "1.31" {
		t.Errorf("the control planes are at %v", v)
	}
	blue := userOf(t, world, 1).kube(sandbox.Blue)
	if v, err := blue.Discovery().ServerVersion(); err != nil || v.Minor != "32" {
		t.Errorf("the API server says %+v, %v", v, err)
	}
	if got := minors(t, blue, "web", "app=web"); got["1.31"] != 2 {
		t.Errorf("kubelets %v", got)
	}
	if err := world.Raise(sandbox.Blue, "1.99"); err == nil || world.Versions()[sandbox.Blue] != "1.32" {
		t.Errorf("1.99: %v, the control planes are at %v", err, world.Versions())
	}
}

// What the owners of the world look like to a client.
func TestOwnersAreTheRealOnes(t *testing.T) {
	world := serve(t, load(t, "owners"), fast)
	k := userOf(t, world, 1).kube(sandbox.Green)
	ctx := t.Context()
	owner := func(ns, app string) string {
		pods := must[*podList](t)(k.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app}))
		for _, p := range pods.Items {
			if ref := metav1.GetControllerOf(&p); ref != nil {
				return ref.APIVersion + " " + ref.Kind
			}
		}
		return ""
	}
	for _, c := range []struct{ ns, app, want string }{
		{"legacy", "pair", "apps/v1 ReplicaSet"}, {"legacy", "oldest", "v1 ReplicationController"}, {"legacy", "clones", "apps.kruise.io/v1alpha1 CloneSet"},
		{"legacy", "canary", "apps/v1 ReplicaSet"}, {"batch", "shell", ""}, {"kube-system", "node-probe", "v1 Node"}, {"kube-system", "node-agent", "apps/v1 DaemonSet"},
		{"batch", "nightly", "batch/v1 Job"},
	} {
		if got := owner(c.ns, c.app); got != c.want {
			t.Errorf("%s/%s belongs to %q, want %q", c.ns, c.app, got, c.want)
		}
	}
	hooks, err := k.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil || len(hooks.Items) != 1 || *hooks.Items[0].Webhooks[0].FailurePolicy != "Fail" || hooks.Items[0].Webhooks[0].ClientConfig.Service.Namespace != "policy" {
		t.Errorf("webhooks %+v, %v", hooks, err)
	}
	jobs, err := k.BatchV1().Jobs("batch").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	for _, j := range jobs.Items {
		if ref := metav1.GetControllerOf(&j); ref != nil && ref.Kind == "CronJob" && ref.Name == "nightly" && j.Status.Succeeded == 1 {
			made++
		}
	}
	if made != 2 {
		t.Errorf("the CronJob has %d finished Jobs, want 2", made)
	}
}

// A Deployment under GitOps loses the annotation of a restart again, and its
// managedFields say whose template it is.
func TestGitOpsRevertsRestarts(t *testing.T) {
	world := serve(t, load(t, "owners"), fast)
	k := userOf(t, world, 1).kube(sandbox.Green)
	deps := k.AppsV1().Deployments("shop")
	patch := []byte(`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"2026-11-30T10:00:00Z"}}}}}`)
	if _, err := deps.Patch(t.Context(), "kept", "application/strategic-merge-patch+json", patch, metav1.PatchOptions{FieldManager: "eksbg"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the annotation is gone, and everything as it was", func() bool {
		d := must[*deployment](t)(deps.Get(t.Context(), "kept", metav1.GetOptions{}))
		by := ""
		for _, e := range d.ManagedFields {
			by += e.Manager + " "
		}
		return len(d.Spec.Template.Annotations) == 0 && d.Generation >= 3 && d.Status.ReadyReplicas == 2 && d.Status.Replicas == 2 &&
			d.Status.UpdatedReplicas == 2 && by == "argocd-controller "
	})
}

// phases lists the phases of the pods that a selector matches.
func phases(t *testing.T, k kubernetes.Interface, namespace, selector string) string {
	t.Helper()
	pods := must[*podList](t)(k.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector}))
	var all []string
	for _, p := range pods.Items {
		all = append(all, string(p.Status.Phase))
	}
	return strings.Join(all, " ")
}
