package fargate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/eksbg/eksbg/internal/aws"
)

const (
	// patience is how long an endpoint may be silent, limit how long a part may take in
	// all: a network without a way to EC2 or Service Quotas must not hold a restart up.
	patience = 20 * time.Second
	limit    = time.Minute
)

// Read reads what is left for the pods of a cluster. used is how many thousandths of a
// vCPU the pods that the caller counted take of the quota: those of every cluster in the
// account, finished pods too, as long as they hold a node.
//
// What cannot be read (denied, no answer, not there) is Unknown and said in
// Room.Missing. An error is only that ctx has ended or the credentials have expired.
func Read(ctx context.Context, eksAPI EKSAPI, ec2API EC2API, quotas QuotasAPI, cluster string, used int) (Room, error) {
	r := reader{eks: eksAPI, ec2: ec2API, quotas: quotas}
	room := Room{MilliCPU: Unknown, Burst: Unknown, PerSecond: Unknown}
	parts := []func(context.Context) outcome{
		func(ctx context.Context) outcome { return r.addresses(ctx, cluster, &room) },
		func(ctx context.Context) outcome { return r.vcpu(ctx, used, &room) },
		func(ctx context.Context) outcome { return r.launches(ctx, &room) },
	}
	outcomes := make([]outcome, len(parts))
	var reading sync.WaitGroup
	for i, part := range parts {
		reading.Go(func() {
			bounded, cancel := context.WithTimeout(aws.WithPatience(ctx, aws.Patience(ctx, patience)), limit)
			defer cancel()
			outcomes[i] = part(bounded)
		})
	}
	reading.Wait()
	for _, o := range outcomes {
		if err := fatal(ctx, o.expired); err != nil {
			return Room{}, fmt.Errorf("read what Fargate has room for in cluster %s: %w", cluster, err)
		}
		room.Missing = append(room.Missing, o.missing...)
	}
	return room, nil
}

type reader struct {
	eks    EKSAPI
	ec2    EC2API
	quotas QuotasAPI
}

// outcome is what one part could not read, a sentence each.
type outcome struct {
	missing []string
	// expired is the error of a call whose credentials have expired.
	expired error
}

// fatal is the error that ends the whole reading, nil when there is none.
func fatal(ctx context.Context, expired error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return expired
}

// gap notes that what could not be read by a call of an IAM action.
func (o *outcome) gap(what, action string, err error) {
	if aws.IsExpired(err) {
		o.expired = err
	}
	why := action + ": " + aws.Message(err)
	switch {
	case aws.IsDenied(err): // EC2 adds a blob of hundreds of letters
		why = "the caller is not allowed to " + action + "; allow it"
	case aws.IsUnavailable(err):
		why = action + " did not answer: " + aws.Message(err)
	}
	o.missing = append(o.missing, what+" could not be read: "+why)
}
