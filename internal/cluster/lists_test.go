package cluster_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestInventoryIsTheSameInJSON(t *testing.T) {
	w := newWorld(t)
	w.fill()
	c := w.open(t)
	want, err := c.Inventory(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string][2]string{"pods": {"v1", "PodList"}, "nodes": {"v1", "NodeList"}, "deployments": {"apps/v1", "DeploymentList"}, "replicasets": {"apps/v1", "ReplicaSetList"}, "statefulsets": {"apps/v1", "StatefulSetList"}, "daemonsets": {"apps/v1", "DaemonSetList"}, "jobs": {"batch/v1", "JobList"}}
	w.api.before = func(_ int, rw http.ResponseWriter, r *http.Request) bool {
		resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		kind, ok := kinds[resource]
		if !ok {
			return false
		}
		b, err := json.Marshal(w.api.lists[resource])
		if err != nil {
			panic(err)
		}
		rw.Header().Set("Content-Type", "application/json")
		_, _ = rw.Write([]byte(`{"apiVersion":"` + kind[0] + `","kind":"` + kind[1] + `",` + string(b[1:])))
		return true
	}
	got, err := c.Inventory(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	got.At = want.At
	// cmp would compare the index of nodes, which follows from the nodes.
	if d := cmp.Diff(asJSON(t, want), asJSON(t, got)); d != "" {
		t.Errorf("(-protobuf +JSON):\n%s", d)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestWhatPodsReferToIsReadAgainWithThem: when the list of pods begins anew it may show
// pods on nodes that the list of nodes, read before, does not have.
func TestWhatPodsReferToIsReadAgainWithThem(t *testing.T) {
	w := newWorld(t)
	pods, nodes := manyPods(700), &corev1.NodeList{}
	for i := range pods.Items {
		pods.Items[i].Spec.NodeName = "n-" + strconv.Itoa(i)
		nodes.Items = append(nodes.Items, nodeAt("n-"+strconv.Itoa(i), "v1.30.0"))
	}
	w.api.lists["pods"], w.api.lists["nodes"] = pods, nodes
	expired := false
	w.api.before = func(_ int, rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/api/v1/pods" || r.URL.Query().Get("continue") == "" || expired {
			return false
		}
		expired = true
		// Between the two lists a pod moved to a new node.
		pods.Items[3].Spec.NodeName = "n-new"
		nodes.Items[3] = nodeAt("n-new", "v1.30.0")
		status(rw, http.StatusGone, metav1.StatusReasonExpired)
		return true
	}
	inv, err := w.open(t).Inventory(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if lagging := inv.Lagging(); !expired || len(lagging) != 700 {
		t.Errorf("%d of 700 pods lag, expired %v", len(lagging), expired)
	}
}

func TestListThatExpiresForEverIsAnError(t *testing.T) {
	w := newWorld(t)
	w.api.lists["pods"] = manyPods(700)
	begun := 0
	w.api.before = func(_ int, rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/api/v1/pods" {
			return false
		}
		if r.URL.Query().Get("continue") == "" {
			begun++
			return false
		}
		status(rw, http.StatusGone, metav1.StatusReasonExpired)
		return true
	}
	_, err := w.open(t).Inventory(context.Background())
	if err == nil || !strings.Contains(err.Error(), "pods") || begun != 4 {
		t.Errorf("after %d lists: %v", begun, err)
	}
}

func TestBrokenPageIsAskedForAgain(t *testing.T) {
	w := newWorld(t)
	w.fill()
	w.api.lists["pods"] = manyPods(700)
	cut := 0
	w.api.before = func(_ int, rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("continue") == "" || cut == 2 {
			return false
		}
		cut++
		rw.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		rw.Header().Set("Content-Length", "100000")
		page := w.api.encode(manyPods(200))
		_, _ = rw.Write(page[:len(page)/2])
		rw.(http.Flusher).Flush()
		reset(rw)
		return true
	}
	inv, err := w.open(t).Inventory(context.Background())
	if err != nil || cut != 2 {
		t.Fatalf("%v after %d", err, cut)
	}
	names := map[string]bool{}
	for _, p := range inv.Pods {
		names[p.Name] = true
	}
	if len(inv.Pods) != 700 || len(names) != 700 {
		t.Errorf("%d pods of %d names: half a page is kept", len(inv.Pods), len(names))
	}
}

func TestUnreadableListIsNotAskedForAgain(t *testing.T) {
	w := newWorld(t)
	asked := 0
	w.api.before = func(_ int, rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/api/v1/nodes" {
			return false
		}
		asked++
		rw.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		_, _ = rw.Write([]byte("k8s\x00 not quite"))
		return true
	}
	_, err := w.open(t).Inventory(context.Background())
	if err == nil || asked != 1 || !strings.Contains(err.Error(), "list nodes of cluster shop-green") || !strings.Contains(err.Error(), "protobuf") {
		t.Errorf("asked %d times: %v", asked, err)
	}
}

// TestAbsentResourceIsNotBelieved: every API server that EKS runs serves all of these;
// a 404 is some proxy's, and "nothing guards the pods" would be a wrong answer.
func TestAbsentResourceIsNotBelieved(t *testing.T) {
	for _, resource := range []string{"pods", "nodes", "replicasets", "poddisruptionbudgets", "priorityclasses", "replicationcontrollers", "validatingwebhookconfigurations"} {
		w := newWorld(t)
		delete(w.api.lists, resource)
		if _, err := w.open(t).Inventory(context.Background()); err == nil || !strings.Contains(err.Error(), resource) {
			t.Errorf("%s not served: %v", resource, err)
		}
	}
}

func TestFirstErrorEndsTheOtherLists(t *testing.T) {
	w := newWorld(t)
	w.api.lists["pods"] = manyPods(700)
	w.api.before = func(_ int, rw http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.URL.Path == "/api/v1/nodes":
			status(rw, http.StatusForbidden, metav1.StatusReasonForbidden)
		case r.URL.Query().Get("continue") != "":
			// Would be asked for again for ten minutes.
			rw.WriteHeader(http.StatusServiceUnavailable)
		default:
			return false
		}
		return true
	}
	_, err := w.open(t).Inventory(context.Background())
	if err == nil || !strings.Contains(err.Error(), "verb list on nodes") {
		t.Errorf("got %v", err)
	}
}
