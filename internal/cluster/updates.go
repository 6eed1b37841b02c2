package cluster

import (
	"context"
	"fmt"
	"sync"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/eksbg/eksbg/internal/aws"
)

// How many updates one pass describes. ListUpdates gives ids only, in no stated
// order, and every one costs a DescribeUpdate. Ended updates are remembered for the
// life of the client, so these numbers matter in the first pass only.
const (
	describeWhenActive   = 20
	describeWhenUpdating = 60
)

// updateCache holds the ids of updates that have ended.
type updateCache struct {
	mu  sync.Mutex
	ids map[string]bool
}

func newUpdateCache() *updateCache { return &updateCache{ids: map[string]bool{}} }

func (u *updateCache) has(id string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.ids[id]
}

func (u *updateCache) add(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ids[id] = true
}

// updates are the cluster's updates that are in progress, and how many were left
// unread. A status that is not known counts as in progress. A cluster reads ACTIVE
// for a moment after an update was accepted, so an ACTIVE one is looked at as well,
// only less far.
func (c *Client) updates(ctx context.Context, active bool) ([]Update, int, error) {
	most := describeWhenUpdating
	if active {
		most = describeWhenActive
	}
	var open []Update
	unread := 0
	in := &eks.ListUpdatesInput{Name: &c.name}
	for {
		page, err := c.eks.ListUpdates(ctx, in)
		if err != nil {
			return nil, 0, fmt.Errorf("list the updates of cluster %s: %w", c.name, err)
		}
		for _, id := range page.UpdateIds {
			switch {
			case c.finished.has(id):
				continue
			case most == 0:
				unread++
				continue
			}
			most--
			u, err := c.update(ctx, id)
			if err != nil {
				return nil, 0, err
			}
			if u != nil {
				open = append(open, *u)
			}
		}
		if in.NextToken = page.NextToken; awssdk.ToString(page.NextToken) == "" {
			return open, unread, nil
		}
	}
}

// update describes one update; nil when it has ended or is not there any more.
func (c *Client) update(ctx context.Context, id string) (*Update, error) {
	out, err := c.eks.DescribeUpdate(ctx, &eks.DescribeUpdateInput{Name: &c.name, UpdateId: &id})
	if err != nil {
		if aws.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("read update %s of cluster %s: %w", id, c.name, err)
	}
	if out.Update == nil {
		return nil, nil
	}
	switch out.Update.Status {
	case ekstypes.UpdateStatusSuccessful, ekstypes.UpdateStatusFailed, ekstypes.UpdateStatusCancelled:
		c.finished.add(id)
		return nil, nil
	}
	u := Update{ID: id, Type: string(out.Update.Type), Status: string(out.Update.Status), CreatedAt: awssdk.ToTime(out.Update.CreatedAt)}
	for _, p := range out.Update.Params {
		if p.Type == ekstypes.UpdateParamTypeVersion {
			u.Version = awssdk.ToString(p.Value)
		}
	}
	return &u, nil
}
