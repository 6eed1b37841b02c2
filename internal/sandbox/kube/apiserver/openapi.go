package apiserver

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
)

// kubectl create and apply look into the OpenAPI v3 documents for one thing: whether the
// server validates fields by itself (the query parameter fieldValidation of PATCH). The
// documents here say that and no more; there are no schemas in them.

// The OpenAPI v2 document in protobuf: what clients ask for is no valid media type, so
// the answer spells it otherwise (kube-openapi, pkg/handler).
const (
	protoOpenAPI         = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	protoOpenAPIReturned = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
)

// writeOpenAPI2 answers kubectl before 1.30, which reads the older document. There are no
// schemas in it either, and without anything to say its protobuf form has no bytes.
func writeOpenAPI2(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.Header.Get("Accept"), protoOpenAPI) {
		w.Header().Set("Content-Type", protoOpenAPIReturned)
		w.WriteHeader(http.StatusOK)
		return
	}
	writeJSON(w, map[string]any{
		"swagger": "2.0", "info": map[string]any{"title": "Kubernetes", "version": "unversioned"}, "paths": map[string]any{},
	})
}

func gvPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.Group + "/" + gv.Version
}

// openAPIIndex lists the documents.
func openAPIIndex() any {
	paths := map[string]any{}
	for _, gv := range versions() {
		paths[gvPath(gv)] = map[string]string{"serverRelativeURL": "/openapi/v3/" + gvPath(gv)}
	}
	return map[string]any{"paths": paths}
}

// openAPI makes the document at a path below /openapi/v3, or nil.
func openAPI(path string) any {
	rest, ok := strings.CutPrefix(path, "/openapi/v3/")
	if !ok {
		return nil
	}
	for _, gv := range versions() {
		if gvPath(gv) == rest {
			return document(gv)
		}
	}
	return nil
}

func document(gv schema.GroupVersion) any {
	paths := map[string]any{}
	for _, r := range registry.All {
		if r.GroupVersion() != gv {
			continue
		}
		p := "/" + gvPath(gv) + "/"
		if r.Namespaced {
			p += "namespaces/{namespace}/"
		}
		var params []any
		for _, name := range []string{"dryRun", "fieldManager", "fieldValidation", "force"} {
			params = append(params, map[string]any{
				"name": name, "in": "query", "schema": map[string]any{"type": "string", "uniqueItems": true},
			})
		}
		paths[p+r.Resource+"/{name}"] = map[string]any{"patch": map[string]any{
			"operationId":                     "patch" + r.Kind,
			"parameters":                      params,
			"responses":                       map[string]any{"200": map[string]any{"description": "OK"}},
			"x-kubernetes-action":             "patch",
			"x-kubernetes-group-version-kind": map[string]any{"group": gv.Group, "version": gv.Version, "kind": r.Kind},
		}}
	}
	return map[string]any{
		"openapi": "3.0.0", "info": map[string]any{"title": "Kubernetes", "version": "unversioned"},
		"paths": paths, "components": map[string]any{"schemas": map[string]any{}},
	}
}
