package eks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

const upgradeReadiness = "UPGRADE_READINESS"

// insight is an Insight as it was found at the last refresh.
type insight struct {
	Insight
	addons       []addonCompatJSON
	transitioned time.Time
}

// refresh is the last refresh of a cluster's insights.
type refresh struct {
	// started and ends are zero before the first one.
	started, ends time.Time
	// before is when the refresh before this one ended.
	before  time.Time
	running bool
}

// SetInsight puts an insight into a cluster, in the place of a computed one of the
// same name and version; clients see it after a refresh, and from the first listing
// on when set before it.
func (s *Service) SetInsight(cluster string, i Insight) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clusters[cluster]
	if c == nil {
		return fmt.Errorf("set insight %q: there is no cluster %q", i.Name, cluster)
	}
	if !slices.Contains([]string{"PASSING", "WARNING", "ERROR", "UNKNOWN"}, i.Status) {
		return fmt.Errorf("set insight %q of cluster %s: status %q is not PASSING, WARNING, ERROR or UNKNOWN", i.Name, cluster, i.Status)
	}
	i.Category = cmp.Or(i.Category, upgradeReadiness)
	c.extra = append(slices.DeleteFunc(c.extra, i.same), i)
	return nil
}

// RemoveInsight takes a SetInsight back, as when its cause was cured; clients see
// that after a refresh.
func (s *Service) RemoveInsight(cluster, name, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.clusters[cluster]; c != nil {
		c.extra = slices.DeleteFunc(c.extra, Insight{Name: name, Version: version}.same)
	}
}

func (i Insight) same(other Insight) bool { return i.Name == other.Name && i.Version == other.Version }

func (i Insight) id(arn string) string {
	id, _ := uuid.FromBytes(stable("insight", arn, i.Name, i.Version)) // always 16 bytes
	return id.String()
}

// finishRefreshes takes a new look at the clusters whose refresh is due. turn is
// held, mu is not.
func (s *Service) finishRefreshes(now time.Time) {
	for _, name := range s.Clusters() {
		s.mu.Lock()
		c := s.clusters[name]
		due := c.refresh.running && !now.Before(c.refresh.ends)
		s.mu.Unlock()
		if due {
			s.look(c)
		}
	}
}

// look computes the insights of a cluster from the world as it is now and ends its
// refresh.
func (s *Service) look(c *cluster) {
	var kubelets []string
	if s.opts.Kubelets != nil {
		kubelets = s.opts.Kubelets(c.Name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.refresh.running = false
	old := c.insights
	c.insights = nil
	found := s.computed(c, kubelets)
	for _, i := range c.extra {
		if j := slices.IndexFunc(found, func(f *insight) bool { return f.same(i) }); j >= 0 {
			i.Description = cmp.Or(i.Description, found[j].Description)
			i.Recommendation = cmp.Or(i.Recommendation, found[j].Recommendation)
			found = slices.Delete(found, j, j+1)
		}
		found = append(found, &insight{Insight: i})
	}
	for _, i := range found {
		i.transitioned = c.refresh.ends
		if j := slices.IndexFunc(old, func(o *insight) bool { return o.same(i.Insight) && o.Status == i.Status }); j >= 0 {
			i.transitioned = old[j].transitioned
		}
		c.insights = append(c.insights, i)
	}
}

// first stands for the daily refresh that EKS makes by itself: it has run once when
// somebody looks for the first time.
func (s *Service) first(name string, now time.Time) *Error {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.mu.Lock()
	c, apiErr := s.cluster(name)
	if apiErr != nil || !c.refresh.started.IsZero() {
		s.mu.Unlock()
		return apiErr
	}
	c.refresh = refresh{started: now.Add(-time.Minute), ends: now}
	s.mu.Unlock()
	s.look(c)
	return nil
}

func (s *Service) startInsightsRefresh(r *request) (any, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, apiErr := s.cluster(r.vars["cluster"])
	if apiErr != nil {
		return nil, apiErr
	}
	message := "Insights refresh is already in progress"
	if !c.refresh.running {
		message = "Insights refresh has been started"
		c.refresh = refresh{started: r.now, ends: r.now.Add(s.opts.Refresh), before: c.refresh.ends, running: true}
		s.after(s.opts.Refresh)
	}
	return map[string]any{"message": message, "status": "IN_PROGRESS"}, nil
}

func (s *Service) describeInsightsRefresh(r *request) (any, *Error) {
	if apiErr := s.first(r.vars["cluster"], r.now); apiErr != nil {
		return nil, apiErr
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clusters[r.vars["cluster"]]
	out := map[string]any{
		"status": "COMPLETED", "message": "Insights refresh completed",
		"startedAt": at(c.refresh.started), "endedAt": at(c.refresh.ends),
	}
	if c.refresh.running {
		out["status"], out["message"], out["endedAt"] = "IN_PROGRESS", "Insights refresh is in progress", nil
	}
	return out, nil
}

func (s *Service) listInsights(r *request) (any, *Error) {
	var in listInsightsInput
	if apiErr := r.input(&in); apiErr != nil {
		return nil, apiErr
	}
	if apiErr := s.first(r.vars["cluster"], r.now); apiErr != nil {
		return nil, apiErr
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clusters[r.vars["cluster"]]
	fits := func(list []string, v string) bool { return len(list) == 0 || slices.Contains(list, v) }
	out := []insightJSON{}
	for _, i := range c.insights {
		if fits(in.Filter.Categories, i.Category) && fits(in.Filter.KubernetesVersions, i.Version) && fits(in.Filter.Statuses, i.Status) {
			out = append(out, c.insightJSON(i))
		}
	}
	size := ""
	if in.MaxResults != nil {
		size = fmt.Sprint(*in.MaxResults)
	}
	part, next, apiErr := page(out, in.NextToken, size, 100)
	return map[string]any{"insights": part, "nextToken": next}, apiErr
}

func (c *cluster) insightJSON(i *insight) insightJSON {
	return insightJSON{
		ID: i.id(c.ARN), Name: i.Name, Category: i.Category, KubernetesVersion: text(i.Version),
		LastRefreshTime: at(c.refreshed()), LastTransitionTime: at(i.transitioned), Description: i.Description,
		InsightStatus: statusJSON{i.Status, text(i.Reason)},
	}
}

// refreshed is when the insights in sight were found: while a refresh is under way,
// those of the one before it.
func (c *cluster) refreshed() time.Time {
	if c.refresh.running {
		return c.refresh.before
	}
	return c.refresh.ends
}

func (s *Service) describeInsight(r *request) (any, *Error) {
	if apiErr := s.first(r.vars["cluster"], r.now); apiErr != nil {
		return nil, apiErr
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clusters[r.vars["cluster"]]
	for _, i := range c.insights {
		if i.id(c.ARN) == r.vars["insight"] {
			return map[string]any{"insight": c.insightDetail(i)}, nil
		}
	}
	return nil, c.missing("No insight found for ID: %s", r.vars["insight"])
}

func (c *cluster) insightDetail(i *insight) insightDetailJSON {
	out := insightDetailJSON{
		insightJSON: c.insightJSON(i), Recommendation: i.Recommendation, AdditionalInfo: map[string]string{
			"EKS update cluster documentation": "https://docs.aws.amazon.com/eks/latest/userguide/update-cluster.html",
		},
		Resources: []insightResourceJSON{}, CategorySpecificSummary: summaryJSON{
			DeprecationDetails: []deprecationJSON{}, AddonCompatibilityDetails: i.addons,
		},
	}
	if out.CategorySpecificSummary.AddonCompatibilityDetails == nil {
		out.CategorySpecificSummary.AddonCompatibilityDetails = []addonCompatJSON{}
	}
	for _, res := range i.Resources {
		out.Resources = append(out.Resources, insightResourceJSON{
			statusJSON{cmp.Or(res.Status, i.Status), text(res.Reason)}, text(res.URI), text(res.ARN),
		})
	}
	for _, d := range i.Deprecations {
		detail := deprecationJSON{d.Usage, text(d.ReplacedWith), d.StopServing, text(d.StartServingReplacement), []clientJSON{}}
		for _, cl := range d.Clients {
			detail.ClientStats = append(detail.ClientStats, clientJSON{cl.UserAgent, cl.Requests, at(cl.LastRequest)})
		}
		out.CategorySpecificSummary.DeprecationDetails = append(out.CategorySpecificSummary.DeprecationDetails, detail)
	}
	return out
}

// joined is a list of names for a sentence.
func joined(names []string) string {
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}
