package eks_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awseks "github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/eksbg/eksbg/internal/sandbox/eks"
	"github.com/eksbg/eksbg/internal/sandbox/wire/wiretest"
)

func (r *rig) insights(t *testing.T, filter *types.InsightsFilter) map[string]types.InsightSummary {
	t.Helper()
	out := map[string]types.InsightSummary{}
	pages := awseks.NewListInsightsPaginator(r, &awseks.ListInsightsInput{
		ClusterName: aws.String("blue"), Filter: filter, MaxResults: aws.Int32(3),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range page.Insights {
			out[*i.Name] = i
		}
	}
	return out
}

func (r *rig) refresh(t *testing.T) {
	t.Helper()
	out, err := r.StartInsightsRefresh(t.Context(), &awseks.StartInsightsRefreshInput{ClusterName: aws.String("blue")})
	if err != nil || out.Status != types.InsightsRefreshStatusInProgress {
		t.Fatalf("start the refresh: %v %v", out, err)
	}
	r.clock.Step(30 * time.Second)
}

var next = &types.InsightsFilter{KubernetesVersions: []string{"1.32"}, Categories: []types.Category{types.CategoryUpgradeReadiness}}

func TestInsightsFollowTheWorld(t *testing.T) {
	const kubelet, proxy, addons, health, removed = "Kubelet version skew", "kube-proxy version skew",
		"EKS add-on version compatibility", "Cluster health issues", "Deprecated APIs removed in Kubernetes v1.32"
	pass, bad, unknown := types.InsightStatusValuePassing, types.InsightStatusValueError, types.InsightStatusValueUnknown
	for name, tt := range map[string]struct {
		kubelets []string
		options  func(*eks.Options)
		cluster  eks.Cluster
		want     map[string]types.InsightStatusValue
	}{
		"all well": {
			kubelets: []string{"v1.31.14-eks-1"}, cluster: eks.Cluster{Version: "1.31", Addons: []eks.Addon{{Name: "kube-proxy"}, {Name: "coredns"}}},
			want: map[string]types.InsightStatusValue{kubelet: pass, proxy: pass, addons: pass, health: pass, removed: pass},
		},
		"kubelets too old": {
			kubelets: []string{"v1.28.15-eks-1", "v1.31.14-eks-1"}, cluster: eks.Cluster{Version: "1.31"},
			want: map[string]types.InsightStatusValue{kubelet: bad, proxy: pass, addons: pass, health: pass, removed: pass},
		},
		"kubelets not to be seen": {
			options: func(o *eks.Options) { o.Kubelets = nil }, cluster: eks.Cluster{Version: "1.31"},
			want: map[string]types.InsightStatusValue{kubelet: unknown, proxy: pass, addons: pass, health: pass, removed: pass},
		},
		"add-on for this minor only": {
			cluster: eks.Cluster{Version: "1.31", Addons: []eks.Addon{{Name: "kube-proxy", Version: "v1.30.14-eksbuild.2"}}},
			want:    map[string]types.InsightStatusValue{kubelet: pass, proxy: pass, addons: bad, health: pass, removed: pass},
		},
		"kube-proxy far behind": {
			cluster: eks.Cluster{Version: "1.31", Addons: []eks.Addon{{Name: "kube-proxy", Version: "v1.28.15-eksbuild.2"}}},
			want:    map[string]types.InsightStatusValue{kubelet: pass, proxy: bad, addons: bad, health: pass, removed: pass},
		},
		"unhealthy cluster": {
			cluster: eks.Cluster{Version: "1.31", Issues: []eks.Issue{{Code: "KmsKeyDisabled", Message: "key is disabled"}}},
			want:    map[string]types.InsightStatusValue{kubelet: pass, proxy: pass, addons: pass, health: bad, removed: pass},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, tt.options)
			r.setKubelets(tt.kubelets...)
			tt.cluster.Name = "it"
			if err := r.svc.AddCluster(tt.cluster); err != nil {
				t.Fatal(err)
			}
			out, err := r.ListInsights(t.Context(), &awseks.ListInsightsInput{ClusterName: aws.String("it"), Filter: next})
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]types.InsightStatusValue{}
			for _, i := range out.Insights {
				got[*i.Name] = i.InsightStatus.Status
				if *i.KubernetesVersion != "1.32" || *i.Description == "" || *i.InsightStatus.Reason == "" {
					t.Errorf("%s is %+v", *i.Name, i)
				}
			}
			for name, want := range tt.want {
				if got[name] != want {
					t.Errorf("%s is %q, want %q", name, got[name], want)
				}
			}
			if len(got) != len(tt.want) {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestOnlyARefreshShowsWhatHasChanged(t *testing.T) {
	r := newRig(t, nil)
	const name = "Kubelet version skew"
	r.setKubelets("1.28")
	first := r.insights(t, next)[name]
	if first.InsightStatus.Status != types.InsightStatusValueError || !first.LastRefreshTime.Equal(start) {
		t.Fatalf("at first it is %+v", first)
	}
	r.setKubelets("1.31")
	r.clock.Step(time.Hour)
	if i := r.insights(t, next)[name]; i.InsightStatus.Status != types.InsightStatusValueError {
		t.Errorf("without a refresh it became %s", i.InsightStatus.Status)
	}
	if _, err := r.StartInsightsRefresh(t.Context(), &awseks.StartInsightsRefreshInput{ClusterName: aws.String("blue")}); err != nil {
		t.Fatal(err)
	}
	status := func() *awseks.DescribeInsightsRefreshOutput {
		t.Helper()
		out, err := r.DescribeInsightsRefresh(t.Context(), &awseks.DescribeInsightsRefreshInput{ClusterName: aws.String("blue")})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	began := start.Add(time.Hour)
	if s := status(); s.Status != types.InsightsRefreshStatusInProgress || !s.StartedAt.Equal(began) || s.EndedAt != nil {
		t.Errorf("meanwhile the refresh is %+v", s)
	}
	if i := r.insights(t, next)[name]; i.InsightStatus.Status != types.InsightStatusValueError || !i.LastRefreshTime.Equal(start) {
		t.Errorf("meanwhile it is %+v", i)
	}
	r.clock.Step(30 * time.Second)
	if s := status(); s.Status != types.InsightsRefreshStatusCompleted || !s.EndedAt.Equal(began.Add(30*time.Second)) {
		t.Errorf("afterwards the refresh is %+v", s)
	}
	i := r.insights(t, next)[name]
	if i.InsightStatus.Status != types.InsightStatusValuePassing || !i.LastRefreshTime.Equal(began.Add(30*time.Second)) ||
		!i.LastTransitionTime.Equal(*i.LastRefreshTime) || *i.Id != *first.Id {
		t.Errorf("afterwards it is %+v", i)
	}
	r.refresh(t)
	if again := r.insights(t, next)[name]; !again.LastTransitionTime.Equal(*i.LastTransitionTime) || again.LastRefreshTime.Equal(*i.LastRefreshTime) {
		t.Errorf("refreshed without a change it is %+v", again)
	}
}

func TestInsightsOfTheScenario(t *testing.T) {
	r := newRig(t, nil)
	const name = "Deprecated APIs removed in Kubernetes v1.32"
	last := start.Add(-48 * time.Hour)
	own := eks.Insight{
		Name: name, Version: "1.32", Status: "ERROR", Reason: "Deprecated API usage detected within last 30 days.",
		Resources: []eks.InsightResource{{URI: "/apis/flowcontrol.apiserver.k8s.io/v1beta3/flowschemas"}},
		Deprecations: []eks.Deprecation{{
			Usage: "/apis/flowcontrol.apiserver.k8s.io/v1beta3/flowschemas", StopServing: "1.32",
			Clients: []eks.DeprecationClient{{UserAgent: "old-controller/v0.1", Requests: 42, LastRequest: last}},
		}},
	}
	if err := r.svc.SetInsight("blue", own); err != nil {
		t.Fatal(err)
	}
	if err := r.svc.SetInsight("blue", eks.Insight{Name: "Subnets are narrow", Version: "1.32", Status: "WARNING", Category: "MISCONFIGURATION"}); err != nil {
		t.Fatal(err)
	}
	all := r.insights(t, &types.InsightsFilter{Statuses: []types.InsightStatusValue{types.InsightStatusValueError, types.InsightStatusValueWarning}})
	if len(all) != 2 || all["Subnets are narrow"].Category != types.CategoryMisconfiguration {
		t.Errorf("got %v", all)
	}
	out, err := r.DescribeInsight(t.Context(), &awseks.DescribeInsightInput{ClusterName: aws.String("blue"), Id: all[name].Id})
	if err != nil {
		t.Fatal(err)
	}
	i := out.Insight
	client := i.CategorySpecificSummary.DeprecationDetails[0].ClientStats[0]
	if *client.UserAgent != "old-controller/v0.1" || client.NumberOfRequestsLast30Days != 42 || !client.LastRequestTime.Equal(last) {
		t.Errorf("client is %+v", client)
	}
	if *i.Resources[0].KubernetesResourceUri != own.Resources[0].URI || i.Resources[0].InsightStatus.Status != types.InsightStatusValueError ||
		*i.Description == "" || *i.Recommendation == "" {
		t.Errorf("it is %+v", i)
	}
	r.svc.RemoveInsight("blue", name, "1.32")
	r.refresh(t)
	if i := r.insights(t, next)[name]; i.InsightStatus.Status != types.InsightStatusValuePassing {
		t.Errorf("taken back it is %s", i.InsightStatus.Status)
	}
	if err := r.svc.SetInsight("blue", eks.Insight{Name: "x", Status: "BAD"}); err == nil {
		t.Error("a wrong status was taken")
	}
	if err := r.svc.SetInsight("red", own); err == nil {
		t.Error("an unknown cluster was taken")
	}
}

// After a hop the insights in sight are still those for the old one.
func TestInsightsLookAtTheNextMinor(t *testing.T) {
	r := newRig(t, nil)
	if len(r.insights(t, next)) == 0 {
		t.Fatal("no insights for 1.32")
	}
	if _, err := r.raise(t, "1.32", token); err != nil {
		t.Fatal(err)
	}
	r.clock.Step(10 * time.Minute)
	after := &types.InsightsFilter{KubernetesVersions: []string{"1.33"}}
	if got := r.insights(t, after); len(got) != 0 {
		t.Errorf("before a refresh there are %v", got)
	}
	r.refresh(t)
	got := r.insights(t, after)
	if got["EKS add-on version compatibility"].InsightStatus.Status != types.InsightStatusValueError {
		t.Errorf("kube-proxy of 1.31 is fit for 1.33: %v", got)
	}
	out, err := r.DescribeInsight(t.Context(), &awseks.DescribeInsightInput{
		ClusterName: aws.String("blue"), Id: got["EKS add-on version compatibility"].Id,
	})
	if err != nil {
		t.Fatal(err)
	}
	details := out.Insight.CategorySpecificSummary.AddonCompatibilityDetails
	if len(details) != 1 || *details[0].Name != "kube-proxy" || len(details[0].CompatibleVersions) == 0 {
		t.Errorf("details are %+v", details)
	}
}

func TestInsightsOfWhatIsNotThere(t *testing.T) {
	r := newRig(t, nil)
	_, list := r.ListInsights(t.Context(), &awseks.ListInsightsInput{ClusterName: aws.String("red")})
	_, one := r.DescribeInsight(t.Context(), &awseks.DescribeInsightInput{ClusterName: aws.String("blue"), Id: aws.String("none")})
	_, start := r.StartInsightsRefresh(t.Context(), &awseks.StartInsightsRefreshInput{ClusterName: aws.String("red")})
	_, look := r.DescribeInsightsRefresh(t.Context(), &awseks.DescribeInsightsRefreshInput{ClusterName: aws.String("red")})
	for _, err := range []error{list, one, start, look} {
		if wiretest.Code(err) != "ResourceNotFoundException" {
			t.Errorf("got %v", err)
		}
	}
}
