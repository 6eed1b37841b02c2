package cluster_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/eksbg/eksbg/internal/cluster"
)

func shop(name string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), OwnerReferences: owners, Generation: 2}
}

func labelled(kv ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels = map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			p.Labels[kv[i]] = kv[i+1]
		}
	}
}

func chosen(kv ...string) *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for i := 0; i < len(kv); i += 2 {
		s.MatchLabels[kv[i]] = kv[i+1]
	}
	return s
}

// look reads the world's inventory.
func (w *world) look(t *testing.T) *cluster.Inventory {
	t.Helper()
	inv, err := w.open(t).Inventory(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

func TestBudgetsOfPods(t *testing.T) {
	w := newWorld(t)
	status := policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 2, DisruptionsAllowed: 1, CurrentHealthy: 3, DesiredHealthy: 2, ExpectedPods: 3}
	other := shop("elsewhere")
	other.Namespace = "other"
	w.api.lists["poddisruptionbudgets"] = &policyv1.PodDisruptionBudgetList{Items: []policyv1.PodDisruptionBudget{
		{ObjectMeta: shop("cart"), Spec: policyv1.PodDisruptionBudgetSpec{Selector: chosen("app", "cart")}, Status: status},
		{ObjectMeta: shop("none")},
		{ObjectMeta: other, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}}, Status: status},
		{ObjectMeta: shop("wrong"), Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}}}},
		{ObjectMeta: shop("everything"), Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}}, Status: policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1}},
	}}
	w.api.lists["pods"] = &corev1.PodList{Items: []corev1.Pod{
		podOn("cart-a", "n", nil, labelled("app", "cart")), podOn("db-0", "n", nil, labelled("app", "db")), podOn("plain", "n", nil),
		podOn("away", "n", nil, labelled("app", "cart"), func(p *corev1.Pod) { p.Namespace = "other" }),
	}}
	inv := w.look(t)
	if d := cmp.Diff([]cluster.Budget{
		{Namespace: "shop", Name: "cart", UID: "uid-cart", Generation: 2, Allowed: 1, Healthy: 3, Desired: 2, Expected: 3, Current: true},
		{Namespace: "shop", Name: "none", UID: "uid-none", Generation: 2},
		{Namespace: "other", Name: "elsewhere", UID: "uid-elsewhere", Generation: 2, Allowed: 1, Healthy: 3, Desired: 2, Expected: 3, Current: true},
		{Namespace: "shop", Name: "wrong", UID: "uid-wrong", Generation: 2},
		{Namespace: "shop", Name: "everything", UID: "uid-everything", Generation: 2},
	}, inv.Budgets); d != "" {
		t.Errorf("budgets (-want +got):\n%s", d)
	}
	got := map[string][]int{}
	for _, p := range inv.Pods {
		got[p.Name] = p.Budgets
	}
	if d := cmp.Diff(map[string][]int{"cart-a": {0, 4}, "db-0": {4}, "plain": {4}, "away": {2}}, got); d != "" {
		t.Errorf("budgets of pods (-want +got):\n%s", d)
	}
}

func TestWebhooksAndWhoServesThem(t *testing.T) {
	w := newWorld(t)
	client := func(service string) admissionv1.WebhookClientConfig {
		return admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "shop", Name: service}}
	}
	w.api.lists["validatingwebhookconfigurations"] = &admissionv1.ValidatingWebhookConfigurationList{Items: []admissionv1.ValidatingWebhookConfiguration{
		{ObjectMeta: metav1.ObjectMeta{Name: "policy"}, Webhooks: []admissionv1.ValidatingWebhook{
			{Name: "check.policy", FailurePolicy: yes(admissionv1.Fail), ClientConfig: client("policy")},
			{Name: "soft.policy", FailurePolicy: yes(admissionv1.Ignore), ClientConfig: client("policy")},
			{Name: "url.policy", ClientConfig: admissionv1.WebhookClientConfig{URL: yes("https://127.0.0.1:23445/mutate")}},
			{Name: "gone.policy", ClientConfig: client("gone")},
		}},
	}}
	w.api.lists["mutatingwebhookconfigurations"] = &admissionv1.MutatingWebhookConfigurationList{Items: []admissionv1.MutatingWebhookConfiguration{
		{ObjectMeta: metav1.ObjectMeta{Name: "inject"}, Webhooks: []admissionv1.MutatingWebhook{
			{Name: "default.inject", ClientConfig: client("policy")}, {Name: "headless.inject", ClientConfig: client("manual")},
		}},
	}}
	w.api.services["shop/policy"] = &corev1.Service{ObjectMeta: shop("policy"), Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "policy"}}}
	w.api.services["shop/manual"] = &corev1.Service{ObjectMeta: shop("manual")}
	w.api.lists["replicasets"] = &appsv1.ReplicaSetList{Items: []appsv1.ReplicaSet{
		{ObjectMeta: shop("policy-1", owner("Deployment", "policy", "uid-policy")...)}, {ObjectMeta: shop("policy-2", owner("Deployment", "policy", "uid-policy")...)},
	}}
	w.api.lists["pods"] = &corev1.PodList{Items: []corev1.Pod{
		podOn("policy-1-a", "n", owner("ReplicaSet", "policy-1", "uid-policy-1"), labelled("app", "policy")),
		podOn("policy-2-a", "n", owner("ReplicaSet", "policy-2", "uid-policy-2"), labelled("app", "policy", "x", "y")),
		podOn("policy-x", "n", owner("StatefulSet", "canary", "uid-canary"), labelled("app", "policy")),
		podOn("done", "n", owner("Job", "done", "uid-done"), labelled("app", "policy"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		podOn("other", "n", nil, labelled("app", "other")),
		podOn("far", "n", nil, labelled("app", "policy"), func(p *corev1.Pod) { p.Namespace = "other" }),
	}}
	serves := []cluster.Owner{
		{APIVersion: "apps/v1", Namespace: "shop", Kind: "Deployment", Name: "policy", UID: "uid-policy"},
		{APIVersion: "apps/v1", Namespace: "shop", Kind: "StatefulSet", Name: "canary", UID: "uid-canary"},
	}
	want := []cluster.Webhook{
		{Configuration: "policy", Name: "check.policy", Service: "shop/policy", Owners: serves},
		{Configuration: "policy", Name: "gone.policy", Service: "shop/gone"},
		{Configuration: "inject", Name: "default.inject", Service: "shop/policy", Owners: serves},
		{Configuration: "inject", Name: "headless.inject", Service: "shop/manual"},
	}
	if d := cmp.Diff(want, w.look(t).Webhooks); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestJobsAndCronJobs(t *testing.T) {
	w := newWorld(t)
	end := metav1.NewTime(time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC).Local())
	done := func(kind batchv1.JobConditionType) batchv1.JobStatus {
		return batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: "False"}, {Type: kind, Status: "True", LastTransitionTime: end}}}
	}
	w.api.lists["jobs"] = &batchv1.JobList{Items: []batchv1.Job{
		{ObjectMeta: shop("report-1", owner("CronJob", "report", "uid-report")...), Status: done(batchv1.JobComplete), Spec: batchv1.JobSpec{TTLSecondsAfterFinished: yes(int32(60))}},
		{ObjectMeta: shop("import"), Status: done(batchv1.JobFailed)},
		{ObjectMeta: shop("step", owner("Workflow", "flow", "uid-flow")...), Status: batchv1.JobStatus{Active: 2, Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailureTarget, Status: "True"}}}, Spec: batchv1.JobSpec{Suspend: yes(true)}},
	}}
	w.api.lists["cronjobs"] = &batchv1.CronJobList{Items: []batchv1.CronJob{
		{ObjectMeta: shop("report"), Spec: batchv1.CronJobSpec{Suspend: yes(true), SuccessfulJobsHistoryLimit: yes(int32(0)), JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{TTLSecondsAfterFinished: yes(int32(5))}}}},
		{ObjectMeta: shop("plain")},
	}}
	w.api.lists["pods"] = &corev1.PodList{Items: []corev1.Pod{
		podOn("report-1-a", "n", owner("Job", "report-1", "uid-report-1")), podOn("step-a", "n", owner("Job", "step", "uid-step")),
	}}
	inv := w.look(t)
	is := func(kind, name string) cluster.Owner {
		return cluster.Owner{APIVersion: "batch/v1", Namespace: "shop", Kind: kind, Name: name, UID: "uid-" + name}
	}
	wantJobs := []cluster.Job{
		{Owner: is("Job", "report-1"), CronJob: is("CronJob", "report"), Finished: true, FinishedAt: end.Time, TTL: yes(int32(60))},
		{Owner: is("Job", "import"), Finished: true, Failed: true, FinishedAt: end.Time},
		{Owner: is("Job", "step"), Controller: cluster.Owner{Namespace: "shop", Kind: "Workflow", Name: "flow", UID: "uid-flow"}, Active: 2, Suspended: true},
	}
	if d := cmp.Diff(wantJobs, inv.Jobs); d != "" {
		t.Errorf("jobs (-want +got):\n%s", d)
	}
	wantCron := []cluster.CronJob{
		{Owner: is("CronJob", "report"), Suspended: true, KeepFailed: 1, TTL: yes(int32(5))}, {Owner: is("CronJob", "plain"), KeepSucceeded: 3, KeepFailed: 1},
	}
	if d := cmp.Diff(wantCron, inv.CronJobs); d != "" {
		t.Errorf("cron jobs (-want +got):\n%s", d)
	}
	if a, b := inv.Pods[0].Job, inv.Pods[1].Job; a != "uid-report-1" || b != "uid-step" {
		t.Errorf("made by the Jobs %q and %q", a, b)
	}
	if a, b := inv.Pods[0].Owner, inv.Pods[1].Owner; a != is("CronJob", "report") || b != is("Job", "step") {
		t.Errorf("top owners %v and %v: a Job that no CronJob made is its own", a, b)
	}
}

func TestWhatIsKeptOfPods(t *testing.T) {
	at := func(minute int) metav1.Time {
		return metav1.NewTime(time.Date(2026, 11, 30, 9, minute, 0, 0, time.Local))
	}
	ended := func(minutes ...int) []corev1.ContainerStatus {
		out := []corev1.ContainerStatus{{}}
		for _, m := range minutes {
			out = append(out, corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: at(m)}}})
		}
		return out
	}
	w := newWorld(t)
	w.api.lists["pods"] = &corev1.PodList{Items: []corev1.Pod{
		podOn("fargate", "n", nil, labelled("eks.amazonaws.com/fargate-profile", "fp"), func(p *corev1.Pod) {
			p.Annotations = map[string]string{"CapacityProvisioned": "0.25vCPU 0.5GB"}
			p.Spec.SchedulerName, p.Spec.RestartPolicy = "fargate-scheduler", corev1.RestartPolicyAlways
		}),
		podOn("done", "n", nil, func(p *corev1.Pod) {
			p.Status.Phase, p.Status.ContainerStatuses = corev1.PodSucceeded, ended(5, 7, 6)
			p.Spec.SchedulerName, p.Spec.RestartPolicy = "default-scheduler", corev1.RestartPolicyNever
		}),
		podOn("evicted", "n", nil, func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodFailed
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: "True", LastTransitionTime: at(1)}, {Type: corev1.PodReady, Status: "False", LastTransitionTime: at(3)}}
		}),
		podOn("running", "n", nil, func(p *corev1.Pod) { p.Status.ContainerStatuses = ended(9) }),
		podOn("mirror", "n", nil, func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }),
		podOn("of-node", "n", owner("Node", "n", "uid-n")),
	}}
	w.api.lists["nodes"] = &corev1.NodeList{Items: []corev1.Node{nodeAt("n", "v1.31.0")}}
	got := map[string]cluster.Pod{}
	for _, p := range w.look(t).Pods {
		got[p.Name] = p
	}
	if p := got["fargate"]; p.Profile != "fp" || p.MilliCPU != 250 || p.Scheduler != "fargate-scheduler" || p.Once || p.Static || !p.FinishedAt.IsZero() {
		t.Errorf("fargate pod %+v", p)
	}
	if p := got["done"]; !p.FinishedAt.Equal(at(7).Time) || p.Scheduler != "" || !p.Once {
		t.Errorf("finished pod %+v", p)
	}
	if p := got["evicted"]; !p.FinishedAt.Equal(at(3).Time) {
		t.Errorf("evicted pod %+v", p)
	}
	if p := got["running"]; !p.FinishedAt.IsZero() {
		t.Errorf("running pod %+v", p)
	}
	if a, b := got["mirror"], got["of-node"]; !a.Static || !b.Static {
		t.Errorf("static pods %+v, %+v", a, b)
	}
}

func TestWhatIsKeptOfWorkloads(t *testing.T) {
	pct, num := func(s string) *intstr.IntOrString { return yes(intstr.FromString(s)) }, func(n int) *intstr.IntOrString { return yes(intstr.FromInt32(int32(n))) }
	tpl := func(class string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{Spec: corev1.PodSpec{PriorityClassName: class}}
	}
	w := newWorld(t)
	w.api.lists["priorityclasses"] = &schedulingv1.PriorityClassList{Items: []schedulingv1.PriorityClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000}, {ObjectMeta: metav1.ObjectMeta{Name: "usual"}, Value: 5, GlobalDefault: true},
	}}
	deploy := func(name string, replicas int32, class string, s appsv1.DeploymentStrategy) appsv1.Deployment {
		return appsv1.Deployment{ObjectMeta: shop(name), Spec: appsv1.DeploymentSpec{Replicas: &replicas, Template: tpl(class), Strategy: s}}
	}
	rolling := func(surge, unavailable *intstr.IntOrString) appsv1.DeploymentStrategy {
		return appsv1.DeploymentStrategy{Type: "RollingUpdate", RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: surge, MaxUnavailable: unavailable}}
	}
	w.api.lists["deployments"] = &appsv1.DeploymentList{Items: []appsv1.Deployment{
		deploy("defaults", 10, "high", appsv1.DeploymentStrategy{}), deploy("both zero", 2, "", rolling(num(0), pct("10%"))),
		deploy("all away", 3, "system-node-critical", rolling(num(1), num(9))), deploy("recreate", 3, "unknown", appsv1.DeploymentStrategy{Type: "Recreate"}),
		deploy("none", 0, "", appsv1.DeploymentStrategy{}), deploy("rubbish", 4, "", rolling(pct("x"), pct("150%"))),
	}}
	w.api.lists["statefulsets"] = &appsv1.StatefulSetList{Items: []appsv1.StatefulSet{{ObjectMeta: shop("db"), Spec: appsv1.StatefulSetSpec{
		Replicas: yes(int32(5)), Ordinals: &appsv1.StatefulSetOrdinals{Start: 4}, PodManagementPolicy: "Parallel", Template: tpl("high"),
		UpdateStrategy: appsv1.StatefulSetUpdateStrategy{RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: yes(int32(6)), MaxUnavailable: pct("50%")}},
	}}, {ObjectMeta: shop("one"), Spec: appsv1.StatefulSetSpec{UpdateStrategy: appsv1.StatefulSetUpdateStrategy{RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{MaxUnavailable: pct("10%")}}}}}}
	w.api.lists["replicationcontrollers"] = &corev1.ReplicationControllerList{Items: []corev1.ReplicationController{
		{ObjectMeta: shop("old"), Spec: corev1.ReplicationControllerSpec{Replicas: yes(int32(2)), Template: yes(tpl("high"))}, Status: corev1.ReplicationControllerStatus{Replicas: 2, ReadyReplicas: 1}},
		{ObjectMeta: shop("bare"), Spec: corev1.ReplicationControllerSpec{}},
		{ObjectMeta: shop("config-1", owner("DeploymentConfig", "config", "uid-config")...)},
	}}
	w.api.lists["pods"] = &corev1.PodList{Items: []corev1.Pod{podOn("config-1-a", "n", owner("ReplicationController", "config-1", "uid-config-1"))}}
	inv := w.look(t)
	got := map[string]cluster.Workload{}
	for _, x := range inv.Workloads {
		got[x.Kind+" "+x.Name] = x
	}
	for name, want := range map[string][3]int32{
		"defaults": {3, 2, 1000}, "both zero": {0, 1, 5}, "all away": {1, 3, 2000001000}, "recreate": {0, 0, 0}, "none": {0, 0, 5}, "rubbish": {0, 4, 5},
	} {
		x := got["Deployment "+name]
		if have := [3]int32{x.MaxSurge, x.MaxUnavailable, x.Priority}; have != want {
			t.Errorf("%s: surge, unavailable, priority %v, want %v", name, have, want)
		}
	}
	if x := got["StatefulSet db"]; x.Start != 4 || !x.Parallel || x.Partition != 6 || x.MaxUnavailable != 2 || x.Priority != 1000 {
		t.Errorf("%+v", x)
	}
	if x := got["StatefulSet one"]; x.MaxUnavailable != 1 || x.Parallel {
		t.Errorf("%+v", x)
	}
	if x := got["ReplicationController old"]; x.Replicas != 2 || x.Ready != 1 || x.Current != 2 || x.Priority != 1000 || x.APIVersion != "v1" {
		t.Errorf("%+v", x)
	}
	if _, ok := got["ReplicationController config-1"]; ok || inv.Pods[0].Owner.Kind != "DeploymentConfig" {
		t.Errorf("a controller with an owner is no workload: %+v, %v", inv.Workloads, inv.Pods[0].Owner)
	}
}

func TestForbiddenNamesVerbAndResource(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/pods":                               "verb list on pods in all namespaces (",
		"/apis/policy/v1/poddisruptionbudgets":       "verb list on poddisruptionbudgets.policy",
		"/apis/apps/v1/replicasets":                  "verb list on replicasets.apps",
		"/api/v1/namespaces/shop/services/policy":    "verb get on services in namespace shop (",
		"/apis/scheduling.k8s.io/v1/priorityclasses": "verb list on priorityclasses.scheduling.k8s.io",
	} {
		w := newWorld(t)
		w.api.lists["mutatingwebhookconfigurations"] = &admissionv1.MutatingWebhookConfigurationList{Items: []admissionv1.MutatingWebhookConfiguration{
			{Webhooks: []admissionv1.MutatingWebhook{{ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "shop", Name: "policy"}}}}},
		}}
		w.api.before = func(_ int, rw http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != path {
				return false
			}
			status(rw, http.StatusForbidden, metav1.StatusReasonForbidden)
			return true
		}
		_, err := w.open(t).Inventory(context.Background())
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "shop-green") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
