package state

import "strings"

// Access is a verb on a resource of a cluster's API server that the steps of a plan use.
type Access struct {
	Verb string `json:"verb"`
	// Resource is RESOURCE[.GROUP] or RESOURCE/SUBRESOURCE: deployments.apps, pods/eviction.
	Resource string `json:"resource"`
	// Namespaces are where, in order; none means in all of them at once, or a resource that
	// is in none.
	Namespaces []string `json:"namespaces,omitempty"`
	// Name is that of the one object that is meant; empty is all.
	Name string `json:"name,omitempty"`
	// For says what for, for people.
	For string `json:"for"`
}

// String is the verb and the resource.
func (a Access) String() string { return a.Verb + " " + a.Resource }

// Split gives the resource's API group (empty for the core's), its plain name, and its
// subresource.
func (a Access) Split() (group, resource, sub string) {
	resource, sub, _ = strings.Cut(a.Resource, "/")
	resource, group, _ = strings.Cut(resource, ".")
	return group, resource, sub
}
