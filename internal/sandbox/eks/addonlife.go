package eks

import (
	"slices"
	"time"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

type createAddonInput struct {
	updateAddonInput
	AddonName string            `json:"addonName"`
	Tags      map[string]string `json:"tags"`
}

func (s *Service) createAddon(r *request) (any, *Error) {
	var in createAddonInput
	if apiErr := r.input(&in); apiErr != nil {
		return nil, apiErr
	}
	wire.Note(r.Context(), "token", in.ClientRequestToken)
	s.mu.Lock()
	c, apiErr := s.cluster(r.vars["cluster"])
	if apiErr != nil {
		s.mu.Unlock()
		return nil, apiErr
	}
	a := c.addons[in.AddonName]
	if a == nil || in.ClientRequestToken == "" || a.token != in.ClientRequestToken {
		if a, apiErr = s.newAddon(c, in, r.now); apiErr != nil {
			s.mu.Unlock()
			apiErr.Addon = in.AddonName
			return nil, apiErr
		}
	}
	version, out := a.Version, s.addonJSON(c, a, nil)
	s.mu.Unlock()
	s.opts.World.InstallAddon(c.Name, in.AddonName, version)
	return map[string]any{"addon": out}, nil
}

// newAddon accepts an add-on. mu is held.
func (s *Service) newAddon(c *cluster, in createAddonInput, now time.Time) (*addon, *Error) {
	if !slices.ContainsFunc(s.opts.Addons, func(v AddonVersion) bool { return v.Addon == in.AddonName }) {
		return nil, c.invalid("Addon %s specified is not supported", in.AddonName)
	}
	if c.addons[in.AddonName] != nil {
		return nil, c.inUse("Addon already exists.")
	}
	if apiErr := c.free("create addon"); apiErr != nil {
		return nil, apiErr
	}
	a := &addon{status: creating, modified: now, settled: now.Add(s.opts.AddonUpdate), token: in.ClientRequestToken, Addon: Addon{
		Name: in.AddonName, Version: s.defaultAddon(in.AddonName, c.Version), CreatedAt: now, Tags: in.Tags,
	}}
	// What an update may ask for, and how it is checked, is the same here.
	u := &update{addon: in.AddonName, target: a.Version}
	if apiErr := s.addonParams(c, u, in.updateAddonInput); apiErr != nil {
		return nil, apiErr
	}
	if a.Version = u.target; a.Version == "" {
		return nil, c.invalid("Addon %s has no version that supports Kubernetes version %s", in.AddonName, c.Version)
	}
	if in.ConfigurationValues != nil {
		a.Configuration = *in.ConfigurationValues
	}
	if in.ServiceAccountRoleArn != nil {
		a.RoleARN = *in.ServiceAccountRoleArn
	}
	if in.PodIdentityAssociations != nil {
		for _, p := range *in.PodIdentityAssociations {
			a.PodIdentity = append(a.PodIdentity, s.associationARN(c.Name, a.Name, p.ServiceAccount))
		}
	}
	c.addons[a.Name] = a
	s.after(s.opts.AddonUpdate)
	return a, nil
}

// deleteAddon takes an add-on away, with its software unless that is to stay.
func (s *Service) deleteAddon(r *request) (any, *Error) {
	s.mu.Lock()
	c, apiErr := s.cluster(r.vars["cluster"])
	var a *addon
	if apiErr == nil {
		a, apiErr = c.addon(r.vars["addon"])
	}
	if apiErr == nil && (a.status == creating || a.status == updating || a.status == deleting) {
		apiErr = c.inUse("Addon %s cannot be deleted as it is currently in %s state", a.Name, a.status)
		apiErr.Addon = a.Name
	}
	if apiErr != nil {
		s.mu.Unlock()
		return nil, apiErr
	}
	a.status, a.settled = deleting, r.now.Add(s.opts.AddonUpdate)
	s.after(s.opts.AddonUpdate)
	out := s.addonJSON(c, a, nil)
	s.mu.Unlock()
	if r.query.Get("preserve") != "true" {
		s.opts.World.RemoveAddon(c.Name, a.Name)
	}
	return map[string]any{"addon": out}, nil
}

// settleAddons lets add-ons become active or go. mu is held.
func (s *Service) settleAddons(c *cluster, now time.Time) (tell []func()) {
	for _, name := range sorted(c.addons) {
		a := c.addons[name]
		switch {
		case now.Before(a.settled):
		case a.status == deleting:
			delete(c.addons, name)
		case a.status == creating:
			a.status = active
			if fn, version := s.opts.OnAddon, a.Version; fn != nil {
				tell = append(tell, func() { fn(c.Name, name, version) })
			}
		}
	}
	return tell
}
