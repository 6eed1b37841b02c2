package upgrade_test

import (
	"context"
	"strconv"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
)

// The rest of the world: what it offers, its add-ons and its insights.

func (w *world) DescribeClusterVersions(_ context.Context, in *eks.DescribeClusterVersionsInput, _ ...func(*eks.Options)) (*eks.DescribeClusterVersionsOutput, error) {
	if err := w.call("DescribeClusterVersions"); err != nil {
		return nil, err
	}
	at, _ := strconv.Atoi(awssdk.ToString(in.NextToken))
	out := &eks.DescribeClusterVersionsOutput{ClusterVersions: w.offered[at:min(at+2, len(w.offered))]}
	if at+2 < len(w.offered) {
		out.NextToken = p(strconv.Itoa(at + 2))
	}
	return out, nil
}

func (w *world) ListAddons(_ context.Context, in *eks.ListAddonsInput, _ ...func(*eks.Options)) (*eks.ListAddonsOutput, error) {
	if err := w.call("ListAddons"); err != nil {
		return nil, err
	}
	if w.addon == nil {
		return &eks.ListAddonsOutput{}, nil
	}
	if in.NextToken == nil {
		return &eks.ListAddonsOutput{NextToken: p("more")}, nil
	}
	return &eks.ListAddonsOutput{Addons: []string{*w.addon.AddonName}}, nil
}

func (w *world) DescribeAddon(context.Context, *eks.DescribeAddonInput, ...func(*eks.Options)) (*eks.DescribeAddonOutput, error) {
	if err := w.call("DescribeAddon"); err != nil {
		return nil, err
	}
	if w.addon == nil {
		return nil, &ekstypes.ResourceNotFoundException{Message: p("No addon")}
	}
	a := *w.addon
	for _, u := range w.updates {
		switch {
		case u.typ != "AddonUpdate":
		case !w.over(u, 0):
			a.Status = ekstypes.AddonStatusUpdating
		case u.ends == ekstypes.UpdateStatusSuccessful:
			a.AddonVersion = p(u.to)
			if !w.over(u, w.stale) {
				a.Status = ekstypes.AddonStatusUpdating
			}
		}
	}
	return &eks.DescribeAddonOutput{Addon: &a}, nil
}

func (w *world) DescribeAddonVersions(_ context.Context, in *eks.DescribeAddonVersionsInput, _ ...func(*eks.Options)) (*eks.DescribeAddonVersionsOutput, error) {
	if err := w.call("DescribeAddonVersions"); err != nil {
		return nil, err
	}
	return &eks.DescribeAddonVersionsOutput{Addons: []ekstypes.AddonInfo{{AddonName: in.AddonName, AddonVersions: w.addonsAt[*in.AddonName]}}}, nil
}

func (w *world) UpdateAddon(_ context.Context, in *eks.UpdateAddonInput, _ ...func(*eks.Options)) (*eks.UpdateAddonOutput, error) {
	if err := w.call("UpdateAddon"); err != nil {
		return nil, err
	}
	w.inputs = append(w.inputs, in)
	u, err := w.accept("AddonUpdate", *in.AddonVersion, *in.ClientRequestToken)
	if err != nil {
		return nil, err
	}
	return &eks.UpdateAddonOutput{Update: u}, w.answer("UpdateAddon")
}

func (w *world) ListInsights(_ context.Context, in *eks.ListInsightsInput, _ ...func(*eks.Options)) (*eks.ListInsightsOutput, error) {
	if err := w.call("ListInsights"); err != nil {
		return nil, err
	}
	at, _ := strconv.Atoi(awssdk.ToString(in.NextToken))
	out := &eks.ListInsightsOutput{Insights: w.insights[at:min(at+1, len(w.insights))]}
	if at+1 < len(w.insights) {
		out.NextToken = p(strconv.Itoa(at + 1))
	}
	return out, nil
}

func (w *world) DescribeInsight(_ context.Context, in *eks.DescribeInsightInput, _ ...func(*eks.Options)) (*eks.DescribeInsightOutput, error) {
	if err := w.call("DescribeInsight"); err != nil {
		return nil, err
	}
	return &eks.DescribeInsightOutput{Insight: &ekstypes.Insight{
		Id: in.Id, Recommendation: p("mend " + *in.Id),
		Resources: []ekstypes.InsightResourceDetail{{KubernetesResourceUri: p("/api/v1/nodes/n-" + *in.Id)}},
	}}, nil
}

func (w *world) StartInsightsRefresh(context.Context, *eks.StartInsightsRefreshInput, ...func(*eks.Options)) (*eks.StartInsightsRefreshOutput, error) {
	if err := w.call("StartInsightsRefresh"); err != nil {
		return nil, err
	}
	return &eks.StartInsightsRefreshOutput{Status: ekstypes.InsightsRefreshStatusInProgress}, nil
}

func (w *world) DescribeInsightsRefresh(context.Context, *eks.DescribeInsightsRefreshInput, ...func(*eks.Options)) (*eks.DescribeInsightsRefreshOutput, error) {
	if err := w.call("DescribeInsightsRefresh"); err != nil {
		return nil, err
	}
	out := &eks.DescribeInsightsRefreshOutput{Status: ekstypes.InsightsRefreshStatusCompleted, Message: p("no reason")}
	if len(w.refresh) > 0 {
		out.Status = w.refresh[0]
		if len(w.refresh) > 1 {
			w.refresh = w.refresh[1:]
		}
	}
	return out, nil
}
