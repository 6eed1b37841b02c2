package apiserver

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

// readPatch returns the patch and its type.
func readPatch(r *http.Request, custom bool) ([]byte, types.PatchType, error) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		media = r.Header.Get("Content-Type")
	}
	known := []types.PatchType{types.JSONPatchType, types.MergePatchType, types.ApplyYAMLPatchType}
	if !custom {
		known = append(known, types.StrategicMergePatchType)
	}
	if t := types.PatchType(media); slices.Contains(known, t) {
		b, err := readBody(r)
		return b, t, err
	}
	return nil, "", apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch", schema.GroupResource{}, "", fmt.Sprintf(
		"the body of the request was in an unknown format (%s) - accepted media types include: %s", media, joined(known)), 0, true)
}

func joined(types []types.PatchType) string {
	var out []string
	for _, t := range types {
		out = append(out, string(t))
	}
	return strings.Join(out, ", ")
}

// apply patches an object. into is an empty object of its type.
func apply(r *http.Request, patch []byte, t types.PatchType, old, into runtime.Object) error {
	gvk := old.GetObjectKind().GroupVersionKind()
	before, err := json.Marshal(old)
	if err != nil {
		return err
	}
	var after []byte
	switch t {
	case types.JSONPatchType:
		var p jsonpatch.Patch
		if p, err = jsonpatch.DecodePatch(patch); err != nil {
			return apierrors.NewBadRequest("error decoding patch: " + err.Error())
		}
		if after, err = p.Apply(before); err != nil {
			name := ""
			if m, e := meta.Accessor(old); e == nil {
				name = m.GetName()
			}
			return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, name, err.Error(), 0, false)
		}
	case types.MergePatchType:
		if after, err = jsonpatch.MergePatch(before, patch); err != nil {
			return apierrors.NewBadRequest("error decoding patch: " + err.Error())
		}
	default:
		if after, err = strategicpatch.StrategicMergePatch(before, patch, into); err != nil {
			if json.Valid(patch) {
				return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
			}
			return apierrors.NewBadRequest("error decoding patch: " + err.Error())
		}
	}
	d := fallback.info.Serializer
	if strict(r) {
		d = fallback.info.StrictSerializer
	}
	if _, _, err := d.Decode(after, &gvk, into); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", gvk.Kind, gvk.Version, gvk.Kind, err))
	}
	return nil
}

func (s *Server) patch(w http.ResponseWriter, r *http.Request, q request) error {
	dry, err := dryRun(r)
	if err != nil {
		return err
	}
	p, t, err := readPatch(r, q.res.Custom)
	if err != nil {
		return err
	}
	if t == types.ApplyYAMLPatchType {
		return s.applied(w, r, q, p, dry)
	}
	o, err := s.Registry.ChangeAs(writer(r), q.res, q.namespace, q.name, registry.Sub(q.sub), dry, func(old store.Object) (store.Object, error) {
		next := q.res.New()
		if err := apply(r, p, t, old, next); err != nil {
			return nil, err
		}
		if next.GetUID() != old.GetUID() { // only an update's uid is a precondition
			return nil, apierrors.NewInvalid(q.res.GVK().GroupKind(), q.name, field.ErrorList{
				field.Invalid(field.NewPath("metadata", "uid"), next.GetUID(), "field is immutable")})
		}
		return next, nil
	})
	if err != nil {
		return err
	}
	return s.render(w, r, q, http.StatusOK, o)
}

// applied is server-side apply.
func (s *Server) applied(w http.ResponseWriter, r *http.Request, q request, patch []byte, dry bool) error {
	manager := r.URL.Query().Get("fieldManager")
	if manager == "" {
		return apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("PatchOptions").GroupKind(), "", field.ErrorList{
			field.Required(field.NewPath("fieldManager"), "is required for apply patch")})
	}
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(patch, &u.Object); err != nil {
		return apierrors.NewBadRequest("error decoding YAML: " + err.Error())
	}
	switch {
	case u.GetAPIVersion() != q.gv.String() || u.GetKind() != q.res.Kind:
		return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %s", q.res.Kind, u.GroupVersionKind()))
	case u.GetName() != "" && u.GetName() != q.name:
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", u.GetName(), q.name))
	case u.GetManagedFields() != nil:
		return apierrors.NewBadRequest("metadata.managedFields must be nil")
	}
	u.SetName(q.name)
	if q.namespace != "" {
		u.SetNamespace(q.namespace)
	}
	o, made, err := s.Registry.Apply(registry.Writer{Manager: manager}, q.res, q.namespace, q.name, registry.Sub(q.sub),
		r.URL.Query().Get("force") == "true", dry, u)
	if err != nil {
		return err
	}
	if made {
		return s.render(w, r, q, http.StatusCreated, o)
	}
	return s.render(w, r, q, http.StatusOK, o)
}
