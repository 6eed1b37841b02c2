package cluster

import (
	"context"
	"fmt"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Inventory reads the cluster in one pass: what EKS says, what the API server says
// it is, and one paged list of each resource.
func (c *Client) Inventory(ctx context.Context) (*Inventory, error) {
	inv, active, err := c.header(ctx)
	if err != nil {
		return nil, err
	}
	// EKS and the API server are asked at the same time.
	err = together(ctx,
		func(ctx context.Context) error {
			var err error
			inv.Updates, inv.UpdatesUnread, err = c.updates(ctx, active)
			return err
		},
		func(ctx context.Context) error {
			var err error
			if _, inv.Server, err = c.ServerVersion(ctx); err != nil {
				return err
			}
			return c.readObjects(ctx, inv)
		})
	if err != nil {
		return nil, err
	}
	return inv, nil
}

// Described is the cluster as EKS alone describes it: an inventory without what the API
// server says of itself and what it holds.
func (c *Client) Described(ctx context.Context) (*Inventory, error) {
	inv, active, err := c.header(ctx)
	if err != nil {
		return nil, err
	}
	inv.Updates, inv.UpdatesUnread, err = c.updates(ctx, active)
	return inv, err
}

// header is what DescribeCluster says, and whether the cluster is ACTIVE.
func (c *Client) header(ctx context.Context) (inv *Inventory, active bool, err error) {
	at := c.clk.Now()
	found, err := describe(ctx, c.eks, c.name)
	if err != nil {
		return nil, false, err
	}
	version, err := Minor(awssdk.ToString(found.Version))
	if err != nil {
		return nil, false, fmt.Errorf("version of cluster %s: %w", c.name, err)
	}
	return &Inventory{
		Name: c.name, ARN: awssdk.ToString(found.Arn), Version: version, Status: string(found.Status),
		Endpoint: awssdk.ToString(found.Endpoint), CreatedAt: awssdk.ToTime(found.CreatedAt), At: at,
	}, found.Status == ekstypes.ClusterStatusActive, nil
}

// forbidden says what to allow when the API server refuses a request in a namespace, or,
// without one, across all of them.
func forbidden(verb, resource, namespace, cluster string, err error) error {
	where := "all namespaces"
	if namespace != "" {
		where = "namespace " + namespace
	}
	return fmt.Errorf("not allowed to %s %s in cluster %s: allow the caller's access entry the verb %s on %s in %s (docs/permissions.md): %w", verb, resource, cluster, verb, resource, where, err)
}

// unix is the zero time for a nil or zero one of the API.
func unix(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}
