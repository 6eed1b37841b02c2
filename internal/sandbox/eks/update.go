package eks

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Statuses of an update (UpdateStatus).
const (
	inProgress = "InProgress"
	successful = "Successful"
	failed     = "Failed"
	cancelled  = "Cancelled"
)

// Statuses of clusters, add-ons, node groups and profiles.
const (
	active   = "ACTIVE"
	creating = "CREATING"
	deleting = "DELETING"
	updating = "UPDATING"
	degraded = "DEGRADED"
	broken   = "FAILED"
)

// update is one update of a control plane, an add-on or a node group.
type update struct {
	id, typ, status string
	// addon and nodegroup are empty for an update of the control plane.
	addon, nodegroup string
	target           string
	// pending is that the World works on it still.
	pending bool
	// back is a version update of a control plane that goes down; until then its nodes
	// go down first.
	back bool
	then time.Time
	// cancelling is that somebody asked to cancel it.
	cancelling bool
	params     [][2]string
	errors     []UpdateError
	// token and asked are what the client said, to know it again by.
	token, asked  string
	created, ends time.Time
	// fails is how it will end when not well.
	fails []UpdateError
}

// running is the update of the control plane that is under way, or nil.
func (c *cluster) running() *update {
	i := slices.IndexFunc(c.updates, func(u *update) bool { return u.addon == "" && u.nodegroup == "" && u.status == inProgress })
	if i < 0 {
		return nil
	}
	return c.updates[i]
}

// status is what DescribeCluster says, which lags behind what is: for a moment an
// update that was accepted does not show.
func (c *cluster) status(now time.Time, stale time.Duration) string {
	if c.state != "" {
		return c.state
	}
	u := c.running()
	if u == nil {
		return active
	}
	began := u.created
	if u.then.After(began) {
		began = u.then // nodes come first, and the cluster stays ACTIVE over it
	}
	if now.Before(began.Add(stale)) {
		return active
	}
	return updating
}

// replayed finds the update that a client token belongs to: the same request again
// is answered with the same update, another request with that token is refused.
func (c *cluster) replayed(token, asked string) (*update, *Error) {
	if token == "" {
		return nil, nil
	}
	for _, u := range c.updates {
		if u.token != token {
			continue
		}
		if u.asked != asked {
			return nil, c.invalid("The client request token %s was already used for a request with different parameters", token)
		}
		return u, nil
	}
	return nil, nil
}

// start accepts an update. mu is held.
func (s *Service) start(c *cluster, u *update, takes time.Duration, now time.Time) *update {
	u.id, u.status, u.created, u.ends = uuid.NewString(), inProgress, now, now.Add(takes)
	for _, f := range s.failures {
		if f.Cluster == c.Name && f.Addon == u.addon && f.Nodegroup == u.nodegroup && (f.Version == "" || f.Version == u.target) && f.Times != 0 {
			f.Times-- // a negative count never reaches zero
			u.fails = f.Errors
			if len(u.fails) == 0 {
				u.fails = []UpdateError{{Code: "Unknown", Message: "The update failed"}}
			}
			break
		}
	}
	c.updates = append(c.updates, u)
	s.after(takes)
	return u
}

// settle ends the updates of a cluster that are due, in the order in which they end,
// and answers what to tell about it. mu is held.
func (s *Service) settle(c *cluster, now time.Time) (tell []func()) {
	due := slices.DeleteFunc(slices.Clone(c.updates), func(u *update) bool {
		return u.status != inProgress || u.pending || now.Before(u.ends)
	})
	slices.SortStableFunc(due, func(a, b *update) int { return a.ends.Compare(b.ends) })
	for _, u := range due {
		u.status = successful
		switch {
		case u.cancelling:
			u.status = cancelled
		case u.fails != nil:
			u.status, u.errors = failed, u.fails
		}
		switch {
		case u.addon != "":
			tell = append(tell, s.settleAddon(c, u)...)
		case u.nodegroup != "":
			c.nodegroups[u.nodegroup].settle(u)
		case u.status == successful:
			tell = append(tell, s.settleVersion(c, u)...)
		}
	}
	tell = append(tell, s.settleAddons(c, now)...)
	tell = append(tell, s.settleProfiles(c, now)...)
	return append(tell, s.settleCluster(c, now)...)
}

// settleVersion gives a control plane its new version, and opens or closes the way back.
func (s *Service) settleVersion(c *cluster, u *update) []func() {
	c.previous, c.UpgradedAt = c.Version, u.ends
	if u.back {
		c.previous, c.UpgradedAt = "", time.Time{}
	}
	c.Version = u.target
	fn, name, minor := s.opts.OnVersion, c.Name, u.target
	if fn == nil {
		return nil
	}
	return []func(){func() { fn(name, minor) }}
}

func (s *Service) settleAddon(c *cluster, u *update) (tell []func()) {
	a := c.addons[u.addon]
	a.modified = u.ends
	if u.status == failed {
		a.status = "UPDATE_FAILED"
		for _, e := range u.errors {
			a.Issues = append(a.Issues, Issue(e))
		}
		return nil
	}
	a.status, a.Version, a.Issues = active, u.target, nil
	if fn, name, addon, version := s.opts.OnAddon, c.Name, u.addon, u.target; fn != nil {
		tell = append(tell, func() { fn(name, addon, version) })
	}
	return tell
}

// updateVersion is UpdateClusterVersion. kubelets were read before mu was taken.
func (s *Service) updateVersion(name string, in updateVersionInput, kubelets []string, now time.Time) (*update, bool, *Error) {
	c, apiErr := s.cluster(name)
	if apiErr != nil {
		return nil, false, apiErr
	}
	if u, apiErr := c.replayed(in.ClientRequestToken, in.asked()); u != nil || apiErr != nil {
		return u, true, apiErr
	}
	back := steps(c.Version, in.Version) == -1
	typ := "VersionUpdate"
	if back {
		typ = "VersionRollback"
	}
	if apiErr := c.free(typ); apiErr != nil {
		return nil, false, apiErr
	}
	v, ok := s.version(in.Version)
	if !ok || v.Status == Unsupported {
		return nil, false, c.invalid("unsupported Kubernetes version")
	}
	if back {
		u, apiErr := s.rollback(c, v, in, now)
		return u, false, apiErr
	}
	if steps(c.Version, in.Version) != 1 {
		return nil, false, c.unsupported(in.Version)
	}
	if apiErr := c.nodegroupsMatch(); apiErr != nil {
		return nil, false, apiErr
	}
	for _, k := range kubelets {
		minor := minorOf(k)
		if minor == "" {
			continue
		}
		if s.opts.Skew == SkewStrict && compare(minor, c.Version) < 0 || skewed(minor, in.Version) {
			return nil, false, c.refused("Kubelet version of Fargate pods must be updated to match cluster version %s "+
				"before updating cluster version; Please recycle all offending pod replicas", c.Version)
		}
	}
	if apiErr := s.readiness(c, in); apiErr != nil {
		return nil, false, apiErr
	}
	u := &update{
		typ: "VersionUpdate", target: in.Version, token: in.ClientRequestToken, asked: in.asked(),
		params: [][2]string{{"Version", in.Version}, {"PlatformVersion", v.Platform}},
	}
	return s.start(c, u, s.opts.Update, now), false, nil
}

// free is an error while the cluster has no room for an operation: it comes or goes, or
// its control plane is updated.
func (c *cluster) free(operation string) *Error {
	if c.state != "" {
		return c.inUse("Cannot %s because cluster %s is in status %s", operation, c.Name, c.state)
	}
	if u := c.running(); u != nil {
		return c.inUse("Cannot %s because cluster %s currently has update %s in progress", operation, c.Name, u.id)
	}
	return nil
}

func (c *cluster) unsupported(to string) *Error {
	return c.invalid("Unsupported Kubernetes minor version update from %s to %s", c.Version, to)
}

func (s *Service) readiness(c *cluster, in updateVersionInput) *Error {
	if !s.opts.EnforceInsights || in.Force {
		return nil
	}
	for _, i := range c.insights {
		if i.Version == in.Version && i.Category == upgradeReadiness && i.Status == "ERROR" {
			return &Error{Status: 400, Code: "InvalidStateException", Cluster: c.Name, Message: fmt.Sprintf(
				"Cluster %s has upgrade insights in ERROR for Kubernetes version %s (%s). Use ListInsights to see them, "+
					"or set force to override upgrade-blocking readiness checks.", c.Name, in.Version, i.Name)}
		}
	}
	return nil
}

// updateAddon is UpdateAddon.
func (s *Service) updateAddon(name, addonName string, in updateAddonInput, now time.Time) (*update, bool, *Error) {
	c, apiErr := s.cluster(name)
	if apiErr != nil {
		return nil, false, apiErr
	}
	a, apiErr := c.addon(addonName)
	if apiErr != nil {
		return nil, false, apiErr
	}
	if u, apiErr := c.replayed(in.ClientRequestToken, in.asked(addonName)); u != nil || apiErr != nil {
		return u, true, apiErr
	}
	if a.status == updating || a.status == creating || a.status == deleting {
		e := c.inUse("Addon %s cannot be updated as it is currently in %s state", addonName, a.status)
		e.Addon = addonName
		return nil, false, e
	}
	if apiErr := c.free("AddonUpdate"); apiErr != nil {
		return nil, false, apiErr
	}
	u := &update{typ: "AddonUpdate", addon: addonName, target: a.Version, token: in.ClientRequestToken, asked: in.asked(addonName)}
	if apiErr := s.addonParams(c, u, in); apiErr != nil {
		apiErr.Addon = addonName
		return nil, false, apiErr
	}
	if in.ConfigurationValues != nil {
		a.Configuration = *in.ConfigurationValues
	}
	if in.ServiceAccountRoleArn != nil {
		a.RoleARN = *in.ServiceAccountRoleArn
	}
	if in.PodIdentityAssociations != nil {
		a.PodIdentity = nil
		for _, p := range *in.PodIdentityAssociations {
			a.PodIdentity = append(a.PodIdentity, s.associationARN(c.Name, addonName, p.ServiceAccount))
		}
	}
	a.status = updating
	return s.start(c, u, s.opts.AddonUpdate, now), false, nil
}

// addonParams checks what an add-on is to become and notes it in the update.
func (s *Service) addonParams(c *cluster, u *update, in updateAddonInput) *Error {
	if in.AddonVersion != nil {
		if !slices.ContainsFunc(s.offered(u.addon, c.Version), func(v AddonVersion) bool { return v.Version == *in.AddonVersion }) {
			return c.invalid("Addon version specified is not supported")
		}
		u.target = *in.AddonVersion
		u.params = append(u.params, [2]string{"AddonVersion", u.target})
	}
	if in.ResolveConflicts != nil {
		switch *in.ResolveConflicts {
		case "NONE", "OVERWRITE", "PRESERVE":
			u.params = append(u.params, [2]string{"ResolveConflicts", *in.ResolveConflicts})
		default:
			return c.invalid("ResolveConflicts %s is not valid", *in.ResolveConflicts)
		}
	}
	if in.ConfigurationValues != nil {
		u.params = append(u.params, [2]string{"ConfigurationValues", *in.ConfigurationValues})
	}
	if in.ServiceAccountRoleArn != nil {
		u.params = append(u.params, [2]string{"ServiceAccountRoleArn", *in.ServiceAccountRoleArn})
	}
	return nil
}
