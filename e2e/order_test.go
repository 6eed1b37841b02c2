package e2e_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/eksbg/eksbg/e2e/cluster"
	"github.com/eksbg/eksbg/internal/sandbox"
	"github.com/eksbg/eksbg/internal/sandbox/kube"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// orderly is a cluster with something for each place in the order, two of them behind
// webhooks that fail closed, and with a Deployment whose restart a controller reverts and
// that may be evicted instead.
func orderly(sc *sandbox.Scenario) {
	sc.Plan.FinishedJobs, sc.Plan.FinishedAge, sc.Plan.Skip = "", 0, nil
	sc.Plan.Pending = 100 * time.Hour // no pod is forgotten here, some may be slow
	sc.Plan.Allow = []sandbox.Allow{{Owner: "shop/Deployment/kept", Action: "evict", Reason: "Flux puts its template back"}}
	dns := sandbox.Workload{
		Namespace: "kube-system", Kind: "Deployment", Name: "coredns", Replicas: ptr.To[int32](2), Labels: map[string]string{"k8s-app": "kube-dns"}, MinAvailable: "1",
	}
	front := sandbox.Workload{Namespace: "shop", Kind: "Deployment", Name: "storefront", Replicas: ptr.To[int32](3), Port: 8080, MinAvailable: "2"}
	deployment := func(namespace, name string) sandbox.Workload {
		return sandbox.Workload{Namespace: namespace, Kind: "Deployment", Name: name, Replicas: ptr.To[int32](2)}
	}
	guard := func(name string) sandbox.Workload {
		w := deployment("policy", name)
		w.Port, w.Webhook = 9443, name+".policy.example.com"
		return w
	}
	for _, side := range []string{sandbox.Blue, sandbox.Green} {
		c := sc.Side(side)
		c.Nodes, c.GitOps, c.Workloads = nil, nil, []sandbox.Workload{dns, front}
	}
	c := sc.Side(sandbox.Green)
	c.GitOps = &sandbox.GitOps{Manager: "kustomize-controller", Owners: []string{"shop/Deployment/kept"}}
	c.Workloads = append(c.Workloads, guard("admission"), guard("audit"), deployment("shop", "cart"), deployment("shop", "kept"),
		sandbox.Workload{Namespace: "shop", Kind: "StatefulSet", Name: "queue", Replicas: ptr.To[int32](2)},
		sandbox.Workload{Namespace: "batch", Kind: "CronJob", Name: "nightly", Schedule: "0 4 * * *"},
		sandbox.Workload{Namespace: "batch", Kind: "CronJob", Name: "quarterly", Schedule: "0 5 1 */3 *", Suspend: true})
	for _, side := range []string{sandbox.Blue, sandbox.Green} {
		for i := range sc.Side(side).Workloads {
			w := &sc.Side(side).Workloads[i]
			w.Image = w.Name
		}
	}
}

// A restart that is interrupted, killed and taken back in between keeps its order to the
// end, holds the CronJobs for as long as it works, and names who takes it back.
func TestTheOrderOfARestart(t *testing.T) {
	box := world(t, "owners", true, orderly)
	green := realCluster(t, box, sandbox.Green)
	held := keep(t, green, "shop", "held", "argocd-controller")
	h := chronicle(t, green)
	apply(t, box, 4, "--until", "green/control-plane/1.32")
	upgraded, crons := h.now(t), cronJobs(t, green)

	interruptAndKill(t, box, green, crons)

	said := oneLine(apply(t, box, 3, "--until", "green/restart/1"))
	for _, want := range []string{
		"shop/Deployment/held: the restart is reverted: argocd-controller at ", "shop/Deployment/kept: kustomize-controller reverts the restart",
		"evicted one by one instead, as the plan file allows",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("does not say %q:\n%s", want, said)
		}
	}
	if left := lagOf(t, box, sandbox.Green, box.PlanFile()); len(left) != 1 || left["shop/Deployment/held"] == "" {
		t.Errorf("lagging are %v, and only held should be", left)
	}
	held.stop()
	apply(t, box, 4, "--until", "green/restart/1")

	h.inOrder(t, upgraded)
	h.eachPodOnce(t, box, upgraded)
	coreDNSIsAskedInBetween(t, box)
	suspendedThroughout(t, box)
	if diff := cmp.Diff(crons, cronJobs(t, green)); diff != "" {
		t.Errorf("the CronJobs (-before +after):\n%s", diff)
	}
	// Held by the one that is interrupted, by those that are killed up to the one that is
	// blocked, and by the last.
	if got, want := h.suspends(t, "nightly"), []bool{false, true, false, true, false, true, false}; !slices.Equal(got, want) {
		t.Errorf("nightly was suspended: %v, want %v", got, want)
	}
	if got := h.suspends(t, "quarterly"); !slices.Equal(got, []bool{true}) {
		t.Errorf("quarterly was suspended before, and was: %v", got)
	}
}

// interruptAndKill begins the restart, interrupts it, and kills it in the middle of three
// changes, one after the other. CronJobs are put back by who can.
func interruptAndKill(t *testing.T, box *sandbox.Sandbox, c *cluster.Cluster, before map[string]batchv1.CronJob) {
	t.Helper()
	begun := nth(box, "k8s:patch deployments", 1)
	p := begin(t, box, untilRestarted(box)...)
	p.reaches(t, begun)
	if !*cronJobs(t, c)["nightly"].Spec.Suspend {
		t.Error("something is restarted while nightly may run")
	}
	p.interrupt(t)
	if got := p.exit(); got != 130 {
		t.Fatalf("interrupted it exits with %d\n%s", got, p.out.String())
	}
	if diff := cmp.Diff(before, cronJobs(t, c)); diff != "" {
		t.Errorf("the CronJobs after an interrupt (-before +after):\n%s", diff)
	}
	for _, at := range []wire.Fault{
		{Call: "k8s:patch deployments", Object: "shop/*", Hold: wire.Before},
		{Call: "k8s:patch deployments", Object: "shop/*", Hold: wire.After},
		{Call: "k8s:patch statefulsets", Hold: wire.After},
	} {
		held := holdAt(t, box, at)
		p := begin(t, box, untilRestarted(box)...)
		p.reaches(t, held)
		p.kill(t)
		box.Faults().Clear()
		if !*cronJobs(t, c)["nightly"].Spec.Suspend {
			t.Error("who was killed has put nightly back")
		}
	}
}

// oneLine takes the wrapping out of what was said.
func oneLine(said string) string { return strings.Join(strings.Fields(said), " ") }

// cronJobs are those of namespace batch as users write them.
func cronJobs(t *testing.T, c *cluster.Cluster) map[string]batchv1.CronJob {
	t.Helper()
	list, err := direct(t, c).BatchV1().CronJobs("batch").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]batchv1.CronJob{}
	for _, cj := range list.Items {
		out[cj.Name] = batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{UID: cj.UID, Labels: cj.Labels, Annotations: cj.Annotations}, Spec: cj.Spec}
	}
	return out
}

// inOrder wants CoreDNS first and one pod at a time, then what backs webhooks, one after
// the other, then the rest; and of those two kinds always one pod ready.
func (h *history) inOrder(t *testing.T, since uint64) {
	t.Helper()
	all := h.lives(t, since)
	dns, one, other := all["kube-system/coredns"], all["policy/admission"], all["policy/audit"]
	if one.from > other.from {
		one, other = other, one
	}
	if dns.from == 0 || dns.to > one.from {
		t.Errorf("CoreDNS was under way from %d to %d, a webhook's backend from %d", dns.from, dns.to, one.from)
	}
	if one.to > other.from {
		t.Errorf("two backends of webhooks were under way at once: one until %d, the other from %d", one.to, other.from)
	}
	for name, l := range all {
		switch l {
		case dns, one, other:
			if l.least < 1 {
				t.Errorf("%s had no ready pod for a while", name)
			}
		default:
			if l.from != 0 && l.from < other.to {
				t.Errorf("%s began at %d, the backends of webhooks were done at %d", name, l.from, other.to)
			}
		}
	}
	if len(dns.replaced) != 2 || dns.replaced[1].fresh < 1 {
		t.Errorf("CoreDNS was replaced %v: the second pod has to go when the first one's successor is ready", dns.replaced)
	}
}

// eachPodOnce wants each pod replaced by one other, and none left on an old kubelet. The
// two whose restart was taken back have had more; of the one that may be evicted each pod
// was, once.
func (h *history) eachPodOnce(t *testing.T, box *sandbox.Sandbox, since uint64) {
	t.Helper()
	for name, l := range h.lives(t, since) {
		if name == "shop/kept" || name == "shop/held" || name == "batch/nightly" || name == "batch/quarterly" {
			continue
		}
		if len(l.old) == 0 || len(l.pods) != 2*len(l.old) {
			t.Errorf("%s had %v and has had %v in all", name, l.old, l.pods)
		}
	}
	evicted := map[string]int{}
	for _, e := range requests(t, box) {
		if e.Accepted && e.Call == "k8s:create pods/eviction" && strings.HasPrefix(e.Object, "shop/") {
			evicted[e.Object]++
			if !strings.HasPrefix(e.Object, "shop/kept-") || evicted[e.Object] > 1 {
				t.Errorf("%s was evicted %d times", e.Object, evicted[e.Object])
			}
		}
	}
	if len(evicted) != 2 {
		t.Errorf("evicted were %v, and should be the two pods of kept", evicted)
	}
	eventually(t, time.Minute, func() string {
		for _, n := range h.cluster.Nodes() {
			if !strings.HasPrefix(n.Kubelet, "v1.32.") {
				return "node " + n.Name + " is at " + n.Kubelet
			}
		}
		return ""
	})
}

// coreDNSIsAskedInBetween wants each new pod of CoreDNS asked before the next one is
// evicted, and before anything else is restarted.
func coreDNSIsAskedInBetween(t *testing.T, box *sandbox.Sandbox) {
	t.Helper()
	var evicted, asked []string
	for _, e := range requests(t, box) {
		dns := strings.HasPrefix(e.Object, "kube-system/coredns-")
		switch {
		case !e.Accepted:
		case dns && e.Call == "k8s:create pods/eviction":
			if evicted = append(evicted, e.Object); len(asked) != len(evicted)-1 {
				t.Errorf("%v are evicted when only %v were asked", evicted, asked)
			}
		case dns && strings.HasSuffix(e.Call, " pods/portforward") && !slices.Contains(asked, e.Object):
			asked = append(asked, e.Object)
		case restarts(e) && len(asked) != 2:
			t.Errorf("%s %s when only %v were asked", e.Call, e.Object, asked)
		}
	}
	if len(evicted) != 2 || len(asked) != 2 {
		t.Errorf("%v were evicted and %v asked", evicted, asked)
	}
	for _, pod := range asked {
		if slices.Contains(evicted, pod) {
			t.Errorf("%s was asked, an old pod", pod)
		}
	}
}

// restarts tells whether a call has pods replaced.
func restarts(e wire.Entry) bool {
	return e.Call == "k8s:create pods/eviction" || e.Call == "k8s:patch deployments" || e.Call == "k8s:patch statefulsets"
}

// suspendedThroughout wants nightly held whenever something is restarted.
func suspendedThroughout(t *testing.T, box *sandbox.Sandbox) {
	t.Helper()
	held := false
	for _, e := range requests(t, box) {
		switch {
		case !e.Accepted:
		case e.Call == "k8s:patch cronjobs":
			if held = !held; e.Object != "batch/nightly" {
				t.Errorf("%s was patched", e.Object)
			}
		case restarts(e) && !held:
			t.Errorf("%s %s while nightly may run", e.Call, e.Object)
		}
	}
}

// interrupt is Ctrl-C.
func (p *process) interrupt(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
}

// A pod of CoreDNS that answers SERVFAIL stops the run with that word before a second pod
// goes, and with the rest untouched; once it is mended the same command goes on.
func TestCoreDNSThatDoesNotResolveStopsTheRun(t *testing.T) {
	t.Parallel() // half a minute is waiting
	box := world(t, "stuck", true, func(sc *sandbox.Scenario) {
		sc.Updates = nil
		c := sc.Side(sandbox.Green)
		c.Workloads = slices.Clone(c.Workloads)
		for i := range c.Workloads {
			if w := &c.Workloads[i]; w.Name == "coredns" {
				w.DNS = "SERVFAIL"
			}
		}
	})
	green := realCluster(t, box, sandbox.Green)
	h := chronicle(t, green)
	apply(t, box, 4, "--until", "green/control-plane/1.32")
	upgraded := h.now(t)

	said := oneLine(apply(t, box, 3, "--until", "green/restart/1"))
	if !strings.Contains(said, "does not resolve kubernetes.default.svc.cluster.local: SERVFAIL") {
		t.Errorf("does not say why it stops:\n%s", said)
	}
	for name, l := range h.lives(t, upgraded) {
		if name == "kube-system/coredns" {
			if len(l.replaced) != 1 {
				t.Errorf("of CoreDNS %v were replaced", l.replaced)
			}
		} else if l.from != 0 {
			t.Errorf("%s was restarted", name)
		}
	}

	mend := `{"spec":{"template":{"metadata":{"annotations":{"` + kube.AnnotationDNS + `":null}}}}}`
	_, err := direct(t, green).AppsV1().Deployments("kube-system").Patch(t.Context(), "coredns", types.MergePatchType, []byte(mend), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	apply(t, box, 4, "--until", "green/restart/1")
}
