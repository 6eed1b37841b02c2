package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/google/go-cmp/cmp"

	"github.com/eksbg/eksbg/internal/sandbox"
	"github.com/eksbg/eksbg/internal/sandbox/kube"
)

// unlucky is a cluster whose namespaces, restarted one after the other, each have another
// mishap: an image that cannot be pulled, a crash loop, a pod that Fargate forgets of a
// Deployment that gives up sooner than eksbg does, of one that does not, and pods that it
// forgets over and over. The last namespace has none.
func unlucky(sc *sandbox.Scenario) {
	sc.Plan.FinishedJobs, sc.Plan.FinishedAge, sc.Plan.Skip, sc.Plan.Allow = "", 0, nil, nil
	sc.Plan.MaxParallel, sc.Plan.Pending = 1, speed*12*time.Second
	sc.Plan.Order = []string{"kube-system", "pulls", "crashes", "gives-up", "forgotten", "lost"}
	deployment := func(namespace string) sandbox.Workload {
		return sandbox.Workload{Namespace: namespace, Kind: "Deployment", Name: "cart", Replicas: ptr.To[int32](2)}
	}
	for _, side := range []string{sandbox.Blue, sandbox.Green} {
		c := sc.Side(side)
		c.Nodes, c.GitOps = nil, nil
		c.Workloads = []sandbox.Workload{
			{Namespace: "kube-system", Kind: "Deployment", Name: "coredns", Replicas: ptr.To[int32](2), Labels: map[string]string{"k8s-app": "kube-dns"}, MinAvailable: "1"},
			{Namespace: "shop", Kind: "Deployment", Name: "storefront", Replicas: ptr.To[int32](3), Port: 8080, MinAvailable: "2"},
		}
	}
	pulls, crashes, givesUp, forgotten, lost := deployment("pulls"), deployment("crashes"), deployment("gives-up"), deployment("forgotten"), deployment("lost")
	pulls.Fail, crashes.Fail, givesUp.Forget, forgotten.Forget, lost.Forget = "image", "crash", 1, 1, 9
	c := sc.Side(sandbox.Green)
	c.Profiles = []sandbox.Profile{{Name: "all", Selectors: []sandbox.ProfileSelector{{Namespace: "*"}}}}
	c.Workloads = append(c.Workloads, pulls, crashes, givesUp, forgotten, lost)
	for _, side := range []string{sandbox.Blue, sandbox.Green} {
		for i := range sc.Side(side).Workloads {
			w := &sc.Side(side).Workloads[i]
			w.Image = w.Name
		}
	}
}

// What keeps new pods from coming up stops the restart with the pod's own words, and leaves
// alone what was not begun; mended, the same command goes on. A pod that Fargate has
// forgotten is made anew.
func TestMishapsStopTheWave(t *testing.T) {
	t.Parallel() // it waits most of its time
	box := world(t, "owners", true, unlucky)
	k := admin(t, box, sandbox.Green)
	patch(t, k, "gives-up", `{"spec":{"progressDeadlineSeconds":5}}`)
	apply(t, box, 4, "--until", "green/control-plane/1.32")
	mended := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{%q:null}}}}}`, kube.AnnotationFail)
	later := []example{{name: "crashes/Deployment/cart"}, {name: "gives-up/Deployment/cart"}, {name: "forgotten/Deployment/cart"},
		{name: "lost/Deployment/cart"}, {name: "shop/Deployment/storefront"}}
	for _, m := range []struct {
		namespace string
		says      []string
		mend      func()
	}{
		{"pulls", []string{"ImagePullBackOff of container", `Back-off pulling image "cart"`}, func() { patch(t, k, "pulls", mended) }},
		{"crashes", []string{"CrashLoopBackOff of container", "last exit code 1 Error panic: no configuration"}, func() { patch(t, k, "crashes", mended) }},
		{"gives-up", []string{`"cart-`, "has timed out progressing"}, func() { unplaced(t, k, "gives-up") }},
	} {
		later = slices.DeleteFunc(later, func(e example) bool { return strings.HasPrefix(e.name, m.namespace+"/") })
		before := standing(t, k, later)
		said := oneLine(apply(t, box, 3, "--until", "green/restart/1"))
		for _, want := range append(m.says, m.namespace+"/Deployment/cart: its new pods do not come up: ", fmt.Sprintf("%d workload", len(later)), "not begun, untouched") {
			if !strings.Contains(said, want) {
				t.Errorf("%s: does not say %q:\n%s", m.namespace, want, said)
			}
		}
		if diff := cmp.Diff(before, standing(t, k, later)); diff != "" {
			t.Errorf("%s: what was not begun was touched (-before +after):\n%s", m.namespace, diff)
		}
		m.mend()
	}
	said := oneLine(apply(t, box, 4, "--until", "green/restart/1"))
	for want, n := range map[string]int{"forgotten/Deployment/cart: pod cart-": 1, "lost/Deployment/cart: pod cart-": 3, "deleted so that another one is made": 4,
		"lost/Deployment/cart: not done after 1m0s: cart-": 1, "a pod that stayed Pending was made anew 3 times; 1 workload not begun, untouched": 1} {
		if got := strings.Count(said, want); got < n || n > 1 && got > n {
			t.Errorf("says %d times and not %d: %s\n%s", got, n, want, said)
		}
	}
	patch(t, k, "lost", fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{%q:null}}}}}`, kube.AnnotationForget))
	apply(t, box, 4, "--until", "green/restart/1")
	if left := lagOf(t, box, sandbox.Green, box.PlanFile()); len(left) > 0 {
		t.Errorf("lagging are %v", left)
	}
}

// patch changes the Deployment cart of a namespace.
func patch(t *testing.T, k kubernetes.Interface, namespace, with string) {
	t.Helper()
	if _, err := k.AppsV1().Deployments(namespace).Patch(t.Context(), "cart", types.StrategicMergePatchType, []byte(with), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// unplaced deletes the pods of a namespace that are on no node, as somebody would who is
// told of them.
func unplaced(t *testing.T, k kubernetes.Interface, namespace string) {
	t.Helper()
	pods, err := k.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName="})
	if err != nil || len(pods.Items) == 0 {
		t.Fatalf("no pod of %s is without a node: %v", namespace, err)
	}
	for _, p := range pods.Items {
		if err := k.CoreV1().Pods(namespace).Delete(t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}
