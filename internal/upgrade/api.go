package upgrade

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/eks"
	"k8s.io/utils/clock"

	"github.com/eksbg/eksbg/internal/state"
)

// UpdatesAPI reads the updates of a cluster or an add-on.
type UpdatesAPI interface {
	ListUpdates(context.Context, *eks.ListUpdatesInput, ...func(*eks.Options)) (*eks.ListUpdatesOutput, error)
	DescribeUpdate(context.Context, *eks.DescribeUpdateInput, ...func(*eks.Options)) (*eks.DescribeUpdateOutput, error)
}

// VersionsAPI reads what EKS offers.
type VersionsAPI interface {
	DescribeClusterVersions(context.Context, *eks.DescribeClusterVersionsInput, ...func(*eks.Options)) (*eks.DescribeClusterVersionsOutput, error)
}

// AddonsAPI reads the add-ons of a cluster and what they support.
type AddonsAPI interface {
	ListAddons(context.Context, *eks.ListAddonsInput, ...func(*eks.Options)) (*eks.ListAddonsOutput, error)
	DescribeAddon(context.Context, *eks.DescribeAddonInput, ...func(*eks.Options)) (*eks.DescribeAddonOutput, error)
	DescribeAddonVersions(context.Context, *eks.DescribeAddonVersionsInput, ...func(*eks.Options)) (*eks.DescribeAddonVersionsOutput, error)
}

// InsightsAPI reads and refreshes the upgrade insights of a cluster.
type InsightsAPI interface {
	ListInsights(context.Context, *eks.ListInsightsInput, ...func(*eks.Options)) (*eks.ListInsightsOutput, error)
	DescribeInsight(context.Context, *eks.DescribeInsightInput, ...func(*eks.Options)) (*eks.DescribeInsightOutput, error)
	StartInsightsRefresh(context.Context, *eks.StartInsightsRefreshInput, ...func(*eks.Options)) (*eks.StartInsightsRefreshOutput, error)
	DescribeInsightsRefresh(context.Context, *eks.DescribeInsightsRefreshInput, ...func(*eks.Options)) (*eks.DescribeInsightsRefreshOutput, error)
}

// API is all of EKS that the steps use; *eks.Client is one.
type API interface {
	UpdatesAPI
	VersionsAPI
	AddonsAPI
	InsightsAPI
	DescribeCluster(context.Context, *eks.DescribeClusterInput, ...func(*eks.Options)) (*eks.DescribeClusterOutput, error)
	UpdateClusterVersion(context.Context, *eks.UpdateClusterVersionInput, ...func(*eks.Options)) (*eks.UpdateClusterVersionOutput, error)
	UpdateAddon(context.Context, *eks.UpdateAddonInput, ...func(*eks.Options)) (*eks.UpdateAddonOutput, error)
}

var _ API = (*eks.Client)(nil)

// ServerVersioner asks the API server itself what it is; *cluster.Client is one.
type ServerVersioner interface {
	ServerVersion(ctx context.Context) (minor, gitVersion string, err error)
}

// Modes of raising add-ons, as the plan file's upgrade.addons says them.
const (
	// AddonsRequired raises those that do not support the new minor.
	AddonsRequired = "required"
	// AddonsKeep raises none.
	AddonsKeep = "keep"
)

// Deps are what the steps of one cluster work with.
type Deps struct {
	EKS    API
	Server ServerVersioner
	Clock  clock.Clock
	// History finds the step's own intents again.
	History state.History
	// Polling is the time between two looks at an update, give or take a fifth; 0
	// means 30 s.
	Polling time.Duration
	// Cluster is the cluster's name in EKS, Side its side of the pair.
	Cluster string
	Side    state.Side
	// Check gives the findings for a hop to the minor, waivers already applied; those
	// that block keep the hop from being sent. nil means Insights without waivers.
	Check func(ctx context.Context, minor string) ([]state.Finding, error)
	// Addons is the mode of raising add-ons; empty means AddonsRequired. An insight
	// about add-ons is curable in that mode only.
	Addons string
	// AddonPatience is how long an add-on may take, and stay DEGRADED after its update,
	// before that is a failure; 0 means 20 minutes.
	AddonPatience time.Duration
	// BusyPatience is how long another update, seen or not, may keep the cluster busy
	// before the run stops, resumable; 0 means an hour.
	BusyPatience time.Duration
	// Random gives numbers from [0, 1) for the jitter; nil means math/rand/v2.
	Random func() float64
}

func (d Deps) withDefaults() Deps {
	if d.Clock == nil {
		d.Clock = clock.RealClock{}
	}
	if d.Polling <= 0 {
		d.Polling = 30 * time.Second
	}
	if d.Addons == "" {
		d.Addons = AddonsRequired
	}
	if d.AddonPatience <= 0 {
		d.AddonPatience = 20 * time.Minute
	}
	if d.BusyPatience <= 0 {
		d.BusyPatience = time.Hour
	}
	if d.Random == nil {
		d.Random = rand.Float64
	}
	if d.Check == nil {
		check := d
		d.Check = func(ctx context.Context, minor string) ([]state.Finding, error) {
			return Insights(ctx, check.EKS, check.Cluster, minor, InsightOptions{
				Refresh: true, Clock: check.Clock, Polling: check.Polling, Side: check.Side,
			})
		}
	}
	return d
}

// jittered is the polling time, give or take a fifth, so that several runs do not
// ask in step.
func (d Deps) jittered() time.Duration {
	return time.Duration(float64(d.Polling) * (0.8 + 0.4*d.Random()))
}

// pause waits one polling time; a cancelled context ends it at once.
func (d Deps) pause(ctx context.Context) error { return sleep(ctx, d.Clock, d.jittered()) }

func sleep(ctx context.Context, clk clock.Clock, t time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	timer := clk.NewTimer(t)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C():
		return nil
	}
}
