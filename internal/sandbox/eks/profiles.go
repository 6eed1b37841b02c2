package eks

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// mostSelectors is how many selectors a Fargate profile can have
// (https://docs.aws.amazon.com/eks/latest/userguide/fargate-profile.html).
const mostSelectors = 5

// profile is a FargateProfile as it comes and goes.
type profile struct {
	FargateProfile
	status  string
	settled time.Time
	token   string
}

func (s *Service) listFargateProfiles(r *request) (any, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, apiErr := s.cluster(r.vars["cluster"])
	if apiErr != nil {
		return nil, apiErr
	}
	part, next, apiErr := page(sorted(c.profiles), r.query.Get("nextToken"), r.query.Get("maxResults"), 100)
	return map[string]any{"fargateProfileNames": part, "nextToken": next}, apiErr
}

func (s *Service) describeFargateProfile(r *request) (any, *Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, apiErr := s.cluster(r.vars["cluster"])
	if apiErr != nil {
		return nil, apiErr
	}
	p, apiErr := c.profile(r.vars["profile"])
	if apiErr != nil {
		return nil, apiErr
	}
	return map[string]any{"fargateProfile": s.profileJSON(c, p)}, nil
}

func (c *cluster) profile(name string) (*profile, *Error) {
	if p := c.profiles[name]; p != nil {
		return p, nil
	}
	e := c.missing("No Fargate Profile found with name: %s.", name)
	e.Profile = name
	return nil, e
}

func (s *Service) profileJSON(c *cluster, p *profile) profileJSON {
	id, _ := uuid.FromBytes(stable("fargate profile", c.ARN, p.Name)) // always 16 bytes
	out := profileJSON{
		FargateProfileName: p.Name, ClusterName: c.Name, CreatedAt: at(p.CreatedAt), Status: p.status,
		FargateProfileArn: fmt.Sprintf("arn:aws:eks:%s:%s:fargateprofile/%s/%s/%s",
			s.opts.Region, s.opts.Account, c.Name, p.Name, id),
		PodExecutionRoleArn: p.PodExecutionRoleARN, Subnets: list(p.Subnets), Selectors: []selectorJSON{},
		Tags: tags(p.Tags), Health: healthJSON{Issues: []issueJSON{}},
	}
	for _, sel := range p.Selectors {
		out.Selectors = append(out.Selectors, selectorJSON(sel))
	}
	return out
}

type createProfileInput struct {
	ClientRequestToken  string            `json:"clientRequestToken"`
	FargateProfileName  string            `json:"fargateProfileName"`
	PodExecutionRoleArn string            `json:"podExecutionRoleArn"`
	Selectors           []selectorJSON    `json:"selectors"`
	Subnets             []string          `json:"subnets"`
	Tags                map[string]string `json:"tags"`
}

func (s *Service) createFargateProfile(r *request) (any, *Error) {
	var in createProfileInput
	if apiErr := r.input(&in); apiErr != nil {
		return nil, apiErr
	}
	wire.Note(r.Context(), "token", in.ClientRequestToken)
	s.mu.Lock()
	defer s.mu.Unlock()
	c, apiErr := s.cluster(r.vars["cluster"])
	if apiErr != nil {
		return nil, apiErr
	}
	p := c.profiles[in.FargateProfileName]
	if p == nil || in.ClientRequestToken == "" || p.token != in.ClientRequestToken {
		if p, apiErr = s.newProfile(c, in, r.now); apiErr != nil {
			apiErr.Profile = in.FargateProfileName
			return nil, apiErr
		}
	}
	return map[string]any{"fargateProfile": s.profileJSON(c, p)}, nil
}

// newProfile accepts a profile. That profiles come and go one after the other, and the
// words of it, are from terraform-aws-modules/terraform-aws-eks#866; that they do not come
// while the cluster is updated from terraform-aws-modules/terraform-aws-eks#2790.
func (s *Service) newProfile(c *cluster, in createProfileInput, now time.Time) (*profile, *Error) {
	what := "create Fargate Profile " + in.FargateProfileName
	switch {
	case !names.MatchString(in.FargateProfileName):
		return nil, c.invalid("fargateProfileName %q is not valid", in.FargateProfileName)
	case !strings.HasPrefix(in.PodExecutionRoleArn, "arn:"):
		return nil, c.invalid("podExecutionRoleArn %q is not valid", in.PodExecutionRoleArn)
	case len(in.Selectors) == 0 || len(in.Selectors) > mostSelectors:
		return nil, c.invalid("A Fargate Profile must have between 1 and %d selectors", mostSelectors)
	case slices.ContainsFunc(in.Selectors, func(s selectorJSON) bool { return s.Namespace == "" }):
		return nil, c.invalid("A selector of a Fargate Profile must have a namespace")
	case c.profiles[in.FargateProfileName] != nil:
		return nil, c.inUse("A Fargate Profile already exists with this name in this cluster.")
	}
	if apiErr := c.free(what); apiErr != nil {
		return nil, apiErr
	}
	if apiErr := c.oneByOne(what); apiErr != nil {
		return nil, apiErr
	}
	if len(c.profiles) >= s.opts.MaxProfiles {
		return nil, &Error{Status: 400, Code: "ResourceLimitExceededException", Cluster: c.Name, Message: fmt.Sprintf(
			"Fargate Profile limit exceeded for cluster: at most %d", s.opts.MaxProfiles)}
	}
	p := &profile{status: creating, settled: now.Add(s.opts.Profile), token: in.ClientRequestToken, FargateProfile: FargateProfile{
		Name: in.FargateProfileName, PodExecutionRoleARN: in.PodExecutionRoleArn, Subnets: in.Subnets, CreatedAt: now, Tags: in.Tags,
	}}
	if len(in.Subnets) == 0 {
		p.Subnets = c.Subnets
	}
	for _, id := range p.Subnets {
		if vpc, _, ok := s.opts.World.Subnet(id); !ok || vpc != c.VPC {
			return nil, c.invalid("Subnet %s does not exist in the VPC %s of the cluster", id, c.VPC)
		}
	}
	for _, sel := range in.Selectors {
		p.Selectors = append(p.Selectors, Selector(sel))
	}
	c.profiles[p.Name] = p
	s.after(s.opts.Profile)
	return p, nil
}

// oneByOne is an error while another profile comes or goes.
func (c *cluster) oneByOne(what string) *Error {
	for _, name := range sorted(c.profiles) {
		if p := c.profiles[name]; p.status != active {
			return c.inUse("Cannot %s because cluster %s currently has Fargate profile %s in status %s", what, c.Name, name, p.status)
		}
	}
	return nil
}

// deleteFargateProfile has the pods of the profile deleted at once; the words for a second
// one are from cloud-custodian/cloud-custodian#5585.
func (s *Service) deleteFargateProfile(r *request) (any, *Error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.mu.Lock()
	c, apiErr := s.cluster(r.vars["cluster"])
	var p *profile
	if apiErr == nil {
		p, apiErr = c.profile(r.vars["profile"])
	}
	if apiErr == nil {
		apiErr = c.oneByOne("Delete Fargate Profile " + p.Name)
	}
	if apiErr != nil {
		s.mu.Unlock()
		return nil, apiErr
	}
	p.status, p.settled = deleting, r.now.Add(s.opts.Profile)
	s.after(s.opts.Profile)
	out := s.profileJSON(c, p)
	s.mu.Unlock()
	s.tellProfiles(c)
	s.opts.World.DropPods(c.Name, p.Name)
	return map[string]any{"fargateProfile": out}, nil
}

// settleProfiles lets profiles become active or go. mu is held.
func (s *Service) settleProfiles(c *cluster, now time.Time) (tell []func()) {
	for name, p := range c.profiles {
		switch {
		case p.status == active || now.Before(p.settled):
		case p.status == deleting:
			delete(c.profiles, name)
		default:
			p.status = active
			tell = []func(){func() { s.tellProfiles(c) }}
		}
	}
	return tell
}

// tellProfiles tells the World which profiles are active. turn is held, mu is not.
func (s *Service) tellProfiles(c *cluster) {
	s.mu.Lock()
	var all []FargateProfile
	for _, name := range sorted(c.profiles) {
		if p := c.profiles[name]; p.status == active {
			all = append(all, p.FargateProfile)
		}
	}
	s.mu.Unlock()
	s.opts.World.SetProfiles(c.Name, all)
}
