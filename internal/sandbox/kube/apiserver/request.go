package apiserver

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
)

// request is what a path and a method ask for.
type request struct {
	verb            string
	gv              schema.GroupVersion
	resource, sub   string // as in the path; resource is empty for paths like /version
	namespace, name string
	res             *registry.Resource // nil when there is no such resource
	apiRoot         bool
}

// parse reads a request as kube-apiserver's RequestInfoFactory does.
func parse(r *http.Request) request {
	var q request
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) >= 2 && parts[0] == "api":
		q.gv, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case len(parts) >= 3 && parts[0] == "apis":
		q.gv, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		q.verb = strings.ToLower(r.Method)
		return q
	}
	q.apiRoot = len(parts) == 0
	if len(parts) >= 2 && parts[0] == "namespaces" && !namespaceItself(parts) {
		q.namespace, parts = parts[1], parts[2:]
	}
	if len(parts) > 0 {
		q.resource, parts = parts[0], parts[1:]
	}
	if len(parts) > 0 {
		q.name, parts = parts[0], parts[1:]
	}
	if len(parts) > 0 {
		q.sub = strings.Join(parts, "/")
	}
	q.res = registry.Lookup(q.gv.WithResource(q.resource))
	q.verb = verb(r, q)
	return q
}

// namespaceItself is true for paths to a namespace rather than to something in it.
func namespaceItself(parts []string) bool {
	return len(parts) == 2 || len(parts) == 3 && (parts[2] == "status" || parts[2] == "finalize")
}

func verb(r *http.Request, q request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		w := r.URL.Query().Get("watch")
		switch {
		case q.resource != "" && q.sub == "" && (w == "true" || w == "1"):
			return "watch"
		case q.resource != "" && q.name == "":
			return "list"
		}
		return "get"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if q.name == "" {
			return "deletecollection"
		}
		return "delete"
	}
	return strings.ToLower(r.Method)
}

// object names what the request is made to: "shop/cart", a namespace for lists in one,
// or nothing.
func (q request) object() string {
	switch {
	case q.namespace != "" && q.name != "":
		return q.namespace + "/" + q.name
	case q.name != "":
		return q.name
	}
	return q.namespace
}

// target is the resource with its subresource: "pods/eviction".
func (q request) target() string {
	if q.sub != "" {
		return q.resource + "/" + q.sub
	}
	return q.resource
}
