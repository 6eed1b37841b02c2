package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
)

// reading is one reading of what an API server holds.
type reading struct {
	client   *Client
	inv      *Inventory
	who      *owners
	guards   selection
	hooks    *hooks
	priority priorities

	deployments, statefulSets, daemonSets, replicaSets, replicationControllers []Workload
}

// errAnew is a list of pods that expired: what was read beside it may be older than
// the list that takes its place.
var errAnew = errors.New("the list of pods expired again and again")

// readObjects fills in what the API server holds.
//
// What chooses pods (budgets, services of webhooks) is read before them, so that their
// labels need not be kept. All that pods refer to is read as it is when the first page
// of pods has arrived or later: later pages show the cluster as it was then, so that
// what a pod refers to is in its list unless it went away together with the pod.
func (c *Client) readObjects(ctx context.Context, inv *Inventory) error {
	r := &reading{client: c, inv: inv, priority: newPriorities()}
	var lanes [3]bench
	for i := range lanes {
		lanes[i].cluster = c.name
	}
	if err := r.readChoosers(ctx, &lanes); err != nil {
		return err
	}
	for again := 0; ; again++ {
		err := r.readPodsAndOwners(ctx, &lanes)
		if err == nil {
			break
		}
		if !errors.Is(err, errAnew) || again == relists {
			return err
		}
	}
	inv.Webhooks = r.hooks.done(r.who)
	r.conclude()
	return nil
}

// conclude puts together what the lists held, once all are read.
func (r *reading) conclude() {
	inv := r.inv
	for i := range inv.Pods {
		inv.Pods[i].Owner = r.who.top(inv.Pods[i].Owner)
	}
	inv.Workloads = slices.Concat(r.deployments, r.statefulSets, r.daemonSets, r.replicaSets, r.replicationControllers)
	inv.index()
}

// readChoosers reads what chooses pods, and the priority classes.
func (r *reading) readChoosers(ctx context.Context, lanes *[3]bench) error {
	return together(ctx,
		func(ctx context.Context) error { return r.readBudgets(ctx, &lanes[0]) },
		func(ctx context.Context) error { return r.readPriorities(ctx, &lanes[1]) },
		func(ctx context.Context) error {
			var err error
			r.hooks, err = r.client.readHooks(ctx, &lanes[2])
			return err
		})
}

// readPodsAndOwners reads pods, and beside them nodes and, one after the other, the
// objects that own pods.
func (r *reading) readPodsAndOwners(ctx context.Context, lanes *[3]bench) error {
	r.who = newOwners()
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	after := func(read ...func(context.Context, *bench) error) func(context.Context, *bench) error {
		return func(ctx context.Context, b *bench) error {
			select {
			case <-begun:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			for _, f := range read {
				if err := f(ctx, b); err != nil {
					return err
				}
			}
			return nil
		}
	}
	nodes := after(r.readNodes)
	rest := after(r.readReplicaSets, r.readDeployments, r.readJobs, r.readReplicationControllers, r.readStatefulSets, r.readDaemonSets, r.readCronJobs)
	return together(ctx,
		func(ctx context.Context) error { return r.readPods(ctx, &lanes[0], begin) },
		func(ctx context.Context) error { return nodes(ctx, &lanes[1]) },
		func(ctx context.Context) error { return rest(ctx, &lanes[2]) })
}

// together runs all at the same time and waits for all; the first error ends the
// others and is the one returned.
func together(ctx context.Context, all ...func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	for _, f := range all {
		running.Go(func() {
			if err := f(ctx); err != nil {
				cancel(err)
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

func (r *reading) readBudgets(ctx context.Context, b *bench) error {
	return read(ctx, b, list[policyv1.PodDisruptionBudget]{
		resource: "poddisruptionbudgets.policy", client: r.client.kube.PolicyV1().RESTClient(), keep: keepBudget,
		start: func() { r.inv.Budgets, r.guards = nil, selection{} },
		each: func(o *policyv1.PodDisruptionBudget) {
			r.guards.add(o.Namespace, guarded(o), len(r.inv.Budgets))
			r.inv.Budgets = append(r.inv.Budgets, budget(o))
		},
	})
}

func (r *reading) readPriorities(ctx context.Context, b *bench) error {
	return read(ctx, b, list[schedulingv1.PriorityClass]{
		resource: "priorityclasses.scheduling.k8s.io", client: r.client.kube.SchedulingV1().RESTClient(), keep: keepPriorityClass,
		start: func() { r.priority = newPriorities() },
		each:  r.addPriority,
	})
}

func (r *reading) addPriority(o *schedulingv1.PriorityClass) { r.priority.add(o) }

func (r *reading) readPods(ctx context.Context, b *bench, begun func()) error {
	same := interned{}
	err := read(ctx, b, list[corev1.Pod]{
		resource: "pods", client: r.client.kube.CoreV1().RESTClient(), keep: keepPod, once: true,
		keys: slices.Concat(podKeys, r.guards.keys(), r.hooks.chooses.keys()),
		start: func() {
			r.inv.Pods = nil
			r.hooks.reset()
		},
		first: func(n int) {
			r.inv.Pods = make([]Pod, 0, n)
			begun()
		},
		each: func(o *corev1.Pod) {
			p := pod(o)
			p.intern(same)
			p.Budgets = r.guards.of(p.Namespace, o.Labels)
			r.hooks.see(p, o.Labels)
			r.inv.Pods = append(r.inv.Pods, p)
		},
	})
	if isExpired(err) {
		return errors.Join(errAnew, err)
	}
	return err
}

func (r *reading) readNodes(ctx context.Context, b *bench) error {
	same := interned{}
	return read(ctx, b, list[corev1.Node]{
		resource: "nodes", client: r.client.kube.CoreV1().RESTClient(), keep: keepNode, keys: nodeKeys,
		start: func() { r.inv.Nodes = nil },
		first: func(n int) { r.inv.Nodes = make([]Node, 0, n) },
		each: func(o *corev1.Node) {
			n := node(o)
			n.intern(same)
			r.inv.Nodes = append(r.inv.Nodes, n)
		},
	})
}

func (r *reading) readReplicaSets(ctx context.Context, b *bench) error {
	return read(ctx, b, list[appsv1.ReplicaSet]{
		resource: "replicasets.apps", client: r.client.kube.AppsV1().RESTClient(), keep: keepReplicaSet, keys: workloadKeys,
		start: func() { r.replicaSets = nil },
		each:  r.addReplicaSet,
	})
}

func (r *reading) addReplicaSet(o *appsv1.ReplicaSet) {
	if !r.who.add(&o.ObjectMeta) {
		r.replicaSets = append(r.replicaSets, r.priority.replicaSet(o))
	}
}

func (r *reading) readReplicationControllers(ctx context.Context, b *bench) error {
	return read(ctx, b, list[corev1.ReplicationController]{
		resource: "replicationcontrollers", client: r.client.kube.CoreV1().RESTClient(), keep: keepReplicationController, keys: workloadKeys,
		start: func() { r.replicationControllers = nil },
		each:  r.addReplicationController,
	})
}

func (r *reading) addReplicationController(o *corev1.ReplicationController) {
	if !r.who.add(&o.ObjectMeta) {
		r.replicationControllers = append(r.replicationControllers, r.priority.replicationController(o))
	}
}

func (r *reading) readJobs(ctx context.Context, b *bench) error {
	return read(ctx, b, list[batchv1.Job]{
		resource: "jobs.batch", client: r.client.kube.BatchV1().RESTClient(), keep: keepJob,
		start: func() { r.inv.Jobs = nil },
		each:  r.addJob,
	})
}

func (r *reading) addJob(o *batchv1.Job) {
	j := job(o)
	if j.CronJob != (Owner{}) {
		r.who.add(&o.ObjectMeta)
	}
	r.inv.Jobs = append(r.inv.Jobs, j)
}

func (r *reading) readCronJobs(ctx context.Context, b *bench) error {
	return read(ctx, b, list[batchv1.CronJob]{
		resource: "cronjobs.batch", client: r.client.kube.BatchV1().RESTClient(), keep: keepCronJob, keys: cronJobKeys,
		start: func() { r.inv.CronJobs = nil },
		each:  func(o *batchv1.CronJob) { r.inv.CronJobs = append(r.inv.CronJobs, cronJob(o)) },
	})
}

func (r *reading) readDeployments(ctx context.Context, b *bench) error {
	return read(ctx, b, list[appsv1.Deployment]{
		resource: "deployments.apps", client: r.client.kube.AppsV1().RESTClient(), keep: keepDeployment, keys: workloadKeys,
		start: func() { r.deployments = nil },
		each:  func(o *appsv1.Deployment) { r.deployments = append(r.deployments, r.priority.deployment(o)) },
	})
}

func (r *reading) readStatefulSets(ctx context.Context, b *bench) error {
	return read(ctx, b, list[appsv1.StatefulSet]{
		resource: "statefulsets.apps", client: r.client.kube.AppsV1().RESTClient(), keep: keepStatefulSet, keys: workloadKeys,
		start: func() { r.statefulSets = nil },
		each:  func(o *appsv1.StatefulSet) { r.statefulSets = append(r.statefulSets, r.priority.statefulSet(o)) },
	})
}

func (r *reading) readDaemonSets(ctx context.Context, b *bench) error {
	return read(ctx, b, list[appsv1.DaemonSet]{
		resource: "daemonsets.apps", client: r.client.kube.AppsV1().RESTClient(), keep: keepDaemonSet, keys: workloadKeys,
		start: func() { r.daemonSets = nil },
		each:  func(o *appsv1.DaemonSet) { r.daemonSets = append(r.daemonSets, r.priority.daemonSet(o)) },
	})
}

// readHooks lists the webhook configurations and reads the services behind those
// that are fail-closed; there are few of them, so that one request each is less than
// all services of the cluster.
func (c *Client) readHooks(ctx context.Context, b *bench) (*hooks, error) {
	validating, mutating := &hooks{}, &hooks{}
	client := c.kube.AdmissionregistrationV1().RESTClient()
	err := read(ctx, b, list[admissionv1.ValidatingWebhookConfiguration]{
		resource: "validatingwebhookconfigurations.admissionregistration.k8s.io", client: client, keep: keepWebhooks,
		start: func() { *validating = hooks{} },
		each: func(o *admissionv1.ValidatingWebhookConfiguration) {
			for _, w := range o.Webhooks {
				validating.add(o.Name, w.Name, w.FailurePolicy, w.ClientConfig)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	err = read(ctx, b, list[admissionv1.MutatingWebhookConfiguration]{
		resource: "mutatingwebhookconfigurations.admissionregistration.k8s.io", client: client, keep: keepWebhooks,
		start: func() { *mutating = hooks{} },
		each: func(o *admissionv1.MutatingWebhookConfiguration) {
			for _, w := range o.Webhooks {
				mutating.add(o.Name, w.Name, w.FailurePolicy, w.ClientConfig)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	all := &hooks{list: slices.Concat(validating.list, mutating.list)}
	return all, c.readServices(ctx, all)
}
