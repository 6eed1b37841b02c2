package eks

import (
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

func (s *Service) listClusters(r *request) (any, *Error) {
	names, next, apiErr := page(s.Clusters(), r.query.Get("nextToken"), r.query.Get("maxResults"), 100)
	return map[string]any{"clusters": names, "nextToken": next}, apiErr
}

func (s *Service) describeCluster(r *request) (any, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, apiErr := s.cluster(r.vars["cluster"])
	if apiErr != nil {
		return nil, apiErr
	}
	return map[string]any{"cluster": s.clusterJSON(c, r.now)}, nil
}

func (s *Service) clusterJSON(c *cluster, now time.Time) clusterJSON {
	v, _ := s.version(c.Version)
	out := clusterJSON{
		Name: c.Name, Arn: c.ARN, CreatedAt: at(c.CreatedAt), Version: c.Version,
		RoleArn: c.RoleARN, Status: c.status(now, s.opts.Stale), ClientRequestToken: text(c.token),
		ResourcesVpcConfig: vpcJSON{
			SubnetIDs: list(c.Subnets), SecurityGroupIDs: list(c.SecurityGroups),
			ClusterSecurityGroupID: "sg-0" + hex.EncodeToString(stable("cluster sg", c.ARN))[:16], VpcID: c.VPC,
			EndpointPrivateAccess: c.PrivateEndpoint, EndpointPublicAccess: c.PublicEndpoint, PublicAccessCidrs: []string{},
		},
		NetworkConfig: networkJSON{ServiceIpv4Cidr: "172.20.0.0/16", IPFamily: "ipv4"},
		Logging: loggingJSON{ClusterLogging: []logSetupJSON{{
			Types: []string{"api", "audit", "authenticator", "controllerManager", "scheduler"},
		}}},
		PlatformVersion: v.Platform, Tags: tags(c.Tags),
		Health:       healthJSON{Issues: issues(c.Issues)},
		AccessConfig: accessJSON{AuthenticationMode: c.AuthenticationMode}, UpgradePolicy: policyJSON{c.SupportType},
		DeletionProtection: c.DeletionProtection,
	}
	if c.PublicEndpoint {
		out.ResourcesVpcConfig.PublicAccessCidrs = []string{"0.0.0.0/0"}
	}
	if c.AutoMode {
		out.ComputeConfig = &computeJSON{Enabled: true, NodePools: []string{"general-purpose", "system"}, NodeRoleArn: text(c.RoleARN + "-nodes")}
	}
	if c.state == creating || c.state == broken {
		return out // nothing answers yet
	}
	out.Endpoint, out.Identity.Oidc.Issuer = text(c.Endpoint), c.OIDCIssuer
	if len(c.CA) > 0 {
		out.CertificateAuthority.Data = text(base64.StdEncoding.EncodeToString(c.CA))
	}
	return out
}

func (s *Service) describeClusterVersions(r *request) (any, *Error) {
	wanted := r.query["clusterVersions"]
	status := r.query.Get("versionStatus")
	if status == "" {
		status = strings.ToUpper(r.query.Get("status"))
	}
	switch status {
	case "", StandardSupport, ExtendedSupport, Unsupported:
	default:
		return nil, &Error{Status: 400, Code: "InvalidParameterException", Message: "versionStatus " + status + " is not valid"}
	}
	all := r.query.Get("includeAll") == "true"
	out := []versionJSON{}
	for _, v := range s.opts.Versions {
		switch {
		case len(wanted) > 0 && !slices.Contains(wanted, v.Minor),
			status != "" && v.Status != status,
			r.query.Get("defaultOnly") == "true" && !v.Default,
			v.Status == Unsupported && !all && len(wanted) == 0 && status == "":
			continue
		}
		out = append(out, versionJSON{
			ClusterVersion: v.Minor, ClusterType: "eks", DefaultPlatformVersion: v.Platform, DefaultVersion: v.Default,
			ReleaseDate: at(v.Release), EndOfStandardSupportDate: at(v.EndStandard), EndOfExtendedSupportDate: at(v.EndExtended),
			Status: strings.ToLower(v.Status), VersionStatus: v.Status, KubernetesPatchVersion: v.Patch,
		})
	}
	slices.SortStableFunc(out, func(a, b versionJSON) int { return compare(b.ClusterVersion, a.ClusterVersion) })
	part, next, apiErr := page(out, r.query.Get("nextToken"), r.query.Get("maxResults"), 100)
	return map[string]any{"clusterVersions": part, "nextToken": next}, apiErr
}

func (s *Service) updateClusterVersion(r *request) (any, *Error) {
	var in updateVersionInput
	if apiErr := r.input(&in); apiErr != nil {
		return nil, apiErr
	}
	wire.Note(r.Context(), "version", in.Version)
	wire.Note(r.Context(), "token", in.ClientRequestToken)
	if s.opts.EnforceInsights {
		if apiErr := s.first(r.vars["cluster"], r.now); apiErr != nil {
			return nil, apiErr
		}
	}
	s.lookBack(r.vars["cluster"], in, r.now)
	var kubelets []string
	if s.opts.Kubelets != nil {
		kubelets = s.opts.Kubelets(r.vars["cluster"])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u, replay, apiErr := s.updateVersion(r.vars["cluster"], in, kubelets, r.now)
	if apiErr != nil {
		return nil, apiErr
	}
	return accepted(r, u, replay), nil
}

// accepted notes an accepted update in the log and answers it. A replay is an
// accepted request that started nothing.
func accepted(r *request, u *update, replay bool) any {
	wire.Note(r.Context(), "update", u.id)
	if replay {
		wire.Note(r.Context(), "replay", true)
	}
	return map[string]any{"update": u.json()}
}

func (u *update) json() updateJSON {
	out := updateJSON{
		ID: u.id, Status: u.status, Type: u.typ, CreatedAt: at(u.created),
		Params: []paramJSON{}, Errors: []errorJSON{},
	}
	for _, p := range u.params {
		out.Params = append(out.Params, paramJSON{p[0], p[1]})
	}
	if u.cancelling {
		out.Cancellation = &cancellationJSON{Status: inProgress}
		if u.status == cancelled {
			out.Cancellation.Status = successful
		}
	}
	for _, e := range u.errors {
		out.Errors = append(out.Errors, errorJSON{e.Code, e.Message, list(e.ResourceIDs)})
	}
	return out
}

// listUpdates answers ids alone, in no order that means anything, as EKS does: those
// of the control plane, or those of one add-on or node group.
func (s *Service) listUpdates(r *request) (any, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, apiErr := s.cluster(r.vars["cluster"])
	if apiErr != nil {
		return nil, apiErr
	}
	name := r.query.Get("addonName")
	if name != "" {
		if _, apiErr := c.addon(name); apiErr != nil {
			return nil, apiErr
		}
	}
	group := r.query.Get("nodegroupName")
	if group != "" {
		if _, apiErr := c.nodegroup(group); apiErr != nil {
			return nil, apiErr
		}
	}
	ids := []string{}
	for _, u := range c.updates {
		if u.addon == name && u.nodegroup == group {
			ids = append(ids, u.id)
		}
	}
	slices.Sort(ids)
	part, next, apiErr := page(ids, r.query.Get("nextToken"), r.query.Get("maxResults"), 100)
	return map[string]any{"updateIds": part, "nextToken": next}, apiErr
}

func (s *Service) describeUpdate(r *request) (any, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, apiErr := s.cluster(r.vars["cluster"])
	if apiErr != nil {
		return nil, apiErr
	}
	group := r.query.Get("nodegroupName")
	if group != "" {
		if _, apiErr := c.nodegroup(group); apiErr != nil {
			return nil, apiErr
		}
	}
	for _, u := range c.updates {
		if u.id == r.vars["update"] && u.addon == r.query.Get("addonName") && u.nodegroup == group {
			return map[string]any{"update": u.json()}, nil
		}
	}
	return nil, c.missing("No update found for ID: %s", r.vars["update"])
}

func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func list(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

func tags(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

func issues(in []Issue) []issueJSON {
	out := []issueJSON{}
	for _, i := range in {
		out = append(out, issueJSON{i.Code, i.Message, list(i.ResourceIDs)})
	}
	return out
}
