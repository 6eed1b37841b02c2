package eks

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

type nodegroupVersionInput struct {
	Version            *string       `json:"version"`
	ReleaseVersion     *string       `json:"releaseVersion"`
	LaunchTemplate     *templateJSON `json:"launchTemplate"`
	Force              bool          `json:"force"`
	ClientRequestToken string        `json:"clientRequestToken"`
}

func (s *Service) updateNodegroupVersion(r *request) (any, *Error) {
	var in nodegroupVersionInput
	if apiErr := r.input(&in); apiErr != nil {
		return nil, apiErr
	}
	wire.Note(r.Context(), "token", in.ClientRequestToken)
	if in.Version != nil {
		wire.Note(r.Context(), "version", *in.Version)
	}
	token := in.ClientRequestToken
	in.ClientRequestToken = ""
	return s.changeNodegroup(r, token, in, func(c *cluster, g *nodegroup) (*update, *Nodegroup, *Error) {
		next, apiErr := s.nextVersion(c, g, in, r.now)
		if apiErr != nil {
			return nil, nil, apiErr
		}
		u := &update{typ: "VersionUpdate", target: next.Version, params: [][2]string{{"Version", next.Version}, {"ReleaseVersion", next.Release}}}
		if next.Template != nil {
			u.params = append(u.params, [2]string{"LaunchTemplateName", next.Template.Name}, [2]string{"LaunchTemplateVersion", next.Template.Version})
		}
		return u, next, nil
	}, NodegroupWork{Replace: true, Force: in.Force}, s.opts.Nodegroup)
}

// changeNodegroup accepts an update of a node group and has the World work on it. The
// words for a group that is updated already are from aws/karpenter-provider-aws#133.
func (s *Service) changeNodegroup(
	r *request, token string, in any, accept func(*cluster, *nodegroup) (*update, *Nodegroup, *Error), w NodegroupWork, takes time.Duration,
) (any, *Error) {
	body, _ := json.Marshal(in) // nothing in it can fail to encode
	asked := r.vars["nodegroup"] + " " + string(body)
	s.mu.Lock()
	defer s.mu.Unlock()
	c, apiErr := s.cluster(r.vars["cluster"])
	if apiErr != nil {
		return nil, apiErr
	}
	g, apiErr := c.nodegroup(r.vars["nodegroup"])
	if apiErr != nil {
		return nil, apiErr
	}
	u, apiErr := c.replayed(token, asked)
	switch {
	case apiErr != nil:
		return nil, apiErr
	case u != nil:
		return accepted(r, u, true), nil
	case g.next != nil:
		apiErr = c.inUse("Nodegroup cannot be updated as it is currently not in Active State")
	default:
		u, g.next, apiErr = accept(c, g)
	}
	if apiErr != nil {
		apiErr.Nodegroup = g.Name
		return nil, apiErr
	}
	u.nodegroup, u.token, u.asked = g.Name, token, asked
	s.start(c, u, takes, r.now)
	if u.fails == nil {
		w.Cluster, w.Nodegroup = c.Name, *g.next
		u.pending = w.Replace // instances that come or go are not waited for
		s.work(func(ctx context.Context) { s.setNodes(ctx, u, w) })
	}
	return accepted(r, u, false), nil
}

// setNodes has the World work on a node group and notes how it went.
func (s *Service) setNodes(ctx context.Context, u *update, w NodegroupWork) {
	errs := s.opts.World.SetNodes(ctx, w)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !u.pending {
		return
	}
	u.pending, u.fails = false, errs
	if now := s.opts.Clock.Now(); now.After(u.ends) {
		u.ends = now
	}
}

// nextVersion is the group as a request to update its version wants it. mu is held.
func (s *Service) nextVersion(c *cluster, g *nodegroup, in nodegroupVersionInput, now time.Time) (*Nodegroup, *Error) {
	next := g.Nodegroup
	if in.LaunchTemplate != nil {
		t, apiErr := c.template(g, *in.LaunchTemplate)
		if apiErr != nil {
			return nil, apiErr
		}
		next.Template = t
	}
	if g.AMIType == customAMI {
		return c.nextImage(&next, in)
	}
	next.Version = c.Version
	if in.Version != nil {
		next.Version = *in.Version
	}
	// In the rollback window the way down to the minor before is open as well.
	down := next.Version == c.previous && now.Before(c.UpgradedAt.Add(rollbackWindow))
	if next.Version != c.Version && next.Version != g.Version && !down {
		// As in aws-controllers-k8s/community#2957.
		return nil, c.invalid("Nodegroup Kubernetes version should be equal to Cluster kubernetes version %s or NodeGroup kubernetes version %s",
			c.Version, g.Version)
	}
	v, _ := s.version(next.Version)
	next.Release = v.release()
	if in.ReleaseVersion != nil {
		next.Release = *in.ReleaseVersion
		if minorOf(next.Release) != next.Version {
			// As in eksctl-io/eksctl#7976.
			return nil, c.invalid("Requested release version %s is not valid for kubernetes version %s.", next.Release, next.Version)
		}
	}
	return &next, nil
}

// nextImage is a group with a custom AMI on the image of its launch template, which is all
// that can be asked for; the words are from eksctl-io/eksctl#5999 and
// aws-samples/eks-cluster-upgrade#123.
func (c *cluster) nextImage(next *Nodegroup, in nodegroupVersionInput) (*Nodegroup, *Error) {
	switch {
	case in.Version != nil:
		return nil, c.invalid("You cannot specify the field kubernetesVersion when using custom AMIs.")
	case in.ReleaseVersion != nil:
		return nil, c.invalid("You cannot specify the field releaseVersion when using custom AMIs.")
	case in.LaunchTemplate == nil:
		return nil, c.invalid("Launch template details can't be null for Custom ami type node group")
	}
	next.Version = next.Template.Kubelets[next.Template.Version]
	if next.Version == "" || compare(next.Version, c.Version) > 0 {
		return nil, c.invalid("Launch template version %s has no image for Kubernetes version %s or older", next.Template.Version, c.Version)
	}
	next.Release = next.Template.image()
	return next, nil
}

// template is the group's launch template in the version that a request names; it has to
// be the template that the group was made with.
func (c *cluster) template(g *nodegroup, in templateJSON) (*LaunchTemplate, *Error) {
	if g.Template == nil {
		return nil, c.invalid("You cannot specify a launch template for a node group that was not created with one")
	}
	if in.ID != "" && in.ID != g.Template.ID || in.Name != "" && in.Name != g.Template.Name {
		return nil, c.invalid("The launch template of node group %s is %s", g.Name, cmp.Or(g.Template.Name, g.Template.ID))
	}
	t := *g.Template
	if in.Version != "" {
		t.Version = in.Version
	}
	return &t, nil
}

type nodegroupConfigInput struct {
	ScalingConfig *struct {
		MinSize     *int `json:"minSize"`
		MaxSize     *int `json:"maxSize"`
		DesiredSize *int `json:"desiredSize"`
	} `json:"scalingConfig"`
	Labels *struct {
		AddOrUpdate map[string]string `json:"addOrUpdateLabels"`
		Remove      []string          `json:"removeLabels"`
	} `json:"labels"`
	Taints *struct {
		AddOrUpdate []Taint `json:"addOrUpdateTaints"`
		Remove      []Taint `json:"removeTaints"`
	} `json:"taints"`
	ClientRequestToken string `json:"clientRequestToken"`
}

func (s *Service) updateNodegroupConfig(r *request) (any, *Error) {
	var in nodegroupConfigInput
	if apiErr := r.input(&in); apiErr != nil {
		return nil, apiErr
	}
	wire.Note(r.Context(), "token", in.ClientRequestToken)
	token := in.ClientRequestToken
	in.ClientRequestToken = ""
	return s.changeNodegroup(r, token, in, func(c *cluster, g *nodegroup) (*update, *Nodegroup, *Error) {
		next := g.Nodegroup
		u := &update{typ: "ConfigUpdate"}
		if apiErr := c.resize(&next, u, in); apiErr != nil {
			return nil, nil, apiErr
		}
		if in.Labels != nil {
			next.Labels = maps.Clone(next.Labels)
			if next.Labels == nil {
				next.Labels = map[string]string{}
			}
			maps.Copy(next.Labels, in.Labels.AddOrUpdate)
			for _, k := range in.Labels.Remove {
				delete(next.Labels, k)
			}
			u.note("LabelsToAdd", in.Labels.AddOrUpdate)
			u.note("LabelsToRemove", in.Labels.Remove)
		}
		if in.Taints != nil {
			gone := slices.Concat(in.Taints.Remove, in.Taints.AddOrUpdate)
			next.Taints = slices.DeleteFunc(slices.Clone(next.Taints), func(t Taint) bool {
				return slices.ContainsFunc(gone, func(o Taint) bool { return o.Key == t.Key && o.Effect == t.Effect })
			})
			next.Taints = append(next.Taints, in.Taints.AddOrUpdate...)
			u.note("TaintsToAdd", in.Taints.AddOrUpdate)
			u.note("TaintsToRemove", in.Taints.Remove)
		}
		return u, &next, nil
	}, NodegroupWork{}, s.opts.NodegroupConfig)
}

// note puts a parameter of several values into an update.
func (u *update) note(param string, v any) {
	if b, err := json.Marshal(v); err == nil && !slices.Contains([]string{"null", "[]", "{}"}, string(b)) {
		u.params = append(u.params, [2]string{param, string(b)})
	}
}

// resize puts the sizes of a request into a group. The largest size is at least 1, so a
// group goes to zero by its other two. The words are from wandb/terraform-aws-wandb#201
// and ministryofjustice/cloud-platform-infrastructure#4595.
func (c *cluster) resize(g *Nodegroup, u *update, in nodegroupConfigInput) *Error {
	if in.ScalingConfig == nil {
		return nil
	}
	for _, f := range []struct {
		name string
		into *int
		from *int
	}{{"minSize", &g.Min, in.ScalingConfig.MinSize}, {"maxSize", &g.Max, in.ScalingConfig.MaxSize}, {"desiredSize", &g.Desired, in.ScalingConfig.DesiredSize}} {
		if f.from != nil {
			*f.into = *f.from
			u.params = append(u.params, [2]string{strings.ToUpper(f.name[:1]) + f.name[1:], strconv.Itoa(*f.from)})
		}
	}
	switch {
	case g.Min < 0:
		return c.invalid("minSize is not valid")
	case g.Max < 1:
		return c.invalid("maxSize is not valid")
	case g.Min > g.Desired:
		return c.invalid("Minimum capacity %d can't be greater than desired size %d", g.Min, g.Desired)
	case g.Desired > g.Max:
		return c.invalid("desiredSize can't be greater than maxSize")
	}
	return nil
}
