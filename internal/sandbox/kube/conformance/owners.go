package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
)

var ownerChecks = []check{
	{name: "ReplicationController", run: replicationController},
	{name: "Adoption", run: adoption},
	{name: "DeletionCost", run: deletionCost},
	{name: "RestartAt", run: restartAt},
	{name: "Garbage", run: garbage},
}

// replicationController: a pod that is evicted comes back; scaled up and down it makes and
// deletes one.
func replicationController(c *Case) {
	api := c.cs.CoreV1().ReplicationControllers(c.ns)
	t := template("old")
	must(api.Create(c.ctx, &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Name: "old"},
		Spec: corev1.ReplicationControllerSpec{Replicas: ptr.To[int32](2), Template: &t}}, metav1.CreateOptions{}))(c)
	pods := c.awaitPods("app=old", "are ready", whole(2))
	if ref := metav1.GetControllerOf(&pods[0]); ref == nil || ref.Kind != "ReplicationController" || ref.APIVersion != "v1" {
		c.Errorf("the controller is %+v", ref)
	}
	if err := c.evict(pods[0].Name, nil); err != nil {
		c.Fatal(err)
	}
	c.awaitPods("app=old", "are two again", func(now []corev1.Pod) bool {
		return whole(2)(now) && !slices.Contains(names(now), pods[0].Name)
	})
	rc := await(c, api, "old", "counts them", func(rc *corev1.ReplicationController) bool {
		return rc.Status.ReadyReplicas == 2 && rc.Status.Replicas == 2 && rc.Status.ObservedGeneration == rc.Generation
	})
	if rc.Labels["app"] != "old" || rc.Spec.Selector["app"] != "old" {
		c.Errorf("labels %v, selector %v", rc.Labels, rc.Spec.Selector)
	}
	s := must(api.GetScale(c.ctx, "old", metav1.GetOptions{}))(c)
	s.Spec.Replicas = 1
	must(api.UpdateScale(c.ctx, "old", s, metav1.UpdateOptions{}))(c)
	c.awaitPods("app=old", "are one", whole(1))
}

// adoption: a ReplicaSet takes a pod without an owner that it selects, and lets go of one
// whose labels no longer fit.
func adoption(c *Case) {
	pods := c.cs.CoreV1().Pods(c.ns)
	must(pods.Create(c.ctx, pod("stray", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "set"} }), metav1.CreateOptions{}))(c)
	c.awaitPods("app=set", "is ready", whole(1))
	sets := c.cs.AppsV1().ReplicaSets(c.ns)
	rs := must(sets.Create(c.ctx, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "set"},
		Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](1), Selector: selector("set"), Template: template("set")}}, metav1.CreateOptions{}))(c)
	p := await(c, pods, "stray", "has an owner", func(p *corev1.Pod) bool { return metav1.GetControllerOf(p) != nil })
	if ref := metav1.GetControllerOf(p); ref.UID != rs.UID || ref.Kind != "ReplicaSet" {
		c.Errorf("the owner is %+v", ref)
	}
	await(c, sets, "set", "is ready", func(rs *appsv1.ReplicaSet) bool { return rs.Status.ReadyReplicas == 1 && rs.Status.Replicas == 1 })
	must(pods.Patch(c.ctx, "stray", types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"free"}}}`), metav1.PatchOptions{}))(c)
	await(c, pods, "stray", "is let go", func(p *corev1.Pod) bool { return metav1.GetControllerOf(p) == nil })
	c.awaitPods("app=set", "is a new one", whole(1))
}

// deletionCost: of ready pods a ReplicaSet takes the cheapest away first.
func deletionCost(c *Case) {
	sets := c.cs.AppsV1().ReplicaSets(c.ns)
	must(sets.Create(c.ctx, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "set"},
		Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](3), Selector: selector("set"), Template: template("set")}}, metav1.CreateOptions{}))(c)
	pods := c.awaitPods("app=set", "are ready", whole(3))
	cheap := pods[1].Name
	must(c.cs.CoreV1().Pods(c.ns).Patch(c.ctx, cheap, types.MergePatchType, []byte(`{"metadata":{"annotations":{"controller.kubernetes.io/pod-deletion-cost":"-100"}}}`), metav1.PatchOptions{}))(c)
	must(sets.Patch(c.ctx, "set", types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{}))(c)
	left := c.awaitPods("app=set", "are two", whole(2))
	if slices.Contains(names(left), cheap) {
		c.Errorf("%s is the cheapest, and stays", cheap)
	}
}

var rollouts = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "rollouts"}

// resource adapts a dynamic client to await.
type resource struct{ dynamic.ResourceInterface }

func (r resource) Get(ctx context.Context, name string, o metav1.GetOptions) (*unstructured.Unstructured, error) {
	return r.ResourceInterface.Get(ctx, name, o)
}

func rolloutStatus(u *unstructured.Unstructured, field string) string {
	v, _, _ := unstructured.NestedFieldNoCopy(u.Object, "status", field)
	return fmt.Sprint(v)
}

// restartAt: the pods of an Argo Rollout that were made before spec.restartAt are evicted
// and made anew by the same ReplicaSet, and status.restartedAt says when that was done. As
// a custom resource it takes merge patches and no strategic ones.
func restartAt(c *Case) {
	api := resource{c.dyn.Resource(rollouts).Namespace(c.ns)}
	ro := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": map[string]any{"name": "ro"},
		"spec": map[string]any{
			"replicas": int64(2), "selector": map[string]any{"matchLabels": map[string]any{"app": "ro"}}, "strategy": map[string]any{"canary": map[string]any{}},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "ro"}}, "spec": map[string]any{
				"terminationGracePeriodSeconds": int64(1), "containers": []any{map[string]any{"name": "main", "image": "registry.k8s.io/pause:3.10"}}}},
		},
	}}
	must(api.Create(c.ctx, ro, metav1.CreateOptions{}))(c)
	await(c, api, "ro", "is healthy", func(u *unstructured.Unstructured) bool {
		return rolloutStatus(u, "phase") == "Healthy" && rolloutStatus(u, "observedGeneration") == "1"
	})
	before := c.awaitPods("app=ro", "are ready", whole(2))
	rs := metav1.GetControllerOf(&before[0])
	set := must(c.cs.AppsV1().ReplicaSets(c.ns).Get(c.ctx, rs.Name, metav1.GetOptions{}))(c)
	if ref := metav1.GetControllerOf(set); ref == nil || ref.Kind != "Rollout" || !strings.HasPrefix(ref.APIVersion, "argoproj.io/") {
		c.Errorf("the ReplicaSet's controller is %+v", ref)
	}
	if _, err := api.Patch(c.ctx, "ro", types.StrategicMergePatchType, []byte(`{}`), metav1.PatchOptions{}); !apierrors.IsUnsupportedMediaType(err) {
		c.Errorf("a strategic merge patch: %v", err)
	}
	at := newer(before)
	must(api.Patch(c.ctx, "ro", types.MergePatchType, []byte(`{"spec":{"restartAt":"`+at+`"}}`), metav1.PatchOptions{}))(c)
	await(c, api, "ro", "is restarted", func(u *unstructured.Unstructured) bool { return rolloutStatus(u, "restartedAt") == at })
	for _, p := range c.awaitPods("app=ro", "are new", whole(2)) {
		if slices.Contains(names(before), p.Name) || metav1.GetControllerOf(&p).UID != rs.UID {
			c.Errorf("pod %s of %s", p.Name, metav1.GetControllerOf(&p).Name)
		}
	}
}

// newer is a time one second after the youngest of the pods was made: the API's times have
// no parts of a second.
func newer(pods []corev1.Pod) string {
	var last time.Time
	for _, p := range pods {
		if p.CreationTimestamp.After(last) {
			last = p.CreationTimestamp.Time
		}
	}
	return last.Add(time.Second).UTC().Format(time.RFC3339)
}

// garbage: what an owner leaves behind goes after it, before it, or stays, as the deletion
// asks for.
func garbage(c *Case) {
	sets, pods := c.cs.AppsV1().ReplicaSets(c.ns), c.cs.CoreV1().Pods(c.ns)
	for policy, stays := range map[metav1.DeletionPropagation]bool{
		metav1.DeletePropagationBackground: false, metav1.DeletePropagationForeground: false, metav1.DeletePropagationOrphan: true,
	} {
		name := strings.ToLower(string(policy))
		must(sets.Create(c.ctx, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](1), Selector: selector(name), Template: template(name)}}, metav1.CreateOptions{}))(c)
		p := c.awaitPods("app="+name, "is ready", whole(1))[0]
		if err := sets.Delete(c.ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
			c.Fatal(err)
		}
		awaitGone(c, sets, name, "")
		if !stays {
			awaitGone(c, pods, p.Name, string(p.UID))
			continue
		}
		left := await(c, pods, p.Name, "is an orphan", func(p *corev1.Pod) bool { return metav1.GetControllerOf(p) == nil })
		if left.UID != p.UID || left.DeletionTimestamp != nil {
			c.Errorf("the orphan is %+v", left.ObjectMeta)
		}
	}
}
