package apiserver

import (
	"fmt"
	"net/http"

	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

// dryRun reads the query parameter; only "All" is a value.
func dryRun(r *http.Request) (bool, error) {
	switch v := r.URL.Query()["dryRun"]; {
	case len(v) == 0 || len(v) == 1 && v[0] == "":
		return false, nil
	case len(v) == 1 && v[0] == metav1.DryRunAll:
		return true, nil
	default:
		return false, apierrors.NewBadRequest(fmt.Sprintf("dryRun: Unsupported value: %q: supported values: %q", v, metav1.DryRunAll))
	}
}

// writer is who a request's fields are tracked for.
func writer(r *http.Request) registry.Writer {
	return registry.WriterOf(r.URL.Query().Get("fieldManager"), r.UserAgent())
}

// body reads an object of the request's resource.
func (s *Server) body(r *http.Request, q request) (store.Object, error) {
	b, err := readBody(r)
	if err != nil {
		return nil, err
	}
	in, err := decode(r, b, q.res.GVK())
	if err != nil {
		return nil, err
	}
	o, ok := in.(store.Object)
	if !ok || registry.For(in) != q.res {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %s", q.res.Kind, in.GetObjectKind().GroupVersionKind()))
	}
	if q.res.Namespaced {
		switch o.GetNamespace() {
		case "":
			o.SetNamespace(q.namespace)
		case q.namespace:
		default:
			return nil, apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
		}
	}
	return o, nil
}

func (s *Server) create(w http.ResponseWriter, r *http.Request, q request) error {
	dry, err := dryRun(r)
	if err != nil {
		return err
	}
	o, err := s.body(r, q)
	if err != nil {
		return err
	}
	if o, err = s.Registry.CreateAs(writer(r), q.res, o, dry); err != nil {
		return err
	}
	return s.render(w, r, q, http.StatusCreated, o)
}

func (s *Server) update(w http.ResponseWriter, r *http.Request, q request) error {
	dry, err := dryRun(r)
	if err != nil {
		return err
	}
	want, err := s.body(r, q)
	if err != nil {
		return err
	}
	o, err := s.Registry.ChangeAs(writer(r), q.res, q.namespace, q.name, registry.Sub(q.sub), dry, func(store.Object) (store.Object, error) {
		return want, nil
	})
	if apierrors.IsNotFound(err) && q.sub == "" && q.res.PutCreates() && want.GetResourceVersion() == "" {
		if o, err = s.Registry.CreateAs(writer(r), q.res, want, dry); err == nil {
			return s.render(w, r, q, http.StatusCreated, o)
		}
	}
	if err != nil {
		return err
	}
	return s.render(w, r, q, http.StatusOK, o)
}

// deleteOptions reads them from the body, or else from the query.
func deleteOptions(r *http.Request) (metav1.DeleteOptions, error) {
	var o metav1.DeleteOptions
	b, err := readBody(r)
	if err != nil {
		return o, err
	}
	if len(b) == 0 {
		if err := registry.Parameters.DecodeParameters(r.URL.Query(), schema.GroupVersion{Version: "v1"}, &o); err != nil {
			return o, apierrors.NewBadRequest(err.Error())
		}
	} else {
		in, err := decode(r, b, schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"})
		if err != nil {
			return o, err
		}
		given, ok := in.(*metav1.DeleteOptions)
		if !ok {
			return o, apierrors.NewBadRequest("the body of a DELETE must be DeleteOptions")
		}
		o = *given
	}
	dry, err := dryRun(r)
	if dry {
		o.DryRun = []string{metav1.DryRunAll}
	}
	return o, err
}

func (s *Server) delete(w http.ResponseWriter, r *http.Request, q request) error {
	opts, err := deleteOptions(r)
	if err != nil {
		return err
	}
	o, gone, err := s.Registry.Delete(q.res, q.namespace, q.name, opts)
	if err != nil {
		return err
	}
	if gone && q.res != registry.Pods && q.res != registry.Services {
		writeStatus(w, r, metav1.Status{
			Status: metav1.StatusSuccess, Code: http.StatusOK,
			Details: &metav1.StatusDetails{Name: q.name, Group: q.gv.Group, Kind: q.resource, UID: o.GetUID()},
		})
		return nil
	}
	return s.render(w, r, q, http.StatusOK, o)
}

func (s *Server) deleteCollection(w http.ResponseWriter, r *http.Request, q request) error {
	a, err := negotiate(r, q.res, false)
	if err != nil {
		return err
	}
	sel, err := selects(r, q)
	if err != nil {
		return err
	}
	opts, err := deleteOptions(r)
	if err != nil {
		return err
	}
	items, rev := s.Registry.List(q.res.GR(), q.namespace)
	var done []store.Object
	for _, o := range items {
		if !sel.matches(o) {
			continue
		}
		left, _, err := s.Registry.Delete(q.res, o.GetNamespace(), o.GetName(), opts)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		done = append(done, left)
	}
	a.write(w, http.StatusOK, s.listAs(r, a, q.res, done, metav1.ListMeta{ResourceVersion: store.FormatRev(rev)}))
	return nil
}

// evict serves POST pods/<name>/eviction, in both versions of policy.
func (s *Server) evict(w http.ResponseWriter, r *http.Request, q request) error {
	dry, err := dryRun(r)
	if err != nil {
		return err
	}
	b, err := readBody(r)
	if err != nil {
		return err
	}
	in, err := decode(r, b, policyv1.SchemeGroupVersion.WithKind("Eviction"))
	if err != nil {
		return err
	}
	var name string
	var opts *metav1.DeleteOptions
	switch e := in.(type) {
	case *policyv1.Eviction:
		name, opts = e.Name, e.DeleteOptions
	case *policyv1beta1.Eviction:
		name, opts = e.Name, e.DeleteOptions
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("not a Eviction object: %T", in))
	}
	if name != q.name {
		return apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	if opts == nil {
		opts = &metav1.DeleteOptions{}
	}
	if dry {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	if err := s.Registry.Evict(q.namespace, q.name, *opts); err != nil {
		return err
	}
	writeStatus(w, r, metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusCreated})
	return nil
}
