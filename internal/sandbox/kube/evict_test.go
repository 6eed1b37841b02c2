package kube_test

import (
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

func budget(name, app string, change func(*policyv1.PodDisruptionBudgetSpec)) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: appSelector(app)},
	}
	change(&b.Spec)
	return b
}

func minAvailable(v string) func(*policyv1.PodDisruptionBudgetSpec) {
	return func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable = ptr.To(intstr.Parse(v)) }
}

func maxUnavailable(v string) func(*policyv1.PodDisruptionBudgetSpec) {
	return func(s *policyv1.PodDisruptionBudgetSpec) { s.MaxUnavailable = ptr.To(intstr.Parse(v)) }
}

// TestBudgetStatus checks the counts that a budget comes to.
func TestBudgetStatus(t *testing.T) {
	never := func(d *appsv1.Deployment) {
		d.Spec.Template.Annotations = map[string]string{"sandbox.eksbg/ready": "never"}
	}
	for _, c := range []struct {
		name                                string
		spec                                func(*policyv1.PodDisruptionBudgetSpec)
		unready                             bool
		allowed, healthy, desired, expected int32
	}{
		{"minAvailable 3 of 5", minAvailable("3"), false, 2, 5, 3, 5},
		{"minAvailable 50% of 5 rounds up", minAvailable("50%"), false, 2, 5, 3, 5},
		{"minAvailable 100%", minAvailable("100%"), false, 0, 5, 5, 5},
		{"maxUnavailable 1", maxUnavailable("1"), false, 1, 5, 4, 5},
		{"maxUnavailable 30% rounds up", maxUnavailable("30%"), false, 2, 5, 3, 5},
		{"maxUnavailable 0", maxUnavailable("0"), false, 0, 5, 5, 5},
		{"minAvailable 9 of 5", minAvailable("9"), false, 0, 5, 9, 5},
		{"nothing is ready", maxUnavailable("1"), true, 0, 0, 4, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, nil)
			d := deployment("web", 5)
			if c.unready {
				never(d)
			}
			r.seed(budget("b", "web", c.spec), d)
			r.settle()
			b, err := r.client(mimeProto).PolicyV1().PodDisruptionBudgets("default").Get(deadline(t), "b", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			s := b.Status
			if s.DisruptionsAllowed != c.allowed || s.CurrentHealthy != c.healthy || s.DesiredHealthy != c.desired || s.ExpectedPods != c.expected {
				t.Errorf("allowed %d, healthy %d, desired %d, expected %d; want %d, %d, %d, %d", s.DisruptionsAllowed, s.CurrentHealthy,
					s.DesiredHealthy, s.ExpectedPods, c.allowed, c.healthy, c.desired, c.expected)
			}
			want := metav1.ConditionFalse
			if c.allowed > 0 {
				want = metav1.ConditionTrue
			}
			if len(s.Conditions) != 1 || s.Conditions[0].Status != want || s.ObservedGeneration != 1 {
				t.Errorf("conditions %+v, observedGeneration %d", s.Conditions, s.ObservedGeneration)
			}
		})
	}
}

func evict(t *testing.T, cs *kubernetes.Clientset, name string) error {
	t.Helper()
	return cs.CoreV1().Pods("default").EvictV1(deadline(t), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
}

// TestEviction takes as many pods as the budget allows, is refused the next in the words
// of the real API server, and goes on when the replacements are ready.
func TestEviction(t *testing.T) {
	for _, media := range []string{mimeJSON, mimeProto} {
		t.Run(media, func(t *testing.T) {
			r := start(t, nil)
			r.seed(budget("web-budget", "web", minAvailable("2")), deployment("web", 3))
			r.settle()
			cs := r.client(media)
			pods, err := cs.CoreV1().Pods("default").List(deadline(t), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := evict(t, cs, pods.Items[0].Name); err != nil {
				t.Fatalf("the first eviction: %v", err)
			}
			checkRefused(t, evict(t, cs, pods.Items[1].Name))
			until(t, cs.PolicyV1().PodDisruptionBudgets("default"), func() bool {
				b, err := cs.PolicyV1().PodDisruptionBudgets("default").Get(deadline(t), "web-budget", metav1.GetOptions{})
				return err == nil && b.Status.DisruptionsAllowed == 1 && len(b.Status.DisruptedPods) == 0
			})
			if err := evict(t, cs, pods.Items[1].Name); err != nil {
				t.Errorf("an eviction after the replacement is ready: %v", err)
			}
			if err := evict(t, cs, "none"); !apierrors.IsNotFound(err) {
				t.Errorf("eviction of no pod: %v", err)
			}
		})
	}
}

func checkRefused(t *testing.T, err error) {
	t.Helper()
	var s apierrors.APIStatus
	if !apierrors.IsTooManyRequests(err) || !errors.As(err, &s) {
		t.Fatalf("an eviction beyond the budget: %v", err)
	}
	if got, want := err.Error(), "Cannot evict pod as it would violate the pod's disruption budget."; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	causes := s.Status().Details.Causes
	// Which of them it is depends on whether the budget's controller has seen the first eviction.
	for _, want := range []string{"needs 2 healthy pods and has 2 currently", "does not allow evicting pods currently", "is still being processed by the server."} {
		if len(causes) == 1 && causes[0].Type == policyv1.DisruptionBudgetCause && causes[0].Message == "The disruption budget web-budget "+want {
			return
		}
	}
	t.Errorf("causes %+v", causes)
}

// TestEvictionOddities covers two budgets on a pod, unready pods and finished ones.
func TestEvictionOddities(t *testing.T) {
	r := start(t, nil)
	r.seed(
		budget("one", "twice", minAvailable("0")), budget("two", "twice", minAvailable("0")), deployment("twice", 1),
		budget("strict", "sick", minAvailable("1")), deployment("sick", 1, func(d *appsv1.Deployment) {
			d.Spec.Template.Annotations = map[string]string{"sandbox.eksbg/ready": "never"}
		}),
		budget("done", "done", minAvailable("1")), pod("done", func(p *corev1.Pod) {
			p.Spec.RestartPolicy = corev1.RestartPolicyNever
			p.Annotations = map[string]string{"sandbox.eksbg/run": "0s"}
		}),
	)
	r.settle()
	cs := r.client(mimeJSON)
	name := func(app string) string {
		l, err := cs.CoreV1().Pods("default").List(deadline(t), metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil || len(l.Items) == 0 {
			t.Fatalf("no pod of %s (%v)", app, err)
		}
		return l.Items[0].Name
	}
	err := evict(t, cs, name("twice"))
	if !apierrors.IsInternalError(err) && !isCode(err, 500) || !strings.Contains(err.Error(), "more than one PodDisruptionBudget") {
		t.Errorf("eviction of a pod with two budgets: %v", err)
	}
	if err := evict(t, cs, name("sick")); !apierrors.IsTooManyRequests(err) {
		t.Errorf("eviction of an unready pod whose budget has nothing to spare: %v", err)
	}
	patch := []byte(`{"spec":{"unhealthyPodEvictionPolicy":"AlwaysAllow"}}`)
	if _, err := cs.PolicyV1().PodDisruptionBudgets("default").Patch(deadline(t), "strict", "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := evict(t, cs, name("sick")); err != nil {
		t.Errorf("eviction of an unready pod under AlwaysAllow: %v", err)
	}
	if err := evict(t, cs, "done"); err != nil {
		t.Errorf("eviction of a finished pod: %v", err)
	}
}

func isCode(err error, code int32) bool {
	var s apierrors.APIStatus
	return errors.As(err, &s) && s.Status().Code == code
}
