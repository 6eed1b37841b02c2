package standby

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// made puts an inventory together: workload by workload, ready pods of replicas.
type made struct{ cluster.Inventory }

func (m *made) add(ns, kind, name string, ready, replicas int) *made {
	o := cluster.Owner{APIVersion: "apps/v1", Namespace: ns, Kind: kind, Name: name, UID: m.Name + o2s(ns, kind, name)}
	m.Workloads = append(m.Workloads, cluster.Workload{Owner: o, Replicas: int32(replicas), Ready: int32(ready)})
	for i := range replicas {
		m.Pods = append(m.Pods, cluster.Pod{Namespace: ns, Name: fmt.Sprintf("%s-%d", name, i), Owner: o, Ready: i < ready})
	}
	return m
}

func o2s(ns, kind, name string) string { return ns + "/" + kind + "/" + name }

func inventory(name string) *made { return &made{cluster.Inventory{Name: name}} }

func gives(m *made) func(context.Context) (*cluster.Inventory, error) {
	return func(context.Context) (*cluster.Inventory, error) { return &m.Inventory, nil }
}

func TestObserve(t *testing.T) {
	blue := inventory("blue").add("shop", "Deployment", "cart", 5, 5).add("data", "StatefulSet", "db", 3, 3).
		add("kube-system", "Deployment", "coredns", 2, 2).add("shop", "Deployment", "off", 0, 0).add("shop", "Job", "seed", 1, 1)
	tests := map[string]struct {
		green  *made
		status state.Status
		reason string
	}{
		"as many": {
			inventory("green").add("shop", "Deployment", "cart", 5, 5).add("data", "StatefulSet", "db", 4, 4).add("kube-system", "Deployment", "coredns", 2, 2),
			state.Done, "3 workloads on green, each with at least as many ready pods as on blue",
		},
		"too few asked for": {
			inventory("green").add("shop", "Deployment", "cart", 3, 3).add("data", "StatefulSet", "db", 3, 3).add("kube-system", "Deployment", "coredns", 2, 2),
			state.Blocked, "1 workload on green has fewer ready pods than on blue: shop/Deployment/cart: 3 ready, blue has 5",
		},
		"still starting": {
			inventory("green").add("shop", "Deployment", "cart", 5, 5).add("data", "StatefulSet", "db", 1, 3).add("kube-system", "Deployment", "coredns", 2, 2),
			state.Ready, "1 workload on green has fewer ready pods than on blue: data/StatefulSet/db: 1 ready of 3, blue has 3",
		},
		"missing, and of another kind": {
			inventory("green").add("shop", "StatefulSet", "cart", 5, 5).add("data", "StatefulSet", "db", 3, 3),
			state.Blocked, "2 workloads on green have fewer ready pods than on blue: kube-system/Deployment/coredns: not there, blue has 2 ready; " +
				"shop/Deployment/cart: not there, blue has 5 ready",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := NewCapacity(state.StepSpec{ID: "green/capacity"}, CapacityDeps{Origin: gives(blue), Destination: gives(tt.green), Clock: clocktesting.NewFakeClock(time.Time{})})
			obs, err := c.Observe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if obs.Status != tt.status || obs.Reason != tt.reason {
				t.Errorf("got %s %q\nwant %s %q", obs.Status, obs.Reason, tt.status, tt.reason)
			}
			if (obs.Cure != "") != (tt.status == state.Blocked) {
				t.Errorf("cure %q", obs.Cure)
			}
		})
	}
}

func TestReadyCountsServingPodsOnly(t *testing.T) {
	blue := inventory("blue").add("shop", "Deployment", "cart", 2, 2)
	green := inventory("green").add("shop", "Deployment", "cart", 2, 2)
	green.Pods[0].Terminating = true
	gaps, _ := Compare(&blue.Inventory, &green.Inventory)
	want := []Gap{{Workload: "shop/Deployment/cart", Has: 1, Wants: 2, Replicas: 2}}
	if diff := cmp.Diff(want, gaps); diff != "" {
		t.Error(diff)
	}
}

func TestUnreadableIsNoPass(t *testing.T) {
	blue := inventory("blue")
	broken := func(context.Context) (*cluster.Inventory, error) { return nil, errors.New("denied") }
	c := NewCapacity(state.StepSpec{}, CapacityDeps{Origin: gives(blue), Destination: broken, Clock: clocktesting.NewFakeClock(time.Time{})})
	if _, err := c.Observe(t.Context()); err == nil || !strings.Contains(err.Error(), "denied") {
		t.Errorf("got %v", err)
	}
}

// waits records what a step says while it waits.
type waits struct{ said []string }

func (w *waits) Intent(string, string, any, any) (int64, error) { panic("a check changes nothing") }
func (w *waits) Outcome(int64, state.Result, string, any) error { panic("a check changes nothing") }
func (w *waits) Record(state.Record) error                      { return nil }
func (w *waits) Waiting(text string)                            { w.said = append(w.said, text) }

func TestActWaitsForStartingPods(t *testing.T) {
	blue := inventory("blue").add("shop", "Deployment", "cart", 3, 3)
	tests := map[string]struct {
		green func(look int) *made
		looks int
		stop  bool
	}{
		"get ready": {func(look int) *made { return inventory("green").add("shop", "Deployment", "cart", min(look, 3), 3) }, 3, false},
		"never":     {func(int) *made { return inventory("green").add("shop", "Deployment", "cart", 1, 3) }, 7, true},
		"scaled down meanwhile": {func(look int) *made {
			return inventory("green").add("shop", "Deployment", "cart", 1, 4-look)
		}, 2, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			clk, rec, looks := clocktesting.NewFakeClock(time.Unix(0, 0)), &waits{}, 0
			c := NewCapacity(state.StepSpec{}, CapacityDeps{Origin: gives(blue), Clock: clk, Patience: time.Minute, Polling: 10 * time.Second,
				Destination: func(context.Context) (*cluster.Inventory, error) {
					looks++
					return &tt.green(looks).Inventory, nil
				}})
			err := drive(clk, func() error { return c.Act(t.Context(), rec) })
			var stop *state.Stop
			if errors.As(err, &stop) != tt.stop || !tt.stop && err != nil {
				t.Fatalf("got %v", err)
			}
			if tt.stop && (stop.Code != state.ExitBlocked || !strings.Contains(stop.Why, "\n  shop/Deployment/cart: 1 ready of")) {
				t.Errorf("stop %+v", stop)
			}
			if looks != tt.looks || len(rec.said) != looks-1 {
				t.Errorf("%d looks, %d waits, want %d looks", looks, len(rec.said), tt.looks)
			}
		})
	}
}

func drive(clk *clocktesting.FakeClock, act func() error) error {
	done := make(chan error, 1)
	go func() { done <- act() }()
	for {
		select {
		case err := <-done:
			return err
		default:
			if clk.HasWaiters() {
				clk.Step(10 * time.Second)
			}
			runtime.Gosched()
		}
	}
}

func TestActEndsWithItsContext(t *testing.T) {
	blue := inventory("blue").add("shop", "Deployment", "cart", 3, 3)
	green := inventory("green").add("shop", "Deployment", "cart", 1, 3)
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	c := NewCapacity(state.StepSpec{}, CapacityDeps{Origin: gives(blue), Destination: gives(green), Clock: clk})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Act(ctx, &waits{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// A destination stands as the origin does exactly when no workload comes short.
func TestCompareProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blue, green := inventory("blue"), inventory("green")
		short := map[string]bool{}
		for i := range rapid.IntRange(0, 6).Draw(t, "workloads") {
			name := fmt.Sprint("w", i)
			kind := rapid.SampledFrom([]string{"Deployment", "StatefulSet", "DaemonSet"}).Draw(t, "kind")
			want := rapid.IntRange(0, 4).Draw(t, "ready on blue")
			has := rapid.IntRange(-1, 4).Draw(t, "ready on green")
			blue.add("shop", kind, name, want, want)
			if has >= 0 {
				green.add("shop", kind, name, has, has)
			}
			if kind != "DaemonSet" && want > 0 && has < want {
				short[o2s("shop", kind, name)] = true
			}
		}
		gaps, _ := Compare(&blue.Inventory, &green.Inventory)
		got := map[string]bool{}
		for _, g := range gaps {
			got[g.Workload] = true
			if !g.Hopeless() {
				t.Fatalf("%+v can be waited for", g)
			}
		}
		if diff := cmp.Diff(short, got); diff != "" {
			t.Fatal(diff)
		}
	})
}
