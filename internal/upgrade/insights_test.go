package upgrade_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/upgrade"
)

func insightOptions(w *world) upgrade.InsightOptions {
	return upgrade.InsightOptions{Refresh: true, Clock: w.clk, Side: state.Green}
}

func TestInsights(t *testing.T) {
	w := newWorld()
	w.refresh = []ekstypes.InsightsRefreshStatus{"IN_PROGRESS", "IN_PROGRESS", "COMPLETED"}
	w.insights = []ekstypes.InsightSummary{
		insight("Kubelet version skew", "ERROR", "1.32"), insight("Deprecated APIs removed in Kubernetes v1.32", "WARNING", "1.32"),
		insight("EKS add-on version compatibility", "PASSING", "1.32"), insight("kube-proxy version skew", "UNKNOWN", "1.32"),
		insight("Deprecated APIs removed in Kubernetes v1.33", "ERROR", "1.33"), insight("Cluster health issues", "NEW", ""),
	}
	got, err := upgrade.Insights(bg, w, "shop-green", "1.32", insightOptions(w))
	if err != nil {
		t.Fatal(err)
	}
	var short []string
	for _, f := range got {
		short = append(short, fmt.Sprintf("%s %s cure=%q", f.Severity, f.Check, upgrade.Curable(f)))
	}
	want := []string{
		`ERROR insight/kubelet-version-skew cure="restart"`, `WARN insight/deprecated-apis-removed-in-kubernetes-v1-32 cure=""`,
		`UNKNOWN insight/kube-proxy-version-skew cure="addon"`, `UNKNOWN insight/cluster-health-issues cure=""`,
	}
	if d := cmp.Diff(want, short); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if f := got[0]; f.Side != state.Green || f.Cure != "mend Kubelet_version_skew" || !strings.Contains(f.Text, "because (/api/v1/nodes/n-Kubelet_version_skew)") {
		t.Errorf("finding %+v", f)
	}
	if w.count("StartInsightsRefresh") != 1 || w.count("DescribeInsightsRefresh") != 3 {
		t.Errorf("calls %v", w.calls)
	}
}

func TestInsightsThatCannotBeReadAreUnknown(t *testing.T) {
	denied := &smithy.GenericAPIError{Code: "AccessDeniedException", Message: "not authorized"}
	for name, tc := range map[string]struct {
		change func(*world)
		want   []string
	}{
		"list denied":      {func(w *world) { w.fail["ListInsights"] = denied }, []string{upgrade.CheckInsightsUnreadable}},
		"list unavailable": {func(w *world) { w.fail["ListInsights"] = &aws.GaveUpError{Err: denied} }, []string{upgrade.CheckInsightsUnreadable}},
		"refresh denied":   {func(w *world) { w.fail["StartInsightsRefresh"] = denied }, []string{upgrade.CheckInsightsStale}},
		"refresh failed":   {func(w *world) { w.refresh = []ekstypes.InsightsRefreshStatus{"FAILED"} }, []string{upgrade.CheckInsightsStale}},
		"refresh hangs":    {func(w *world) { w.refresh = []ekstypes.InsightsRefreshStatus{"IN_PROGRESS"} }, []string{upgrade.CheckInsightsStale}},
		"refresh under way": {func(w *world) {
			w.fail["StartInsightsRefresh"] = &ekstypes.InvalidRequestException{Message: p("An insights refresh is already in progress")}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			tc.change(w)
			got, err := upgrade.Insights(bg, w, "shop-green", "1.32", insightOptions(w))
			var checks []string
			for _, f := range got {
				checks = append(checks, f.Check)
				if f.Severity != state.SeverityUnknown || !f.Blocks() || f.Cure == "" {
					t.Errorf("finding %+v", f)
				}
			}
			if err != nil || !slices.Equal(checks, tc.want) {
				t.Errorf("got %v, %v", checks, err)
			}
		})
	}
	t.Run("expired credentials are no finding", func(t *testing.T) {
		w := newWorld()
		w.fail["ListInsights"] = &smithy.GenericAPIError{Code: "ExpiredTokenException"}
		if _, err := upgrade.Insights(bg, w, "shop-green", "1.32", insightOptions(w)); !aws.IsExpired(err) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("an interrupt is no finding", func(t *testing.T) {
		w := newWorld()
		ctx, cancel := context.WithCancel(bg)
		o := insightOptions(w)
		o.Clock, o.Waiting = w.clk.FakeClock, func(string) { cancel() }
		w.refresh = []ekstypes.InsightsRefreshStatus{"IN_PROGRESS"}
		if _, err := upgrade.Insights(ctx, w, "shop-green", "1.32", o); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

func TestFindingsBeforeAHop(t *testing.T) {
	finding := func(check string, s state.Severity) state.Finding {
		return state.Finding{Check: check, Severity: s, Text: "text of " + check, Cure: "cure of " + check}
	}
	skew, addons := finding("insight/kubelet-version-skew", state.SeverityError), finding("insight/eks-add-on-version-compatibility", state.SeverityError)
	both := []ekstypes.AddonVersionInfo{version(proxyNew, "1.32", "1.31", "1.32"), version(proxyOld, "1.31", "1.31")}
	after := []ekstypes.AddonVersionInfo{version(proxyNew, "1.32", "1.32"), version(proxyOld, "1.31", "1.31")}
	waived := finding("insight/deprecated-apis", state.SeverityError)
	waived.Waived = "old client retires"

	for name, tc := range map[string]struct {
		findings []state.Finding
		change   func(*world, *upgrade.Deps)
		needs    string
		blocks   string
	}{
		"nothing":             {findings: nil},
		"warnings and waived": {findings: []state.Finding{finding("x", state.SeverityWarn), waived}},
		"error":               {findings: []state.Finding{finding("insight/deprecated-apis", state.SeverityError)}, blocks: "insight/deprecated-apis"},
		"unknown":             {findings: []state.Finding{finding("insight/unreadable", state.SeverityUnknown)}, blocks: "insight/unreadable"},
		"kubelet skew":        {findings: []state.Finding{skew}, needs: "green/restart/before-1.32"},
		"skew after the restart": {findings: []state.Finding{skew}, change: func(w *world, _ *upgrade.Deps) {
			w.j.records = append(w.j.records, state.Record{Seq: 1, Kind: state.RecordDone, Step: "green/restart/before-1.32"})
		}, blocks: "insight/kubelet-version-skew"},
		"add-on before": {findings: []state.Finding{addons}, change: func(w *world, _ *upgrade.Deps) { w.addonsAt["kube-proxy"] = both }, needs: "green/addon/kube-proxy/1.32"},
		"add-on after":  {findings: []state.Finding{addons}, change: func(w *world, _ *upgrade.Deps) { w.addonsAt["kube-proxy"] = after }},
		"add-ons kept": {findings: []state.Finding{addons}, change: func(w *world, d *upgrade.Deps) {
			w.addonsAt["kube-proxy"], d.Addons = both, upgrade.AddonsKeep
		}, blocks: "insight/eks-add-on-version-compatibility"},
		"curable and not":          {findings: []state.Finding{skew, finding("other", state.SeverityError)}, blocks: "other"},
		"two steps: one at a time": {findings: []state.Finding{skew, addons}, change: func(w *world, _ *upgrade.Deps) { w.addonsAt["kube-proxy"] = both }, needs: "green/restart/before-1.32"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newAddonWorld()
			err := w.step(func(d *upgrade.Deps) {
				d.Check = func(_ context.Context, minor string) ([]state.Finding, error) {
					if minor != "1.32" {
						t.Errorf("checks for %s", minor)
					}
					return tc.findings, nil
				}
				if tc.change != nil {
					tc.change(w, d)
				}
			}).Act(bg, w.j)
			var need *state.NeedsFirst
			var stop *state.Stop
			switch {
			case tc.needs != "":
				if !errors.As(err, &need) || need.Spec.ID != tc.needs || need.Spec.Cause == "" {
					t.Errorf("got %v", err)
				}
			case tc.blocks != "":
				if !errors.As(err, &stop) || stop.Code != state.ExitBlocked || !strings.Contains(stop.Why, tc.blocks) || !strings.Contains(stop.Cure, "cure of "+tc.blocks) || !strings.Contains(stop.Cure, "waive") {
					t.Errorf("got %v", err)
				}
			case err != nil:
				t.Errorf("got %v", err)
			}
			if sent := w.count("UpdateClusterVersion"); (sent > 0) != (tc.needs == "" && tc.blocks == "") {
				t.Errorf("%d requests", sent)
			}
		})
	}
	t.Run("without a check of its own it reads the insights", func(t *testing.T) {
		w := newWorld()
		w.insights = []ekstypes.InsightSummary{insight("Cluster health issues", "ERROR", "1.32")}
		var stop *state.Stop
		if err := w.step(func(d *upgrade.Deps) { d.Check = nil }).Act(bg, w.j); !errors.As(err, &stop) || w.count("StartInsightsRefresh") != 1 {
			t.Errorf("got %v", err)
		}
	})
	t.Run("an attempt under way is not checked again", func(t *testing.T) {
		w := newWorld()
		w.fail["UpdateClusterVersion"] = errCrash
		_ = w.step().Act(bg, w.j)
		w.start("VersionUpdate", "1.32", time.Minute, "Successful")
		err := w.step(func(d *upgrade.Deps) {
			d.Check = func(context.Context, string) ([]state.Finding, error) {
				return []state.Finding{finding("late", state.SeverityError)}, nil
			}
		}).Act(bg, w.j)
		if err != nil {
			t.Errorf("got %v", err)
		}
	})
}
