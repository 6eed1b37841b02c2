package registry_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

// fresh is a registry that nothing but the test works on.
func fresh(t *testing.T) *registry.Registry {
	t.Helper()
	now := time.Date(2025, 3, 4, 5, 6, 7, 89, time.UTC)
	r := registry.New(store.New(100), func() time.Time { return now }, 1)
	create(t, r, registry.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	return r
}

func create[T store.Object](t *testing.T, r *registry.Registry, res *registry.Resource, o T) T {
	t.Helper()
	out, err := r.Create(res, o, false)
	if err != nil {
		t.Fatal(err)
	}
	return out.(T)
}

// status writes a status as a controller does.
func status[T store.Object](t *testing.T, r *registry.Registry, res *registry.Resource, o T, f func(T)) {
	t.Helper()
	next := o.DeepCopyObject().(T)
	f(next)
	if _, err := r.Change(res, o.GetNamespace(), o.GetName(), registry.Status, false, func(store.Object) (store.Object, error) { return next, nil }); err != nil {
		t.Fatal(err)
	}
}

func readyPod(t *testing.T, r *registry.Registry, name string) {
	t.Helper()
	p := create(t, r, registry.Pods, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": "cart"}},
		Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "c:1"}}},
	})
	status(t, r, registry.Pods, p, func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	})
}

// TestEvictionSpends checks what evictions do before any controller has looked: each
// takes one disruption and notes its pod, and a dry run takes none.
func TestEvictionSpends(t *testing.T) {
	r := fresh(t)
	for _, n := range []string{"a", "b", "c"} {
		readyPod(t, r, n)
	}
	pdb := create(t, r, registry.PodDisruptionBudgets, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "cart"}}},
	})
	err := r.Evict("shop", "a", metav1.DeleteOptions{})
	if !apierrors.IsTooManyRequests(err) || causes(err) != "The disruption budget cart is still being processed by the server." {
		t.Errorf("eviction under a budget that no controller has seen: %v %s", err, causes(err))
	}
	status(t, r, registry.PodDisruptionBudgets, pdb, func(b *policyv1.PodDisruptionBudget) {
		b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: 2, CurrentHealthy: 3, DesiredHealthy: 1, ExpectedPods: 3}
	})
	if err := r.Evict("shop", "a", metav1.DeleteOptions{DryRun: []string{"All"}}); err != nil {
		t.Errorf("dry run: %v", err)
	}
	// The budget pays before the uid is looked at, as in kube-apiserver.
	if err := r.Evict("shop", "a", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("other")}); !apierrors.IsConflict(err) {
		t.Errorf("eviction of another pod of that name: %v", err)
	}
	if err := r.Evict("shop", "a", metav1.DeleteOptions{}); err != nil {
		t.Errorf("the eviction that the budget allows: %v", err)
	}
	err = r.Evict("shop", "b", metav1.DeleteOptions{})
	if !apierrors.IsTooManyRequests(err) || causes(err) != "The disruption budget cart does not allow evicting pods currently" {
		t.Errorf("one more: %v %s", err, causes(err))
	}
	if err := r.Evict("shop", "a", metav1.DeleteOptions{}); err != nil {
		t.Errorf("eviction of a pod that is Terminating already: %v", err)
	}
	b := r.Store.Get(registry.PodDisruptionBudgets.GR(), "shop/cart").(*policyv1.PodDisruptionBudget)
	if _, noted := b.Status.DisruptedPods["a"]; b.Status.DisruptionsAllowed != 0 || !noted || len(b.Status.DisruptedPods) != 1 {
		t.Errorf("the budget is left with %+v", b.Status)
	}
}

func causes(err error) string {
	s, ok := err.(apierrors.APIStatus)
	if !ok || s.Status().Details == nil {
		return ""
	}
	var out []string
	for _, c := range s.Status().Details.Causes {
		out = append(out, c.Message)
	}
	return strings.Join(out, "; ")
}

// TestGrace checks how deletion proceeds: a second one may shorten the grace period but
// not lengthen it, and finalizers outlast both.
func TestGrace(t *testing.T) {
	r := fresh(t)
	readyPod(t, r, "a")
	del := func(grace *int64) (store.Object, bool) {
		t.Helper()
		o, gone, err := r.Delete(registry.Pods, "shop", "a", metav1.DeleteOptions{GracePeriodSeconds: grace})
		if err != nil {
			t.Fatal(err)
		}
		return o, gone
	}
	for _, c := range []struct {
		ask  *int64
		want int64
	}{{nil, 30}, {ptr.To[int64](60), 30}, {ptr.To[int64](5), 5}} {
		o, gone := del(c.ask)
		end := o.GetDeletionTimestamp().Sub(r.Now().Time)
		if gone || *o.GetDeletionGracePeriodSeconds() != c.want || end != time.Duration(c.want)*time.Second {
			t.Errorf("deleted with %v: gone %v, grace %d, %v left; want %d s", c.ask, gone, *o.GetDeletionGracePeriodSeconds(), end, c.want)
		}
	}
	mark := func(f ...string) {
		t.Helper()
		_, err := r.Change(registry.Pods, "shop", "a", registry.Whole, false, func(old store.Object) (store.Object, error) {
			next := old.DeepCopyObject().(store.Object)
			next.SetFinalizers(f)
			return next, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	mark("example.com/wait")
	if _, gone := del(ptr.To[int64](0)); gone {
		t.Error("a finalizer was ignored")
	}
	mark()
	if _, err := r.Get(registry.Pods, "shop", "a"); !apierrors.IsNotFound(err) {
		t.Errorf("after its last finalizer the pod is still there: %v", err)
	}
}
