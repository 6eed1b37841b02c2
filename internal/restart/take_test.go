package restart

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"pgregory.net/rapid"

	"github.com/eksbg/eksbg/internal/state"
)

// Ten pods, nine evictions, and then an autoscaler wants three: no attempt is used up.
func TestScaledDownMeanwhile(t *testing.T) {
	v := view{Found: true, Desired: 3, Pods: []podView{{Name: "a", UID: "a", Place: current, Ready: true}, {Name: "b", UID: "b", Place: current, Ready: true},
		{Name: "old", UID: "old", Place: lagging, Ready: true}}}
	var all []*entry
	for i := range 9 {
		all = append(all, &entry{deed: deed{Do: doEvict, UID: fmt.Sprint(i), Want: 10}, Result: state.Succeeded})
	}
	if got := take(v, 3, all, false); got.act != actRestart || got.pod.Name != "old" {
		t.Errorf("%+v", got)
	}
}

// An eviction that nobody knows the outcome of takes the only ready pod no more.
func TestOpenEvictionIsDecidedAnew(t *testing.T) {
	for name, tt := range map[string]struct {
		gone    bool
		results []state.Result
		left    int
	}{
		"it had not landed": {false, []state.Result{state.Rejected, state.Accepted, state.Succeeded}, 1},
		"it had":            {true, []state.Result{state.Found, state.Succeeded}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.bareSet("shop", "web", 2, oldKubelet)
				pods := b.podsReady()
				other, old := pods[0].DeepCopy(), pods[1]
				b.schedule(other, newKubelet)
				other.Status.Conditions = nil
				b.put(podsGVR, other)
				_, err := b.journal.Intent("k8s:create pods/eviction", "shop/"+old.Name, deed{Do: doEvict, Owner: set, Object: old.Name, UID: string(old.UID), Want: 2}, nil)
				must(err)
				if tt.gone {
					// The answer was lost; the list behind the watch is from before it landed.
					b.client.PrependReactor("get", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
						if len(b.taken(set)) == 0 {
							b.takePod(set, &old)
						}
						return false, nil, nil
					})
				}
				end := b.held(t.Context())
				if got := b.taken(set); len(got) != 1-tt.left {
					t.Errorf("took %v while the other replica is not ready", got)
				}
				up := other.DeepCopy()
				ready(up)
				b.put(podsGVR, up)
				if err := <-end; err != nil {
					t.Fatal(err)
				}
				if got := b.journal.results("shop/" + old.Name); !slices.Equal(got, tt.results) || len(b.taken(set)) != 1 {
					t.Errorf("results %v, took %v", got, b.taken(set))
				}
			})
		})
	}
}

// However pods stand, one goes only when it lags and all others stand.
func TestTakeProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawView(t)
		for i := range v.Pods {
			v.Pods[i].UID = v.Pods[i].Name
		}
		want := rapid.IntRange(0, 4).Draw(t, "want")
		var all []*entry
		for i := range rapid.IntRange(0, 4).Draw(t, "entries") {
			all = append(all, &entry{deed: deed{Do: doEvict, UID: fmt.Sprintf("w-%d", i)},
				Result: rapid.SampledFrom([]state.Result{"", state.Accepted, state.Found, state.Succeeded, state.Rejected, state.Unknown}).Draw(t, "result")})
		}
		got := take(v, want, all, rapid.Bool().Draw(t, "in order"))
		away, stay, unready := 0, 0, 0
		for _, p := range v.Pods {
			switch {
			case p.Terminating:
				away++
			default:
				stay++
				if p.Place == nowhere || p.Place == current && !p.Ready {
					unready++
				}
			}
		}
		p, there := v.pod(got.pod.UID)
		switch {
		case got.act == actRestart && (!there || p.Place != lagging || p.Terminating || away > 0 || unready > 0 || stay < want):
			t.Fatalf("takes %+v of %+v, want %d", got.pod, v.Pods, want)
		case got.act == actRestart && slices.ContainsFunc(all, (*entry).open):
			t.Fatal("two at once")
		case got.act == actResend && (got.entry == nil || !got.entry.open() || !there || p.Place != lagging || p.Terminating || away > 0 || unready > 0 || stay < want):
			t.Fatalf("sends again %+v of %+v, want %d", got, v.Pods, want)
		case got.act == actUnsent && (got.entry == nil || !got.entry.open() || !there || p.Terminating):
			t.Fatalf("does not send again %+v", got)
		case got.act == actDone && (len(v.lagging()) > 0 || len(all) > 0 && (away > 0 || unready > 0 || stay < want)):
			t.Fatalf("not done: %+v", v.Pods)
		}
	})
}

// minReadySeconds lie between two evictions.
func TestEvictionsWaitForMinReadySeconds(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		rs := b.bareSet("shop", "web", 2, oldKubelet).DeepCopy()
		rs.Spec.MinReadySeconds, rs.Status.AvailableReplicas = 60, 2
		b.put(replicaSetsGVR, rs)
		b.evicted = func(string, string) error {
			rs := b.set("web").DeepCopy()
			rs.Status.AvailableReplicas, rs.ResourceVersion = 1, fmt.Sprint(b.next())
			b.put(replicaSetsGVR, rs)
			return nil
		}
		// As on a cluster, the controller has counted the pod out before its next one is ready.
		b.pod[set] = func(*corev1.Pod) bool { b.clock.Sleep(time.Second); return true }
		end := b.held(t.Context())
		for taken := 1; taken <= 2; taken++ {
			b.clock.Sleep(2 * time.Second)
			synctest.Wait()
			if got := b.taken(set); len(got) != taken {
				t.Errorf("took %v", got)
			}
			rs := b.set("web").DeepCopy()
			rs.Status.AvailableReplicas, rs.ResourceVersion = 2, fmt.Sprint(b.next())
			b.put(replicaSetsGVR, rs)
			synctest.Wait()
		}
		if err := <-end; err != nil {
			t.Fatal(err)
		}
	})
}
