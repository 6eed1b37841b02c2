package restart

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

// terminating is the API server's answer to a creation in a namespace that is being
// deleted (kubernetes/staging/src/k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle).
func terminating(ns string) error {
	err := apierrors.NewForbidden(podsGVR.GroupResource(), "", errors.New("unable to create new content in namespace "+ns+" because it is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause, Message: "namespace " + ns + " is being terminated", Field: "metadata.namespace"}}
	return err
}

// A namespace that is being deleted holds only its own pods up, until they have gone.
func TestNamespaceThatIsDeleted(t *testing.T) {
	for name, goes := range map[string]bool{"it goes": true, "something holds it": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.deps.Timeout = 10 * time.Minute
				b.bareSet("shop", "web", 2, oldKubelet)
				b.deployment("zoo", "cage", 2, oldKubelet)
				tries := 0
				b.refuse = func(owner, _ string) error {
					if tries++; tries == 3 && goes {
						must(b.client.Tracker().Delete(replicaSetsGVR, "shop", "web"))
						for _, p := range b.podsOfAll() {
							if p.Namespace == "shop" {
								must(b.client.Tracker().Delete(podsGVR, "shop", p.Name))
							}
						}
					}
					return terminating("shop")
				}
				err := b.drive(t.Context())
				if goes && err != nil {
					t.Fatal(err)
				}
				if !goes {
					if stop := stopOf(t, err); stop.Code != state.ExitResumable || !strings.Contains(stop.Why, "namespace shop is being deleted, and its pods have not gone for 10m0s") {
						t.Errorf("%+v", stop)
					}
				}
				if len(b.restarts("zoo/Deployment/cage")) != 1 || !noted(b.journal, set+": namespace shop is being deleted") {
					t.Errorf("restarted %v, %+v", b.stamps, b.journal.Records(""))
				}
			})
		})
	}
}

// A bare pod whose manifest can be put nowhere any more goes with its namespace.
func TestBarePodOfANamespaceThatIsDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.barePod("shop", "tool", oldKubelet)
		b.deps.Allow = []planfile.Allow{{Owner: "shop/Pod/tool", Action: planfile.ActionRecreate, Reason: "agreed"}}
		tries := 0
		b.client.PrependReactor("create", "podtemplates", func(clienttesting.Action) (bool, runtime.Object, error) {
			if tries++; tries == 3 {
				must(b.client.Tracker().Delete(podsGVR, "shop", "tool"))
			}
			return true, nil, terminating("shop")
		})
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if obs := b.observe(); obs.Status != state.Done || slices.Contains(b.calls, "create pods") {
			t.Errorf("%+v, %v", obs, b.calls)
		}
	})
}
