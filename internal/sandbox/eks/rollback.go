package eks

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// What follows is the version rollback of
// https://docs.aws.amazon.com/eks/latest/userguide/rollback-cluster.html. The texts of its
// refusals are not known from the field; their codes are those that the operation has in
// the API's model.

const (
	rollbackReadiness = "ROLLBACK_READINESS"
	// rollbackWindow is how long after an upgrade its version can be rolled back.
	rollbackWindow = 7 * 24 * time.Hour
	// The bounds of rollbackConfig.timeoutMinutes, and what it is when left out.
	leastTimeout, usualTimeout, mostTimeout = 120, 720, 10080
)

// rollback accepts an update to the minor before, or says why not. Neither the window nor
// the support policy can be forced, the insights can. mu is held.
func (s *Service) rollback(c *cluster, v Version, in updateVersionInput, now time.Time) (*update, *Error) {
	if c.previous != in.Version {
		return nil, c.unsupported(in.Version)
	}
	if !now.Before(c.UpgradedAt.Add(rollbackWindow)) {
		return nil, c.refused("Cluster %s cannot be rolled back to version %s: the 7-day rollback window after the upgrade ended at %s",
			c.Name, in.Version, c.UpgradedAt.Add(rollbackWindow).UTC().Format(time.RFC3339))
	}
	if v.Status == ExtendedSupport && c.SupportType != "EXTENDED" {
		return nil, c.refused("Cluster %s cannot be rolled back to version %s, which is in extended support: "+
			"set the support type of its upgrade policy to EXTENDED first", c.Name, in.Version)
	}
	timeout := int32(usualTimeout)
	if in.RollbackConfig != nil && in.RollbackConfig.TimeoutMinutes != nil {
		timeout = *in.RollbackConfig.TimeoutMinutes
		if timeout < leastTimeout || timeout > mostTimeout {
			return nil, c.invalid("timeoutMinutes must be between %d and %d", leastTimeout, mostTimeout)
		}
	}
	if !in.Force {
		if apiErr := c.rollbackReady(in.Version); apiErr != nil {
			return nil, apiErr
		}
	}
	u := &update{
		typ: "VersionRollback", back: true, target: in.Version, token: in.ClientRequestToken, asked: in.asked(),
		params: [][2]string{{"Version", in.Version}, {"PlatformVersion", v.Platform}},
	}
	if !c.AutoMode {
		return s.start(c, u, s.opts.Update, now), nil
	}
	u.then = now.Add(s.opts.AutoNodes)
	limit := time.Duration(float64(timeout) * float64(time.Minute) / s.opts.Speed)
	if s.opts.AutoNodes <= limit {
		return s.start(c, u, s.opts.AutoNodes+s.opts.Update, now), nil
	}
	u = s.start(c, u, limit, now)
	if u.fails == nil {
		u.fails = []UpdateError{{Code: "Unknown", Message: fmt.Sprintf("The nodes were not rolled back within %d minutes", timeout)}}
	}
	return u, nil
}

// asked is the request without its token, to tell one from another.
func (in updateVersionInput) asked() string {
	return fmt.Sprintf("version %s force=%t", in.Version, in.Force)
}

// rollbackReady refuses while an insight about the way back is in ERROR or UNKNOWN.
func (c *cluster) rollbackReady(to string) *Error {
	var bad []string
	for _, i := range c.insights {
		if i.Category == rollbackReadiness && i.Version == to && (i.Status == "ERROR" || i.Status == "UNKNOWN") {
			bad = append(bad, i.Name+" is "+i.Status)
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return &Error{Status: 400, Code: "InvalidStateException", Cluster: c.Name, Message: fmt.Sprintf(
		"Cluster %s has rollback insights that block the rollback to Kubernetes version %s (%s). Use ListInsights to see them, "+
			"or set force to override rollback-blocking readiness checks.", c.Name, to, joined(bad))}
}

// lookBack takes a new look at the insights of a cluster that is about to be rolled back,
// as EKS does.
func (s *Service) lookBack(name string, in updateVersionInput, now time.Time) {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.mu.Lock()
	c := s.clusters[name]
	if c == nil || c.previous != in.Version || in.Force {
		s.mu.Unlock()
		return
	}
	before := c.refresh
	c.refresh = refresh{started: now, ends: now, before: before.ends}
	s.mu.Unlock()
	s.look(c)
}

// backward are the insights about the way back; they are there while it is. mu is held.
func (s *Service) backward(c *cluster, kubelets []string) []*insight {
	if c.previous == "" || !s.opts.Clock.Now().Before(c.UpgradedAt.Add(rollbackWindow)) {
		return nil
	}
	return []*insight{s.kubeletAhead(c, kubelets), c.proxyAhead(), s.addonsBack(c), c.healthBack()}
}

func back(c *cluster, name, reason, description, recommendation string) *insight {
	return &insight{Insight: Insight{
		Name: name, Version: c.previous, Category: rollbackReadiness, Status: "PASSING",
		Reason: reason, Description: description, Recommendation: recommendation,
	}}
}

// kubeletAhead is in ERROR while a kubelet runs a newer minor than the one before: a
// Fargate pod that started after the upgrade, or a node group that followed it.
func (s *Service) kubeletAhead(c *cluster, kubelets []string) *insight {
	i := back(c, "Kubelet version skew", "Node kubelet versions are within the supported skew of Kubernetes v"+c.previous+".",
		"Checks for kubelet versions of worker nodes in the cluster to see if rollback would cause non compliance with "+
			"supported Kubernetes kubelet version skew policy.",
		"Roll back the worker nodes, and delete the Fargate pods that run a newer kubelet, before rolling back the control plane.")
	if s.opts.Kubelets == nil {
		i.Status, i.Reason = "UNKNOWN", "Unable to determine status of node kubelet versions."
		return i
	}
	var ahead []string
	for _, k := range kubelets {
		if minor := minorOf(k); minor == "" || compare(minor, c.previous) > 0 {
			ahead = append(ahead, k)
		}
	}
	if len(ahead) > 0 {
		i.Status = "ERROR"
		i.Reason = fmt.Sprintf("Kubelet versions %s of worker nodes are newer than Kubernetes v%s.", joined(ahead), c.previous)
	}
	return i
}

func (c *cluster) proxyAhead() *insight {
	i := back(c, "kube-proxy version skew", "kube-proxy versions are within the supported skew of Kubernetes v"+c.previous+".",
		"Checks version of kube-proxy in cluster to see if rollback would cause non compliance with supported Kubernetes "+
			"kube-proxy version skew policy.", "Downgrade kube-proxy to the previous version before rolling back the control plane.")
	if a := c.addons["kube-proxy"]; a != nil && compare(minorOf(a.Version), c.previous) > 0 {
		i.Status = "ERROR"
		i.Reason = fmt.Sprintf("kube-proxy version %s is newer than Kubernetes v%s.", a.Version, c.previous)
	}
	return i
}

func (s *Service) addonsBack(c *cluster) *insight {
	i := back(c, "EKS add-on version compatibility", "All installed EKS add-on versions are compatible with Kubernetes v"+c.previous+".",
		"Checks version of installed EKS add-ons to ensure they are compatible with the previous version of Kubernetes.",
		"Downgrade the add-ons to a version that is compatible with the previous version of Kubernetes before rolling back the cluster.")
	i.addons = []addonCompatJSON{}
	if bad := s.incompatible(c, c.previous, i); len(bad) > 0 {
		i.Status = "ERROR"
		i.Reason = fmt.Sprintf("Installed EKS add-on versions are not compatible with Kubernetes v%s: %s.", c.previous, joined(bad))
	}
	return i
}

// incompatible are the add-ons whose version does not support a minor, noted in an
// insight.
func (s *Service) incompatible(c *cluster, minor string, i *insight) (bad []string) {
	for _, name := range slices.Sorted(maps.Keys(c.addons)) {
		a := c.addons[name]
		detail := addonCompatJSON{Name: name, CompatibleVersions: []string{}}
		fits := false
		for _, v := range s.offered(name, minor) {
			detail.CompatibleVersions = append(detail.CompatibleVersions, v.Version)
			fits = fits || v.Version == a.Version
		}
		if fits {
			continue
		}
		bad = append(bad, name+" "+a.Version)
		i.addons = append(i.addons, detail)
		i.Resources = append(i.Resources, InsightResource{
			ARN: fmt.Sprintf("arn:aws:eks:%s:%s:addon/%s/%s", s.opts.Region, s.opts.Account, c.Name, name), Status: "ERROR",
		})
	}
	return bad
}

func (c *cluster) healthBack() *insight {
	i := c.healthIssues(c.previous)
	i.Category = rollbackReadiness
	i.Description = "Checks for any cluster health issues that prevent successful rollback to the previous Kubernetes version on EKS."
	i.Recommendation = strings.ReplaceAll(i.Recommendation, "upgrading", "rolling back")
	return i
}

type cancelUpdateInput struct {
	ClientRequestToken string `json:"clientRequestToken"`
}

// cancelUpdate stops a rollback of an Auto Mode cluster while its nodes go back; no other
// update can be stopped
// (https://docs.aws.amazon.com/eks/latest/APIReference/API_CancelUpdate.html).
func (s *Service) cancelUpdate(r *request) (any, *Error) {
	var in cancelUpdateInput
	if apiErr := r.input(&in); apiErr != nil {
		return nil, apiErr
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c, apiErr := s.cluster(r.vars["cluster"])
	if apiErr != nil {
		return nil, apiErr
	}
	i := slices.IndexFunc(c.updates, func(u *update) bool { return u.id == r.vars["update"] })
	if i < 0 {
		return nil, c.missing("No update found for ID: %s", r.vars["update"])
	}
	u := c.updates[i]
	switch {
	case u.cancelling && u.status == inProgress: // asked for before
	case u.status != inProgress || !u.back || !r.now.Before(u.then):
		return nil, c.refused("Update %s of type %s in status %s cannot be cancelled", u.id, u.typ, u.status)
	default:
		// A node that is being replaced is finished first.
		u.cancelling = true
		u.ends = r.now.Add(s.opts.Stale)
		s.after(s.opts.Stale)
	}
	wire.Note(r.Context(), "update", u.id)
	return map[string]any{"update": u.json()}, nil
}
