package kube_test

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/eksbg/eksbg/internal/sandbox/kube"
)

// both runs a test in JSON and in protobuf.
func both(t *testing.T, f func(*testing.T, *rig, *kubernetes.Clientset)) {
	for _, media := range []string{mimeJSON, mimeProto} {
		t.Run(media, func(t *testing.T) {
			r := start(t, func(o *kube.Options) { o.Fargate.Profiles = nil })
			f(t, r, r.client(media))
		})
	}
}

func TestCreate(t *testing.T) {
	both(t, func(t *testing.T, r *rig, cs *kubernetes.Clientset) {
		ctx := deadline(t)
		deps := cs.AppsV1().Deployments("default")
		d, err := deps.Create(ctx, deployment("web", 2), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if d.UID == "" || d.CreationTimestamp.IsZero() || d.Generation != 1 || d.ResourceVersion == "" {
			t.Errorf("the server filled in %+v", d.ObjectMeta)
		}
		if *d.Spec.ProgressDeadlineSeconds != 600 || d.Spec.Strategy.RollingUpdate.MaxSurge.String() != "25%" || d.Spec.Template.Spec.RestartPolicy != "Always" {
			t.Errorf("defaults are missing in %+v", d.Spec)
		}
		if _, err := deps.Create(ctx, deployment("web", 2), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) || err.Error() != `deployments.apps "web" already exists` {
			t.Errorf("created twice: %v", err)
		}
		p, err := cs.CoreV1().Pods("default").Create(ctx, pod("x", func(p *corev1.Pod) { p.Name, p.GenerateName = "", "x-" }), metav1.CreateOptions{})
		if err != nil || !regexp.MustCompile(`^x-[bcdfghjklmnpqrstvwxz2456789]{5}$`).MatchString(p.Name) {
			t.Errorf("generated name %q (%v)", p.GetName(), err)
		}
		_, err = cs.CoreV1().Pods("nowhere").Create(ctx, pod("x", func(p *corev1.Pod) { p.Namespace = "nowhere" }), metav1.CreateOptions{})
		if !apierrors.IsNotFound(err) || err.Error() != `namespaces "nowhere" not found` {
			t.Errorf("in a namespace that is not there: %v", err)
		}
		bad := deployment("bad", 1, func(d *appsv1.Deployment) { d.Spec.Template.Labels = nil })
		_, err = deps.Create(ctx, bad, metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "`selector` does not match template `labels`") {
			t.Errorf("a selector that selects nothing: %v", err)
		}
		if _, err := deps.Create(ctx, deployment("dry", 1), metav1.CreateOptions{DryRun: []string{"All"}}); err != nil {
			t.Errorf("dry run: %v", err)
		}
		if _, err := deps.Get(ctx, "dry", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("a dry run left something: %v", err)
		}
	})
}

func TestUpdate(t *testing.T) {
	both(t, func(t *testing.T, r *rig, cs *kubernetes.Clientset) {
		ctx := deadline(t)
		r.seed(deployment("web", 2, func(d *appsv1.Deployment) { d.Spec.Paused = true }))
		r.settle()
		deps := cs.AppsV1().Deployments("default")
		d, err := deps.Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		stale := d.DeepCopy()
		d.Labels = map[string]string{"a": "b"}
		d.Status.Replicas = 99
		d, err = deps.Update(ctx, d, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if d.Generation != 1 || d.Status.Replicas != 0 {
			t.Errorf("a change of labels: generation %d, status %+v; want 1 and no change of the status", d.Generation, d.Status)
		}
		stale.Spec.Replicas = ptr.To[int32](3)
		_, err = deps.Update(ctx, stale, metav1.UpdateOptions{})
		if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "the object has been modified; please apply your changes to the latest version and try again") {
			t.Errorf("a stale update: %v", err)
		}
		same, err := deps.Update(ctx, d, metav1.UpdateOptions{})
		if err != nil || same.ResourceVersion != d.ResourceVersion {
			t.Errorf("an update that changes nothing made version %s of %s (%v)", same.ResourceVersion, d.ResourceVersion, err)
		}
		d.Spec.MinReadySeconds = 1
		d.ResourceVersion = "" // unconditional
		if d, err = deps.Update(ctx, d, metav1.UpdateOptions{}); err != nil || d.Generation != 2 {
			t.Errorf("a change of the spec: generation %d (%v), want 2", d.Generation, err)
		}
		d.Spec.MinReadySeconds = 7
		d.ResourceVersion = ""
		d.Status.Conditions = []appsv1.DeploymentCondition{{Type: "Mine", Status: "True"}}
		d, err = deps.UpdateStatus(ctx, d, metav1.UpdateOptions{})
		if err != nil || d.Spec.MinReadySeconds != 1 || d.Generation != 2 {
			t.Errorf("an update of the status changed the spec: %+v (%v)", d.Spec, err)
		}
		d.Spec.Selector = appSelector("other")
		d.Spec.Template.Labels = map[string]string{"app": "other"}
		d.ResourceVersion = ""
		if _, err := deps.Update(ctx, d, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "field is immutable") {
			t.Errorf("another selector: %v", err)
		}
		if _, err := deps.Update(ctx, deployment("none", 1), metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("an update of nothing: %v", err)
		}
	})
}

func TestPatch(t *testing.T) {
	both(t, func(t *testing.T, r *rig, cs *kubernetes.Clientset) {
		r.seed(deployment("web", 2, func(d *appsv1.Deployment) {
			d.Spec.Paused = true
			d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "side", Image: "side:1"})
		}))
		r.settle()
		deps := cs.AppsV1().Deployments("default")
		images := func(d *appsv1.Deployment) (out string) {
			for _, c := range d.Spec.Template.Spec.Containers {
				out += c.Name + "=" + c.Image + " "
			}
			return out
		}
		for _, c := range []struct {
			name  string
			t     types.PatchType
			patch string
			want  string
			fails func(error) bool
		}{
			{"strategic merges lists by key", types.StrategicMergePatchType,
				`{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"side:2"}]}}}}`, "main=web:1 side=side:2 ", nil},
			{"merge replaces lists", types.MergePatchType,
				`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"web:3"}]}}}}`, "main=web:3 ", nil},
			{"JSON patch edits", types.JSONPatchType,
				`[{"op":"test","path":"/spec/paused","value":true},{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"web:4"}]`, "main=web:4 ", nil},
			{"JSON patch whose test fails", types.JSONPatchType, `[{"op":"test","path":"/spec/paused","value":false}]`, "", isUnprocessable},
			{"no JSON", types.MergePatchType, `{`, "", apierrors.IsBadRequest},
			{"wrong type", types.StrategicMergePatchType, `{"spec":{"replicas":"many"}}`, "", apierrors.IsBadRequest},
			{"invalid result", types.MergePatchType, `{"spec":{"template":{"spec":{"containers":[]}}}}`, "", apierrors.IsInvalid},
			{"another resourceVersion", types.MergePatchType, `{"metadata":{"resourceVersion":"1"}}`, "", apierrors.IsConflict},
			{"server-side apply of no kind", types.ApplyYAMLPatchType, `{"spec":{"paused":true}}`, "", apierrors.IsBadRequest},
			{"server-side apply", types.ApplyYAMLPatchType, `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"template":{"spec":{"containers":[{"name":"main","image":"web:5"}]}}}}`,
				"main=web:5 ", nil},
		} {
			d, err := deps.Patch(deadline(t), "web", c.t, []byte(c.patch), metav1.PatchOptions{FieldManager: "test", Force: force(c.t)})
			switch {
			case c.fails != nil && (err == nil || !c.fails(err)):
				t.Errorf("%s: %v", c.name, err)
			case c.fails == nil && err != nil:
				t.Errorf("%s: %v", c.name, err)
			case c.fails == nil && images(d) != c.want:
				t.Errorf("%s: containers %s, want %s", c.name, images(d), c.want)
			}
		}
		_, err := deps.Patch(deadline(t), "web", types.MergePatchType, []byte(`{"spec":{"bogus":1}}`), metav1.PatchOptions{FieldValidation: "Strict"})
		if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), `unknown field "spec.bogus"`) {
			t.Errorf("an unknown field under strict validation: %v", err)
		}
	})
}

func force(t types.PatchType) *bool {
	if t == types.ApplyPatchType {
		return ptr.To(true)
	}
	return nil
}

func isUnprocessable(err error) bool {
	var s apierrors.APIStatus
	return errors.As(err, &s) && s.Status().Code == 422
}

// TestDelete covers preconditions, grace, propagation and collections.
func TestDelete(t *testing.T) {
	r := start(t, func(o *kube.Options) { o.Fargate.Stop = 250 * time.Millisecond })
	r.seed(deployment("web", 2), deployment("keep", 1), deployment("fore", 1), statefulSet("db", 1), deployment("shop", 1))
	r.settle()
	cs := r.client(mimeProto)
	ctx := deadline(t)
	deps, pods := cs.AppsV1().Deployments("default"), cs.CoreV1().Pods("default")
	err := deps.Delete(ctx, "web", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("other")})
	if !apierrors.IsConflict(err) {
		t.Errorf("delete with another uid: %v", err)
	}
	if err := pods.Delete(ctx, "db-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p, err := pods.Get(ctx, "db-0", metav1.GetOptions{})
	if err != nil || p.DeletionTimestamp == nil || *p.DeletionGracePeriodSeconds != 30 {
		t.Errorf("a pod just deleted: %+v (%v), want it Terminating with 30 s of grace", p.ObjectMeta, err)
	}
	old := p.UID
	follow(t, pods, named("db-0"), func(p *corev1.Pod) bool { return p.UID != old && isReady(p) })
	if err := pods.Delete(ctx, "db-0", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
		t.Fatal(err)
	}
	if p, err := pods.Get(ctx, "db-0", metav1.GetOptions{}); err == nil && p.DeletionTimestamp != nil {
		t.Error("a pod deleted by force is still Terminating")
	}
	for name, policy := range map[string]metav1.DeletionPropagation{
		"web": metav1.DeletePropagationBackground, "keep": metav1.DeletePropagationOrphan, "fore": metav1.DeletePropagationForeground,
	} {
		if err := deps.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
			t.Fatal(err)
		}
	}
	until(t, pods, func() bool { return count(t, cs, "app=web") == 0 && count(t, cs, "app=fore") == 0 })
	// What is orphaned stays, without an owner; the rest goes after its pods.
	until(t, cs.AppsV1().ReplicaSets("default"), func() bool {
		sets, err := cs.AppsV1().ReplicaSets("default").List(ctx, metav1.ListOptions{LabelSelector: "app in (web, fore, keep)"})
		return err == nil && len(sets.Items) == 1 && sets.Items[0].Labels["app"] == "keep" && len(sets.Items[0].OwnerReferences) == 0
	})
	if n := count(t, cs, "app=keep"); n != 1 {
		t.Errorf("%d pods of what was orphaned, want 1", n)
	}
	until(t, deps, func() bool {
		_, err := deps.Get(ctx, "fore", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if err := deps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=shop"}); err != nil {
		t.Fatal(err)
	}
	if l, err := deps.List(ctx, metav1.ListOptions{}); err != nil || len(l.Items) != 0 {
		t.Errorf("left after deletecollection: %d (%v)", len(l.Items), err)
	}
}

func count(t *testing.T, cs *kubernetes.Clientset, selector string) int {
	t.Helper()
	l, err := cs.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		t.Fatal(err)
	}
	return len(l.Items)
}

// until waits, event by event of a resource, for a condition.
func until(t *testing.T, w watcher, ok func() bool) {
	t.Helper()
	wi, err := w.Watch(deadline(t), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	defer wi.Stop()
	for !ok() {
		if _, open := <-wi.ResultChan(); !open {
			t.Fatal("waited in vain")
		}
	}
}

// TestSharedOwner keeps an object while one of its owners lives.
func TestSharedOwner(t *testing.T) {
	r := start(t, nil)
	cm := r.client(mimeJSON).CoreV1().ConfigMaps("default")
	ctx := deadline(t)
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "child"}}
	for _, name := range []string{"one", "two"} {
		o, err := cm.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		child.OwnerReferences = append(child.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: o.UID})
	}
	if _, err := cm.Create(ctx, child, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := cm.Delete(ctx, "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	follow(t, cm, named("child"), func(c *corev1.ConfigMap) bool {
		return len(c.OwnerReferences) == 1 && c.OwnerReferences[0].Name == "two"
	})
	if err := cm.Delete(ctx, "two", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, cm, func() bool {
		_, err := cm.Get(ctx, "child", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// TestNamespace empties a namespace and then removes it; nothing new may come meanwhile.
func TestNamespace(t *testing.T) {
	r := start(t, nil)
	r.seed(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, deployment("cart", 3, func(d *appsv1.Deployment) { d.Namespace = "shop" }),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c"}})
	r.settle()
	cs := r.client(mimeJSON)
	ctx := deadline(t)
	if err := cs.CoreV1().Namespaces().Delete(ctx, "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := cs.CoreV1().ConfigMaps("shop").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late"}}, metav1.CreateOptions{})
	if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) && !apierrors.IsNotFound(err) {
		t.Errorf("created in a namespace that is going: %v", err)
	}
	until(t, cs.CoreV1().Namespaces(), func() bool {
		_, err := cs.CoreV1().Namespaces().Get(ctx, "shop", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	until(t, cs.CoreV1().Nodes(), func() bool { return len(r.c.Nodes()) == 0 })
}

// TestAuthentication refuses strangers with a Status, but tells everybody its version.
func TestAuthentication(t *testing.T) {
	r := start(t, nil)
	cs := r.client(mimeJSON)
	cfg := r.config(mimeProto)
	cfg.BearerToken = "wrong"
	stranger, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.CoreV1().Pods("default").List(deadline(t), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a wrong token: %v", err)
	}
	r.minor.Store("1.32")
	v, err := cs.Discovery().ServerVersion()
	if err != nil || v.Major != "1" || v.Minor != "32" || !regexp.MustCompile(`^v1\.32\.\d+-eks-[0-9a-f]{7}$`).MatchString(v.GitVersion) {
		b, _ := json.Marshal(v)
		t.Errorf("version %s (%v)", b, err)
	}
}
