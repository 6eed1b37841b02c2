package upgrade

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/eksbg/eksbg/internal/cluster"
)

// Offer is one minor that EKS offers.
type Offer struct {
	// Minor is "1.33".
	Minor string
	// Status is STANDARD_SUPPORT, EXTENDED_SUPPORT or UNSUPPORTED.
	Status string
	// EndOfStandard and EndOfExtended are when the support ends; zero where not stated.
	EndOfStandard time.Time
	EndOfExtended time.Time
}

// Offered lists what EKS offers in the account's region, lowest minor first
// (DescribeClusterVersions, all pages).
func Offered(ctx context.Context, api VersionsAPI) ([]Offer, error) {
	var out []Offer
	in := &eks.DescribeClusterVersionsInput{}
	for {
		page, err := api.DescribeClusterVersions(ctx, in)
		if err != nil {
			return nil, fmt.Errorf("ask EKS which versions it offers (eks:DescribeClusterVersions): %w", err)
		}
		for _, v := range page.ClusterVersions {
			out = append(out, offer(v))
		}
		if in.NextToken = page.NextToken; awssdk.ToString(page.NextToken) == "" {
			break
		}
	}
	slices.SortFunc(out, func(a, b Offer) int { return cluster.CompareMinor(a.Minor, b.Minor) })
	return slices.CompactFunc(out, func(a, b Offer) bool { return a.Minor == b.Minor }), nil
}

func offer(v ekstypes.ClusterVersionInformation) Offer {
	o := Offer{
		Minor: awssdk.ToString(v.ClusterVersion), Status: string(v.VersionStatus),
		EndOfStandard: awssdk.ToTime(v.EndOfStandardSupportDate),
		EndOfExtended: awssdk.ToTime(v.EndOfExtendedSupportDate),
	}
	if o.Status == "" {
		// The older field spells the same in lower case with dashes.
		o.Status = strings.ToUpper(strings.ReplaceAll(string(v.Status), "-", "_"))
	}
	return o
}

// Hops are the minors that a control plane goes through from one version to
// another, one at a time, since EKS takes no longer step: 1.31 to 1.33 is 1.32,
// 1.33. None when it is there already. Errors say what to write instead.
func Hops(from, to string, offered []Offer) ([]string, error) {
	start, err := cluster.Minor(from)
	if err != nil {
		return nil, fmt.Errorf("version of the cluster: %w", err)
	}
	end, err := cluster.Minor(to)
	if err != nil {
		return nil, fmt.Errorf("version in the plan file: %w; %s", err, offers(start, offered))
	}
	n, ok := cluster.Skew(start, end)
	switch {
	case !ok:
		return nil, fmt.Errorf("version %s in the plan file is of another major than the cluster's %s; %s", end, start, offers(start, offered))
	case n < 0:
		return nil, fmt.Errorf("version %s in the plan file is below the cluster's %s, and an upgrade never goes down; %s", end, start, offers(start, offered))
	}
	major, minor := split(start)
	var hops []string
	for i := 1; i <= n; i++ {
		hop := fmt.Sprintf("%d.%d", major, minor+i)
		if !isOffered(hop, offered) {
			return nil, fmt.Errorf("EKS does not offer %s, which the way from %s to %s goes through; %s", hop, start, end, offers(start, offered))
		}
		hops = append(hops, hop)
	}
	return hops, nil
}

// split takes a minor that Minor made apart.
func split(v string) (major, minor int) {
	// Minor wrote it, so it cannot fail.
	_, _ = fmt.Sscanf(v, "%d.%d", &major, &minor)
	return major, minor
}

func isOffered(minor string, offered []Offer) bool {
	return slices.ContainsFunc(offered, func(o Offer) bool {
		return o.Minor == minor && o.Status != string(ekstypes.VersionStatusUnsupported)
	})
}

// offers is the cure of a wrong target: what can be written instead.
func offers(from string, offered []Offer) string {
	var at []string
	for _, o := range offered {
		if isOffered(o.Minor, offered) && cluster.CompareMinor(o.Minor, from) >= 0 {
			at = append(at, o.Minor)
		}
	}
	if len(at) == 0 {
		return "EKS offers nothing at or above " + from
	}
	return "set version to one of " + strings.Join(at, ", ")
}

// RestartBefore tells whether a hop would leave the oldest kubelet outside the
// version skew that Kubernetes allows, so that a restart has to come before it: a
// kubelet of 1.25 or later may be three minors behind the API server, an older one
// two (https://kubernetes.io/releases/version-skew-policy). Without any kubelet (""),
// nothing has to; one that cannot be read is not taken for good.
func RestartBefore(hop, minKubelet string) bool {
	if minKubelet == "" {
		return false
	}
	lag, ok := cluster.Skew(minKubelet, hop)
	if !ok {
		return true
	}
	allowed := 2
	if cluster.CompareMinor(minKubelet, "1.25") >= 0 {
		allowed = 3
	}
	return lag > allowed
}
