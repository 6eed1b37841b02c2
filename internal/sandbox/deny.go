package sandbox

import (
	"slices"
	"strings"

	"github.com/eksbg/eksbg/internal/sandbox/kube"
	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
)

// administrators is the group that may do everything, whatever anybody denies.
const administrators = "system:masters"

// wildcard stands for every verb or resource, as in RBAC.
const wildcard = "*"

// verbs are those that an API server asks its authorizer about.
var verbs = []string{wildcard, "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// Denial is something that callers with an EKS token may not do in a cluster; they may do
// everything else. The administrator of the kubeconfig may do that too.
type Denial struct {
	// Verbs are patch, create and so on; none and "*" are all of them.
	Verbs []string `yaml:"verbs,omitempty"`
	// Resources are named without their group: deployments, pods/eviction; "*" is all.
	Resources []string `yaml:"resources"`
	// Namespaces are where; none is everywhere. What is denied in one namespace is denied
	// across all of them too, as with a Role in each of the others.
	Namespaces []string `yaml:"namespaces,omitempty"`
}

// of tells whether the denial is of a request.
func (d Denial) of(a kube.Attributes) bool {
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	has := func(list []string, v string) bool {
		return len(list) == 0 || v == wildcard || slices.Contains(list, v) || slices.Contains(list, wildcard)
	}
	return has(d.Verbs, a.Verb) && has(d.Resources, resource) && (a.Namespace == "" || len(d.Namespaces) == 0 || slices.Contains(d.Namespaces, a.Namespace))
}

// authorize judges by the denials of a cluster; nil where it has none.
func (c *Cluster) authorize() func(string, []string, kube.Attributes) (bool, string) {
	if len(c.Deny) == 0 {
		return nil
	}
	return func(_ string, groups []string, a kube.Attributes) (bool, string) {
		if a.Path != "" || slices.Contains(groups, administrators) {
			return true, ""
		}
		return !slices.ContainsFunc(c.Deny, func(d Denial) bool { return d.of(a) }), ""
	}
}

// groups are those of a caller with an EKS token.
func (c *Cluster) groups() []string {
	if len(c.Deny)+len(c.Groups) == 0 {
		return []string{administrators, authenticated}
	}
	return append(slices.Clone(c.Groups), authenticated)
}

// authenticated is the group of all whom the API server knows.
const authenticated = "system:authenticated"

func (d Denial) check(at string, bad complain) {
	if len(d.Resources) == 0 {
		bad("%s.deny needs resources: [deployments], [pods/eviction]", at)
	}
	for _, v := range d.Verbs {
		if !slices.Contains(verbs, v) {
			bad("%s.deny: %q is no verb; there are %s", at, v, strings.Join(verbs, ", "))
		}
	}
	known := resources()
	for _, r := range d.Resources {
		switch near := nearest(r, known); {
		case slices.Contains(known, r):
		case near != "":
			bad("%s.deny: %q is no resource of the sandbox; did you mean %s?", at, r, near)
		default:
			bad("%s.deny: %q is no resource of the sandbox; there are %s", at, r, strings.Join(known, ", "))
		}
	}
}

// resources are what a denial may name, by their plurals.
func resources() []string {
	pods := registry.Pods.Resource
	out := []string{wildcard, "selfsubjectaccessreviews", "selfsubjectreviews", pods + "/eviction", pods + "/portforward"}
	for _, r := range registry.All {
		out = append(out, r.Resource)
		if r.Status {
			out = append(out, r.Resource+"/status")
		}
		if r.Scale {
			out = append(out, r.Resource+"/scale")
		}
	}
	slices.Sort(out)
	return out
}

// nearest is the resource that somebody meant: the one of that singular or short name, else
// the one that begins like it for more than half of the word; empty where there is none.
func nearest(word string, known []string) string {
	word = strings.ToLower(word)
	name, sub, _ := strings.Cut(word, "/")
	for _, r := range registry.All {
		if name == r.Singular || slices.Contains(r.Short, name) {
			name = r.Resource
		}
	}
	if sub != "" {
		name += "/" + sub
	}
	best, most := "", len(name)/2
	for _, k := range known {
		if n := common(name, k); n > most {
			best, most = k, n
		}
	}
	return best
}

// common counts the bytes with which two words begin alike.
func common(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
