package restart

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"pgregory.net/rapid"

	"github.com/eksbg/eksbg/internal/state"
)

const cart = "shop/Deployment/cart"

func TestRestartsDeployment(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "cart", 3, oldKubelet)
		b.deployment("shop", "new", 2, newKubelet)
		if obs := b.observe(); obs.Status != state.Ready || obs.Reason != "3 pods of 1 owner below 1.33" {
			t.Fatalf("before: %+v", obs)
		}
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if obs := b.observe(); obs.Status != state.Done || obs.Reason != "5 pods, none below 1.33" {
			t.Errorf("after: %+v", obs)
		}
		stamps := b.restarts(cart)
		if len(stamps) != 1 || stamps[0] != start.Format(time.RFC3339) {
			t.Fatalf("stamps %v", stamps)
		}
		if got := b.restarts("shop/Deployment/new"); len(got) != 0 {
			t.Errorf("a workload that does not lag was restarted: %v", got)
		}
		want := stamped{Owner: cart, UID: b.journal.intents()[0].UID, Attempt: 1, Stamp: stamps[0]}
		if got := b.journal.intents(); len(got) != 1 || got[0] != want {
			t.Errorf("intents %+v", got)
		}
		if got := b.journal.results(cart); len(got) != 2 || got[0] != state.Accepted || got[1] != state.Succeeded {
			t.Errorf("results %v", got)
		}
		var seen []string
		for _, r := range b.journal.Records("") {
			if r.Kind == state.RecordCluster {
				seen = append(seen, r.Text)
			}
		}
		if len(seen) != 2 || seen[0] != "5 pods, 3 below 1.33" || seen[1] != "5 pods, 0 below 1.33" {
			t.Errorf("cluster records %v", seen)
		}
	})
}

func TestRestartsStatefulSet(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.statefulSet("data", "db", 3, oldKubelet)
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if obs := b.observe(); obs.Status != state.Done {
			t.Errorf("after: %+v", obs)
		}
		if got := b.journal.Records("")[1].Change.Call; got != "k8s:patch statefulsets" {
			t.Errorf("call %q", got)
		}
	})
}

func TestCoreDNSGoesFirstAndAlone(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deps.MaxParallel, b.deps.Order = 3, []string{"platform"}
		dns := "kube-system/Deployment/coredns"
		b.deployment("kube-system", "coredns", 2, oldKubelet)
		b.deployment("audit", "log", 1, oldKubelet)
		for i := range 4 {
			b.deployment("platform", fmt.Sprint("p", i), 1, oldKubelet)
			b.gate[fmt.Sprint("platform/Deployment/p", i)] = make(chan struct{})
		}
		b.gate[dns] = make(chan struct{})
		end := b.held(t.Context())
		if !slices.Equal(b.order, []string{dns}) {
			t.Fatalf("begun %v, want CoreDNS alone", b.order)
		}
		close(b.gate[dns])
		synctest.Wait()
		want := []string{dns, "platform/Deployment/p0", "platform/Deployment/p1", "platform/Deployment/p2"}
		if !slices.Equal(b.order, want) {
			t.Fatalf("begun %v, want %v", b.order, want)
		}
		close(b.gate["platform/Deployment/p1"])
		synctest.Wait()
		if want = append(want, "platform/Deployment/p3"); !slices.Equal(b.order, want) {
			t.Fatalf("begun %v, want %v", b.order, want)
		}
		for _, i := range []int{0, 2, 3} {
			close(b.gate[fmt.Sprint("platform/Deployment/p", i)])
		}
		if err := <-end; err != nil {
			t.Fatal(err)
		}
		if want = append(want, "audit/Deployment/log"); !slices.Equal(b.order, want) || b.most != 3 {
			t.Errorf("begun %v, at most %d at once", b.order, b.most)
		}
	})
}

func TestLeavesAloneWhatHasNoReplicas(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "off", 0, oldKubelet)
		b.deployment("shop", "cart", 1, oldKubelet)
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(b.order, []string{cart}) {
			t.Errorf("restarted %v", b.order)
		}
	})
}

func TestPartition(t *testing.T) {
	for name, tt := range map[string]struct {
		low  string
		stop bool
	}{
		"the kept ordinals lag too":       {oldKubelet, true},
		"the kept ordinals are there yet": {newKubelet, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				st := b.statefulSet("data", "db", 3, oldKubelet).DeepCopy()
				st.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(2))}
				b.put(appsGVR["StatefulSet"], st)
				for _, p := range b.podsOfAll() {
					if p.Name != "db-2" {
						moved := p.DeepCopy()
						b.schedule(moved, tt.low)
						b.put(podsGVR, moved)
					}
				}
				err := b.drive(t.Context())
				if tt.stop {
					if stop := stopOf(t, err); !strings.Contains(stop.Why, "data/StatefulSet/db: 3 pods, partition 2 keeps ordinals below 2") {
						t.Errorf("%+v", stop)
					}
				} else if err != nil {
					t.Fatal(err)
				}
				if got := len(b.restarts("data/StatefulSet/db")); (got == 0) != tt.stop {
					t.Errorf("restarted %d times", got)
				}
			})
		})
	}
}

func TestProgressIsSaidSparingly(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		for _, name := range []string{"a", "b", "c"} {
			b.deployment("shop", name, 5, oldKubelet)
		}
		b.deps.MaxParallel = 1
		b.gate["shop/Deployment/c"] = make(chan struct{})
		end := b.held(t.Context())
		b.clock.Sleep(time.Minute)
		close(b.gate["shop/Deployment/c"])
		if err := <-end; err != nil {
			t.Fatal(err)
		}
		for i := 1; i < len(b.journal.waitAt); i++ {
			if gap := b.journal.waitAt[i].Sub(b.journal.waitAt[i-1]); gap < time.Second || gap > DefaultHeartbeat {
				t.Errorf("%s between %q and %q", gap, b.journal.waits[i-1], b.journal.waits[i])
			}
		}
		if want := "2 of 3 workloads, 10 of 15 pods on 1.33; rolling shop/Deployment/c"; !slices.Contains(b.journal.waits, want) {
			t.Errorf("%q is not in %q", want, b.journal.waits)
		}
		if n := len(b.journal.waits); n < 4 || n > 7 {
			t.Errorf("%d lines in a minute: %q", n, b.journal.waits)
		}
	})
}

// However many workloads there are, never more than MaxParallel roll at once, CoreDNS
// rolls alone, each one that lags is restarted once, with one stamp for all, and the
// step ends with no pod on an old kubelet.
func TestWaveProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.IntRange(1, 4).Draw(rt, "parallel")
		dns := rapid.Bool().Draw(rt, "CoreDNS lags")
		kinds := rapid.SliceOfN(rapid.SampledFrom([]string{"Deployment", "StatefulSet"}), 0, 7).Draw(rt, "kinds")
		pods := rapid.SliceOfN(rapid.IntRange(1, 3), len(kinds), len(kinds)).Draw(rt, "pods")
		lags := rapid.SliceOfN(rapid.Bool(), len(kinds), len(kinds)).Draw(rt, "lags")
		var wrong string
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.deps.MaxParallel = limit
			want := map[string]bool{}
			if dns {
				b.deployment("kube-system", "coredns", 2, oldKubelet)
				want["kube-system/Deployment/coredns"] = true
			}
			for i, kind := range kinds {
				name, kubelet := fmt.Sprint("w", i), newKubelet
				if lags[i] {
					kubelet = oldKubelet
					want["shop/"+kind+"/"+name] = true
				}
				if kind == "Deployment" {
					b.deployment("shop", name, pods[i], kubelet)
				} else {
					b.statefulSet("shop", name, pods[i], kubelet)
				}
			}
			wrong = b.wave(t, limit, want)
		})
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

// wave runs the step and says what of TestWaveProperty does not hold.
func (b *bench) wave(t *testing.T, limit int, want map[string]bool) string {
	if err := b.drive(t.Context()); err != nil {
		return err.Error()
	}
	if b.most > limit {
		return fmt.Sprintf("%d at once, want at most %d", b.most, limit)
	}
	for _, other := range b.beside {
		if other != "kube-system/Deployment/coredns" {
			return other + " rolled beside CoreDNS"
		}
	}
	one := map[string]bool{}
	for owner, stamps := range b.stamps {
		one[stamps[0]] = true
		if !want[owner] || len(stamps) != 1 || len(one) != 1 {
			return fmt.Sprintf("%s restarted with %v", owner, stamps)
		}
	}
	for owner, pods := range b.takes {
		if owner != "kube-system/Deployment/coredns" || !want[owner] || len(pods) != 2 {
			return fmt.Sprintf("%s: took %v", owner, pods)
		}
	}
	if len(b.stamps)+len(b.takes) != len(want) {
		return fmt.Sprintf("restarted %v, want %v", b.order, want)
	}
	if obs := b.observe(); obs.Status != state.Done {
		return obs.Reason
	}
	return ""
}
