package restart

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/eksbg/eksbg/internal/state"
)

// A replica more that gets the old kubelet, as long as the API servers roll, is put back
// and tried anew at once, and not for ever.
func TestSurgeOntoTheOldKubelet(t *testing.T) {
	const one = "shop/ReplicaSet/one"
	for name, tt := range map[string]struct {
		kubelets []string
		tries    int
		exit     state.Exit
	}{
		"once":     {[]string{oldKubelet, newKubelet}, 2, 0},
		"for ever": {[]string{oldKubelet, oldKubelet, oldKubelet, oldKubelet}, 3, state.ExitBlocked},
	} {
		for _, resumed := range []bool{false, true} {
			t.Run(fmt.Sprint(name, resumed), func(t *testing.T) {
				bubble(t, func(t *testing.T, b *bench) {
					b.bareSet("shop", "one", 1, oldKubelet)
					b.kubelet[one] = tt.kubelets
					if resumed {
						b.journal.killAt, b.journal.killAfter = 2, true // the surge is accepted
						if err := b.drive(t.Context()); !errors.Is(err, errKilled) {
							t.Fatal(err)
						}
						b.journal.dead = false
						synctest.Wait()
					}
					err := b.drive(t.Context())
					if tt.exit == 0 && err != nil {
						t.Fatal(err)
					}
					if tt.exit != 0 {
						if stop := stopOf(t, err); stop.Code != tt.exit || !strings.Contains(stop.Why, "still lags after 3 replicas more") {
							t.Errorf("%+v", stop)
						}
					}
					if took := b.clock.Since(start); took > time.Minute {
						t.Errorf("took %s", took)
					}
					if got := len(b.taken(one)); got != tt.tries || *b.set("one").Spec.Replicas != 1 || len(b.set("one").Annotations) != 0 {
						t.Errorf("%d replicas more, %d left, %v", got, *b.set("one").Spec.Replicas, b.set("one").Annotations)
					}
				})
			})
		}
	}
}

// However often a surge is interrupted and put back, it is tried again.
func TestInterruptsUseUpNoSurge(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.bareSet("shop", "one", 1, oldKubelet)
		for range maxAttempts + 1 {
			ctx, cancel := context.WithCancel(t.Context())
			b.journal.onIntent = func(int) { cancel() }
			err := b.drive(ctx)
			if *b.set("one").Spec.Replicas != 1 {
				t.Fatalf("%v, %d replicas", err, *b.set("one").Spec.Replicas)
			}
			// Whether the old pod or the new one stays when the number is put back is the
			// controller's choice: an interrupted surge may have done its work.
			if err == nil && b.observe().Status == state.Done {
				return
			}
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			b.journal.onIntent = nil
			synctest.Wait()
		}
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

var gizmosGVR = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gizmos"}

// gizmos lets the API server serve the custom kind; says answers who asks for its number.
func (b *bench) gizmos(scale bool, says func(subresource string) (runtime.Object, error)) {
	served := &metav1.APIResourceList{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{{Name: "gizmos", Kind: "Gizmo", Namespaced: true}}}
	if scale {
		served.APIResources = append(served.APIResources, metav1.APIResource{Name: "gizmos/scale", Kind: "Scale", Group: "autoscaling", Namespaced: true})
	}
	b.client.Resources = append(b.client.Resources, served)
	b.dynamic.PrependReactor("get", "gizmos", func(a clienttesting.Action) (bool, runtime.Object, error) {
		obj, err := says(a.GetSubresource())
		return true, obj, err
	})
}

func gizmo(kind, uid string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": kind,
		"metadata": map[string]any{"namespace": "shop", "name": "web", "uid": uid}, "spec": spec}}
}

// A custom owner that is scaled down while its pods go one by one is asked how many it
// wants, and goes on with those.
func TestCustomOwnerScaledDownMeanwhile(t *testing.T) {
	for name, tt := range map[string]struct {
		scale bool
		says  func(*bench) (runtime.Object, error)
		on    bool
	}{
		"its scale says": {true, func(*bench) (runtime.Object, error) {
			return gizmo("Scale", "uid-gizmo", map[string]any{"replicas": int64(2)}), nil
		}, true},
		"spec.replicas says": {false, func(*bench) (runtime.Object, error) {
			return gizmo("Gizmo", "uid-gizmo", map[string]any{"replicas": int64(2)}), nil
		}, true},
		"it says nothing": {false, func(*bench) (runtime.Object, error) {
			return gizmo("Gizmo", "uid-gizmo", map[string]any{"size": int64(2)}), nil
		}, false},
		"another one of that name": {true, func(*bench) (runtime.Object, error) {
			return gizmo("Scale", "uid-other", map[string]any{"replicas": int64(2)}), nil
		}, false},
		"that may not be read": {true, func(*bench) (runtime.Object, error) {
			return nil, apierrors.NewForbidden(gizmosGVR.GroupResource(), "web", errors.New("no"))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.custom(3)
				asked := 0
				b.gizmos(tt.scale, func(sub string) (runtime.Object, error) {
					if asked++; (sub == "scale") != tt.scale {
						t.Errorf("asked for %q", sub)
					}
					return tt.says(b)
				})
				b.noMore = "shop/Gizmo/web"
				err := b.drive(t.Context())
				took := b.clock.Since(start)
				if !tt.on {
					stop := stopOf(t, err)
					if stop.Code != state.ExitResumable || !strings.Contains(stop.Why, "2 of 3 pods are there") || asked != 1 || len(b.taken("shop/Gizmo/web")) != 1 {
						t.Errorf("%+v, asked %d times", stop, asked)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if took > 30*time.Second || len(b.taken("shop/Gizmo/web")) != 3 || len(b.podsReady()) != 2 || asked != 1 {
					t.Errorf("took %s, %v, %d ready, asked %d times", took, b.taken("shop/Gizmo/web"), len(b.podsReady()), asked)
				}
				if got := b.journal.results("shop/web-0"); !slices.Contains(got, state.Succeeded) || len(b.journal.open()) != 0 {
					t.Errorf("%v, open %v", got, b.journal.open())
				}
			})
		})
	}
}

// One whose controller is slow loses no other pod meanwhile.
func TestSlowCustomOwnerIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.custom(3)
		var asked atomic.Int32
		b.gizmos(true, func(string) (runtime.Object, error) {
			asked.Add(1)
			return gizmo("Scale", "uid-gizmo", map[string]any{"replicas": int64(3)}), nil
		})
		b.noMore = "shop/Gizmo/web"
		end := b.held(t.Context())
		b.clock.Sleep(2 * time.Minute)
		if got := b.taken("shop/Gizmo/web"); len(got) != 1 || asked.Load() < 2 || asked.Load() > 6 {
			t.Errorf("took %v, asked %d times", got, asked.Load())
		}
		p := b.addPod("shop", "web-late", newKubelet, ref("example.com/v1", "Gizmo", "web", "uid-gizmo"))
		if err := <-end; err != nil {
			t.Fatal(err)
		}
		if got := b.taken("shop/Gizmo/web"); len(got) != 3 || p.Status.Phase != corev1.PodRunning {
			t.Errorf("took %v", got)
		}
	})
}
