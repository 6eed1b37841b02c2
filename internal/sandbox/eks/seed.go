package eks

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// cluster is a Cluster as it goes through time.
type cluster struct {
	Cluster
	// state is CREATING, DELETING or FAILED until settled, of a cluster that comes or
	// goes; empty is ACTIVE. up is whether its Kubernetes has come, token and asked are
	// what its creation was asked for with.
	state        string
	settled      time.Time
	up           bool
	token, asked string
	// previous is the minor that the version can be rolled back to within the window.
	previous   string
	addons     map[string]*addon
	profiles   map[string]*profile
	nodegroups map[string]*nodegroup
	// updates are in the order of their acceptance.
	updates  []*update
	extra    []Insight
	insights []*insight
	refresh  refresh
}

type addon struct {
	Addon
	status   string
	modified time.Time
	// settled is when an add-on that is CREATING or DELETING is so no more.
	settled time.Time
	token   string
}

func newCluster(seed Cluster) *cluster {
	return &cluster{Cluster: seed, addons: map[string]*addon{}, profiles: map[string]*profile{}, nodegroups: map[string]*nodegroup{}}
}

// AddCluster seeds a cluster, ACTIVE. Its version must be in the catalogue, and so
// must those of its add-ons.
func (s *Service) AddCluster(seed Cluster) error {
	now := s.opts.Clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if seed.Name == "" || s.clusters[seed.Name] != nil {
		return fmt.Errorf("add cluster %q: it has no name or is there already", seed.Name)
	}
	if _, ok := s.version(seed.Version); !ok {
		return fmt.Errorf("add cluster %s: version %q is not in the catalogue", seed.Name, seed.Version)
	}
	s.fill(&seed, now)
	c := newCluster(seed)
	if !seed.UpgradedAt.IsZero() {
		c.previous = plus(seed.Version, -1)
	}
	for _, p := range seed.Profiles {
		c.profiles[p.Name] = &profile{FargateProfile: p, status: active}
	}
	for _, g := range seed.Nodegroups {
		if err := s.seedNodegroup(c, g); err != nil {
			return err
		}
	}
	for _, a := range seed.Addons {
		if a.Version == "" {
			a.Version = s.defaultAddon(a.Name, seed.Version)
		}
		if !slices.ContainsFunc(s.opts.Addons, func(v AddonVersion) bool { return v.Addon == a.Name && v.Version == a.Version }) {
			return fmt.Errorf("add cluster %s: add-on %s %q is not in the catalogue", seed.Name, a.Name, a.Version)
		}
		if a.CreatedAt.IsZero() {
			a.CreatedAt = seed.CreatedAt
		}
		c.addons[a.Name] = &addon{Addon: a, status: active, modified: a.CreatedAt}
	}
	s.clusters[seed.Name] = c
	return nil
}

// fill makes up what a seed leaves out, the same for the same name.
func (s *Service) fill(c *Cluster, now time.Time) {
	id := strings.ToUpper(hex.EncodeToString(stable(s.opts.Region, c.Name)))
	low := strings.ToLower(id)
	set := func(field *string, value string) { *field = cmp.Or(*field, value) }
	set(&c.ARN, fmt.Sprintf("arn:aws:eks:%s:%s:cluster/%s", s.opts.Region, s.opts.Account, c.Name))
	set(&c.RoleARN, fmt.Sprintf("arn:aws:iam::%s:role/%s-cluster", s.opts.Account, c.Name))
	set(&c.OIDCIssuer, fmt.Sprintf("https://oidc.eks.%s.amazonaws.com/id/%s", s.opts.Region, id))
	set(&c.VPC, "vpc-0"+low[:16])
	set(&c.SupportType, "EXTENDED")
	set(&c.AuthenticationMode, "API_AND_CONFIG_MAP")
	c.PrivateEndpoint = c.PrivateEndpoint || !c.PublicEndpoint
	if c.Subnets == nil {
		c.Subnets = []string{"subnet-0" + low[:16], "subnet-0" + low[16:]}
	}
	if c.SecurityGroups == nil {
		c.SecurityGroups = []string{"sg-0" + low[:16]}
	}
	if c.CreatedAt.IsZero() {
		c.CreatedAt = now.AddDate(-1, 0, 0)
	}
	c.Profiles = slices.Clone(c.Profiles)
	for i := range c.Profiles {
		p := &c.Profiles[i]
		set(&p.PodExecutionRoleARN, fmt.Sprintf("arn:aws:iam::%s:role/%s-pods", s.opts.Account, c.Name))
		if p.Subnets == nil {
			p.Subnets = c.Subnets
		}
		if p.CreatedAt.IsZero() {
			p.CreatedAt = c.CreatedAt
		}
	}
}

// stable is 16 bytes that depend on the parts alone.
func stable(parts ...string) []byte {
	id := uuid.NewSHA1(uuid.NameSpaceURL, []byte(strings.Join(parts, "\x00")))
	return id[:]
}

// SetEndpoint says where the API server of a cluster is and who vouches for it.
func (s *Service) SetEndpoint(cluster, endpoint string, ca []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clusters[cluster]
	if c == nil {
		return fmt.Errorf("set the endpoint of cluster %q: there is no such cluster", cluster)
	}
	c.Endpoint, c.CA = endpoint, slices.Clone(ca)
	return nil
}

// Raise puts a control plane at a minor at once, without an update that could be seen: it
// was raised by somebody else, a while ago.
func (s *Service) Raise(cluster, minor string) error {
	if err := s.raise(cluster, minor); err != nil {
		return err
	}
	if fn := s.opts.OnVersion; fn != nil {
		fn(cluster, minor)
	}
	return nil
}

func (s *Service) raise(cluster, minor string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clusters[cluster]
	if c == nil {
		return fmt.Errorf("raise cluster %q to %s: there is no such cluster", cluster, minor)
	}
	if _, ok := s.version(minor); !ok {
		return fmt.Errorf("raise cluster %s: version %q is not in the catalogue", cluster, minor)
	}
	if c.running() != nil {
		return fmt.Errorf("raise cluster %s to %s: an update is under way", cluster, minor)
	}
	c.previous, c.UpgradedAt = "", time.Time{}
	if steps(c.Version, minor) == 1 {
		c.previous, c.UpgradedAt = c.Version, s.opts.Clock.Now()
	}
	c.Version = minor
	return nil
}

// Snapshot is the canonical state, made for JSON: clusters by name with version,
// status, add-ons and profiles, and how their updates ended; no ids, no times.
func (s *Service) Snapshot() any {
	now := s.opts.Clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]snapshot{}
	for name, c := range s.clusters {
		snap := snapshot{
			Version: c.Version, Status: c.status(now, s.opts.Stale),
			Addons: map[string]addonSnapshot{}, Profiles: map[string][]Selector{}, Nodegroups: map[string]nodegroupSnapshot{}, Updates: []updateSnapshot{},
		}
		for _, name := range slices.Sorted(maps.Keys(c.addons)) {
			snap.Addons[name] = addonSnapshot{c.addons[name].Version, c.addons[name].status}
		}
		for _, p := range c.profiles {
			snap.Profiles[p.Name] = p.Selectors
		}
		for _, g := range c.nodegroups {
			snap.Nodegroups[g.Name] = nodegroupSnapshot{g.Version, g.Min, g.Max, g.Desired, g.state()}
		}
		for _, u := range c.updates {
			snap.Updates = append(snap.Updates, updateSnapshot{u.typ, u.addon, u.nodegroup, u.target, u.status, u.errors})
		}
		out[name] = snap
	}
	return out
}

type snapshot struct {
	Version    string                       `json:"version"`
	Status     string                       `json:"status"`
	Addons     map[string]addonSnapshot     `json:"addons"`
	Profiles   map[string][]Selector        `json:"profiles"`
	Nodegroups map[string]nodegroupSnapshot `json:"nodegroups,omitempty"`
	Updates    []updateSnapshot             `json:"updates"`
}

type nodegroupSnapshot struct {
	Version string `json:"version"`
	Min     int    `json:"min"`
	Max     int    `json:"max"`
	Desired int    `json:"desired"`
	Status  string `json:"status"`
}

type addonSnapshot struct {
	Version string `json:"version"`
	Status  string `json:"status"`
}

type updateSnapshot struct {
	Type      string        `json:"type"`
	Addon     string        `json:"addon,omitempty"`
	Nodegroup string        `json:"nodegroup,omitempty"`
	Target    string        `json:"target"`
	Status    string        `json:"status"`
	Errors    []UpdateError `json:"errors,omitempty"`
}
