package restart

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

// everyMethod makes one owner of each kind and says how often each of them is to be
// restarted, or how many of its pods are to be taken.
func (b *bench) everyMethod() (restarts, takes map[string]int) {
	b.deployment("kube-system", "coredns", 2, oldKubelet)
	b.deployment("shop", "cart", 2, oldKubelet)
	b.statefulSet("shop", "db", 2, oldKubelet)
	b.onDelete(2)
	b.bareSet("shop", "web", 2, oldKubelet)
	b.bareSet("shop", "one", 1, oldKubelet)
	b.bareController("shop", "old", 1, oldKubelet)
	b.rollout("shop", "api", 2, oldKubelet)
	b.barePod("shop", "tool", oldKubelet)
	b.cronJob("shop", "nightly", false)
	b.cronJob("shop", "held", true)
	forgotten := 0
	b.pod[set] = pendingPod(&forgotten, 1)
	b.deps.CronJobs, b.deps.Pending = "suspend", time.Minute
	b.deps.Allow = []planfile.Allow{{Owner: "shop/Pod/tool", Action: planfile.ActionRecreate, Reason: "agreed"}}
	return map[string]int{cart: 1, "shop/StatefulSet/db": 1, "shop/Rollout/api": 1},
		map[string]int{"kube-system/Deployment/coredns": 2, ledgerS: 2, set: 3, "shop/ReplicaSet/one": 1, "shop/ReplicationController/old": 1,
			"shop/Rollout/api": 2, "shop/Pod/tool": 1}
}

// barePod is a pod that nobody owns, with a spec worth keeping.
func (b *bench) barePod(ns, name, kubelet string) {
	p := b.addPod(ns, name, kubelet, nil).DeepCopy()
	p.Labels = map[string]string{"app": name}
	p.Spec.Containers = []corev1.Container{{Name: "app", Image: "shop/" + name + ":1", Env: []corev1.EnvVar{{Name: "TOKEN", Value: "secret"}}}}
	p.Spec.Priority = new(int32(2000001000))
	b.put(podsGVR, p)
}

// asItWas says what of everyMethod's cluster is not as it should be at the end.
func (b *bench) asItWas(restarts, takes map[string]int) string {
	ctx := context.Background()
	if obs := b.observe(); obs.Status != state.Done {
		return fmt.Sprintf("%+v", obs)
	}
	for owner, n := range restarts {
		if got := b.restarts(owner); len(got) != n {
			return fmt.Sprintf("%s restarted with %v", owner, got)
		}
	}
	for owner, n := range takes {
		if got := b.taken(owner); len(got) != n {
			return fmt.Sprintf("%s: took %v", owner, got)
		}
	}
	for owner := range b.takes {
		if takes[owner] == 0 {
			return "took " + owner
		}
	}
	for name, want := range map[string]int32{"one": 1, "web": 2} {
		rs, err := b.client.AppsV1().ReplicaSets("shop").Get(ctx, name, metav1.GetOptions{})
		must(err)
		if *rs.Spec.Replicas != want || len(rs.Annotations) > 0 {
			return fmt.Sprintf("%s has %d replicas, annotations %v", name, *rs.Spec.Replicas, rs.Annotations)
		}
	}
	rc, err := b.client.CoreV1().ReplicationControllers("shop").Get(ctx, "old", metav1.GetOptions{})
	must(err)
	if *rc.Spec.Replicas != 1 || len(rc.Annotations) > 0 {
		return fmt.Sprintf("old has %d replicas", *rc.Spec.Replicas)
	}
	for name, want := range map[string]bool{"nightly": false, "held": true} {
		cj, err := b.client.BatchV1().CronJobs("shop").Get(ctx, name, metav1.GetOptions{})
		must(err)
		if suspended(cj) != want || len(cj.Annotations) > 0 {
			return fmt.Sprintf("%s: suspended %v, annotations %v", name, suspended(cj), cj.Annotations)
		}
	}
	return b.tool(ctx)
}

// tool says what is wrong with the bare pod and what was kept of it.
func (b *bench) tool(ctx context.Context) string {
	p, err := b.client.CoreV1().Pods("shop").Get(ctx, "tool", metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	if len(p.Spec.Containers) != 1 || p.Spec.Containers[0].Env[0].Value != "secret" || p.Labels["app"] != "tool" {
		return fmt.Sprintf("the bare pod came back as %+v", p)
	}
	kept, err := b.client.CoreV1().PodTemplates("").List(ctx, metav1.ListOptions{})
	must(err)
	if len(kept.Items) > 0 {
		return "PodTemplate " + kept.Items[0].Name + " is left"
	}
	for _, p := range b.podsOfAll() {
		if p.Annotations[corev1.PodDeletionCost] != "" {
			return "a pod still has a deletion cost"
		}
	}
	if n := len(b.journal.open()); n > 0 {
		return fmt.Sprintf("%d intents are open", n)
	}
	return ""
}

// At whichever write to the journal the process dies, before or after the record is on
// the disk, the next one restarts nothing twice and puts back what the first one
// changed for a while.
func TestKilledAtEveryWrite(t *testing.T) {
	writes := 0
	bubble(t, func(t *testing.T, b *bench) {
		restarts, takes := b.everyMethod()
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if wrong := b.asItWas(restarts, takes); wrong != "" {
			t.Fatal(wrong)
		}
		writes = b.journal.writes
		// A pod is Pending for a minute; nothing else takes any time here, so nothing
		// waits for an event that does not come.
		if took := b.clock.Since(start); took > 70*time.Second {
			t.Errorf("took %s", took)
		}
	})
	if writes < 40 {
		t.Fatalf("only %d writes", writes)
	}
	for at := 1; at <= writes; at++ {
		for _, after := range []bool{false, true} {
			wrong := ""
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				restarts, takes := b.everyMethod()
				b.journal.killAt, b.journal.killAfter = at, after
				if err := b.drive(t.Context()); !errors.Is(err, errKilled) && err == nil {
					wrong = "not killed"
					return
				}
				b.journal.dead = false
				synctest.Wait()
				if err := b.drive(t.Context()); err != nil {
					wrong = err.Error()
				} else {
					wrong = b.asItWas(restarts, takes)
				}
				if took := b.clock.Since(start); wrong == "" && took > 140*time.Second {
					wrong = "took " + took.String()
				}
				if wrong != "" {
					for _, r := range b.journal.Records("") {
						obj := ""
						if r.Change != nil {
							obj = r.Change.Call + " " + r.Change.Object + string(r.Change.Detail)
						}
						t.Logf("%d %s %d %s %s %s", r.Seq, r.Kind, r.Intent, r.Result, r.Text, obj)
					}
				}
			})
			if wrong != "" {
				t.Fatalf("killed at write %d of %d, after it %v: %s", at, writes, after, wrong)
			}
		}
	}
}

// Interrupted at whichever change, it puts back at once what it changed for a while, makes
// a bare pod again that it has evicted, and the next process restarts nothing twice.
func TestInterruptedAtEveryChange(t *testing.T) {
	for at := 1; ; at++ {
		wrong, over := "", false
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			restarts, takes := b.everyMethod()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			b.journal.onIntent = func(n int) {
				if n == at {
					cancel()
				}
			}
			err := b.drive(ctx)
			over = err == nil
			if over {
				return
			}
			if !errors.Is(err, context.Canceled) {
				wrong = err.Error()
				return
			}
			for _, name := range []string{"one", "web"} {
				if rs := b.set(name); len(rs.Annotations) > 0 || *rs.Spec.Replicas > 2 || name == "one" && *rs.Spec.Replicas != 1 {
					wrong = fmt.Sprintf("%s left with %d replicas", name, *rs.Spec.Replicas)
				}
			}
			if suspended(b.cron("nightly")) || !suspended(b.cron("held")) {
				wrong = "CronJobs are not as they were"
			}
			if p, err := b.getPod("shop", "tool"); err != nil || p.DeletionTimestamp != nil {
				wrong = fmt.Sprintf("the bare pod is away: %v", err)
			}
			b.journal.onIntent = nil
			synctest.Wait()
			if wrong != "" {
				return
			}
			if err := b.drive(t.Context()); err != nil {
				wrong = err.Error()
				return
			}
			// A surge that was put back is done anew.
			for _, owner := range []string{"shop/ReplicaSet/one", "shop/ReplicationController/old"} {
				if n := len(b.taken(owner)); n == 2 {
					takes[owner] = n
				}
			}
			wrong = b.asItWas(restarts, takes)
		})
		if over {
			if at < 15 {
				t.Fatalf("only %d changes", at)
			}
			return
		}
		if wrong != "" {
			t.Fatalf("interrupted at change %d: %s", at, wrong)
		}
	}
}
