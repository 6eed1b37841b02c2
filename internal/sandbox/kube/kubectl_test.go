package kube_test

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/eksbg/eksbg/internal/sandbox/kube"
)

// kubectl runs the stock kubectl against the rig; a test without one on PATH is skipped.
type kubectl struct {
	t    *testing.T
	path string
	env  []string
}

func (r *rig) kubectl() *kubectl {
	r.t.Helper()
	path, err := exec.LookPath("kubectl")
	if err != nil {
		r.t.Skip("no kubectl on PATH")
	}
	dir := r.t.TempDir()
	file := filepath.Join(dir, "kubeconfig")
	config := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: blue
clusters: [{name: blue, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: tester, user: {token: %s}}]
contexts: [{name: blue, context: {cluster: blue, user: tester}}]
`, r.host, base64.StdEncoding.EncodeToString(r.c.CA()), token)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return &kubectl{r.t, path, append(os.Environ(), "KUBECONFIG="+file, "KUBECACHEDIR="+dir)}
}

func (k *kubectl) cmd(args ...string) *exec.Cmd {
	c := exec.CommandContext(deadline(k.t), k.path, args...)
	c.Env = k.env
	return c
}

// run returns what kubectl prints, and fails the test if it fails.
func (k *kubectl) run(args ...string) string {
	k.t.Helper()
	out, err := k.cmd(args...).CombinedOutput()
	if err != nil {
		k.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// fails returns what kubectl prints when it fails, as it should.
func (k *kubectl) fails(args ...string) string {
	k.t.Helper()
	out, err := k.cmd(args...).CombinedOutput()
	if err == nil {
		k.t.Errorf("kubectl %s does not fail:\n%s", strings.Join(args, " "), out)
	}
	return string(out)
}

func (k *kubectl) want(out string, patterns ...string) {
	k.t.Helper()
	for _, p := range patterns {
		if !regexp.MustCompile(`(?m)` + p).MatchString(out) {
			k.t.Errorf("no line matches %q in\n%s", p, out)
		}
	}
}

// nodeOf is the node of a pod of app that is there to stay.
func (k *kubectl) nodeOf(r *rig, app string) string {
	k.t.Helper()
	for _, e := range r.c.ReadyPods("default", map[string]string{"app": app}) {
		if e.Ready {
			return k.run("get", "pod", e.Name, "-o", "jsonpath={.spec.nodeName}")
		}
	}
	k.t.Fatalf("no pod of %s is ready", app)
	return ""
}

func TestKubectl(t *testing.T) {
	// kubectl delete pod waits for ever when a StatefulSet's pod is replaced between two
	// of its reads, so the old pod must not go faster than kubectl reads.
	r := start(t, func(o *kube.Options) { o.Fargate.Stop = 400 * time.Millisecond })
	k := r.kubectl()
	r.seed(deployment("web", 3), statefulSet("db", 2), budget("web", "web", minAvailable("3")))
	r.settle()
	k.want(k.run("version"), `^Server Version: v1\.31\.\d+-eks-[0-9a-f]{7}$`)
	k.want(k.run("get", "nodes,pods", "-A", "-o", "wide"),
		`^NAME +STATUS +ROLES +AGE +VERSION +INTERNAL-IP +EXTERNAL-IP +OS-IMAGE`,
		`^node/fargate-ip-10-0-0-\d+\.eu-central-1\.compute\.internal +Ready +<none> +\d+s +v1\.31\.\d+-eks-[0-9a-f]{7} +10\.0\.0\.\d+ +<none> +Amazon Linux 2`,
		`^default +pod/db-0 +1/1 +Running +0 +\d+s +10\.0\.0\.\d+ +fargate-ip`)

	r.minor.Store("1.32")
	k.want(k.run("rollout", "restart", "deployment/web", "statefulset/db"), `deployment.apps/web restarted`, `statefulset.apps/db restarted`)
	k.want(k.run("rollout", "status", "deployment/web"), `deployment "web" successfully rolled out`)
	k.want(k.run("rollout", "status", "statefulset/db"), `2 new pods have been updated`)
	if out := k.run("get", "nodes", "--no-headers"); strings.Contains(out, "v1.31.") {
		t.Errorf("old kubelets are left:\n%s", out)
	}
	k.run("scale", "deployment/web", "--replicas=4")
	k.run("rollout", "status", "deployment/web")
	k.want(k.run("get", "deployment", "web"), `^web +4/4 +4 +4 +\d+`)

	old := k.run("get", "pod", "db-1", "-o", "jsonpath={.metadata.uid}")
	k.want(k.run("delete", "pod", "db-1"), `pod "db-1" deleted`)
	k.run("rollout", "status", "statefulset/db")
	if uid := k.run("get", "pod", "db-1", "-o", "jsonpath={.metadata.uid}"); uid == old {
		t.Error("the deleted pod is still there")
	}
	k.want(k.run("wait", "--for=condition=Ready", "pods", "--all", "--timeout=30s"), `pod/db-1 condition met`)
	k.want(k.run("rollout", "undo", "deployment/web"), `rolled back`)
	k.run("rollout", "status", "deployment/web")
	k.want(k.run("rollout", "history", "deployment/web"), `^3 `)

	k.want(k.run("describe", "node", k.nodeOf(r, "web")), `eks.amazonaws.com/compute-type=fargate:NoSchedule`)
	k.run("scale", "deployment/web", "--replicas=3")
	k.run("rollout", "status", "deployment/web")
	k.want(k.fails("drain", k.nodeOf(r, "web"), "--timeout=1s"), `Cannot evict pod as it would violate the pod's disruption budget`)
}

// TestKubectlManifests creates, applies and deletes from files.
func TestKubectlManifests(t *testing.T) {
	r := start(t, nil)
	k := r.kubectl()
	file := filepath.Join(t.TempDir(), "cart.yaml")
	write := func(extra string) {
		manifest := `apiVersion: apps/v1
kind: Deployment
metadata: {name: cart, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: cart}}
  template:
    metadata: {labels: {app: cart}}
    spec: {containers: [{name: cart, image: "` + extra + `"}]}
`
		if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("cart:1")
	k.want(k.fails("create", "-f", file), `namespaces "shop" not found`)
	k.run("create", "namespace", "shop")
	k.want(k.run("apply", "-f", file), `deployment.apps/cart created`)
	k.run("rollout", "status", "-n", "shop", "deployment/cart")
	write("cart:2\"}], bogus: [{x: \"y")
	k.want(k.fails("apply", "-f", file), `unknown field "spec.template.spec.bogus"`)
	write("cart:2")
	k.want(k.run("apply", "-f", file), `deployment.apps/cart configured`)
	k.run("rollout", "status", "-n", "shop", "deployment/cart")
	k.want(k.run("get", "all", "-n", "shop"), `^replicaset.apps/cart-\w+ +2 +2 +2`, `^replicaset.apps/cart-\w+ +0 +0 +0`)
	k.run("delete", "namespace", "shop")
	k.want(k.fails("get", "namespace", "shop"), `not found`)
	if n := r.c.Nodes(); len(n) != 0 {
		t.Errorf("nodes are left: %v", n)
	}
}

// TestKubectlWatch reads kubectl get -w through the start of a pod.
func TestKubectlWatch(t *testing.T) {
	r := start(t, nil)
	k := r.kubectl()
	r.seed(pod("first"))
	r.settle()
	c := k.cmd("get", "pods", "-w")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var got strings.Builder
	for _, want := range []string{`^NAME +READY`, `^first +1/1 +Running`, `^second +0/1 +Pending`, `^second +0/1 +ContainerCreating`, `^second +1/1 +Running`} {
		if !lines.Scan() {
			t.Fatalf("kubectl ended after\n%s", got.String())
		}
		fmt.Fprintln(&got, lines.Text())
		if !regexp.MustCompile(want).MatchString(lines.Text()) {
			t.Errorf("line %q, want %s", lines.Text(), want)
		}
		if strings.HasPrefix(want, "^first") {
			r.seed(pod("second"))
		}
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, out)
	_ = c.Wait() // killed
}

// TestKubectlApplyServerSide: kubectl's own server-side apply, with a conflict and without.
func TestKubectlApplyServerSide(t *testing.T) {
	r := start(t, nil)
	k := r.kubectl()
	file := filepath.Join(t.TempDir(), "cm.yaml")
	write := func(value string) {
		t.Helper()
		text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared, namespace: default}\ndata: {key: " + value + "}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	k.want(k.run("apply", "--server-side", "--field-manager=first", "-f", file), "configmap/shared serverside-applied")
	write("two")
	k.want(k.fails("apply", "--server-side", "--field-manager=second", "-f", file), `conflict with "first"`)
	k.run("apply", "--server-side", "--field-manager=second", "--force-conflicts", "-f", file)
	k.want(k.run("get", "configmap", "shared", "-o", "yaml", "--show-managed-fields"), "manager: second", "operation: Apply", "key: two")
}

// TestKubectlPortForward: kubectl reaches CoreDNS through the API server.
func TestKubectlPortForward(t *testing.T) {
	r := start(t, nil)
	r.seed(deployment("coredns", 1, func(d *appsv1.Deployment) { d.Spec.Template.Labels["k8s-app"] = "kube-dns" }))
	r.settle()
	k := r.kubectl()
	c := k.cmd("port-forward", "deployment/coredns", "0:53")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = c.Process.Kill()
		_ = c.Wait() // killed
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	addr := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line)
	if err != nil || addr == "" {
		t.Fatalf("kubectl says %q (%v)", line, err)
	}
	q := new(dns.Msg).SetQuestion("kubernetes.default.svc.cluster.local.", dns.TypeA)
	a, _, err := (&dns.Client{Net: "tcp", Timeout: 10 * time.Second}).Exchange(q, addr)
	if err != nil || len(a.Answer) != 1 {
		t.Errorf("CoreDNS answers %v (%v)", a, err)
	}
}
