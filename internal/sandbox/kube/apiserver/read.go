package apiserver

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sort"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
	"github.com/eksbg/eksbg/internal/sandbox/kube/table"
)

// render sends one object in the form the client asked for.
func (s *Server) render(w http.ResponseWriter, r *http.Request, q request, code int, o store.Object) error {
	a, err := negotiate(r, q.res, false)
	if err != nil {
		return err
	}
	a.write(w, code, s.transform(r, a, q.res, o))
	return nil
}

// transform applies the "as" of an Accept header to one object.
func (s *Server) transform(r *http.Request, a accepted, res *registry.Resource, o store.Object) runtime.Object {
	switch a.as {
	case "Table":
		t := table.Of(res, []store.Object{o}, s.Registry.Clock(), includes(r))
		t.ResourceVersion = o.GetResourceVersion()
		return t
	case "PartialObjectMetadata":
		return table.Partial(o)
	}
	return o
}

func includes(r *http.Request) metav1.IncludeObjectPolicy {
	return metav1.IncludeObjectPolicy(r.URL.Query().Get("includeObject"))
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, q request) error {
	o, err := s.Registry.Get(q.res, q.namespace, q.name)
	if err != nil {
		return err
	}
	return s.render(w, r, q, http.StatusOK, o)
}

// selection is what a list or watch is narrowed to.
type selection struct {
	opts   metav1.ListOptions
	labels labels.Selector
	fields fields.Selector
	res    *registry.Resource
}

func selects(r *http.Request, q request) (selection, error) {
	sel := selection{res: q.res}
	err := registry.Parameters.DecodeParameters(r.URL.Query(), schema.GroupVersion{Version: "v1"}, &sel.opts)
	if err != nil {
		return sel, apierrors.NewBadRequest(err.Error())
	}
	if sel.labels, err = labels.Parse(sel.opts.LabelSelector); err != nil {
		return sel, apierrors.NewBadRequest("unable to parse labelSelector: " + err.Error())
	}
	if sel.fields, err = fields.ParseSelector(sel.opts.FieldSelector); err != nil {
		return sel, apierrors.NewBadRequest("unable to parse fieldSelector: " + err.Error())
	}
	if q.name != "" { // a watch of one object by its path
		sel.fields = fields.AndSelectors(sel.fields, fields.OneTermEqualSelector("metadata.name", q.name))
	}
	known := registry.Fields(q.res, q.res.New())
	for _, f := range sel.fields.Requirements() {
		if !known.Has(f.Field) {
			return sel, apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", f.Field))
		}
	}
	return sel, nil
}

func (sel selection) everything() bool { return sel.labels.Empty() && sel.fields.Empty() }

func (sel selection) matches(o store.Object) bool {
	if o == nil || !sel.labels.Empty() && !sel.labels.Matches(labels.Set(o.GetLabels())) {
		return false
	}
	return sel.fields.Empty() || sel.fields.Matches(registry.Fields(sel.res, o))
}

// position is where a list in pages goes on: after key Start, at revision RV (-1: at the
// present one). The form is that of kube-apiserver's tokens.
type position struct {
	APIVersion string `json:"v"`
	RV         int64  `json:"rv"`
	Start      string `json:"start"`
}

func (p position) token() string {
	p.APIVersion = "meta.k8s.io/v1"
	b, _ := json.Marshal(p) // plain strings and a number
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseToken(t string) (position, error) {
	var p position
	b, err := base64.RawURLEncoding.DecodeString(t)
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err == nil && (p.APIVersion != "meta.k8s.io/v1" || p.Start == "" || p.RV == 0 || p.RV < -1) {
		err = errors.New("not a token of this server")
	}
	if err != nil {
		return p, apierrors.NewBadRequest(fmt.Sprintf("continue key is not valid: %v", err))
	}
	return p, nil
}

// revision parses a resourceVersion.
func revision(rv string) (uint64, error) {
	n, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("Invalid value: %q: strconv.ParseUint: parsing %q: invalid syntax", rv, rv))
	}
	return n, nil
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, q request) error {
	a, err := negotiate(r, q.res, false)
	if err != nil {
		return err
	}
	sel, err := selects(r, q)
	if err != nil {
		return err
	}
	items, rev, after, err := s.snapshot(q, sel.opts)
	if err != nil {
		return err
	}
	page, lm := pageOf(items, sel, after)
	lm.ResourceVersion = store.FormatRev(rev)
	if lm.Continue != "" {
		lm.Continue = position{RV: int64(rev), Start: lm.Continue}.token()
	}
	a.write(w, http.StatusOK, s.listAs(r, a, q.res, page, lm))
	return nil
}

// snapshot reads what the list is taken from: the objects, their revision, and the key
// after which the page begins.
func (s *Server) snapshot(q request, o metav1.ListOptions) (items []store.Object, rev uint64, after string, err error) {
	gr, st := q.res.GR(), s.Registry.Store
	if o.ResourceVersionMatch != "" && o.ResourceVersion == "" {
		return nil, 0, "", apierrors.NewBadRequest("resourceVersionMatch is forbidden unless resourceVersion is provided")
	}
	if o.Continue != "" {
		if o.ResourceVersion != "" && o.ResourceVersion != "0" {
			return nil, 0, "", apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
		p, err := parseToken(o.Continue)
		if err != nil {
			return nil, 0, "", err
		}
		if p.RV > 0 {
			items, err = st.ListAt(gr, q.namespace, uint64(p.RV))
			if errors.Is(err, store.ErrTooOld) {
				return nil, 0, "", expiredToken(p)
			}
			return items, uint64(p.RV), p.Start, listError(err, uint64(p.RV), st.Rev())
		}
		items, rev = st.List(gr, q.namespace)
		return items, rev, p.Start, nil
	}
	if o.ResourceVersion == "" || o.ResourceVersion == "0" {
		items, rev = st.List(gr, q.namespace)
		return items, rev, "", nil
	}
	want, err := revision(o.ResourceVersion)
	if err != nil {
		return nil, 0, "", err
	}
	exact := o.ResourceVersionMatch == metav1.ResourceVersionMatchExact || o.ResourceVersionMatch == "" && o.Limit > 0
	if exact {
		items, err = st.ListAt(gr, q.namespace, want)
		return items, want, "", listError(err, want, st.Rev())
	}
	items, rev = st.List(gr, q.namespace)
	if want > rev {
		err = listError(store.ErrTooNew, want, rev)
	}
	return items, rev, "", err
}

// listError turns the store's answers into the API's.
func listError(err error, want, have uint64) error {
	switch {
	case errors.Is(err, store.ErrTooOld):
		return apierrors.NewResourceExpired(fmt.Sprintf("The provided resource version is too old: %d (%d)", want, have))
	case errors.Is(err, store.ErrTooNew):
		e := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", want, have), 1)
		e.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
		return e
	}
	return err
}

// expiredToken refuses a token whose revision is gone, and offers one that goes on with
// the present state, as kube-apiserver does.
func expiredToken(p position) error {
	err := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. " +
		"You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. " +
		"Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the " +
		"first chunk was returned and now may show up in the list.")
	err.ErrStatus.Continue = position{RV: -1, Start: p.Start}.token()
	return err
}

// pageOf takes up to limit matching objects after a key. Continue of the result is the
// last key taken when there are more.
func pageOf(items []store.Object, sel selection, after string) ([]store.Object, metav1.ListMeta) {
	var lm metav1.ListMeta
	if after != "" {
		items = items[sort.Search(len(items), func(i int) bool { return store.KeyOf(items[i]) > after }):]
	}
	limit := int(sel.opts.Limit)
	if sel.opts.ResourceVersion == "0" && sel.opts.Continue == "" {
		limit = 0 // served from the watch cache, which knows no pages
	}
	if sel.everything() && (limit <= 0 || len(items) <= limit) {
		return items, lm
	}
	page := make([]store.Object, 0, min(len(items), max(limit, 16)))
	for i, o := range items {
		if !sel.matches(o) {
			continue
		}
		page = append(page, o)
		if limit > 0 && len(page) == limit {
			if rest := int64(len(items) - i - 1); rest > 0 {
				lm.Continue = store.KeyOf(o)
				if sel.everything() {
					lm.RemainingItemCount = &rest
				}
			}
			break
		}
	}
	return page, lm
}

// listAs makes the list object in the form the client asked for.
func (s *Server) listAs(r *http.Request, a accepted, res *registry.Resource, items []store.Object, lm metav1.ListMeta) runtime.Object {
	switch a.as {
	case "Table":
		t := table.Of(res, items, s.Registry.Clock(), includes(r))
		t.ListMeta = lm
		return t
	case "PartialObjectMetadataList":
		l := &metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}, ListMeta: lm,
		}
		for _, o := range items {
			l.Items = append(l.Items, *table.Partial(o))
		}
		return l
	}
	l := res.NewList(items)
	if m, err := meta.ListAccessor(l); err == nil {
		m.SetResourceVersion(lm.ResourceVersion)
		m.SetContinue(lm.Continue)
		m.SetRemainingItemCount(lm.RemainingItemCount)
	}
	return l
}
