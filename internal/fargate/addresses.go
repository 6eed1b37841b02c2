package fargate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
)

// addresses fills in the profiles, their subnets, and what these have free.
func (r reader) addresses(ctx context.Context, cluster string, room *Room) (o outcome) {
	room.Addresses, room.Subnets, room.Free = map[string]int{}, map[string][]string{}, map[string]int{}
	names, err := r.profiles(ctx, cluster)
	if err != nil {
		o.gap("the Fargate profiles of cluster "+cluster, "eks:ListFargateProfiles", err)
		return o
	}
	for _, name := range names {
		room.Addresses[name] = Unknown
		out, err := r.eks.DescribeFargateProfile(ctx, &eks.DescribeFargateProfileInput{ClusterName: &cluster, FargateProfileName: &name})
		switch {
		case err != nil:
			o.gap("Fargate profile "+name+" of cluster "+cluster, "eks:DescribeFargateProfile", err)
			if fatal(ctx, o.expired) != nil {
				return o
			}
		case out.FargateProfile.Status != ekstypes.FargateProfileStatusActive:
			o.missing = append(o.missing, fmt.Sprintf("Fargate profile %s of cluster %s is %s: where its pods go next is not known", name, cluster, out.FargateProfile.Status))
		default:
			room.Subnets[name] = out.FargateProfile.Subnets
		}
	}
	r.free(ctx, room, &o)
	for name, subnets := range room.Subnets {
		room.Addresses[name] = sum(room.Free, subnets)
	}
	return o
}

// sum is what subnets have free together; Unknown when one of them is.
func sum(free map[string]int, subnets []string) int {
	n := 0
	for _, id := range subnets {
		if free[id] == Unknown {
			return Unknown
		}
		n += free[id]
	}
	return n
}

// profiles are the names of a cluster's Fargate profiles, sorted.
func (r reader) profiles(ctx context.Context, cluster string) ([]string, error) {
	var names []string
	pages := eks.NewListFargateProfilesPaginator(r.eks, &eks.ListFargateProfilesInput{ClusterName: &cluster})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		names = append(names, page.FargateProfileNames...)
	}
	slices.Sort(names)
	return names, nil
}

// most is how many values one filter of EC2 may have ("Filter" in the EC2 API reference).
const most = 200

// free asks EC2 for the subnets of all profiles. They are asked for by a filter: an id
// that is not there any more would fail a request by id as a whole.
func (r reader) free(ctx context.Context, room *Room, o *outcome) {
	for _, subnets := range room.Subnets {
		for _, id := range subnets {
			room.Free[id] = Unknown
		}
	}
	ids := slices.Sorted(maps.Keys(room.Free))
	for some := range slices.Chunk(ids, most) {
		pages := ec2.NewDescribeSubnetsPaginator(r.ec2, &ec2.DescribeSubnetsInput{
			Filters: []ec2types.Filter{{Name: awssdk.String("subnet-id"), Values: some}},
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				o.gap("the free addresses of "+strings.Join(ids, ", "), "ec2:DescribeSubnets", err)
				return
			}
			for _, s := range page.Subnets {
				if s.AvailableIpAddressCount != nil {
					room.Free[awssdk.ToString(s.SubnetId)] = int(*s.AvailableIpAddressCount)
				}
			}
		}
	}
	for _, id := range ids {
		if room.Free[id] == Unknown {
			o.missing = append(o.missing, "the free addresses of subnet "+id+" could not be read: EC2 does not show it (deleted, or of another account)")
		}
	}
}
