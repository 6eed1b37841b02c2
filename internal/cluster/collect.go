package cluster

import (
	"context"
	"fmt"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pageSize is how many objects one list request asks for; the pass holds one page
// of whole objects at a time.
const pageSize = 500

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
	if err := c.readWorkloads(ctx, inv); err != nil {
		return nil, err
	}
	return inv, nil
}

// readWorkloads fills in nodes, pods and workloads.
func (c *Client) readWorkloads(ctx context.Context, inv *Inventory) error {
	who := newOwners()
	var bare []Workload
	apps, batch, core := c.kube.AppsV1(), c.kube.BatchV1(), c.kube.CoreV1()

	err := pages(ctx, c.name, "pods", core.Pods("").List, func() { inv.Pods = nil },
		func(l *corev1.PodList) {
			for i := range l.Items {
				inv.Pods = append(inv.Pods, pod(&l.Items[i]))
			}
		})
	if err != nil {
		return err
	}
	err = pages(ctx, c.name, "replicasets", apps.ReplicaSets("").List, func() { bare = nil },
		func(l *appsv1.ReplicaSetList) {
			for i := range l.Items {
				rs := &l.Items[i]
				who.add(&rs.ObjectMeta)
				if controller(&rs.ObjectMeta) == nil {
					bare = append(bare, replicaSet(rs))
				}
			}
		})
	if err != nil {
		return err
	}
	err = pages(ctx, c.name, "jobs", batch.Jobs("").List, func() {},
		func(l *batchv1.JobList) {
			for i := range l.Items {
				who.add(&l.Items[i].ObjectMeta)
			}
		})
	if err != nil {
		return err
	}
	err = pages(ctx, c.name, "nodes", core.Nodes().List, func() { inv.Nodes = nil },
		func(l *corev1.NodeList) {
			for i := range l.Items {
				inv.Nodes = append(inv.Nodes, node(&l.Items[i]))
			}
		})
	if err != nil {
		return err
	}
	var controllers []Workload
	if controllers, err = c.readControllers(ctx); err != nil {
		return err
	}
	for i := range inv.Pods {
		inv.Pods[i].Owner = who.top(inv.Pods[i].Owner)
	}
	inv.Workloads = append(controllers, bare...)
	inv.index()
	return nil
}

// readControllers lists what decides over pod templates.
func (c *Client) readControllers(ctx context.Context) ([]Workload, error) {
	var deployments, sets, daemons []Workload
	apps := c.kube.AppsV1()
	err := pages(ctx, c.name, "deployments", apps.Deployments("").List, func() { deployments = nil },
		func(l *appsv1.DeploymentList) {
			for i := range l.Items {
				deployments = append(deployments, deployment(&l.Items[i]))
			}
		})
	if err != nil {
		return nil, err
	}
	err = pages(ctx, c.name, "statefulsets", apps.StatefulSets("").List, func() { sets = nil },
		func(l *appsv1.StatefulSetList) {
			for i := range l.Items {
				sets = append(sets, statefulSet(&l.Items[i]))
			}
		})
	if err != nil {
		return nil, err
	}
	err = pages(ctx, c.name, "daemonsets", apps.DaemonSets("").List, func() { daemons = nil },
		func(l *appsv1.DaemonSetList) {
			for i := range l.Items {
				daemons = append(daemons, daemonSet(&l.Items[i]))
			}
		})
	if err != nil {
		return nil, err
	}
	return append(append(deployments, sets...), daemons...), nil
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
			return fmt.Errorf("not allowed to list %s in cluster %s: the caller's access policy must let it view all namespaces: %w", resource, cluster, err)
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
