// Package conformance holds a Kubernetes API to the behaviours that eksbg relies on. One
// suite runs against the sandbox's own API server and against the real kube-apiserver and
// kube-controller-manager: what passes on the real one and not on the sandbox's is a
// fault of the sandbox.
//
// The suite is a client like any other. It waits by watching, never by sleeping, and
// makes its objects in namespaces of its own.
package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Target is a running cluster. Its Fargate has to take the pods of every namespace whose
// name begins with NamespacePrefix, to start and stop them as quickly as it can, and to
// know the annotations sandbox.eksbg/run, /exit and /ready (package fargate says what
// they mean).
type Target struct {
	// Config reaches the API server as cluster-admin. Its content type is left alone
	// except where a check is about one.
	Config *rest.Config
	// Minor is what /version and new kubelets say when the suite begins ("1.31").
	Minor string
	// Raise makes /version and new kubelets say another minor from now on. nil leaves
	// out what needs it.
	Raise func(t *testing.T, minor string)
	// Compact makes every resource version and continue token up to now expire, as
	// etcd's compaction does. nil leaves out what needs it.
	Compact func(t *testing.T)
	// Narrow reaches the API server as the user "narrow", who may get, list and watch the
	// pods of a namespace and nothing else but what every user may. It returns once that
	// holds.
	Narrow func(t *testing.T, namespace string) *rest.Config
	// Patience bounds each wait; 0 is a minute.
	Patience time.Duration
	// Skips names checks ("Portforward") that the target cannot be held to, with why.
	Skips map[string]string
}

// NamespacePrefix begins the names of all namespaces that the suite makes.
const NamespacePrefix = "conformance-"

// check is one behaviour.
type check struct {
	name string
	run  func(*Case)
	// alone checks change the whole cluster: they run after all others, one by one.
	alone bool
}

// Run runs every check against a target that start makes once. Checks run in parallel
// where they can.
func Run(t *testing.T, start func(t *testing.T) Target) {
	t.Helper()
	target := start(t)
	if target.Patience <= 0 {
		target.Patience = time.Minute
	}
	all := checks()
	t.Run("together", func(t *testing.T) {
		for _, c := range all {
			if !c.alone {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					target.run(t, c)
				})
			}
		}
	})
	// Expired, which is among the first, is the last: it has the watches of the controllers
	// begun again too. A pod that lives and dies before a controller looks again is one whose
	// creation it goes on expecting, for five minutes (kubernetes/pkg/controller,
	// ExpectationsTimeout).
	for _, c := range slices.Backward(all) {
		if c.alone {
			t.Run(c.name, func(t *testing.T) { target.run(t, c) })
		}
	}
}

func (target Target) run(t *testing.T, c check) {
	if why, ok := target.Skips[c.name]; ok {
		t.Skip(why)
	}
	c.run(target.begin(t, c.name))
}

// Case is one check under way: clients and a namespace of its own.
type Case struct {
	*testing.T
	Target
	ctx  context.Context
	cs   *kubernetes.Clientset
	dyn  *dynamic.DynamicClient
	ns   string
	user string // the field manager that the clients' requests are recorded for
}

var serial atomic.Int64

// begin makes the clients and the namespace of a check. The namespace is deleted when the
// check has ended; nobody waits for that.
func (target Target) begin(t *testing.T, name string) *Case {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*target.Patience)
	t.Cleanup(cancel)
	c := &Case{T: t, Target: target, ctx: ctx, user: "conformance",
		ns: fmt.Sprintf("%s%s-%d", NamespacePrefix, strings.ToLower(name), serial.Add(1))}
	cfg := rest.CopyConfig(target.Config)
	cfg.QPS, cfg.UserAgent = -1, c.user+"/v1"
	c.cs, c.dyn = c.clients(cfg)
	must(c.cs.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.ns}}, metav1.CreateOptions{}))(c)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := c.cs.CoreV1().Namespaces().Delete(ctx, c.ns, metav1.DeleteOptions{}); err != nil {
			t.Logf("deleting namespace %s: %v", c.ns, err)
		}
	})
	return c
}

// clients makes clients whose connections end with the check.
func (c *Case) clients(cfg *rest.Config) (*kubernetes.Clientset, *dynamic.DynamicClient) {
	c.Helper()
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(hc.CloseIdleConnections)
	cs, err := kubernetes.NewForConfigAndClient(cfg, hc)
	if err != nil {
		c.Fatal(err)
	}
	dyn, err := dynamic.NewForConfigAndClient(cfg, hc)
	if err != nil {
		c.Fatal(err)
	}
	return cs, dyn
}

// must ends the check when a call failed, and else returns what it answered:
// must(call())(c).
func must[T any](v T, err error) func(*Case) T {
	return func(c *Case) T {
		c.Helper()
		if err != nil {
			c.Fatal(err)
		}
		return v
	}
}

// checks are all behaviours, by topic.
func checks() []check {
	var all []check
	for _, topic := range [][]check{readChecks, writeChecks, workloadChecks, ownerChecks, evictionChecks, jobChecks, fargateChecks, forwardChecks, accessChecks} {
		all = append(all, topic...)
	}
	return all
}
