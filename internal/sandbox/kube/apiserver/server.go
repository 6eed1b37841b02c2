// Package apiserver speaks the Kubernetes API over HTTP for a registry: discovery,
// content negotiation, lists in pages, watches, patches, tables.
package apiserver

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
	"github.com/eksbg/eksbg/internal/sandbox/kube/release"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// Server is the HTTP face of a registry. It implements wire.Service.
type Server struct {
	Registry *registry.Registry
	// Version tells the minor served now.
	Version func() string
	// Authenticate resolves a bearer token; nil lets everybody in.
	Authenticate func(bearer string) (user string, groups []string, err error)
	// Authorize judges a request of a user, and may say why; nil allows everything.
	Authorize func(user string, groups []string, a Attributes) (allowed bool, reason string)
	// Bookmark is how often watches get a bookmark.
	Bookmark time.Duration
	// Done ends every watch when it is closed.
	Done <-chan struct{}
}

var _ wire.Service = (*Server)(nil)

// Classify names a request "k8s:<verb> <resource>[/<subresource>]", or "k8s:get <path>"
// for what is no resource.
func (s *Server) Classify(r *http.Request, body []byte) wire.Call {
	q := parse(r)
	if q.resource == "" {
		return wire.Call{Name: "k8s:" + q.verb + " " + r.URL.Path}
	}
	return wire.Call{Name: "k8s:" + q.verb + " " + q.target(), Object: cmp.Or(about(r, q, body), q.object()), Changing: changes(r, q)}
}

// changes is true for requests that can leave the cluster different.
func changes(r *http.Request, q request) bool {
	if q.sub == "portforward" || reviewed(q) != nil {
		return false
	}
	switch q.verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return r.URL.Query().Get("dryRun") == ""
	}
	return false
}

// WriteFault answers with a metav1.Status: Error is its reason, Status its code.
func (s *Server) WriteFault(w http.ResponseWriter, r *http.Request, f wire.Fault) {
	writeStatus(w, r, FaultStatus(f.Error, f.Status, f.Message))
}

// public are the paths that EKS serves to anybody (role system:public-info-viewer).
var public = map[string]bool{"/version": true, "/healthz": true, "/livez": true, "/readyz": true}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who, ok := s.identify(r)
	if !ok {
		writeError(w, r, apierrors.NewUnauthorized("Unauthorized"))
		return
	}
	q := parse(r)
	asked := attributes(r, q)
	if allowed, reason := s.allowed(who, asked); !allowed {
		writeError(w, r, forbidden(who, asked, reason))
		return
	}
	switch v := reviewed(q); {
	case q.res != nil:
		s.serveResource(w, r, q)
	case v != nil:
		if err := s.serveReview(w, r, q, who, v); err != nil {
			writeError(w, r, err)
		}
	case q.resource == "":
		s.serveDiscovery(w, r, q)
	default:
		writeError(w, r, notServed(r, q))
	}
}

// notServed is the answer to paths that are not there, in kube-apiserver's words.
func notServed(r *http.Request, q request) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, strings.ToLower(r.Method),
		schema.GroupResource{Group: q.gv.Group, Resource: q.resource}, q.name, "the server could not find the requested resource", 0, true)
}

func (s *Server) serveResource(w http.ResponseWriter, r *http.Request, q request) {
	if q.res.Namespaced && q.namespace == "" && q.verb != "list" && q.verb != "watch" || !q.res.Namespaced && q.namespace != "" {
		writeError(w, r, notServed(r, q))
		return
	}
	var h func(http.ResponseWriter, *http.Request, request) error
	switch q.sub {
	case "":
		h = map[string]func(http.ResponseWriter, *http.Request, request) error{
			"get": s.get, "list": s.list, "watch": s.watch, "create": s.create, "update": s.update,
			"patch": s.patch, "delete": s.delete, "deletecollection": s.deleteCollection,
		}[q.verb]
		if named := q.name != ""; named != (q.verb == "get" || q.verb == "update" || q.verb == "patch" || q.verb == "delete") && q.verb != "watch" ||
			q.verb == "deletecollection" && q.res == registry.Namespaces {
			h = nil
		}
	case "status":
		if !q.res.Status {
			writeError(w, r, notServed(r, q))
			return
		}
		h = map[string]func(http.ResponseWriter, *http.Request, request) error{
			"get": s.get, "update": s.update, "patch": s.patch}[q.verb]
	case "scale":
		if !q.res.Scale {
			writeError(w, r, notServed(r, q))
			return
		}
		h = map[string]func(http.ResponseWriter, *http.Request, request) error{
			"get": s.getScale, "update": s.updateScale, "patch": s.patchScale}[q.verb]
	case "eviction":
		if q.res != registry.Pods {
			writeError(w, r, notServed(r, q))
			return
		}
		h = map[string]func(http.ResponseWriter, *http.Request, request) error{"create": s.evict}[q.verb]
	case "portforward":
		if q.res != registry.Pods {
			writeError(w, r, notServed(r, q))
			return
		}
		h = map[string]func(http.ResponseWriter, *http.Request, request) error{"create": s.portforward, "get": s.portforward}[q.verb]
	default:
		writeError(w, r, notServed(r, q))
		return
	}
	if h == nil {
		writeError(w, r, apierrors.NewMethodNotSupported(q.res.GR(), q.verb))
		return
	}
	if err := h(w, r, q); err != nil {
		writeError(w, r, err)
	}
}

// serveDiscovery answers what is no resource: versions, health, the lists of resources.
func (s *Server) serveDiscovery(w http.ResponseWriter, r *http.Request, q request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		writeError(w, r, notServed(r, q))
		return
	}
	switch path := strings.TrimSuffix(r.URL.Path, "/"); path {
	case "/version":
		writeJSON(w, release.Info(s.Version()))
	case "/healthz", "/livez", "/readyz":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok"))
	case "/openapi/v2":
		writeOpenAPI2(w, r)
	case "/openapi/v3":
		writeJSON(w, openAPIIndex())
	default:
		if doc := openAPI(path); doc != nil {
			writeJSON(w, doc)
			return
		}
		o := discovery(path, r.Host)
		if o == nil {
			writeError(w, r, notServed(r, q))
			return
		}
		a, err := negotiate(r, nil, false)
		if err != nil {
			a = fallback // the older discovery documents are always to be had
		}
		a.write(w, http.StatusOK, o)
	}
}
