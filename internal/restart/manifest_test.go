package restart

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/jsonpath"

	"github.com/eksbg/eksbg/internal/state"
)

var (
	podTemplatesGVR = schema.GroupVersionResource{Version: "v1", Resource: "podtemplates"}
	namespacesGVR   = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// A pod that goes with its namespace is nobody's business any more; one whose manifest
// alone is gone is.
func TestTheManifestGoesWithItsNamespace(t *testing.T) {
	terminating := func(b *bench) {
		ns := &corev1.Namespace{ObjectMeta: b.meta("", "shop", nil)}
		ns.DeletionTimestamp = new(metav1.Now())
		b.put(namespacesGVR, ns)
	}
	for name, tt := range map[string]struct {
		kept    bool
		make    func(*bench)
		dropped bool
	}{
		"it is being deleted": {false, terminating, true},
		"it is gone":          {false, func(*bench) {}, true},
		"it is being deleted, the manifest not yet": {true, func(b *bench) {
			terminating(b)
			b.before = func(_, verb string) error {
				if verb != "create" {
					return nil
				}
				err := apierrors.NewForbidden(podsGVR.GroupResource(), "tool", errors.New("namespace shop is being terminated"))
				err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
				return err
			}
		}, true},
		"it stays":             {false, func(b *bench) { b.put(namespacesGVR, &corev1.Namespace{ObjectMeta: b.meta("", "shop", nil)}) }, false},
		"that cannot be asked": {false, func(b *bench) { b.refuseNamespaces() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				end, gate := b.betweenTwoLives(t.Context())
				tt.make(b)
				if !tt.kept {
					must(b.client.Tracker().Delete(podTemplatesGVR, "shop", "eksbg-tool"))
				}
				close(gate)
				err := <-end
				if !tt.dropped {
					if stop := stopOf(t, err); stop.Code != state.ExitBlocked || !strings.Contains(stop.Why, "so is PodTemplate eksbg-tool") {
						t.Errorf("%+v", stop)
					}
					return
				}
				if err != nil || len(b.journal.open()) != 0 || !noted(b.journal, tool+": namespace shop is being deleted") {
					t.Errorf("%v, open %v, %+v", err, b.journal.open(), b.journal.Records(""))
				}
				if obs := b.observe(); obs.Status != state.Done {
					t.Errorf("%+v", obs)
				}
			})
		})
	}
}

// The command that is printed makes the very pod again.
func TestTheCommandThatMakesThePodAgain(t *testing.T) {
	full := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "tool", UID: "uid", Labels: map[string]string{"app": "tool", "a/b": "1: {x}"},
		Annotations: map[string]string{"note": "two\nlines, \"quoted\" <&> 'single'"}, Finalizers: []string{"example.com/hold"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "tool:1", Args: []string{"-c", "echo 'a'; sleep 5"}, Env: []corev1.EnvVar{{Name: "K", Value: "v # no comment"}}}}}}
	bare := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "tool", UID: "uid"}, Spec: full.Spec}
	for _, p := range []*corev1.Pod{full, bare} {
		_, rest, _ := strings.Cut(remakeByHand("shop", "tool"), "-o jsonpath='")
		template, _, _ := strings.Cut(rest, "' | kubectl create -n shop -f -")
		raw, err := json.Marshal(manifest(p))
		must(err)
		var kept any
		must(json.Unmarshal(raw, &kept))
		j := jsonpath.New("").AllowMissingKeys(true) // as kubectl get has it
		must(j.Parse(template))
		var out bytes.Buffer
		must(j.Execute(&out, kept))
		var made corev1.Pod
		if err := yaml.NewYAMLOrJSONDecoder(&out, 1<<16).Decode(&made); err != nil {
			t.Fatal(err)
		}
		want := corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "tool", Labels: p.Labels,
			Annotations: p.Annotations, Finalizers: p.Finalizers}, Spec: p.Spec}
		if diff := cmp.Diff(want, made); diff != "" {
			t.Error(diff)
		}
	}
}

// refuseNamespaces lets nobody read namespaces.
func (b *bench) refuseNamespaces() {
	b.client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(namespacesGVR.GroupResource(), "shop", errors.New("no"))
	})
}
