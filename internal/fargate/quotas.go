package fargate

import (
	"context"
	"errors"
	"fmt"
	"math"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas/types"
)

// The quotas of Fargate that bound a restart, as Service Quotas names them.
const (
	serviceCode = "fargate"
	// vcpuCode is "Fargate On-Demand vCPU resource count", which pods of EKS count for.
	vcpuCode = "L-3032A538"
	// burstCode is "Fargate On-Demand burst launch rate".
	burstCode = "L-6BAD92DD"
)

// vcpu fills in what is left of the vCPU quota.
func (r reader) vcpu(ctx context.Context, used int, room *Room) (o outcome) {
	value, action, err := r.quota(ctx, vcpuCode)
	if err != nil {
		o.gap("the Fargate vCPU quota ("+vcpuCode+")", action, err)
		return o
	}
	room.MilliCPU = max(int(math.Floor(math.Min(value, math.MaxInt32)*1000))-max(used, 0), 0)
	return o
}

// launches fills in the launch rate.
func (r reader) launches(ctx context.Context, room *Room) (o outcome) {
	value, action, err := r.quota(ctx, burstCode)
	if err != nil {
		o.gap("the Fargate launch rate ("+burstCode+")", action, err)
		return o
	}
	room.Burst, room.PerSecond = rates(value)
	return o
}

const (
	// defaultBurst is AWS's default in most regions, where pods go on at podsPerSecond;
	// others have 25 and 5 ("Service quotas" of Fargate, "AWS Fargate throttling quotas",
	// both in the ECS developer guide).
	defaultBurst  = 100
	podsPerSecond = 20
	// podBurst is what accounts that launch pods of EKS alone get of the default (note 1
	// of the same page). Whether others run tasks of ECS beside is not known here, and
	// asking for less at once costs seconds.
	podBurst = 20
)

// rates are the launches at once and the launches each second that a burst quota stands
// for. A quota that was raised above the default counts in full.
func rates(burst float64) (atOnce, perSecond int) {
	n := int(math.Min(burst, math.MaxInt32))
	perSecond = min(max(n*podsPerSecond/defaultBurst, 1), podsPerSecond)
	if n <= defaultBurst {
		n = min(n, podBurst)
	}
	return max(n, 1), perSecond
}

// quota is the account's value of a quota, or AWS's default where it has none of its
// own, and the IAM action that the error, if any, is of.
func (r reader) quota(ctx context.Context, code string) (value float64, action string, err error) {
	action = "servicequotas:GetServiceQuota"
	own, err := r.quotas.GetServiceQuota(ctx, &servicequotas.GetServiceQuotaInput{
		ServiceCode: awssdk.String(serviceCode), QuotaCode: &code,
	})
	if err == nil {
		value, err = valueOf(own.Quota)
		return value, action, err
	}
	if none := (*types.NoSuchResourceException)(nil); !errors.As(err, &none) {
		return 0, action, err
	}
	action = "servicequotas:GetAWSDefaultServiceQuota"
	def, err := r.quotas.GetAWSDefaultServiceQuota(ctx, &servicequotas.GetAWSDefaultServiceQuotaInput{
		ServiceCode: awssdk.String(serviceCode), QuotaCode: &code,
	})
	if err != nil {
		return 0, action, err
	}
	value, err = valueOf(def.Quota)
	return value, action, err
}

func valueOf(q *types.ServiceQuota) (float64, error) {
	switch {
	case q == nil:
		return 0, errors.New("the answer holds no quota")
	case q.Value != nil && *q.Value >= 0:
		return *q.Value, nil
	case q.ErrorReason != nil:
		return 0, fmt.Errorf("%s: %s", q.ErrorReason.ErrorCode, awssdk.ToString(q.ErrorReason.ErrorMessage))
	}
	return 0, errors.New("the quota has no value")
}
