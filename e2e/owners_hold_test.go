package e2e_test

import (
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eksbg/eksbg/e2e/cluster"
	"github.com/eksbg/eksbg/internal/sandbox"
	"github.com/eksbg/eksbg/internal/sandbox/kube"
)

// admin is a client of a side's API server that neither log nor faults stand before.
func admin(t *testing.T, box *sandbox.Sandbox, side string) kubernetes.Interface {
	t.Helper()
	if c, ok := box.Kubernetes(side).(*cluster.Cluster); ok {
		return direct(t, c)
	}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: box.Kubeconfig()}, &clientcmd.ConfigOverrides{CurrentContext: side}).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	past := httptest.NewServer(box.Kubernetes(side))
	t.Cleanup(past.Close)
	cfg.Host, cfg.TLSClientConfig = past.URL, rest.TLSClientConfig{}
	k, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// laggards are the owners of green with unfinished pods below its control plane; Jobs of
// CronJobs and static pods are not among them.
func laggards(t *testing.T, box *sandbox.Sandbox) []string {
	t.Helper()
	w, ok := box.Kubernetes(sandbox.Green).Snapshot().(kube.World)
	if !ok {
		t.Fatalf("the snapshot is a %T", box.Kubernetes(sandbox.Green).Snapshot())
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(w.Workloads)) {
		for minor := range w.Workloads[name].Kubelets {
			if minor != w.Version {
				out = append(out, name)
				break
			}
		}
	}
	return out
}

// rolling is what the restart says that it works on or waits for.
var rolling = regexp.MustCompile(`"kind":"waiting".*; rolling ([^;"]+)`)

// waitsOnlyFor is empty once the last that a run has recorded is that it waits for some of
// these owners, and for nobody else.
func waitsOnlyFor(t *testing.T, box *sandbox.Sandbox, owners map[string]string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(filepath.Dir(box.PlanFile()), ".eksbg", box.Scenario().Plan.Name+".journal"))
	if err != nil {
		return err.Error() // the journal of a run that is over has another name
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	last := lines[len(lines)-1]
	found := rolling.FindStringSubmatch(last)
	if found == nil {
		return "the run does not say that it waits: " + last
	}
	for _, name := range strings.Split(found[1], ", ") {
		if owners[name] == "" && !strings.HasPrefix(name, "+") {
			return "the run waits for " + name
		}
	}
	return ""
}

// held are pods that would go by themselves, had the test not its hand on them.
type held struct {
	k kubernetes.Interface
	// kept have a finalizer; ending run until they are told to end.
	kept, ending []corev1.Pod
}

// finalizer keeps a pod that was deleted.
const finalizer = "e2e.eksbg.dev/held"

// holdBack makes what goes by itself: a Deployment whose pod was replaced and does not
// end, a StatefulSet that was scaled to 0 and whose pods therefore stay (it takes them
// one after the other), and what runs until its end.
func holdBack(t *testing.T, box *sandbox.Sandbox) *held {
	t.Helper()
	k := admin(t, box, sandbox.Green)
	h := &held{k: k}
	leaving, retired := h.pods(t, "shop", "leaving"), h.pods(t, "shop", "retired")
	if len(leaving) != 1 || len(retired) != 2 {
		t.Fatalf("%d and %d pods", len(leaving), len(retired))
	}
	h.kept = []corev1.Pod{leaving[0], retired[1]}
	for _, p := range h.kept {
		h.patch(t, p, `{"metadata":{"finalizers":["`+finalizer+`"]}}`)
	}
	if err := k.CoreV1().Pods("shop").Delete(t.Context(), leaving[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := k.AppsV1().StatefulSets("shop").Patch(t.Context(), "retired", types.MergePatchType, []byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func() string {
		d, err := k.AppsV1().Deployments("shop").Get(t.Context(), "leaving", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		p, err := k.CoreV1().Pods("shop").Get(t.Context(), retired[1].Name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if d.Status.ReadyReplicas != 1 || p.DeletionTimestamp == nil {
			return fmt.Sprintf("leaving has %d ready pods; %s is deleted: %t", d.Status.ReadyReplicas, p.Name, p.DeletionTimestamp != nil)
		}
		return ""
	})
	for _, o := range [][2]string{{"batch", "migration"}, {"batch", "sweep"}, {"legacy", "runners"}} {
		pods := h.pods(t, o[0], o[1])
		if len(pods) != 1 {
			t.Fatalf("%s/%s has %d pods", o[0], o[1], len(pods))
		}
		h.ending = append(h.ending, pods[0])
	}
	return h
}

// letGo has all of them go. What still runs has to be as it was until then.
func (h *held) letGo(t *testing.T) {
	t.Helper()
	for _, p := range h.ending {
		now, err := h.k.CoreV1().Pods(p.Namespace).Get(t.Context(), p.Name, metav1.GetOptions{})
		if err != nil || now.UID != p.UID || now.DeletionTimestamp != nil || now.Status.Phase != corev1.PodRunning {
			t.Fatalf("%s/%s does not run any more: %v", p.Namespace, p.Name, err)
		}
		// As its kubelet says that its containers have exited.
		h.patch(t, p, `{"status":{"phase":"Succeeded"}}`, "status")
	}
	for _, p := range h.kept {
		h.patch(t, p, `{"metadata":{"finalizers":null}}`)
	}
}

func (h *held) patch(t *testing.T, p corev1.Pod, body string, subresource ...string) {
	t.Helper()
	_, err := h.k.CoreV1().Pods(p.Namespace).Patch(t.Context(), p.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{}, subresource...)
	if err != nil {
		t.Fatal(err)
	}
}

// pods are the unfinished ones of an owner, by name.
func (h *held) pods(t *testing.T, namespace, app string) []corev1.Pod {
	t.Helper()
	l, err := h.k.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(l.Items, func(p corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	})
}
