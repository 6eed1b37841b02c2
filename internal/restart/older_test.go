package restart

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/eksbg/eksbg/internal/planfile"
)

// A manifest that an older run has left under the name is that of a pod that has lived
// since: the new one takes its place.
func TestManifestOfAnOlderRunIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.barePod("shop", "tool", oldKubelet)
		b.deps.Allow = []planfile.Allow{{Owner: tool, Action: planfile.ActionRecreate, Reason: "agreed"}}
		left := &corev1.PodTemplate{ObjectMeta: b.meta("shop", "eksbg-tool", nil)}
		left.Annotations = map[string]string{recreateAnnotation: "uid-of-an-older-pod"}
		left.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: "shop/tool:0"}}
		b.put(podTemplatesGVR, left)
		b.wholeAgain()
		for _, a := range b.client.Actions() {
			if u, ok := a.(clienttesting.UpdateAction); ok && a.GetVerb() == "update" && a.GetResource() == podTemplatesGVR {
				if got := u.GetObject().(*corev1.PodTemplate); got.ResourceVersion != left.ResourceVersion || got.Template.Spec.Containers[0].Image != "shop/tool:1" {
					t.Errorf("%+v", got)
				}
				return
			}
		}
		t.Error("the manifest is not replaced")
	})
}

// A Deployment that gave an earlier rollout up is evicted one by one all the same: the
// evictions bring no new template.
func TestEvictionsPassByAnOldDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.paused(2)
		obj, err := b.client.Tracker().Get(appsGVR["Deployment"], "shop", "cart")
		must(err)
		d := obj.(*appsv1.Deployment).DeepCopy()
		d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse,
			Reason: "ProgressDeadlineExceeded", Message: "an older rollout"}}
		b.put(appsGVR["Deployment"], d)
		b.deps.Allow = []planfile.Allow{{Owner: cart, Action: planfile.ActionEvict, Reason: "agreed"}}
		gate := make(chan struct{})
		b.gate[cart] = gate
		end := b.held(t.Context())
		b.clock.Sleep(DefaultGrace + time.Minute)
		close(gate)
		if err := <-end; err != nil || len(b.taken(cart)) != 2 {
			t.Errorf("%v, took %v", err, b.taken(cart))
		}
	})
}
