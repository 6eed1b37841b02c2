package restart

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

const (
	set     = "shop/ReplicaSet/web"
	ledgerS = "data/StatefulSet/db"
)

func (b *bench) taken(owner string) []string {
	b.sim.mu.Lock()
	defer b.sim.mu.Unlock()
	return append([]string(nil), b.takes[owner]...)
}

// onDelete makes a StatefulSet one that replaces nothing by itself.
func (b *bench) onDelete(n int) {
	st := b.statefulSet("data", "db", n, oldKubelet).DeepCopy()
	st.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
	b.put(appsGVR["StatefulSet"], st)
}

func TestEvictsOneByOne(t *testing.T) {
	for name, tt := range map[string]struct {
		make  func(*bench)
		owner string
		most  int
	}{
		"a ReplicaSet without an owner":              {func(b *bench) { b.bareSet("shop", "web", 3, oldKubelet) }, set, 3},
		"a ReplicationController":                    {func(b *bench) { b.bareController("shop", "web", 3, oldKubelet) }, "shop/ReplicationController/web", 3},
		"a custom owner":                             {func(b *bench) { b.custom(3) }, "shop/Gizmo/web", 3},
		"a StatefulSet with OnDelete":                {func(b *bench) { b.onDelete(3) }, ledgerS, 3},
		"a paused Deployment that may be evicted":    {func(b *bench) { b.paused(3) }, cart, 3},
		"CoreDNS with more than one replica":         {func(b *bench) { b.deployment("kube-system", "coredns", 2, oldKubelet) }, "kube-system/Deployment/coredns", 2},
		"some of a ReplicaSet are there yet":         {func(b *bench) { b.bareSet("shop", "web", 2, oldKubelet); b.addToSet(newKubelet) }, set, 2},
		"a StatefulSet with a partition, if allowed": {func(b *bench) { b.partitioned(3) }, ledgerS, 3},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				tt.make(b)
				b.deps.Allow = []planfile.Allow{{Owner: cart, Action: planfile.ActionEvict, Reason: "agreed"}, {Owner: ledgerS, Action: planfile.ActionEvict, Reason: "agreed"}}
				least := map[int]int{}
				b.evicted = func(owner, pod string) error { least[len(b.podsReady())]++; return nil }
				want := len(b.podsReady()) - 1
				if err := b.drive(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := b.taken(tt.owner); len(got) != tt.most {
					t.Errorf("took %v", got)
				}
				for n := range least {
					if n < want {
						t.Errorf("%d ready pods with one away, want %d", n, want)
					}
				}
				if obs := b.observe(); obs.Status != state.Done {
					t.Errorf("%+v", obs)
				}
				if len(b.stamps) != 0 {
					t.Errorf("a template was changed: %v", b.stamps)
				}
				if n := len(b.journal.open()); n != 0 {
					t.Errorf("%d intents left open", n)
				}
			})
		})
	}
}

// podsReady are the pods that are ready and stay.
func (b *bench) podsReady() (out []corev1.Pod) {
	for _, p := range b.podsOfAll() {
		if c := podCondition(&p, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil {
			out = append(out, p)
		}
	}
	return out
}

func (b *bench) custom(n int) {
	for i := range n {
		b.addPod("shop", fmt.Sprint("web-", i), oldKubelet, ref("example.com/v1", "Gizmo", "web", "uid-gizmo"))
	}
}

func (b *bench) paused(n int) {
	d := b.deployment("shop", "cart", n, oldKubelet).DeepCopy()
	d.Spec.Paused = true
	b.put(appsGVR["Deployment"], d)
}

func (b *bench) partitioned(n int32) {
	st := b.statefulSet("data", "db", int(n), oldKubelet).DeepCopy()
	st.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(n)}
	b.put(appsGVR["StatefulSet"], st)
}

// addToSet puts one pod more into the ReplicaSet shop/web.
func (b *bench) addToSet(kubelet string) {
	obj, err := b.client.Tracker().Get(replicaSetsGVR, "shop", "web")
	must(err)
	rs := obj.(*appsv1.ReplicaSet).DeepCopy()
	*rs.Spec.Replicas++
	rs.Status.Replicas++
	rs.Status.ReadyReplicas++
	b.put(replicaSetsGVR, rs)
	b.addPod("shop", "web-more", kubelet, ref("apps/v1", "ReplicaSet", "web", rs.UID))
}

// open are the intents without an outcome.
func (m *memory) open() []state.Record { return state.OpenIntents(m.Records("")) }

func TestStatefulSetsGoFromTheHighestOrdinal(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.onDelete(11)
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := ordinals(b.taken(ledgerS)); !slices.Equal(got, []int{10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}) {
			t.Errorf("took %v", got)
		}
	})
}

func TestNextPodWaitsUntilTheOwnerIsWhole(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.onDelete(3)
		b.gate[ledgerS] = make(chan struct{})
		end := b.held(t.Context())
		b.clock.Sleep(10 * time.Minute)
		if got := b.taken(ledgerS); !slices.Equal(got, []string{"db-2"}) {
			t.Errorf("took %v while the first one is away", got)
		}
		close(b.gate[ledgerS])
		if err := <-end; err != nil {
			t.Fatal(err)
		}
	})
}

func TestServerErrorsOnlyDelay(t *testing.T) {
	for name, fails := range map[string]error{
		"500":         apierrors.NewInternalError(errors.New("etcdserver: leader changed")),
		"503":         apierrors.NewServiceUnavailable("apiserver is shutting down"),
		"conflict":    apierrors.NewConflict(podsGVR.GroupResource(), "x", errors.New("written at the same moment")),
		"a webhook":   apierrors.NewInternalError(errors.New(`failed calling webhook "x": connection refused`)),
		"a lost page": apierrors.NewTimeoutError("request timed out", 1),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.bareSet("shop", "web", 2, oldKubelet)
				b.deployment("shop", "cart", 2, oldKubelet)
				b.statefulSet("shop", "db", 1, oldKubelet)
				n := 0
				fail := func(string, string) error {
					if n++; n%3 != 0 {
						return fails
					}
					return nil
				}
				b.refuse, b.before = fail, fail
				if err := b.drive(t.Context()); err != nil {
					t.Fatal(err)
				}
				if len(b.taken(set)) != 2 || len(b.restarts(cart)) != 1 || len(b.restarts("shop/StatefulSet/db")) != 1 {
					t.Errorf("took %v, restarted %v", b.taken(set), b.stamps)
				}
			})
		})
	}
}

func TestBrokenReplacementStopsTheEvictions(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.bareSet("shop", "web", 3, oldKubelet)
		b.bareSet("zoo", "web", 3, oldKubelet)
		b.deps.MaxParallel = 1
		b.pod[set] = waiting("CrashLoopBackOff", "back-off 5m0s", 6)
		stop := stopOf(t, b.drive(t.Context()))
		if stop.Code != state.ExitBlocked || !strings.Contains(stop.Why, "CrashLoopBackOff of container app: back-off 5m0s") ||
			!strings.Contains(stop.Why, "1 workload not begun, untouched") || len(b.taken(set)) != 1 {
			t.Errorf("%+v, took %v", stop, b.taken(set))
		}
		// Mended, it goes on where it was: nothing is taken twice.
		b.pod[set] = nil
		for _, p := range b.podsOfAll() {
			if p.Namespace == "shop" && p.DeletionTimestamp == nil && len(p.Status.ContainerStatuses) > 0 {
				up := p.DeepCopy()
				up.Status.ContainerStatuses = nil
				ready(up)
				b.put(podsGVR, up)
			}
		}
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := b.taken(set); len(got) != 3 {
			t.Errorf("took %v", got)
		}
	})
}

func TestEvictionsThatDoNotHelp(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.bareSet("shop", "web", 2, oldKubelet)
		b.kubelet[set] = []string{oldKubelet, oldKubelet, oldKubelet, oldKubelet, oldKubelet, oldKubelet, oldKubelet}
		stop := stopOf(t, b.drive(t.Context()))
		if stop.Code != state.ExitBlocked || !strings.Contains(stop.Why, "still lags after 6 evictions") || len(b.taken(set)) != 6 {
			t.Errorf("%+v, took %v", stop, b.taken(set))
		}
	})
}
