package restart

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eksbg/eksbg/internal/state"
)

// forgotten puts a pod that the Fargate scheduler does not place.
func (b *bench) forgotten(name string, policy corev1.RestartPolicy, owner *metav1.OwnerReference) {
	p := b.addPod("shop", name, "", owner).DeepCopy()
	p.Spec.SchedulerName, p.Spec.RestartPolicy = fargateScheduler, policy
	b.put(podsGVR, p)
}

// A pod of a running Job that is Pending is never deleted: its controller would count
// that as a failure, and with backoffLimit 0 end the Job and the pods of it that run.
func TestPendingPodsOfWhatEndsAreLeft(t *testing.T) {
	for name, tt := range map[string]struct {
		owner  *metav1.OwnerReference
		policy corev1.RestartPolicy
		// beside is the policy of a pod of the same owner that runs on the old kubelet.
		beside corev1.RestartPolicy
	}{
		"a Job":                  {ref("batch/v1", "Job", "seed", "uid-seed"), corev1.RestartPolicyNever, corev1.RestartPolicyNever},
		"a workflow":             {ref("argoproj.io/v1alpha1", "Workflow", "etl", "uid-etl"), corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever},
		"a workflow's daemon":    {ref("argoproj.io/v1alpha1", "Workflow", "etl", "uid-etl"), corev1.RestartPolicyAlways, corev1.RestartPolicyNever},
		"beside what is evicted": {ref("db.example.com/v1", "Database", "pg", "uid-pg"), corev1.RestartPolicyNever, corev1.RestartPolicyAlways},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.deps.Pending, b.deps.JobTimeout, b.deps.Timeout = time.Minute, 20*time.Minute, 20*time.Minute
				old := b.addPod("shop", "part-0", oldKubelet, tt.owner).DeepCopy()
				old.Spec.RestartPolicy = tt.beside
				b.put(podsGVR, old)
				b.forgotten("part-1", tt.policy, tt.owner)
				stop := stopOf(t, b.drive(t.Context()))
				if stop.Code != state.ExitResumable || !strings.Contains(stop.Why, "part-1 (on no node)") {
					t.Errorf("%+v", stop)
				}
				if n := prefixed(b.calls, "delete pods"); n != 0 {
					t.Errorf("deleted %d pods", n)
				}
				told := 0
				for _, r := range b.journal.Records("") {
					if r.Kind == state.RecordWarning && strings.Contains(r.Text, "pod part-1 is Pending under the Fargate scheduler for at least 1m") {
						told++
					}
				}
				if told != 1 {
					t.Errorf("told %d times", told)
				}
			})
		})
	}
}
