package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"
)

// used are the keys of labels and annotations that the conversions look at, and "app".
var used = map[string]bool{"app": true, SurgeAnnotation: true, SuspendAnnotation: true}

func init() {
	for _, key := range slices.Concat(podKeys, nodeKeys, workloadKeys, cronJobKeys) {
		used[key] = true
	}
}

// filler makes random objects in which every field is set.
func filler(seed int64) *randfill.Filler {
	return randfill.NewWithSeed(seed).NilChance(0).NumElements(1, 3).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(c.Int63n(1000), resource.DecimalSI)
		},
		func(v *intstr.IntOrString, c randfill.Continue) { *v = intstr.FromInt32(c.Int31n(9)) },
		func(t *metav1.Time, c randfill.Continue) { *t = metav1.Unix(c.Int63n(1<<31), 0) },
		func(t *metav1.MicroTime, c randfill.Continue) { t.Time = metav1.Unix(c.Int63n(1<<31), 0).Time },
		func(m *map[string]string, c randfill.Continue) {
			*m = map[string]string{"": "empty", c.String(8): c.String(8)}
			for key := range used {
				if c.Bool() {
					(*m)[key] = c.String(8)
				}
			}
		},
		func(p *corev1.PodPhase, c randfill.Continue) {
			*p = []corev1.PodPhase{corev1.PodRunning, corev1.PodFailed, corev1.PodPending}[c.Intn(3)]
		},
		func(t *corev1.PodConditionType, c randfill.Continue) { *t = corev1.PodReady },
		func(t *corev1.NodeConditionType, c randfill.Continue) {
			*t = []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeDiskPressure}[c.Intn(2)]
		},
		func(s *corev1.ConditionStatus, c randfill.Continue) {
			*s = []corev1.ConditionStatus{"True", "False"}[c.Intn(2)]
		},
		func(t *batchv1.JobConditionType, c randfill.Continue) {
			*t = []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed}[c.Intn(2)]
		},
		func(p *admissionv1.FailurePolicyType, c randfill.Continue) { *p = admissionv1.Fail },
		func(p *appsv1.PodManagementPolicyType, c randfill.Continue) { *p = appsv1.ParallelPodManagement },
	)
}

// TestNothingUsedIsPruned: what is made of an object does not change when it is pruned
// before it is decoded.
func TestNothingUsedIsPruned(t *testing.T) {
	p := priorities{}
	unpruned(t, keepPod, func(o *corev1.Pod) any { return []any{pod(o), o.Labels["app"]} })
	unpruned(t, keepNode, func(o *corev1.Node) any { return node(o) })
	unpruned(t, keepDeployment, func(o *appsv1.Deployment) any { return []any{p.deployment(o), o.Spec.Template.Spec.PriorityClassName} })
	unpruned(t, keepStatefulSet, func(o *appsv1.StatefulSet) any {
		return []any{p.statefulSet(o), o.Spec.Template.Spec.PriorityClassName}
	})
	unpruned(t, keepDaemonSet, func(o *appsv1.DaemonSet) any { return []any{p.daemonSet(o), o.Spec.Template.Spec.PriorityClassName} })
	unpruned(t, keepReplicaSet, func(o *appsv1.ReplicaSet) any {
		return []any{p.replicaSet(o), controller(&o.ObjectMeta), o.Spec.Template.Spec.PriorityClassName}
	})
	unpruned(t, keepReplicationController, func(o *corev1.ReplicationController) any {
		return []any{p.replicationController(o), controller(&o.ObjectMeta), o.Spec.Template.Spec.PriorityClassName}
	})
	unpruned(t, keepJob, func(o *batchv1.Job) any { return job(o) })
	unpruned(t, keepCronJob, func(o *batchv1.CronJob) any { return cronJob(o) })
	unpruned(t, keepBudget, func(o *policyv1.PodDisruptionBudget) any { return []any{budget(o), o.Spec.Selector} })
	unpruned(t, keepPriorityClass, func(o *schedulingv1.PriorityClass) any { return []any{o.Name, o.Value, o.GlobalDefault} })
	unpruned(t, keepWebhooks, func(o *admissionv1.ValidatingWebhookConfiguration) any {
		return []any{o.Name, o.Webhooks[0].Name, o.Webhooks[0].FailurePolicy, o.Webhooks[0].ClientConfig.Service}
	})
	unpruned(t, keepWebhooks, func(o *admissionv1.MutatingWebhookConfiguration) any {
		return []any{o.Name, o.Webhooks[0].Name, o.Webhooks[0].FailurePolicy, o.Webhooks[0].ClientConfig.Service}
	})
}

type codec[T any] interface {
	*T
	Unmarshal([]byte) error
	Marshal() ([]byte, error)
}

func unpruned[T any, P codec[T]](t *testing.T, keep message, made func(P) any) {
	t.Helper()
	for seed := range int64(20) {
		obj := P(new(T))
		filler(seed).Fill(obj)
		whole, err := obj.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		want, got := P(new(T)), P(new(T))
		if err := want.Unmarshal(whole); err != nil {
			t.Fatal(err)
		}
		kept, err := prune(bytes.Clone(whole), keep, used)
		if err != nil {
			t.Fatal(err)
		}
		if err := got.Unmarshal(kept); err != nil {
			t.Fatal(err)
		}
		if len(kept) >= len(whole) {
			t.Errorf("%T: nothing is pruned", obj)
		}
		// Owners that are not the controller depend on nothing but the references.
		if d := cmp.Diff(made(want), made(got), cmp.Exporter(func(reflect.Type) bool { return true })); d != "" {
			t.Fatalf("%T seed %d (-whole +pruned):\n%s", obj, seed, d)
		}
	}
}

// frame makes a list of the objects as an API server sends it.
func frame(more string, objects ...[]byte) []byte {
	field := func(b []byte, number uint64, body []byte) []byte {
		b = binary.AppendUvarint(b, number<<3|wireBytes)
		return append(binary.AppendUvarint(b, uint64(len(body))), body...)
	}
	meta, err := (&metav1.ListMeta{Continue: more, ResourceVersion: "7"}).Marshal()
	if err != nil {
		panic(err)
	}
	list := field(nil, listMeta, meta)
	for _, o := range objects {
		list = field(list, listItems, o)
	}
	b := field([]byte(magic), 1, []byte("\n\x02v1\x12\aPodList"))
	return field(field(b, unknownRaw, list), unknownCoding, nil)
}

func TestAPageThatBreaksOffIsTheConnectionsFault(t *testing.T) {
	a, err := (&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	whole := frame("next", a, a)
	var p page
	p.want.keep = keepPod
	if err := p.take(bytes.NewReader(whole)); err != nil || len(p.ends) != 2 || p.more != "next" {
		t.Fatalf("%v, %d objects, then %q", err, len(p.ends), p.more)
	}
	for n := range len(whole) - 2 { // what follows the list is an empty field
		err := p.take(bytes.NewReader(whole[:n]))
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut off after %d of %d bytes: %v", n, len(whole), err)
		}
	}
	if err := p.take(bytes.NewReader([]byte(`{"kind":"PodList"}`))); !errors.Is(err, errWire) {
		t.Errorf("JSON: %v", err)
	}
}

func FuzzPage(f *testing.F) {
	pod, _ := (&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"a": "b"}}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: "Ready", Message: "x"}}}}).Marshal()
	f.Add(frame("", pod))
	f.Add(frame("more"))
	f.Add([]byte("k8s\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := page{want: wanted{keepPod, used}}
		if err := p.take(bytes.NewReader(b)); err != nil {
			return
		}
		n := 0
		err := each[corev1.Pod](&p, list[corev1.Pod]{each: func(*corev1.Pod) { n++ }})
		if err == nil && n != len(p.ends) {
			t.Fatalf("%d objects of %d", n, len(p.ends))
		}
	})
}

// FuzzPrune: pruning never makes a message unreadable that was readable, and keeps the
// owner and the node of a pod.
func FuzzPrune(f *testing.F) {
	whole := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "x"}}}, Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c"}}}}
	b, _ := whole.Marshal()
	f.Add(b)
	f.Add([]byte{0x0b, 0x0c})
	f.Fuzz(func(t *testing.T, b []byte) {
		var want, got corev1.Pod
		if want.Unmarshal(b) != nil {
			_, _ = prune(b, keepPod, used)
			return
		}
		kept, err := prune(bytes.Clone(b), keepPod, used)
		if err != nil {
			// Groups, which nobody writes, are skipped by the one and refused by the other.
			return
		}
		if err := got.Unmarshal(kept); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(pod(&want), pod(&got)); d != "" {
			t.Fatalf("(-whole +pruned):\n%s", d)
		}
	})
}
