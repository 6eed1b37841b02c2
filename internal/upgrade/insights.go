package upgrade

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"k8s.io/utils/clock"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/state"
)

// Names of findings that are not an insight themselves.
const (
	// CheckInsightsUnreadable: the insights could not be read.
	CheckInsightsUnreadable = "insight/unreadable"
	// CheckInsightsStale: the insights could not be refreshed and may be a day old.
	CheckInsightsStale = "insight/not-refreshed"
)

// Insights that a step of eksbg cures, by the names that EKS gives them.
const (
	checkKubeletSkew   = "insight/kubelet-version-skew"
	checkAddonVersion  = "insight/eks-add-on-version-compatibility"
	checkKubeProxySkew = "insight/kube-proxy-version-skew"
)

// InsightOptions say how insights are read.
type InsightOptions struct {
	// Refresh has EKS look anew first and waits for that; EKS does so by itself once a day.
	Refresh bool
	// Clock tells and waits; nil means the real one.
	Clock clock.Clock
	// Polling is the time between two looks at the refresh, at most 5 s, which 0 means too.
	Polling time.Duration
	// Patience is how long a refresh may take; 0 means 5 minutes.
	Patience time.Duration
	// Side is put on the findings.
	Side state.Side
	// Waiting, if set, is told what is waited for.
	Waiting func(text string)
}

// Insights reads the UPGRADE_READINESS insights of a cluster for the minor that it
// is to go to: those in ERROR and UNKNOWN as such, those in WARNING as WARN. What
// cannot be read is a finding UNKNOWN, for an unknown is not a pass; only a cancelled
// context and expired credentials are errors.
//
// With Refresh it sends the one call of this package that is no read and has no
// intent in the journal, StartInsightsRefresh. That needs none: it names a cluster
// and nothing wanted of it, changes neither the cluster nor what runs in it, has EKS
// do now what it does by itself once a day, and joins a refresh that is under way. A
// run that is killed around it has nothing to find again; the next one asks again.
func Insights(ctx context.Context, api InsightsAPI, clusterName, minor string, o InsightOptions) ([]state.Finding, error) {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Polling <= 0 || o.Polling > 5*time.Second {
		o.Polling = 5 * time.Second
	}
	if o.Patience <= 0 {
		o.Patience = 5 * time.Minute
	}
	var out []state.Finding
	if o.Refresh {
		if err := refresh(ctx, api, clusterName, o); err != nil {
			if ends(ctx, err) {
				return nil, err
			}
			out = append(out, state.Finding{
				Check: CheckInsightsStale, Severity: state.SeverityUnknown, Side: o.Side,
				Text: fmt.Sprintf("the upgrade insights of cluster %s could not be refreshed: %s", clusterName, aws.Message(err)),
				Cure: "allow eks:StartInsightsRefresh and eks:DescribeInsightsRefresh, or waive it: EKS refreshes them once a day",
			})
		}
	}
	found, err := readInsights(ctx, api, clusterName, minor, o.Side)
	if err != nil {
		if ends(ctx, err) {
			return nil, err
		}
		return append(out, state.Finding{
			Check: CheckInsightsUnreadable, Severity: state.SeverityUnknown, Side: o.Side,
			Text: fmt.Sprintf("the upgrade insights of cluster %s for %s could not be read: %s", clusterName, minor, aws.Message(err)),
			Cure: "allow eks:ListInsights and eks:DescribeInsight",
		}), nil
	}
	return append(out, found...), nil
}

// ends tells whether an error ends the run rather than being an answer of a check.
func ends(ctx context.Context, err error) bool { return ctx.Err() != nil || aws.IsExpired(err) }

// refresh starts a refresh, or joins the one under way, and waits for its end.
func refresh(ctx context.Context, api InsightsAPI, clusterName string, o InsightOptions) error {
	_, err := api.StartInsightsRefresh(ctx, &eks.StartInsightsRefreshInput{ClusterName: &clusterName})
	if err != nil && !underWay(err) {
		return fmt.Errorf("refresh the insights of cluster %s: %w", clusterName, err)
	}
	began := o.Clock.Now()
	for {
		got, err := api.DescribeInsightsRefresh(ctx, &eks.DescribeInsightsRefreshInput{ClusterName: &clusterName})
		if err != nil {
			return fmt.Errorf("look at the refresh of the insights of cluster %s: %w", clusterName, err)
		}
		switch got.Status {
		case ekstypes.InsightsRefreshStatusCompleted:
			return nil
		case ekstypes.InsightsRefreshStatusFailed:
			return fmt.Errorf("refresh of the insights of cluster %s failed: %s", clusterName, state.Clean(awssdk.ToString(got.Message)))
		}
		if o.Clock.Since(began) >= o.Patience {
			return fmt.Errorf("refresh of the insights of cluster %s is still %s after %s", clusterName, got.Status, o.Patience)
		}
		if o.Waiting != nil {
			o.Waiting("upgrade insights are being refreshed")
		}
		if err := sleep(ctx, o.Clock, o.Polling); err != nil {
			return fmt.Errorf("wait for the refresh of the insights of cluster %s: %w", clusterName, err)
		}
	}
}

// underWay tells whether a refresh could not be started because one is running.
func underWay(err error) bool {
	switch aws.ErrorCode(err) {
	case "ResourceInUseException":
		return true
	case "InvalidRequestException", "InvalidStateException":
		return strings.Contains(strings.ToLower(aws.Message(err)), "in progress")
	}
	return false
}

// readInsights lists the insights for the minor and describes those that are not passing.
func readInsights(ctx context.Context, api InsightsAPI, clusterName, minor string, side state.Side) ([]state.Finding, error) {
	var out []state.Finding
	in := &eks.ListInsightsInput{
		ClusterName: &clusterName,
		Filter:      &ekstypes.InsightsFilter{Categories: []ekstypes.Category{ekstypes.CategoryUpgradeReadiness}},
	}
	for {
		page, err := api.ListInsights(ctx, in)
		if err != nil {
			return nil, fmt.Errorf("list the insights of cluster %s: %w", clusterName, err)
		}
		for _, s := range page.Insights {
			// Some insights are about no version in particular.
			if v := awssdk.ToString(s.KubernetesVersion); v != "" && v != minor {
				continue
			}
			severity, shown := severityOf(s.InsightStatus)
			if !shown {
				continue
			}
			f := state.Finding{
				Check: "insight/" + kebab(awssdk.ToString(s.Name)), Severity: severity, Side: side,
				Text: insightText(s),
			}
			if err := describeInsight(ctx, api, clusterName, awssdk.ToString(s.Id), &f); err != nil {
				return nil, err
			}
			out = append(out, f)
		}
		if in.NextToken = page.NextToken; awssdk.ToString(page.NextToken) == "" {
			return out, nil
		}
	}
}

// severityOf is the severity of an insight's status; false for one that passes. A
// status that is not known is unknown.
func severityOf(s *ekstypes.InsightStatus) (state.Severity, bool) {
	if s == nil {
		return state.SeverityUnknown, true
	}
	switch s.Status {
	case ekstypes.InsightStatusValuePassing:
		return "", false
	case ekstypes.InsightStatusValueWarning:
		return state.SeverityWarn, true
	case ekstypes.InsightStatusValueError:
		return state.SeverityError, true
	}
	return state.SeverityUnknown, true
}

func insightText(s ekstypes.InsightSummary) string {
	text := fmt.Sprintf("EKS insight %q", awssdk.ToString(s.Name))
	if s.InsightStatus != nil && awssdk.ToString(s.InsightStatus.Reason) != "" {
		text += ": " + awssdk.ToString(s.InsightStatus.Reason)
	}
	return state.Clean(text)
}

// describeInsight adds what the insight is about and what EKS recommends. Details
// that cannot be read do not change the verdict.
func describeInsight(ctx context.Context, api InsightsAPI, clusterName, id string, f *state.Finding) error {
	got, err := api.DescribeInsight(ctx, &eks.DescribeInsightInput{ClusterName: &clusterName, Id: &id})
	if err != nil {
		if ends(ctx, err) {
			return fmt.Errorf("read insight %s of cluster %s: %w", id, clusterName, err)
		}
		f.Cure = fmt.Sprintf("see `aws eks describe-insight --cluster-name %s --id %s`", clusterName, id)
		return nil
	}
	if got.Insight == nil {
		return nil
	}
	f.Cure = state.Clean(awssdk.ToString(got.Insight.Recommendation))
	if about := resourcesOf(got.Insight); about != "" {
		f.Text += " (" + about + ")"
	}
	return nil
}

// resourcesOf names up to five of the things that an insight is about; a deprecated
// API with its last client, since such an insight outlives its cure by 30 days.
func resourcesOf(i *ekstypes.Insight) string {
	const most = 5
	var names []string
	for _, r := range i.Resources {
		name := awssdk.ToString(r.KubernetesResourceUri)
		if name == "" {
			name = awssdk.ToString(r.Arn)
		}
		if name != "" {
			names = append(names, name)
		}
	}
	if s := i.CategorySpecificSummary; s != nil {
		for _, d := range s.DeprecationDetails {
			for _, c := range d.ClientStats {
				names = append(names, fmt.Sprintf("%s by %s, last %s", awssdk.ToString(d.Usage),
					awssdk.ToString(c.UserAgent), awssdk.ToTime(c.LastRequestTime).UTC().Format(time.DateOnly)))
			}
		}
	}
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("and %d more", len(names)-most))
	}
	return state.Clean(strings.Join(names, ", "))
}

// kebab turns an insight's name into one for a check: lower case, everything else
// than letters and digits a single dash.
func kebab(name string) string {
	var b strings.Builder
	dash := false
	for _, r := range strings.ToLower(name) {
		if r > unicode.MaxASCII || (!unicode.IsLetter(r) && !unicode.IsDigit(r)) {
			dash = b.Len() > 0
			continue
		}
		if dash {
			b.WriteByte('-')
			dash = false
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Curable is the kind of the step that removes a finding: a restart for kubelet
// skew, an add-on's raise for add-on and kube-proxy versions; "" for any other.
func Curable(f state.Finding) state.Kind {
	switch f.Check {
	case checkKubeletSkew:
		return state.KindRestart
	case checkAddonVersion, checkKubeProxySkew:
		return state.KindAddon
	}
	return ""
}
