package restart

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/state"
)

var errReset = errors.New("connection reset by peer")

// once gives an error the first time.
func once(err error) func(string, string) error {
	return func(string, string) error { e := err; err = nil; return e }
}

func TestResumeWithOpenIntent(t *testing.T) {
	tests := map[string]struct {
		lose    func(*bench)
		results []state.Result
	}{
		"patch had landed":     {func(b *bench) { b.after = once(errReset) }, []state.Result{state.Found, state.Succeeded}},
		"patch had not landed": {func(b *bench) { b.before = once(errReset) }, []state.Result{state.Accepted, state.Succeeded}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.deployment("shop", "cart", 2, oldKubelet)
				b.gate[cart] = make(chan struct{})
				tt.lose(b)
				if err := b.drive(t.Context()); !errors.Is(err, errReset) {
					t.Fatalf("first process: %v", err)
				}
				if got := b.journal.results(cart); len(got) != 0 {
					t.Fatalf("the intent is not open: %v", got)
				}
				b.clock.Sleep(time.Hour)
				close(b.gate[cart])
				if err := b.drive(t.Context()); err != nil {
					t.Fatalf("second process: %v", err)
				}
				intents := b.journal.intents()
				if len(intents) != 1 || !slices.Equal(b.restarts(cart), []string{intents[0].Stamp}) {
					t.Errorf("intents %+v, stamps %v: want the same stamp, restarted once", intents, b.restarts(cart))
				}
				if got := b.journal.results(cart); !slices.Equal(got, tt.results) {
					t.Errorf("results %v, want %v", got, tt.results)
				}
				if obs := b.observe(); obs.Status != state.Done {
					t.Errorf("%+v", obs)
				}
			})
		})
	}
}

func TestResumeRestartsNothingTwice(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		for _, name := range []string{"cart", "pay", "web"} {
			b.deployment("shop", name, 2, oldKubelet)
		}
		b.deps.MaxParallel = 1
		b.gate["shop/Deployment/pay"] = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		end := b.held(ctx)
		if len(b.restarts("shop/Deployment/pay")) != 1 {
			t.Fatal("not begun")
		}
		cancel()
		if err := <-end; !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
		if got := b.restarts("shop/Deployment/web"); len(got) != 0 {
			t.Fatalf("a rollout began after the interrupt: %v", got)
		}
		close(b.gate["shop/Deployment/pay"])
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
		var stamps []string
		for _, name := range []string{"cart", "pay", "web"} {
			got := b.restarts("shop/Deployment/" + name)
			if len(got) != 1 {
				t.Errorf("%s: restarted %d times", name, len(got))
			}
			stamps = append(stamps, got...)
		}
		if len(slices.Compact(stamps)) != 1 {
			t.Errorf("one stamp per hop and attempt, got %v", stamps)
		}
	})
}

func TestNoPatchWithoutDurableIntent(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "cart", 1, oldKubelet)
		b.journal.refuse = errors.New("no space left on device")
		if err := b.drive(t.Context()); !errors.Is(err, b.journal.refuse) {
			t.Fatalf("got %v", err)
		}
		if got := b.restarts(cart); len(got) != 0 {
			t.Errorf("patched without a journal: %v", got)
		}
	})
}

// restartByHand is kubectl rollout restart of somebody else.
func (b *bench) restartByHand(name, stamp string) {
	obj, err := b.client.Tracker().Get(appsGVR["Deployment"], "shop", name)
	must(err)
	d := obj.(*appsv1.Deployment).DeepCopy()
	d.Spec.Template.Annotations = map[string]string{restartedAt: stamp}
	b.restart("shop/Deployment/"+name, d, stamp)
}

func TestWaitsForForeignRestart(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "cart", 2, oldKubelet)
		b.deployment("shop", "pay", 2, oldKubelet)
		b.deps.MaxParallel = 1
		b.gate[cart], b.gate["shop/Deployment/pay"] = make(chan struct{}), make(chan struct{})
		foreign := start.Add(48 * time.Hour).Format(time.RFC3339)
		end := b.held(t.Context())
		if len(b.restarts(cart)) != 1 {
			t.Fatal("not begun")
		}
		// Somebody restarts pay while cart rolls; it is waited for, not restarted again.
		b.restartByHand("pay", foreign)
		close(b.gate[cart])
		synctest.Wait()
		if !noted(b.journal, "shop/Deployment/pay restarted by somebody else at "+foreign) {
			t.Errorf("no note of the foreign restart: %+v", b.journal.Records(""))
		}
		close(b.gate["shop/Deployment/pay"])
		if err := <-end; err != nil {
			t.Fatal(err)
		}
		if got := b.restarts("shop/Deployment/pay"); !slices.Equal(got, []string{foreign}) {
			t.Errorf("stamps %v, want the foreign one alone", got)
		}
	})
}

// A process that was killed while it waited for somebody else's restart goes on waiting.
func TestForeignRestartIsNotDoneOnResume(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*cluster.Workload)
		want   state.Status
	}{
		"one of three is ready": {func(*cluster.Workload) {}, state.Ready},
		"complete":              {func(w *cluster.Workload) { w.Ready = 3 }, state.Done},
		"from before the hop":   {func(w *cluster.Workload) { w.RestartedAt = "1999-12-31T00:00:00Z" }, state.Done},
		"paused, nothing moves": {func(w *cluster.Workload) { w.Paused = true }, state.Done},
		"two on no kubelet":     {nil, state.Ready},
	} {
		t.Run(name, func(t *testing.T) {
			j := &memory{now: func() time.Time { return start }}
			seq, err := j.Intent("k8s:patch deployments", cart, stamped{Owner: cart, Attempt: 1, Stamp: start.Format(time.RFC3339)}, nil)
			must(err)
			must(j.Outcome(seq, state.Succeeded, "", nil))
			inv := twoNodes()
			pay := cluster.Workload{Owner: own("apps/v1", "shop", "Deployment", "pay"), Replicas: 3, Current: 3, Updated: 3, Ready: 1,
				Strategy: "RollingUpdate", RestartedAt: start.Add(time.Minute).Format(time.RFC3339)}
			nodes := []string{"new", "new", "new"}
			if tt.change == nil {
				nodes = []string{"new", "", ""}
				tt.change = func(w *cluster.Workload) { w.Ready = 3 }
			}
			tt.change(&pay)
			inv.Workloads = []cluster.Workload{pay}
			for i, node := range nodes {
				n := string(rune('a' + i))
				inv.Pods = append(inv.Pods, cluster.Pod{Namespace: "shop", Name: n, UID: n, Node: node, Owner: pay.Owner})
			}
			obs, err := New(spec, Deps{History: j, Clock: clock.RealClock{}, Inventory: func(context.Context) (*cluster.Inventory, error) { return inv, nil }}).Observe(t.Context())
			if err != nil || obs.Status != tt.want {
				t.Errorf("got %+v, %v, want %s", obs, err, tt.want)
			}
		})
	}
}

func TestForeignRestartThatDidNotHelp(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "cart", 2, oldKubelet)
		b.kubelet[cart] = []string{oldKubelet, oldKubelet}
		b.gate[cart] = make(chan struct{})
		end := b.held(t.Context())
		if len(b.restarts(cart)) != 1 {
			t.Fatal("not begun")
		}
		foreign := start.Add(48 * time.Hour).Format(time.RFC3339)
		b.sim.mu.Lock()
		b.gate[cart] = nil
		b.sim.mu.Unlock()
		b.restartByHand("cart", foreign)
		if err := <-end; err != nil {
			t.Fatal(err)
		}
		got := b.restarts(cart)
		if len(got) != 3 || got[1] != foreign || !newer(got[2], foreign) {
			t.Errorf("stamps %v: want ours, the foreign one, and a later one of ours", got)
		}
		if in := b.journal.intents(); len(in) != 2 || in[1].Attempt != 2 || in[1].Before != foreign {
			t.Errorf("intents %+v", in)
		}
	})
}

func noted(j *memory, text string) bool {
	return slices.ContainsFunc(j.Records(""), func(r state.Record) bool {
		return r.Kind == state.RecordNote && strings.HasPrefix(r.Text, text)
	})
}

func TestStillLagging(t *testing.T) {
	tests := map[string]struct {
		kubelets []string
		restarts int
		exit     state.Exit
	}{
		"born on the old kubelet once":   {[]string{oldKubelet, newKubelet}, 2, 0},
		"twice":                          {[]string{oldKubelet, oldKubelet, newKubelet}, 3, 0},
		"three times, that is no chance": {[]string{oldKubelet, oldKubelet, oldKubelet, oldKubelet}, 3, state.ExitBlocked},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.deployment("shop", "cart", 2, oldKubelet)
				b.kubelet[cart] = tt.kubelets
				err := b.drive(t.Context())
				if tt.exit == 0 && err != nil {
					t.Fatal(err)
				}
				if tt.exit != 0 {
					if stop := stopOf(t, err); stop.Code != tt.exit || !strings.Contains(stop.Why, cart+": still lags after 3 restarts") || stop.Cure == "" {
						t.Errorf("%+v", stop)
					}
					if obs := b.observe(); obs.Status != state.Blocked || !strings.Contains(obs.Reason, cart+": 2 pods, still lags after 3 restarts") {
						t.Errorf("%+v", obs)
					}
				}
				got := b.restarts(cart)
				if len(got) != tt.restarts || !slices.IsSortedFunc(got, func(a, b string) int {
					if newer(b, a) {
						return -1
					}
					return 1
				}) {
					t.Errorf("stamps %v, want %d rising ones", got, tt.restarts)
				}
				for i, in := range b.journal.intents() {
					if in.Attempt != i+1 || in.Stamp != got[i] {
						t.Errorf("intent %d: %+v", i, in)
					}
				}
			})
		})
	}
}

func TestDeletedMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "cart", 1, oldKubelet)
		b.gate[cart] = make(chan struct{})
		end := b.held(t.Context())
		if len(b.restarts(cart)) != 1 {
			t.Fatal("not begun")
		}
		must(b.client.AppsV1().Deployments("shop").Delete(t.Context(), "cart", metav1.DeleteOptions{}))
		pods, err := b.client.CoreV1().Pods("shop").List(t.Context(), metav1.ListOptions{})
		must(err)
		for i := range pods.Items {
			b.remove(cart, &pods.Items[i])
		}
		if err := <-end; err != nil {
			t.Fatal(err)
		}
		if obs := b.observe(); obs.Status != state.Done {
			t.Errorf("%+v", obs)
		}
	})
}

func TestInterruptDuringAPatch(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deps.MaxParallel = 3
		for _, name := range []string{"cart", "pay", "web"} {
			b.deployment("shop", name, 1, oldKubelet)
		}
		ctx, cancel := context.WithCancel(t.Context())
		b.before = func(string, string) error { cancel(); return nil }
		if err := b.drive(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
		if !slices.Equal(b.order, []string{cart}) {
			t.Errorf("begun %v, want nothing after the interrupt", b.order)
		}
		if got := b.journal.results(cart); !slices.Equal(got, []state.Result{state.Accepted}) {
			t.Errorf("the call in flight was recorded as %v", got)
		}
	})
}

func TestWhatHasBegunComesFirstAfterAResume(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deps.MaxParallel = 1
		b.deployment("shop", "web", 2, oldKubelet)
		web := "shop/Deployment/web"
		b.gate[web] = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		end := b.held(ctx)
		cancel()
		<-end
		b.deployment("shop", "cart", 1, oldKubelet)
		end = b.held(t.Context())
		if !slices.Equal(b.order, []string{web}) {
			t.Errorf("begun %v while web still rolls, one at a time", b.order)
		}
		close(b.gate[web])
		if err := <-end; err != nil {
			t.Fatal(err)
		}
		if want := []string{web, cart}; !slices.Equal(b.order, want) || b.most != 1 {
			t.Errorf("begun %v, want %v; %d at once", b.order, want, b.most)
		}
	})
}
