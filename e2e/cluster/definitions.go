package cluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// custom are the resources that no Kubernetes has by itself, with their controllers.
var custom = map[*registry.Resource]func(*Cluster, context.Context, *unstructured.Unstructured) error{
	registry.Rollouts:  (*Cluster).syncRollout,
	registry.CloneSets: (*Cluster).syncCloneSet,
}

// Define makes every custom resource known to the API server now, for clients that make
// objects of them by themselves. Start comes first.
func (c *Cluster) Define(ctx context.Context) error {
	for _, res := range []*registry.Resource{registry.Rollouts, registry.CloneSets} {
		if err := c.define(ctx, res); err != nil {
			return err
		}
	}
	return nil
}

// define makes a custom resource known to the API server, once, and starts its controller.
func (c *Cluster) define(ctx context.Context, res *registry.Resource) error {
	if custom[res] == nil || !c.first(res) {
		return nil
	}
	name := res.Resource + "." + res.Group
	_, err := c.dynamic.Resource(definitions).Create(ctx, definition(name, res), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("define %s: %w", name, err)
	}
	err = c.poll(ctx, "serve "+name, func() error {
		_, err := c.dynamic.Resource(res.GroupVersionResource).List(ctx, metav1.ListOptions{Limit: 1})
		return err
	})
	if err != nil {
		return err
	}
	return c.control(res)
}

// first is true for the first caller that names a resource.
func (c *Cluster) first(res *registry.Resource) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.defined[res] {
		return false
	}
	if c.defined == nil {
		c.defined = map[*registry.Resource]bool{}
	}
	c.defined[res] = true
	return true
}

// definition is a CustomResourceDefinition that takes any fields.
func definition(name string, res *registry.Resource) *unstructured.Unstructured {
	version := map[string]any{
		"name": res.Version, "served": true, "storage": true,
		"schema":       map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		"subresources": map[string]any{"status": map[string]any{}},
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": definitions.GroupVersion().String(), "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"group": res.Group, "scope": "Namespaced", "versions": []any{version},
			"names": map[string]any{"kind": res.Kind, "listKind": res.Kind + "List", "plural": res.Resource, "singular": res.Singular},
		},
	}}
}
