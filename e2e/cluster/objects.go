package cluster

import (
	"context"
	"fmt"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/eksbg/eksbg/internal/sandbox/kube"
	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
)

var nothing = fields.Everything()

// seedTime bounds the creation of one object, which may have to wait for the service
// account of a namespace that was made just before.
const seedTime = 30 * time.Second

// Create implements sandbox.Kubernetes.
func (c *Cluster) Create(obj runtime.Object) error {
	res := registry.For(obj)
	if res == nil {
		return fmt.Errorf("cluster %s: the sandbox has no %T", c.opts.Name, obj)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return fmt.Errorf("create a %s: %w", res.Kind, err)
	}
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(res.GVK())
	var api dynamic.ResourceInterface = c.dynamic.Resource(res.GroupVersionResource)
	if res.Namespaced {
		if u.GetNamespace() == "" {
			u.SetNamespace(metav1.NamespaceDefault)
		}
		api = c.dynamic.Resource(res.GroupVersionResource).Namespace(u.GetNamespace())
	}
	ctx, cancel := context.WithTimeout(context.Background(), seedTime)
	defer cancel()
	if err := c.define(ctx, res); err != nil {
		return err
	}
	var last error
	err = c.poll(ctx, "take a "+res.Kind, func() error {
		_, last = api.Create(ctx, u, metav1.CreateOptions{FieldManager: "seed"})
		if apierrors.IsForbidden(last) || apierrors.IsInternalError(last) {
			return last // its namespace's service account is not there yet
		}
		return nil
	})
	if err == nil {
		err = last
	}
	if err != nil {
		return fmt.Errorf("create %s %s/%s in cluster %s: %w", res.Kind, u.GetNamespace(), u.GetName(), c.opts.Name, err)
	}
	return nil
}

// startInformers keeps the objects that the world consists of, pods and nodes aside.
func (c *Cluster) startInformers(ctx context.Context) {
	all := []cache.SharedIndexInformer{
		c.objects.Core().V1().Namespaces().Informer(), c.objects.Core().V1().Services().Informer(),
		c.objects.Core().V1().ReplicationControllers().Informer(),
		c.objects.Apps().V1().Deployments().Informer(), c.objects.Apps().V1().ReplicaSets().Informer(),
		c.objects.Apps().V1().StatefulSets().Informer(), c.objects.Apps().V1().DaemonSets().Informer(),
		c.objects.Batch().V1().Jobs().Informer(), c.objects.Batch().V1().CronJobs().Informer(),
		c.objects.Policy().V1().PodDisruptionBudgets().Informer(),
		c.objects.Autoscaling().V2().HorizontalPodAutoscalers().Informer(),
	}
	for _, i := range all {
		// Only fails on an informer that was stopped.
		_, _ = i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { c.change() },
			UpdateFunc: func(any, any) { c.change() },
			DeleteFunc: func(any) { c.change() },
		})
	}
	c.informers = all
	c.objects.Start(ctx.Done())
}

// ownObjects are those that every control plane makes by itself.
func ownObject(o runtime.Object) bool {
	s, ok := o.(*corev1.Service)
	return ok && s.Namespace == metav1.NamespaceDefault && s.Name == "kubernetes"
}

// Snapshot implements sandbox.Kubernetes.
func (c *Cluster) Snapshot() any {
	var all []runtime.Object
	for _, i := range c.informers {
		for _, o := range i.GetStore().List() {
			if obj, ok := o.(runtime.Object); ok && !ownObject(obj) {
				all = append(all, obj)
			}
		}
	}
	c.mu.Lock()
	others := c.customs
	c.mu.Unlock()
	for _, s := range others {
		all = append(all, s.objects()...)
	}
	for _, n := range c.mirror.nodes.list() {
		all = append(all, n)
	}
	for _, p := range c.mirror.pods.list() {
		all = append(all, p)
	}
	return kube.WorldOf(c.opts.Version(), all)
}

// Nodes implements sandbox.Kubernetes.
func (c *Cluster) Nodes() []kube.NodeInfo {
	var out []kube.NodeInfo
	for _, n := range c.mirror.nodes.list() {
		out = append(out, kube.NodeOf(n))
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// ReadyPods implements sandbox.Kubernetes.
func (c *Cluster) ReadyPods(namespace string, selector map[string]string) []kube.PodEndpoint {
	sel := labels.SelectorFromValidatedSet(selector)
	var out []kube.PodEndpoint
	for _, p := range c.mirror.pods.list() {
		if p.Namespace != namespace || !sel.Matches(labels.Set(p.Labels)) {
			continue
		}
		if e, ok := kube.EndpointOf(p); ok {
			out = append(out, e)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// Free implements sandbox.Kubernetes.
func (c *Cluster) Free() map[string]int { return c.fleet.Free() }
