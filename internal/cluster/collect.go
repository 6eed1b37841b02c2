package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pageSize is how many objects one list request asks for; the pass holds one page
// of whole objects at a time.
const pageSize = 500

// notEverywhere are resources that may be absent from an API server; then there are
// no such objects. Of the others an answer 404 is not believed.
var notEverywhere = map[string]bool{
	"replicationcontrollers":                                       true,
	"priorityclasses.scheduling.k8s.io":                            true,
	"validatingwebhookconfigurations.admissionregistration.k8s.io": true,
	"mutatingwebhookconfigurations.admissionregistration.k8s.io":   true,
}

// relists is how often a list is begun anew because its continue token expired.
const relists = 3

// Inventory reads the cluster in one pass: what EKS says, what the API server says
// it is, and one paged list of each resource. Pods come first, so that what they
// refer to (nodes, ReplicaSets, Jobs) is there when its list is read, unless it went
// away together with the pod.
func (c *Client) Inventory(ctx context.Context) (*Inventory, error) {
	at := c.clk.Now()
	found, err := describe(ctx, c.eks, c.name)
	if err != nil {
		return nil, err
	}
	version, err := Minor(awssdk.ToString(found.Version))
	if err != nil {
		return nil, fmt.Errorf("version of cluster %s: %w", c.name, err)
	}
	inv := &Inventory{
		Name: c.name, ARN: awssdk.ToString(found.Arn), Version: version, Status: string(found.Status),
		Endpoint: awssdk.ToString(found.Endpoint), CreatedAt: awssdk.ToTime(found.CreatedAt), At: at,
	}
	inv.Updates, inv.UpdatesUnread, err = c.updates(ctx, found.Status == ekstypes.ClusterStatusActive)
	if err != nil {
		return nil, err
	}
	if _, inv.Server, err = c.ServerVersion(ctx); err != nil {
		return nil, err
	}
	if err := c.readObjects(ctx, inv); err != nil {
		return nil, err
	}
	return inv, nil
}

// pass is what one reading of a cluster's objects knows.
type pass struct {
	client   *Client
	inv      *Inventory
	who      *owners
	guards   selection
	hooks    *hooks
	priority priorities
}

// readObjects fills in what the API server holds. What chooses pods is read before
// them, so that no labels have to be kept.
func (c *Client) readObjects(ctx context.Context, inv *Inventory) error {
	p := &pass{client: c, inv: inv, who: newOwners(), priority: newPriorities()}
	var err error
	if p.hooks, err = c.readHooks(ctx); err != nil {
		return err
	}
	for _, read := range []func(context.Context) error{p.readBudgets, p.readPriorities, p.readPods, p.readBetween, p.readNodes, p.readBatch, p.readWorkloads} {
		if err := read(ctx); err != nil {
			return err
		}
	}
	inv.Webhooks = p.hooks.done(p.who)
	for i := range inv.Pods {
		inv.Pods[i].Owner = p.who.top(inv.Pods[i].Owner)
	}
	inv.index()
	return nil
}

func (p *pass) readBudgets(ctx context.Context) error {
	return pages(ctx, p.client.name, "poddisruptionbudgets.policy", p.client.kube.PolicyV1().PodDisruptionBudgets("").List,
		func() { p.inv.Budgets, p.guards = nil, selection{} },
		func(l *policyv1.PodDisruptionBudgetList) {
			for i := range l.Items {
				p.guards.add(l.Items[i].Namespace, guarded(&l.Items[i]), len(p.inv.Budgets))
				p.inv.Budgets = append(p.inv.Budgets, budget(&l.Items[i]))
			}
		})
}

func (p *pass) readPriorities(ctx context.Context) error {
	return pages(ctx, p.client.name, "priorityclasses.scheduling.k8s.io", p.client.kube.SchedulingV1().PriorityClasses().List,
		func() { p.priority = newPriorities() },
		func(l *schedulingv1.PriorityClassList) {
			for i := range l.Items {
				p.priority.add(&l.Items[i])
			}
		})
}

func (p *pass) readPods(ctx context.Context) error {
	return pages(ctx, p.client.name, "pods", p.client.kube.CoreV1().Pods("").List,
		func() {
			p.inv.Pods = nil
			p.hooks.reset()
		},
		func(l *corev1.PodList) {
			for i := range l.Items {
				kept := pod(&l.Items[i])
				kept.Budgets = p.guards.of(kept.Namespace, l.Items[i].Labels)
				p.hooks.see(kept, l.Items[i].Labels)
				p.inv.Pods = append(p.inv.Pods, kept)
			}
		})
}

func (p *pass) readNodes(ctx context.Context) error {
	return pages(ctx, p.client.name, "nodes", p.client.kube.CoreV1().Nodes().List, func() { p.inv.Nodes = nil },
		func(l *corev1.NodeList) {
			for i := range l.Items {
				p.inv.Nodes = append(p.inv.Nodes, node(&l.Items[i]))
			}
		})
}

// readBatch lists Jobs and CronJobs.
func (p *pass) readBatch(ctx context.Context) error {
	batch := p.client.kube.BatchV1()
	err := pages(ctx, p.client.name, "jobs.batch", batch.Jobs("").List, func() { p.inv.Jobs = nil },
		func(l *batchv1.JobList) {
			for i := range l.Items {
				kept := job(&l.Items[i])
				if kept.CronJob != (Owner{}) {
					p.who.add(&l.Items[i].ObjectMeta)
				}
				p.inv.Jobs = append(p.inv.Jobs, kept)
			}
		})
	if err != nil {
		return err
	}
	return pages(ctx, p.client.name, "cronjobs.batch", batch.CronJobs("").List, func() { p.inv.CronJobs = nil },
		func(l *batchv1.CronJobList) {
			for i := range l.Items {
				p.inv.CronJobs = append(p.inv.CronJobs, cronJob(&l.Items[i]))
			}
		})
}

// readBetween lists what stands between pods and their top owners; where there is
// nothing above, it is a workload itself.
func (p *pass) readBetween(ctx context.Context) error {
	var sets, controllers []Workload
	err := pages(ctx, p.client.name, "replicasets.apps", p.client.kube.AppsV1().ReplicaSets("").List, func() { sets = nil },
		func(l *appsv1.ReplicaSetList) {
			for i := range l.Items {
				p.who.add(&l.Items[i].ObjectMeta)
				if controller(&l.Items[i].ObjectMeta) == nil {
					sets = append(sets, p.priority.replicaSet(&l.Items[i]))
				}
			}
		})
	if err != nil {
		return err
	}
	err = pages(ctx, p.client.name, "replicationcontrollers", p.client.kube.CoreV1().ReplicationControllers("").List, func() { controllers = nil },
		func(l *corev1.ReplicationControllerList) {
			for i := range l.Items {
				p.who.add(&l.Items[i].ObjectMeta)
				if controller(&l.Items[i].ObjectMeta) == nil {
					controllers = append(controllers, p.priority.replicationController(&l.Items[i]))
				}
			}
		})
	p.inv.Workloads = append(sets, controllers...)
	return err
}

// readWorkloads lists what decides over pod templates and puts it before the rest.
func (p *pass) readWorkloads(ctx context.Context) error {
	var deployments, sets, daemons []Workload
	apps := p.client.kube.AppsV1()
	err := pages(ctx, p.client.name, "deployments.apps", apps.Deployments("").List, func() { deployments = nil },
		func(l *appsv1.DeploymentList) {
			for i := range l.Items {
				deployments = append(deployments, p.priority.deployment(&l.Items[i]))
			}
		})
	if err != nil {
		return err
	}
	err = pages(ctx, p.client.name, "statefulsets.apps", apps.StatefulSets("").List, func() { sets = nil },
		func(l *appsv1.StatefulSetList) {
			for i := range l.Items {
				sets = append(sets, p.priority.statefulSet(&l.Items[i]))
			}
		})
	if err != nil {
		return err
	}
	err = pages(ctx, p.client.name, "daemonsets.apps", apps.DaemonSets("").List, func() { daemons = nil },
		func(l *appsv1.DaemonSetList) {
			for i := range l.Items {
				daemons = append(daemons, p.priority.daemonSet(&l.Items[i]))
			}
		})
	p.inv.Workloads = slices.Concat(deployments, sets, daemons, p.inv.Workloads)
	return err
}

// forbidden says what to allow when the API server refuses a read.
func forbidden(verb, resource, cluster string, err error) error {
	return fmt.Errorf("not allowed to %s %s in cluster %s: allow the caller's access entry the verb %s on %s in all namespaces (docs/permissions.md): %w", verb, resource, cluster, verb, resource, err)
}

// pages reads one list to its end, a page at a time. When the continue token
// expires (410) the list begins anew, after start has thrown away what was kept.
func pages[L metav1.ListInterface](ctx context.Context, cluster, resource string,
	list func(context.Context, metav1.ListOptions) (L, error), start func(), keep func(L),
) error {
	for again := 0; ; again++ {
		err := onePass(ctx, list, start, keep)
		switch {
		case err == nil:
			return nil
		case (apierrors.IsResourceExpired(err) || apierrors.IsGone(err)) && again < relists:
			continue
		case apierrors.IsForbidden(err):
			return forbidden("list", resource, cluster, err)
		case apierrors.IsNotFound(err) && notEverywhere[resource]:
			start()
			return nil
		}
		return fmt.Errorf("list %s of cluster %s: %w", resource, cluster, err)
	}
}

func onePass[L metav1.ListInterface](ctx context.Context, list func(context.Context, metav1.ListOptions) (L, error), start func(), keep func(L)) error {
	start()
	opt := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := list(ctx, opt)
		if err != nil {
			return err
		}
		keep(page)
		if opt.Continue = page.GetContinue(); opt.Continue == "" {
			return nil
		}
	}
}

// unix is the zero time for a nil or zero one of the API.
func unix(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}
