package restart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/fargate"
	"github.com/eksbg/eksbg/internal/state"
)

// profiled makes the simulated inventory say that every pod is of Fargate profile p.
func (b *bench) profiled() {
	read := b.deps.Inventory
	b.deps.Inventory = func(ctx context.Context) (*cluster.Inventory, error) {
		inv, err := read(ctx)
		for i := range inv.Pods {
			inv.Pods[i].Profile, inv.Pods[i].MilliCPU = "p", 250
		}
		return inv, err
	}
}

func room(free int) fargate.Room {
	return fargate.Room{Addresses: map[string]int{"p": free}, Subnets: map[string][]string{"p": {"subnet-1"}}, Free: map[string]int{"subnet-1": free},
		MilliCPU: fargate.Unknown, Burst: fargate.Unknown, PerSecond: fargate.Unknown}
}

func TestRoomBoundsTheWave(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deps.MaxParallel = 10
		for i := range 6 {
			b.bareSet("shop", fmt.Sprint("w", i), 2, oldKubelet)
			b.gate[fmt.Sprint("shop/ReplicaSet/w", i)] = make(chan struct{})
		}
		b.profiled()
		b.deps.Room = func(context.Context, Use) (fargate.Room, error) { return room(2), nil }
		end := b.held(t.Context())
		if n := b.begun(); n != 2 {
			t.Errorf("%d at once with 2 free addresses", n)
		}
		for _, g := range b.gate {
			close(g)
		}
		if err := <-end; err != nil {
			t.Fatal(err)
		}
		if b.most > 2 {
			t.Errorf("%d at once with 2 free addresses", b.most)
		}
	})
}

func TestNoRoomAtAllStops(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.bareSet("shop", "web", 2, oldKubelet)
		b.profiled()
		b.deps.Timeout = 10 * time.Minute
		reads := 0
		b.deps.Room = func(context.Context, Use) (fargate.Room, error) { reads++; return room(0), nil }
		stop := stopOf(t, b.drive(t.Context()))
		if stop.Code != state.ExitResumable || !strings.Contains(stop.Why, "nothing can begin for 10m0s:") || !strings.Contains(stop.Why, set+": needs 1 free address") ||
			!strings.Contains(stop.Why, "have 0 free") {
			t.Errorf("%+v", stop)
		}
		if reads < 5 || reads > 25 || len(b.order) != 0 {
			t.Errorf("read the room %d times in ten minutes, begun %v", reads, b.order)
		}
		if !slices.ContainsFunc(b.journal.waits, func(s string) bool { return strings.Contains(s, set+" needs 1 free address") }) {
			t.Errorf("not said meanwhile: %q", b.journal.waits)
		}
		// Free again, it goes on.
		b.deps.Room = func(context.Context, Use) (fargate.Room, error) { return room(1), nil }
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRoomThatComesFreeIsTaken(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "cart", 2, oldKubelet)
		b.profiled()
		begin := b.clock.Now()
		b.deps.Room = func(context.Context, Use) (fargate.Room, error) {
			if b.clock.Since(begin) < 5*time.Minute {
				return room(0), nil
			}
			return room(3), nil
		}
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := b.clock.Since(begin); took > 6*time.Minute {
			t.Errorf("took %s", took)
		}
	})
}

func TestUnreadableRoomBoundsNothingAndIsSaidOnce(t *testing.T) {
	for name, read := range map[string]func(context.Context, Use) (fargate.Room, error){
		"an error": func(context.Context, Use) (fargate.Room, error) {
			return fargate.Room{}, errors.New("AccessDenied: servicequotas")
		},
		"missing": func(context.Context, Use) (fargate.Room, error) {
			return fargate.Room{MilliCPU: fargate.Unknown, Burst: fargate.Unknown, PerSecond: fargate.Unknown, Missing: []string{"AccessDenied: servicequotas"}}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.deployment("shop", "cart", 2, oldKubelet)
				b.profiled()
				b.deps.Room = read
				if err := b.drive(t.Context()); err != nil {
					t.Fatal(err)
				}
				n := 0
				for _, r := range b.journal.Records("") {
					if r.Kind == state.RecordWarning && strings.Contains(r.Text, "AccessDenied") {
						n++
					}
				}
				if n != 1 {
					t.Errorf("said %d times", n)
				}
			})
		})
	}
}

// What cannot be read in the middle of a restart goes on to bound it as last read.
func TestRoomThatCannotBeReadAgainStillBounds(t *testing.T) {
	unknown := fargate.Room{MilliCPU: fargate.Unknown, Burst: fargate.Unknown, PerSecond: fargate.Unknown}
	for name, fails := range map[string]func() (fargate.Room, error){
		"an error": func() (fargate.Room, error) { return fargate.Room{}, errors.New("RequestLimitExceeded") },
		"the subnets": func() (fargate.Room, error) {
			r := unknown
			r.Addresses, r.Subnets = map[string]int{"p": fargate.Unknown}, map[string][]string{"p": {"subnet-1"}}
			r.Free, r.Missing = map[string]int{"subnet-1": fargate.Unknown}, []string{"RequestLimitExceeded"}
			return r, nil
		},
		"the profiles": func() (fargate.Room, error) {
			r := unknown
			r.Missing = []string{"RequestLimitExceeded"}
			return r, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.bareSet("shop", "web", 2, oldKubelet)
				b.profiled()
				b.deps.Timeout = 5 * time.Minute
				reads := 0
				b.deps.Room = func(context.Context, Use) (fargate.Room, error) {
					if reads++; reads == 1 {
						return room(0), nil
					}
					return fails()
				}
				stop := stopOf(t, b.drive(t.Context()))
				if reads < 2 || len(b.order) != 0 || !strings.Contains(stop.Why, "have 0 free") {
					t.Errorf("%d reads, begun %v, %+v", reads, b.order, stop)
				}
				if !slices.ContainsFunc(b.journal.Records(""), func(r state.Record) bool {
					return r.Kind == state.RecordWarning && strings.Contains(r.Text, "goes on to bound this restart: RequestLimitExceeded")
				}) {
					t.Errorf("not said: %+v", b.journal.Records(""))
				}
			})
		})
	}
}

// begun is how many owners something was done to.
func (b *bench) begun() int {
	b.sim.mu.Lock()
	defer b.sim.mu.Unlock()
	return len(b.order)
}

func TestLaunchRate(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deps.MaxParallel = 100
		for i := range 12 {
			b.bareSet("shop", fmt.Sprint("w", i), 2, oldKubelet)
			b.gate[fmt.Sprint("shop/ReplicaSet/w", i)] = make(chan struct{})
		}
		b.profiled()
		full := room(100)
		full.Burst, full.PerSecond = 4, 1
		b.deps.Room = func(context.Context, Use) (fargate.Room, error) { return full, nil }
		end := b.held(t.Context())
		if n := b.begun(); n != 4 {
			t.Errorf("%d begun at once, the burst is 4", n)
		}
		b.clock.Sleep(3500 * time.Millisecond)
		synctest.Wait()
		if n := b.begun(); n < 6 || n > 7 {
			t.Errorf("%d begun after 3.5 s at 1 a second", n)
		}
		for _, g := range b.gate {
			close(g)
		}
		if err := <-end; err != nil {
			t.Fatal(err)
		}
	})
}

func TestBudgetsOfWhatRollsTogether(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deps.MaxParallel = 10
		b.bareSet("shop", "web", 2, oldKubelet)
		b.bareSet("shop", "api", 2, oldKubelet)
		b.bareSet("shop", "job", 2, oldKubelet)
		b.budget("shop", "all", 1, 6, 5, 6)
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if b.most != 1 {
			t.Errorf("%d under one budget that allows 1", b.most)
		}
	})
}

// Watches that break off, are told to list anew or are refused for a while delay the
// restart and change nothing else.
func TestWatchesThatBreak(t *testing.T) {
	for name, fails := range map[string]error{
		"410": apierrors.NewResourceExpired("too old resource version"), "429": apierrors.NewTooManyRequests("slow down", 1),
		"500": apierrors.NewInternalError(errors.New("etcd")), "a reset": errors.New("read: connection reset by peer"), "EOF": io.EOF,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				for i := range 4 {
					b.deployment("shop", fmt.Sprint("w", i), 2, oldKubelet)
				}
				b.bareSet("shop", "web", 2, oldKubelet)
				n := 0
				b.client.PrependWatchReactor("*", func(clienttesting.Action) (bool, watch.Interface, error) {
					if n++; n%2 == 1 {
						return true, nil, fails
					}
					return false, nil, nil
				})
				if err := b.drive(t.Context()); err != nil {
					t.Fatal(err)
				}
				for owner, stamps := range b.stamps {
					if len(stamps) != 1 {
						t.Errorf("%s: %v", owner, stamps)
					}
				}
			})
		})
	}
}

// deaf makes the first watch of pods stay open and say nothing.
func (b *bench) deaf() {
	n := 0
	b.client.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
		if n++; n > 1 {
			return false, nil, nil
		}
		b.sim.mu.Lock()
		b.watches++
		b.cond.Broadcast()
		b.sim.mu.Unlock()
		return true, watch.NewFake(), nil
	})
}

// A watch that stays open and says nothing is noticed when its workload takes too long.
func TestSilentWatchIsNoticed(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "cart", 2, oldKubelet)
		b.deployment("shop", "pay", 2, oldKubelet)
		b.deps.Timeout, b.deps.MaxParallel = 10*time.Minute, 1
		b.deaf()
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !noted(b.journal, cart+" is done in a fresh list and not in the watches") || len(b.restarts(cart)) != 1 || len(b.restarts("shop/Deployment/pay")) != 1 {
			t.Errorf("%v, %+v", b.stamps, b.journal.Records(""))
		}
	})
}

// What a silent watch does not show is not the reason of a stop: the workload gets its
// time once more, by watches that show it, and is then judged by what they show.
func TestSilentWatchIsNoReason(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "cart", 2, oldKubelet)
		b.deps.Timeout = 10 * time.Minute
		b.linger[cart] = true
		b.deaf()
		stop := stopOf(t, b.drive(t.Context()))
		if stop.Code != state.ExitResumable || !strings.Contains(stop.Why, "not done after 10m0s: cart-") || !strings.Contains(stop.Why, "terminating on the old kubelet") {
			t.Errorf("%+v", stop)
		}
		note := cart + " has other pods in a fresh list than in the watches"
		if !noted(b.journal, note) || len(b.restarts(cart)) != 1 {
			t.Errorf("%v, %+v", b.stamps, b.journal.Records(""))
		}
		if took := b.clock.Since(sent(b.journal)); took < 20*time.Minute || took > 21*time.Minute {
			t.Errorf("took %s", took)
		}
	})
}

// A stop never goes without a reason, also where every pod that there is stands well.
func TestNumbersWhereNoPodIsToBlame(t *testing.T) {
	well := []podView{{Name: "cart-1", Place: current, Ready: true}}
	for want, v := range map[string]view{
		"1 pod, 1 made from its newest template, 1 ready, want 2": {Found: true, Generation: 2, Observed: 2, Desired: 2, Replicas: 1, Updated: 1, Ready: 1, Pods: well},
		"its controller has not seen its newest template":         {Found: true, Generation: 2, Observed: 1, Desired: 1, Replicas: 1, Updated: 1, Ready: 1, Pods: well},
		"it is gone, and 1 pod still there":                       {Pods: well},
		"it is gone, and so are its pods":                         {},
	} {
		if got := v.unsettled(); got != "" || v.numbers() != want {
			t.Errorf("%q, %q, want %q", got, v.numbers(), want)
		}
	}
	bubble(t, func(t *testing.T, b *bench) {
		m, err := openMirror(t.Context(), b.client, b.clock, "1.33", false)
		must(err)
		defer m.close()
		c := &campaign{Restart: b.step(), ledger: readLedger(nil, b.journal), mirror: m}
		stop := stopOf(t, c.timedOut(&work{name: cart, view: view{Found: true, Desired: 2, Replicas: 1, Updated: 1, Ready: 1, Pods: well}}))
		if !strings.Contains(stop.Why, ": 1 pod, 1 made from its newest template, 1 ready, want 2") {
			t.Errorf("%+v", stop)
		}
	})
}

// At most four requests for a workload, and lists that do not grow with their number.
func TestRequests(t *testing.T) {
	for _, n := range []int{5, 50} {
		bubble(t, func(t *testing.T, b *bench) {
			b.deps.MaxParallel = 8
			for i := range n {
				b.deployment("shop", fmt.Sprint("w", i), 3, oldKubelet)
				b.statefulSet("data", fmt.Sprint("s", i), 2, oldKubelet)
				b.bareSet("zoo", fmt.Sprint("r", i), 2, oldKubelet)
			}
			if err := b.drive(t.Context()); err != nil {
				t.Fatal(err)
			}
			lists, rest := 0, 0
			for _, c := range b.calls {
				switch verb, _, _ := strings.Cut(c, " "); verb {
				case "list":
					lists++
				case "watch":
				default:
					rest++
				}
			}
			// Two inventories of nine lists here, one for each watch, one of PodTemplates. A Deployment and a
			// StatefulSet take one request, a ReplicaSet one a pod; a rare confirmation comes to it.
			if lists > 2*9+6+1 || rest > 5*n {
				t.Errorf("%d workloads: %d lists, %d other requests", 3*n, lists, rest)
			}
		})
	}
}

// The counts of the mirror are those of its stores, whatever order events came in.
func TestMirrorCounts(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "cart", 3, oldKubelet)
		b.deployment("shop", "pay", 2, newKubelet)
		m, err := openMirror(t.Context(), b.client, b.clock, "1.33", false)
		must(err)
		defer m.close()
		check := func(when string, all, at int) {
			t.Helper()
			synctest.Wait()
			if a, n := m.count(); a != all || n != at {
				t.Errorf("%s: %d of %d, want %d of %d", when, n, a, at, all)
			}
		}
		check("listed", 5, 2)
		p := b.addPod("shop", "new", "", nil)
		check("a pod on no node", 6, 2)
		p = p.DeepCopy()
		p.Spec.NodeName = "later"
		b.put(podsGVR, p)
		check("on a node that is not there yet", 6, 2)
		n := &corev1.Node{ObjectMeta: b.meta("", "later", nil)}
		n.Status.NodeInfo.KubeletVersion = newKubelet
		b.put(nodesGVR, n)
		check("the node comes", 6, 3)
		keys, _ := m.take()
		if !keys[string(p.UID)] {
			t.Error("a node does not touch its pods")
		}
		p = p.DeepCopy()
		p.Status.Phase = corev1.PodSucceeded
		b.put(podsGVR, p)
		check("finished", 5, 2)
		must(b.client.Tracker().Delete(nodesGVR, "", "later"))
		must(b.client.Tracker().Delete(podsGVR, "shop", "new"))
		check("gone", 5, 2)
	})
}
