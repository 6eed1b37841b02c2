package sandbox

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eksbg/eksbg/internal/sandbox/kube"
)

// object is the node as its kubelet would have registered it.
func (n Node) object(version string) runtime.Object {
	def(&n.Kubelet, version)
	kubelet := kube.Kubelet(n.Kubelet)
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("7926308Ki"), corev1.ResourcePods: resource.MustParse("29"),
	}
	return &corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{
			corev1.LabelHostname: n.Name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
			corev1.LabelInstanceTypeStable: "m6i.large", corev1.LabelTopologyZone: n.Zone, "eks.amazonaws.com/nodegroup": "workers",
		}},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"}},
			NodeInfo: corev1.NodeSystemInfo{
				OperatingSystem: "linux", Architecture: "amd64", OSImage: "Amazon Linux 2023", ContainerRuntimeVersion: "containerd://2.0.5", KubeletVersion: kubelet,
			},
		},
	}
}

// pod is a pod of nobody, or the mirror that a kubelet makes of a static one.
func (w Workload) pod() runtime.Object {
	p := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: w.meta(), Spec: w.podSpec(w.restarts())}
	p.Labels, p.Annotations = w.labels(), w.fate()
	p.Spec.NodeName = w.Node
	if w.Static {
		p.Name += "-" + w.Node
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "0c5e1f", "kubernetes.io/config.hash": "0c5e1f", "kubernetes.io/config.source": "file"}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: w.Node, Controller: ptr(true)}}
	}
	return p
}

// adopt gives the mirrors of static pods the uid of their node, which the API server made.
func adopt(ctx context.Context, c *cluster, o runtime.Object, nodes map[string]types.UID) error {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return nil
	}
	for i := range p.OwnerReferences {
		name := p.OwnerReferences[i].Name
		if nodes[name] == "" {
			var n metadata
			if err := c.call(ctx, http.MethodGet, "/api/v1/nodes/"+name, mediaJSON, "", &n); err != nil {
				return err
			}
			nodes[name] = n.Metadata.UID
		}
		p.OwnerReferences[i].UID = nodes[name]
	}
	return nil
}

// jobOf is a Job that a CronJob made for a minute, whose pods run that long.
func (w Workload) jobOf(owner types.UID, at time.Time, runs time.Duration) *batchv1.Job {
	j := &batchv1.Job{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: w.meta(), Spec: w.jobSpec()}
	j.Name = fmt.Sprintf("%s-%d", w.Name, at.Unix()/60)
	j.Spec.Template.Annotations = map[string]string{kube.AnnotationRun: runs.String()}
	j.Annotations = map[string]string{batchv1.CronJobScheduledTimestampAnnotation: at.UTC().Format(time.RFC3339)}
	j.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "batch/v1", Kind: "CronJob", Name: w.Name, UID: owner, Controller: ptr(true), BlockOwnerDeletion: ptr(true),
	}}
	return j
}

func (w Workload) rollout() runtime.Object {
	canary := &kube.CanaryStrategy{MaxSurge: amount(w.MaxSurge), MaxUnavailable: amount(w.MaxUnavailable)}
	return &kube.Rollout{
		TypeMeta: metav1.TypeMeta{APIVersion: kube.RolloutGroup.String(), Kind: "Rollout"}, ObjectMeta: w.meta(),
		Spec: kube.RolloutSpec{
			Replicas: w.replicas(), Selector: w.selector(), Template: w.template(), Strategy: kube.RolloutStrategy{Canary: canary},
		},
	}
}

// webhook is a validating webhook that the workload serves. It guards a resource that no
// cluster has.
func (w Workload) webhook() runtime.Object {
	path := "/validate"
	return &admissionv1.ValidatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: w.Name},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: w.Webhook, FailurePolicy: ptr(admissionv1.Fail), SideEffects: ptr(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{
				Namespace: w.Namespace, Name: w.Name, Path: &path, Port: &w.Port}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{"example.com"}, APIVersions: []string{"v1"}, Resources: []string{"widgets"}},
			}},
		}},
	}
}

// fate are the annotations that make something go wrong with the pods, or end them.
func (w Workload) fate() map[string]string {
	all := map[string]string{kube.AnnotationFail: w.Fail, kube.AnnotationDNS: w.DNS}
	if w.RestartPolicy != "" {
		all[kube.AnnotationRun] = w.Runs.String()
	}
	if w.Forget > 0 {
		all[kube.AnnotationForget] = strconv.Itoa(w.Forget)
	}
	maps.DeleteFunc(all, func(_, v string) bool { return v == "" })
	if len(all) == 0 {
		return nil
	}
	return all
}

// check holds a workload's fields against its kind and its cluster.
func (w Workload) check(c *Cluster, here string, bad complain) {
	id := w.Namespace + "/" + w.Kind + "/" + w.Name
	node := func(n Node) bool { return n.Name == w.Node }
	switch {
	case w.Kind == "CronJob" && w.Schedule == "":
		bad("%s: %s needs a schedule", here, id)
	case w.Ran+w.Running > 0 && w.Kind != "CronJob":
		bad("%s: ran and running are a CronJob's", here)
	case w.Running > 0 && w.Runs == 0:
		bad("%s: running needs runs, how long they do", here)
	case w.RestartPolicy != "" && w.Kind != "CloneSet" && w.Kind != "Pod":
		bad("%s: restartPolicy is a CloneSet's or a Pod's", here)
	case w.RestartPolicy != "" && w.RestartPolicy != "Never" && w.RestartPolicy != "OnFailure":
		bad("%s: restartPolicy is %q; it can be Never or OnFailure", here, w.RestartPolicy)
	case w.RestartPolicy != "" && w.Kind == "CloneSet" && w.Runs == 0:
		bad("%s: restartPolicy needs runs: a CloneSet would make pods without end", here)
	case w.Webhook != "" && w.Port == 0:
		bad("%s: a webhook needs a port", here)
	case w.MinAvailable != "" && w.MaxDisrupted != "":
		bad("%s: a budget has either minAvailable or maxDisrupted", here)
	case (w.Static || w.Node != "") && w.Kind != "Pod":
		bad("%s: node and static are a Pod's", here)
	case w.Static && w.Node == "":
		bad("%s: a static pod needs its node", here)
	case w.Node != "" && !slices.ContainsFunc(c.Nodes, node):
		bad("%s: the cluster has no node %q", here, w.Node)
	case w.Paused && w.Kind != "Deployment":
		bad("%s: paused is a Deployment's", here)
	case w.Fail != "" && w.Fail != "image" && w.Fail != "crash":
		bad("%s: fail is %q; it can be image or crash", here, w.Fail)
	}
	if _, ok := c.Priorities[w.PriorityClass]; w.PriorityClass != "" && !ok {
		bad("%s: the cluster has no priority class %q", here, w.PriorityClass)
	}
	if of := strategies[w.Kind]; of != nil && !slices.Contains(of, w.Strategy) {
		bad("%s: strategy %q; a %s can have %v", here, w.Strategy, w.Kind, of)
	}
}

// check holds the owners that are kept against those that there are.
func (g *GitOps) check(c *Cluster, here string, bad complain) {
	if g.Manager == "" {
		bad("%s.manager is missing", here)
	}
	for _, o := range g.Owners {
		if !slices.ContainsFunc(c.Workloads, func(w Workload) bool {
			return w.Kind == "Deployment" && o == w.Namespace+"/Deployment/"+w.Name
		}) {
			bad("%s.owners: %q is no Deployment of the cluster", here, o)
		}
	}
}
