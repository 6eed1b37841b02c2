package eks

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

func (s *Service) listAddons(r *request) (any, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, apiErr := s.cluster(r.vars["cluster"])
	if apiErr != nil {
		return nil, apiErr
	}
	part, next, apiErr := page(sorted(c.addons), r.query.Get("nextToken"), r.query.Get("maxResults"), 100)
	return map[string]any{"addons": part, "nextToken": next}, apiErr
}

// describeAddon tells of an add-on as it is: what ails its software in the cluster makes
// it DEGRADED.
func (s *Service) describeAddon(r *request) (any, *Error) {
	ails := s.opts.World.AddonIssues(r.vars["cluster"], r.vars["addon"])
	s.mu.Lock()
	defer s.mu.Unlock()
	c, apiErr := s.cluster(r.vars["cluster"])
	if apiErr != nil {
		return nil, apiErr
	}
	a, apiErr := c.addon(r.vars["addon"])
	if apiErr != nil {
		return nil, apiErr
	}
	return map[string]any{"addon": s.addonJSON(c, a, ails)}, nil
}

func (s *Service) addonJSON(c *cluster, a *addon, ails []Issue) addonJSON {
	id, _ := uuid.FromBytes(stable("addon", c.ARN, a.Name)) // always 16 bytes
	status := a.status
	if len(ails) > 0 && status == active {
		status = degraded
	}
	return addonJSON{
		AddonName: a.Name, ClusterName: c.Name, Status: status, AddonVersion: a.Version,
		Health:    healthJSON{Issues: issues(append(slices.Clone(a.Issues), ails...))},
		AddonArn:  fmt.Sprintf("arn:aws:eks:%s:%s:addon/%s/%s/%s", s.opts.Region, s.opts.Account, c.Name, a.Name, id),
		CreatedAt: at(a.CreatedAt), ModifiedAt: at(a.modified), ServiceAccountRoleArn: text(a.RoleARN),
		Tags: tags(a.Tags), ConfigurationValues: text(a.Configuration), PodIdentityAssociation: list(a.PodIdentity),
	}
}

func (s *Service) serveUpdateAddon(r *request) (any, *Error) {
	var in updateAddonInput
	if apiErr := r.input(&in); apiErr != nil {
		return nil, apiErr
	}
	wire.Note(r.Context(), "token", in.ClientRequestToken)
	if in.AddonVersion != nil {
		wire.Note(r.Context(), "version", *in.AddonVersion)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u, replay, apiErr := s.updateAddon(r.vars["cluster"], r.vars["addon"], in, r.now)
	if apiErr != nil {
		return nil, apiErr
	}
	return accepted(r, u, replay), nil
}

func (s *Service) associationARN(cluster, addon, account string) string {
	return fmt.Sprintf("arn:aws:eks:%s:%s:podidentityassociation/%s/a-%x",
		s.opts.Region, s.opts.Account, cluster, stable(addon, account)[:8])
}

func (s *Service) describeAddonVersions(r *request) (any, *Error) {
	only, minor := r.query.Get("addonName"), r.query.Get("kubernetesVersion")
	if minor != "" {
		if _, ok := s.version(minor); !ok {
			return nil, &Error{Status: 400, Code: "InvalidParameterException", Message: "unsupported Kubernetes version"}
		}
	}
	names := map[string]bool{}
	for _, a := range s.opts.Addons {
		if only == "" || only == a.Addon {
			names[a.Addon] = true
		}
	}
	if len(names) == 0 && only != "" {
		return nil, &Error{Status: 404, Code: "ResourceNotFoundException", Message: "No addon versions found for addon: " + only, Addon: only}
	}
	out := []addonInfoJSON{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		info := addonInfoJSON{AddonName: name, Type: "networking", Publisher: "eks", Owner: "aws", AddonVersions: []addonVersionJSON{}}
		for _, a := range s.offered(name, minor) {
			info.AddonVersions = append(info.AddonVersions, s.addonVersionJSON(a, minor))
		}
		if len(info.AddonVersions) > 0 {
			out = append(out, info)
		}
	}
	part, next, apiErr := page(out, r.query.Get("nextToken"), r.query.Get("maxResults"), 100)
	return map[string]any{"addons": part, "nextToken": next}, apiErr
}

// addonVersionJSON lists the compatibilities with one minor, or with all of them
// when minor is empty.
func (s *Service) addonVersionJSON(a AddonVersion, minor string) addonVersionJSON {
	out := addonVersionJSON{
		AddonVersion: a.Version, Architecture: []string{"amd64", "arm64"}, ComputeTypes: list(a.Compute),
		Compatibilities: []compatibilityJSON{}, RequiresIamPermissions: a.Addon == "vpc-cni",
	}
	for _, v := range slices.Backward(s.opts.Versions) {
		if a.supports(v.Minor) && (minor == "" || minor == v.Minor) {
			out.Compatibilities = append(out.Compatibilities, compatibilityJSON{
				ClusterVersion: v.Minor, PlatformVersions: []string{"*"},
				DefaultVersion: s.defaultAddon(a.Addon, v.Minor) == a.Version,
			})
		}
	}
	return out
}
