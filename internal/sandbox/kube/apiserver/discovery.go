package apiserver

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
)

func writeJSON(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", mediaJSON)
	_, _ = w.Write(b) // a client that left is its own affair
}

// versions lists the group versions served, in the order of registry.All.
func versions() []schema.GroupVersion {
	var out []schema.GroupVersion
	add := func(gv schema.GroupVersion) {
		if !slices.Contains(out, gv) {
			out = append(out, gv)
		}
	}
	for _, r := range registry.All {
		add(r.GroupVersion())
	}
	for _, v := range reviews {
		add(v.GroupVersion())
	}
	return out
}

// discovery makes the document at a path below /api or /apis, or nil.
func discovery(path, host string) runtime.Object {
	switch parts := strings.Split(strings.Trim(path, "/"), "/"); {
	case path == "/api":
		return &metav1.APIVersions{
			TypeMeta:                   metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"},
			Versions:                   []string{"v1"},
			ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: host}},
		}
	case path == "/apis":
		l := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		for _, gv := range versions() {
			if gv.Group != "" {
				l.Groups = append(l.Groups, group(gv))
			}
		}
		return l
	case parts[0] == "apis" && len(parts) == 2:
		for _, gv := range versions() {
			if gv.Group == parts[1] {
				g := group(gv)
				g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
				return &g
			}
		}
	case parts[0] == "api" && len(parts) == 2:
		return resources(schema.GroupVersion{Version: parts[1]})
	case parts[0] == "apis" && len(parts) == 3:
		return resources(schema.GroupVersion{Group: parts[1], Version: parts[2]})
	}
	return nil
}

func group(gv schema.GroupVersion) metav1.APIGroup {
	v := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
	return metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v}
}

// resources lists what a group version serves; nil (no document) when that is nothing.
func resources(gv schema.GroupVersion) runtime.Object {
	l := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for _, r := range registry.All {
		if r.GroupVersion() != gv {
			continue
		}
		verbs := metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
		if r == registry.Namespaces {
			verbs = metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}
		}
		l.APIResources = append(l.APIResources, metav1.APIResource{
			Name: r.Resource, SingularName: r.Singular, Namespaced: r.Namespaced, Kind: r.Kind,
			Verbs: verbs, ShortNames: r.Short, Categories: r.Categories,
		})
		sub := func(name string, gvk schema.GroupVersionKind, verbs ...string) {
			a := metav1.APIResource{Name: r.Resource + "/" + name, Namespaced: r.Namespaced, Kind: gvk.Kind, Verbs: verbs}
			if gvk.GroupVersion() != gv {
				a.Group, a.Version = gvk.Group, gvk.Version
			}
			l.APIResources = append(l.APIResources, a)
		}
		if r == registry.Pods {
			sub("eviction", policyv1.SchemeGroupVersion.WithKind("Eviction"), "create")
			sub("portforward", schema.GroupVersion{Version: "v1"}.WithKind("PodPortForwardOptions"), forwardVerbs...)
		}
		if r.Scale {
			sub("scale", autoscalingv1.SchemeGroupVersion.WithKind("Scale"), "get", "patch", "update")
		}
		if r.Status {
			sub("status", r.GVK(), "get", "patch", "update")
		}
	}
	for _, v := range reviews {
		if v.GroupVersion() == gv {
			l.APIResources = append(l.APIResources, metav1.APIResource{
				Name: v.Resource, SingularName: strings.ToLower(v.kind), Kind: v.kind, Verbs: metav1.Verbs{"create"},
			})
		}
	}
	if len(l.APIResources) == 0 {
		return nil
	}
	return l
}
