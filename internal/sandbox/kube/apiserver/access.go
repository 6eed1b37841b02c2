package apiserver

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
)

// Attributes are what a request is judged by, as authorizer.Attributes of kube-apiserver.
type Attributes struct {
	// Verb is list, patch and so on; of a path that is no resource the method in small
	// letters.
	Verb string
	// Group, Resource and Subresource say what of. Namespace is empty for requests across
	// all namespaces and for resources that are in none, Name for requests about no object
	// in particular.
	Group, Resource, Subresource, Namespace, Name string
	// Path is set instead where the request is about no resource.
	Path string
}

// identity is who makes a request.
type identity struct {
	user   string
	groups []string
}

// anybody is who makes requests of a server that authenticates nobody.
var anybody = identity{"system:admin", []string{"system:masters", "system:authenticated"}}

// identify says who makes a request; false for nobody that is known. Public paths may be
// read without saying who one is.
func (s *Server) identify(r *http.Request) (who identity, ok bool) {
	if s.Authenticate == nil {
		return anybody, true
	}
	header := r.Header.Get("Authorization")
	if header == "" && public[r.URL.Path] {
		return identity{"system:anonymous", []string{"system:unauthenticated"}}, true
	}
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return identity{}, false
	}
	user, groups, err := s.Authenticate(strings.TrimSpace(token))
	return identity{user, groups}, err == nil
}

// attributes are those of a request.
func attributes(r *http.Request, q request) Attributes {
	if q.resource == "" {
		return Attributes{Verb: q.verb, Path: r.URL.Path}
	}
	a := Attributes{Verb: q.verb, Group: q.gv.Group, Resource: q.resource, Subresource: q.sub, Namespace: q.namespace, Name: q.name}
	if q.res == registry.Namespaces && q.name != "" {
		a.Namespace = q.name // a namespace lies in itself (RequestInfoFactory)
	}
	return a
}

// allowed tells whether somebody may do something, and why where the authorizer says so.
// What clients find their way by is open to everybody who is known (the ClusterRoles
// system:discovery and system:public-info-viewer).
func (s *Server) allowed(who identity, a Attributes) (bool, string) {
	if s.Authorize == nil || a.Resource == "" && findsTheWay(a) {
		return true, ""
	}
	return s.Authorize(who.user, who.groups, a)
}

func findsTheWay(a Attributes) bool {
	if a.Verb != "get" && a.Verb != "head" {
		return false
	}
	return public[a.Path] || slices.ContainsFunc([]string{"/api", "/apis", "/openapi"}, func(root string) bool {
		return a.Path == root || strings.HasPrefix(a.Path, root+"/")
	})
}

// forbidden is the refusal in the words of kube-apiserver (apiserver/pkg/endpoints/handlers/
// responsewriters/errors.go).
func forbidden(who identity, a Attributes, reason string) error {
	target := a.Resource
	if a.Subresource != "" {
		target += "/" + a.Subresource
	}
	at := "at the cluster scope"
	if a.Namespace != "" {
		at = fmt.Sprintf("in the namespace %q", a.Namespace)
	}
	said := fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", who.user, a.Verb, target, a.Group, at)
	if a.Resource == "" {
		said = fmt.Sprintf("User %q cannot %s path %q", who.user, a.Verb, a.Path)
	}
	if reason != "" {
		said += ": " + reason
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: a.Group, Resource: a.Resource}, a.Name, fmt.Errorf("%s", said))
}

// review is a resource of which nothing is kept: what is created is answered and
// forgotten.
type review struct {
	schema.GroupVersionResource
	kind   string
	answer func(*Server, identity, runtime.Object) (runtime.Object, error)
}

// reviews are those with which callers ask about themselves.
var reviews = []review{
	{authenticationv1.SchemeGroupVersion.WithResource("selfsubjectreviews"), "SelfSubjectReview", (*Server).whoAmI},
	{authorizationv1.SchemeGroupVersion.WithResource("selfsubjectaccessreviews"), "SelfSubjectAccessReview", (*Server).mayI},
}

// reviewed finds the review that a request is about, or nil.
func reviewed(q request) *review {
	for i := range reviews {
		if reviews[i].GroupVersionResource == q.gv.WithResource(q.resource) && q.namespace == "" {
			return &reviews[i]
		}
	}
	return nil
}

func (s *Server) serveReview(w http.ResponseWriter, r *http.Request, q request, who identity, v *review) error {
	if q.name != "" {
		return notServed(r, q)
	}
	if q.verb != "create" {
		return apierrors.NewMethodNotSupported(v.GroupResource(), q.verb)
	}
	a, err := negotiate(r, nil, false)
	if err != nil {
		return err
	}
	b, err := readBody(r)
	if err != nil {
		return err
	}
	kind := v.GroupVersion().WithKind(v.kind)
	in, err := decode(r, b, kind)
	if err != nil {
		return err
	}
	out, err := v.answer(s, who, in)
	if err != nil {
		return err
	}
	out.GetObjectKind().SetGroupVersionKind(kind)
	a.write(w, http.StatusCreated, out)
	return nil
}

// whoAmI tells the caller who it is taken for.
func (s *Server) whoAmI(who identity, in runtime.Object) (runtime.Object, error) {
	if _, ok := in.(*authenticationv1.SelfSubjectReview); !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a SelfSubjectReview: %T", in))
	}
	return &authenticationv1.SelfSubjectReview{
		ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(s.Registry.Clock())},
		Status:     authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: who.user, Groups: who.groups}},
	}, nil
}

// mayI tells the caller whether it may do one thing.
func (s *Server) mayI(who identity, in runtime.Object) (runtime.Object, error) {
	v, ok := in.(*authorizationv1.SelfSubjectAccessReview)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a SelfSubjectAccessReview: %T", in))
	}
	var a Attributes
	switch spec := v.Spec; {
	case (spec.ResourceAttributes == nil) == (spec.NonResourceAttributes == nil):
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: authorizationv1.GroupName, Kind: "SelfSubjectAccessReview"}, "",
			field.ErrorList{field.Invalid(field.NewPath("spec"), spec.NonResourceAttributes, "exactly one of nonResourceAttributes or resourceAttributes must be specified")})
	case spec.ResourceAttributes != nil:
		a = resourceAttributes(*spec.ResourceAttributes)
	default:
		a = Attributes{Verb: spec.NonResourceAttributes.Verb, Path: spec.NonResourceAttributes.Path}
	}
	out := v.DeepCopy()
	allowed, reason := s.allowed(who, a)
	out.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: allowed, Reason: reason}
	return out, nil
}

func resourceAttributes(a authorizationv1.ResourceAttributes) Attributes {
	return Attributes{Verb: a.Verb, Group: a.Group, Resource: a.Resource, Subresource: a.Subresource, Namespace: a.Namespace, Name: a.Name}
}

// String is how the request log names what a SelfSubjectAccessReview asks about: "patch
// deployments.apps in shop".
func (a Attributes) String() string {
	if a.Path != "" {
		return a.Verb + " " + a.Path
	}
	out := a.Verb + " " + schema.GroupResource{Group: a.Group, Resource: a.Resource}.String()
	if a.Subresource != "" {
		out += "/" + a.Subresource
	}
	if a.Namespace != "" {
		out += " in " + a.Namespace
	}
	return out
}

// about is what a SelfSubjectAccessReview asks, for the log; empty for other requests.
func about(r *http.Request, q request, body []byte) string {
	v := reviewed(q)
	if v == nil || q.verb != "create" {
		return ""
	}
	in, err := decode(r, body, v.GroupVersion().WithKind(v.kind))
	if asked, ok := in.(*authorizationv1.SelfSubjectAccessReview); err == nil && ok && asked.Spec.ResourceAttributes != nil {
		return resourceAttributes(*asked.Spec.ResourceAttributes).String()
	}
	return ""
}
