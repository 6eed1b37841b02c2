package conformance

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
)

var writeChecks = []check{
	{name: "Conflicts", run: conflicts},
	{name: "Patches", run: patches},
	{name: "ManagedFields", run: managedFields},
	{name: "ServerSideApply", run: serverSideApply},
	{name: "Leases", run: leases},
	{name: "Priorities", run: priorities},
	{name: "Finalizers", run: finalizers},
}

// conflicts: an update with an old resourceVersion is refused, one without takes what is
// there; the generation counts changes of the spec and no others.
func conflicts(c *Case) {
	deps := c.cs.AppsV1().Deployments(c.ns)
	d := must(deps.Create(c.ctx, deployment("web", 0), metav1.CreateOptions{}))(c)
	stale := d.DeepCopy()
	d = await(c, deps, "web", "is observed", func(d *appsv1.Deployment) bool {
		return d.Status.ObservedGeneration == 1 && d.Annotations["deployment.kubernetes.io/revision"] == "1"
	})
	stale.Labels, stale.Annotations = map[string]string{"a": "b"}, d.Annotations
	if _, err := deps.Update(c.ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		c.Errorf("an update of an old state: %v", err)
	}
	stale.ResourceVersion = ""
	got := must(deps.Update(c.ctx, stale, metav1.UpdateOptions{}))(c)
	if got.Labels["a"] != "b" || got.Generation != 1 {
		c.Errorf("labels %v at generation %d", got.Labels, got.Generation)
	}
	got = must(deps.Patch(c.ctx, "web", types.MergePatchType, []byte(`{"spec":{"paused":true}}`), metav1.PatchOptions{}))(c)
	if got.Generation != 2 || !got.Spec.Paused {
		c.Errorf("generation %d after a change of the spec", got.Generation)
	}
	same := must(deps.Patch(c.ctx, "web", types.MergePatchType, []byte(`{"spec":{"paused":true}}`), metav1.PatchOptions{}))(c)
	if same.Generation != 2 {
		c.Errorf("generation %d after a patch that changes nothing", same.Generation)
	}
	// A Deployment's annotations count, which is how its controller gets to see them.
	noted := must(deps.Patch(c.ctx, "web", types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`), metav1.PatchOptions{}))(c)
	if noted.Generation != 3 {
		c.Errorf("generation %d after a change of the annotations", noted.Generation)
	}
	var scale *autoscalingv1.Scale
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the controller writes the status meanwhile
		scale = must(deps.GetScale(c.ctx, "web", metav1.GetOptions{}))(c)
		scale.Spec.Replicas = 1
		_, err := deps.UpdateScale(c.ctx, "web", scale, metav1.UpdateOptions{})
		return err
	}); err != nil {
		c.Fatal(err)
	}
	if _, err := deps.UpdateScale(c.ctx, "web", scale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		c.Errorf("a Scale of an old state: %v", err)
	}
}

// patches: a resourceVersion within a patch is a precondition, a uid is a change of it; a
// JSON patch tests first; what is no patch is refused.
func patches(c *Case) {
	deps := c.cs.AppsV1().Deployments(c.ns)
	d := must(deps.Create(c.ctx, deployment("web", 0), metav1.CreateOptions{}))(c)
	for _, p := range []struct {
		what  string
		t     types.PatchType
		patch string
		is    func(error) bool
	}{
		{"another resourceVersion", types.MergePatchType, `{"metadata":{"resourceVersion":"1"}}`, apierrors.IsConflict},
		{"another uid", types.StrategicMergePatchType, `{"metadata":{"uid":"x"}}`, apierrors.IsInvalid},
		{"a test that fails", types.JSONPatchType, `[{"op":"test","path":"/spec/paused","value":true}]`, func(err error) bool { return statusOf(err).Code == 422 }},
		{"no JSON", types.MergePatchType, `{`, apierrors.IsBadRequest},
		{"a selector changed", types.MergePatchType, `{"spec":{"selector":{"matchLabels":{"x":"y"}}}}`, apierrors.IsInvalid},
	} {
		if _, err := deps.Patch(c.ctx, "web", p.t, []byte(p.patch), metav1.PatchOptions{}); err == nil || !p.is(err) {
			c.Errorf("%s: %v", p.what, err)
		}
	}
	if _, err := deps.Patch(c.ctx, "none", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}); !apierrors.IsNotFound(err) {
		c.Errorf("a patch of nothing: %v", err)
	}
	ok := `[{"op":"test","path":"/metadata/uid","value":"` + string(d.UID) + `"},{"op":"add","path":"/metadata/annotations","value":{"a":"b"}}]`
	if d := must(deps.Patch(c.ctx, "web", types.JSONPatchType, []byte(ok), metav1.PatchOptions{}))(c); d.Annotations["a"] != "b" {
		c.Errorf("annotations %v", d.Annotations)
	}
}

const restartPath = `f:kubectl.kubernetes.io/restartedAt`

// owners lists which managers own the restart annotation of a template.
func owners(d *appsv1.Deployment) []string {
	var out []string
	for _, e := range d.ManagedFields {
		var f struct {
			Spec struct {
				Template struct {
					Metadata struct {
						Annotations map[string]any `json:"f:annotations"`
					} `json:"f:metadata"`
				} `json:"f:template"`
			} `json:"f:spec"`
		}
		if e.FieldsV1 != nil && json.Unmarshal(e.FieldsV1.GetRawBytes(), &f) == nil {
			if _, ok := f.Spec.Template.Metadata.Annotations[restartPath]; ok {
				out = append(out, e.Manager+" "+string(e.Operation))
			}
		}
	}
	slices.Sort(out)
	return out
}

// managedFields: each manager owns what it last wrote: by its name, or by its user agent
// up to the slash; what another writes it loses, and what is removed nobody owns.
func managedFields(c *Case) {
	deps := c.cs.AppsV1().Deployments(c.ns)
	d := must(deps.Create(c.ctx, deployment("web", 0), metav1.CreateOptions{}))(c)
	if len(d.ManagedFields) != 1 || d.ManagedFields[0].Manager != c.user || d.ManagedFields[0].Operation != metav1.ManagedFieldsOperationUpdate {
		c.Errorf("a new object's managedFields: %+v", d.ManagedFields)
	}
	before := time.Now().Add(-time.Minute)
	patch := func(manager, at string) *appsv1.Deployment {
		return must(deps.Patch(c.ctx, "web", types.StrategicMergePatchType, restart(at), metav1.PatchOptions{FieldManager: manager}))(c)
	}
	if got := owners(patch("kubectl-rollout", "2026-11-30T10:00:00Z")); !slices.Equal(got, []string{"kubectl-rollout Update"}) {
		c.Errorf("after a restart the annotation belongs to %v", got)
	}
	d = patch("eksbg", "2026-11-30T11:00:00Z")
	if got := owners(d); !slices.Equal(got, []string{"eksbg Update"}) {
		c.Errorf("after another it belongs to %v", got)
	}
	for _, e := range d.ManagedFields {
		if e.Manager == "eksbg" && (e.Time == nil || e.Time.Time.Before(before) || e.Subresource != "" || e.APIVersion != "apps/v1") {
			c.Errorf("the entry is %+v", e)
		}
	}
	gone := `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":null}}}}}`
	d = must(deps.Patch(c.ctx, "web", types.MergePatchType, []byte(gone), metav1.PatchOptions{FieldManager: "argocd-controller"}))(c)
	if got := owners(d); len(got) != 0 {
		c.Errorf("removed it belongs to %v", got)
	}
	if same := patch("eksbg", "2026-11-30T12:00:00Z"); !slices.Equal(owners(same), []string{"eksbg Update"}) {
		c.Errorf("written again it belongs to %v", owners(same))
	}
}

// serverSideApply: an applier owns what it applies; a value of somebody else is a
// Conflict that names them, unless it is forced.
func serverSideApply(c *Case) {
	deps := c.cs.AppsV1().Deployments(c.ns)
	must(deps.Create(c.ctx, deployment("web", 0), metav1.CreateOptions{}))(c)
	must(deps.Patch(c.ctx, "web", types.StrategicMergePatchType, restart("2026-11-30T10:00:00Z"), metav1.PatchOptions{FieldManager: "eksbg"}))(c)
	apply := func(at string, force bool) (*appsv1.Deployment, error) {
		body := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"` + at + `"}}}}}`
		return deps.Patch(c.ctx, "web", types.ApplyYAMLPatchType, []byte(body), metav1.PatchOptions{FieldManager: "gitops", Force: ptr.To(force)})
	}
	_, err := apply("2026-11-29T00:00:00Z", false)
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `conflict with "eksbg"`) {
		c.Errorf("applying over somebody else's value: %v", err)
	}
	d := must(apply("2026-11-29T00:00:00Z", true))(c)
	if got := owners(d); !slices.Equal(got, []string{"gitops Apply"}) || d.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] != "2026-11-29T00:00:00Z" {
		c.Errorf("forced: it belongs to %v, annotations %v", got, d.Spec.Template.Annotations)
	}
	made := must(c.cs.CoreV1().ConfigMaps(c.ns).Patch(c.ctx, "fresh", types.ApplyYAMLPatchType,
		[]byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: fresh}\ndata: {a: b}\n"), metav1.PatchOptions{FieldManager: "gitops"}))(c)
	if made.Data["a"] != "b" || made.UID == "" {
		c.Errorf("applying makes %+v", made)
	}
}

// leases: the lock of two machines. Who updates what somebody else has renewed meanwhile
// is refused, and so is who says no resourceVersion.
func leases(c *Case) {
	api := c.cs.CoordinationV1().Leases(c.ns)
	now := metav1.NowMicro()
	mine := must(api.Create(c.ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "eksbg-shop"}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To("a"), LeaseDurationSeconds: ptr.To[int32](60), RenewTime: &now}}, metav1.CreateOptions{}))(c)
	if !mine.Spec.RenewTime.Equal(&metav1.MicroTime{Time: now.Truncate(time.Microsecond)}) {
		c.Errorf("renewed at %s, want %s", mine.Spec.RenewTime, now)
	}
	if _, err := api.Create(c.ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "eksbg-shop"}}, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		c.Errorf("made twice: %v", err)
	}
	theirs := mine.DeepCopy()
	theirs.Spec.HolderIdentity = ptr.To("b")
	must(api.Update(c.ctx, theirs, metav1.UpdateOptions{}))(c)
	if _, err := api.Update(c.ctx, mine, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		c.Errorf("renewed over somebody else's: %v", err)
	}
	mine.ResourceVersion = ""
	if _, err := api.Update(c.ctx, mine, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "must be specified for an update") {
		c.Errorf("without a resourceVersion: %v", err)
	}
	put := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "fresh"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("c")}}
	if l, err := api.Update(c.ctx, put, metav1.UpdateOptions{}); err != nil || l.UID == "" {
		c.Errorf("a PUT of a Lease that is not there: %v", err)
	}
	old := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &theirs.ResourceVersion}}
	if err := api.Delete(c.ctx, "eksbg-shop", old); !apierrors.IsConflict(err) {
		c.Errorf("deleted at an old resourceVersion: %v", err)
	}
}

// priorities: a Fargate pod is system-node-critical whatever its class; a class that is not
// there is refused.
func priorities(c *Case) {
	classes := must(c.cs.SchedulingV1().PriorityClasses().List(c.ctx, metav1.ListOptions{}))(c)
	values := map[string]int32{}
	for _, p := range classes.Items {
		values[p.Name] = p.Value
	}
	if values["system-node-critical"] != 2000001000 || values["system-cluster-critical"] != 2000000000 {
		c.Errorf("the classes are %v", values)
	}
	p := must(c.cs.CoreV1().Pods(c.ns).Create(c.ctx, pod("mine"), metav1.CreateOptions{}))(c)
	if p.Spec.PriorityClassName != "system-node-critical" || *p.Spec.Priority != 2000001000 {
		c.Errorf("the pod has class %q, priority %d", p.Spec.PriorityClassName, *p.Spec.Priority)
	}
	_, err := c.cs.CoreV1().Pods(c.ns).Create(c.ctx, pod("lost", func(p *corev1.Pod) { p.Spec.PriorityClassName = "none" }), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "no PriorityClass with name none was found") {
		c.Errorf("a class that is not there: %v", err)
	}
}

// finalizers: an object with finalizers stays until the last of them is taken away.
func finalizers(c *Case) {
	api := c.cs.CoreV1().ConfigMaps(c.ns)
	m := must(api.Create(c.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"eksbg.dev/test"}}}, metav1.CreateOptions{}))(c)
	if err := api.Delete(c.ctx, "held", metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
	if got := must(api.Get(c.ctx, "held", metav1.GetOptions{}))(c); got.DeletionTimestamp == nil {
		c.Error("nothing says that it is going")
	}
	must(api.Patch(c.ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}))(c)
	awaitGone(c, api, "held", string(m.UID))
}
