package restart_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/restart"
	"github.com/eksbg/eksbg/internal/state"
)

// book is the journal of the step, in memory.
type book struct {
	mu      sync.Mutex
	records []state.Record
	// dies makes the nth Outcome fail, as the process would with a full disk.
	dies int
}

func (b *book) Records(string) []state.Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.records)
}

func (b *book) add(r state.Record) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.Seq, r.Step, r.Time = int64(len(b.records)+1), jobsSpec.ID, time.Now()
	b.records = append(b.records, r)
	return r.Seq
}

func (b *book) Intent(call, object string, detail, _ any) (int64, error) {
	raw, err := json.Marshal(detail)
	return b.add(state.Record{Kind: state.RecordIntent, Change: &state.Change{Call: call, Object: object, Detail: raw}}), err
}

func (b *book) Outcome(intent int64, result state.Result, text string, _ any) error {
	if b.dies--; b.dies == 0 {
		return errors.New("no space left on device")
	}
	b.add(state.Record{Kind: state.RecordOutcome, Intent: intent, Result: result, Text: text})
	return nil
}

func (b *book) Record(r state.Record) error { b.add(r); return nil }
func (b *book) Waiting(string)              {}

// kube is a fake API server that holds the yard's objects, checks the UID as the real
// one does, and lets pods go with their Job a while later.
type kube struct {
	*fake.Clientset
	mu      sync.Mutex
	deletes []string
	linger  time.Duration
	gone    map[string]time.Time
	refuse  error
}

func newKube(t *testing.T, y *yard) *kube {
	k := &kube{Clientset: fake.NewClientset(), gone: map[string]time.Time{}}
	for _, j := range y.inv.Jobs {
		o := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: j.Name, UID: "x"}}
		if err := k.Tracker().Add(o); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range y.inv.Pods {
		if err := k.Tracker().Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}); err != nil {
			t.Fatal(err)
		}
	}
	uids := map[string]string{}
	for _, j := range y.inv.Jobs {
		uids["jobs/"+j.Namespace+"/"+j.Name] = j.UID
	}
	for _, p := range y.inv.Pods {
		uids["pods/"+p.Namespace+"/"+p.Name] = p.UID
	}
	k.PrependReactor("delete", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		d := a.(clienttesting.DeleteActionImpl)
		res := schema.GroupResource{Resource: d.Resource.Resource}
		id := d.Resource.Resource + "/" + d.Namespace + "/" + d.Name
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.refuse != nil {
			return true, nil, k.refuse
		}
		if pre := d.DeleteOptions.Preconditions; pre == nil || pre.UID == nil || string(*pre.UID) != uids[id] {
			return true, nil, apierrors.NewConflict(res, d.Name, errors.New("the UID in the precondition differs"))
		}
		if d.Resource.Resource == "jobs" && (d.DeleteOptions.PropagationPolicy == nil || *d.DeleteOptions.PropagationPolicy != metav1.DeletePropagationBackground) {
			t.Errorf("%s deleted without background propagation", id)
		}
		if _, twice := k.gone[uids[id]]; twice {
			return true, nil, apierrors.NewNotFound(res, d.Name)
		}
		k.deletes = append(k.deletes, id)
		k.gone[uids[id]] = time.Now()
		for _, p := range y.inv.Pods {
			if p.Owner.Kind == "Job" && p.Owner.UID == uids[id] || p.UID == uids[id] {
				k.gone[p.UID] = time.Now().Add(k.linger)
			}
		}
		return true, nil, nil
	})
	return k
}

// inventory is the yard less what is gone.
func (k *kube) inventory(y *yard) func(context.Context) (*cluster.Inventory, error) {
	return func(ctx context.Context) (*cluster.Inventory, error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		inv := y.inv
		isGone := func(uid string) bool { at, ok := k.gone[uid]; return ok && !time.Now().Before(at) }
		inv.Jobs = slices.DeleteFunc(slices.Clone(inv.Jobs), func(j cluster.Job) bool { return isGone(j.UID) })
		inv.Pods = slices.DeleteFunc(slices.Clone(inv.Pods), func(p cluster.Pod) bool { return isGone(p.UID) })
		return &inv, ctx.Err()
	}
}

func jobsStep(k *kube, y *yard, b *book) *restart.Jobs {
	return restart.NewJobs(jobsSpec, restart.JobsDeps{Kubernetes: k, Inventory: k.inventory(y), Clock: clock.RealClock{}, History: b, Age: time.Hour, Polling: 10 * time.Second})
}

// many is a yard of n finished Jobs with a pod each, and one bare pod. The clock of a
// synctest bubble begins at 2000, so they finished long before that.
func many(n int) *yard {
	y := &yard{}
	ago := noon.Sub(time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC))
	for i := range n {
		name := fmt.Sprintf("import-%d", i)
		y.job("shop", name, ago).pod("shop", name+"-aaaaa", owner("batch/v1", "shop", "Job", name), ago).of(name)
	}
	return y.pod("ops", "toolbox", owner("v1", "ops", "Pod", "toolbox"), ago)
}

func status(t *testing.T, s *restart.Jobs, want state.Status) string {
	t.Helper()
	obs, err := s.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if obs.Status != want {
		t.Fatalf("observed %s (%s), want %s", obs.Status, obs.Reason, want)
	}
	return obs.Reason
}

func TestJobsStepDeletesAndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y, b := many(120), &book{}
		k := newKube(t, y)
		k.linger = 40 * time.Second
		s := jobsStep(k, y, b)
		if reason := status(t, s, state.Ready); reason != "120 finished Jobs and 1 finished pod hold 121 Fargate addresses" {
			t.Error(reason)
		}
		if err := s.Act(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		status(t, s, state.Done)
		if len(k.deletes) != 121 {
			t.Errorf("%d deletions, want 121", len(k.deletes))
		}
		if n := len(state.OfKind(b.records, state.RecordIntent)); n != 4 { // 50, 50, 20, and the pod
			t.Errorf("%d intents, want 4", n)
		}
		if len(state.OpenIntents(b.records)) > 0 {
			t.Error("an intent has no outcome")
		}
	})
}

// Killed anywhere, the next process deletes what is left and nothing twice.
func TestJobsStepKilledAndResumed(t *testing.T) {
	for dies := 1; dies <= 4; dies++ {
		synctest.Test(t, func(t *testing.T) {
			y, b := many(120), &book{dies: dies}
			k := newKube(t, y)
			k.linger = 5 * time.Second
			if err := jobsStep(k, y, b).Act(t.Context(), b); err == nil {
				t.Fatal("survived")
			}
			s := jobsStep(k, y, b)
			if reason, err := s.Observe(t.Context()); err != nil || reason.Status == state.Blocked {
				t.Fatal(reason, err)
			}
			if err := s.Act(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			status(t, s, state.Done)
			if len(k.deletes) != 121 {
				t.Errorf("%d deletions, want 121", len(k.deletes))
			}
			if len(state.OpenIntents(b.records)) > 0 {
				t.Error("an intent has no outcome")
			}
		})
	}
}

// What a finalizer holds is said, and does not keep the run from going on.
func TestJobsStepDoesNotWaitForFinalizersForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y, b := many(3), &book{}
		k := newKube(t, y)
		k.linger = 1000 * time.Hour
		s := jobsStep(k, y, b)
		if err := s.Act(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		status(t, s, state.Done)
		if r, ok := state.LastOf(b.records, state.RecordWarning); !ok || !strings.Contains(r.Text, "finalizer") {
			t.Errorf("warned %+v", r)
		}
	})
}

func TestJobsStepLeavesAJobOfTheSameName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y, b := many(2), &book{}
		k := newKube(t, y)
		seen := many(2)
		for i := range seen.inv.Jobs { // as an older look saw them
			seen.inv.Jobs[i].UID += "-before"
		}
		s := restart.NewJobs(jobsSpec, restart.JobsDeps{Kubernetes: k, Inventory: k.inventory(seen), Clock: clock.RealClock{}, History: b, Age: time.Hour, Timeout: time.Minute})
		if err := s.Act(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(k.deletes, []string{"pods/ops/toolbox"}) {
			t.Errorf("deleted %v", k.deletes)
		}
	})
}

func TestJobsStepRefusedAndInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y, b := many(2), &book{}
		k := newKube(t, y)
		k.refuse = apierrors.NewForbidden(schema.GroupResource{Group: "batch", Resource: "jobs"}, "import-0", errors.New("no"))
		var stop *state.Stop
		if err := jobsStep(k, y, b).Act(t.Context(), b); !errors.As(err, &stop) || stop.Code != state.ExitBlocked || !strings.Contains(stop.Cure, "restart.finishedJobs: keep") {
			t.Errorf("refused: %v", err)
		}
		if r, ok := state.LastOf(b.records, state.RecordOutcome); !ok || r.Result != state.Rejected {
			t.Errorf("outcome %+v", r)
		}
		k.refuse = apierrors.NewInternalError(errors.New("etcd"))
		if err := jobsStep(k, y, b).Act(t.Context(), b); err == nil || len(state.OpenIntents(b.records)) != 1 {
			t.Errorf("a 500 settles nothing: %v", err)
		}
		k.refuse, k.linger = nil, time.Hour
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("enough"))
		defer cancel()
		if err := jobsStep(k, y, b).Act(ctx, b); err == nil || !strings.Contains(err.Error(), "enough") {
			t.Errorf("interrupted: %v", err)
		}
		if len(k.deletes) != 3 {
			t.Errorf("deleted %v", k.deletes)
		}
	})
}
