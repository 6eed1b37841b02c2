package kube

import (
	"encoding/json"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eksbg/eksbg/internal/sandbox/kube/fargate"
	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
	"github.com/eksbg/eksbg/internal/sandbox/kube/release"
	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

// restartedAt is kubectl's annotation of a rollout restart.
const restartedAt = "kubectl.kubernetes.io/restartedAt"

// World is a cluster without ids, generated names and times: two clusters that stand the
// same have equal worlds.
type World struct {
	// Version is the control plane's minor.
	Version string `json:"version"`
	// Nodes counts the nodes by compute and kubelet minor ("fargate 1.31").
	Nodes map[string]int `json:"nodes,omitempty"`
	// Workloads are what owns pods, and bare pods, by namespace/Kind/name.
	Workloads map[string]Workload `json:"workloads,omitempty"`
	// Objects are the specs of everything else, by namespace/Kind/name.
	Objects map[string]any `json:"objects,omitempty"`
}

// Workload is a Deployment, StatefulSet, DaemonSet, Job, ReplicaSet of its own or bare pod.
type Workload struct {
	// Spec is its spec as JSON; the time of restartedAt is replaced by "set".
	Spec any `json:"spec"`
	// Restarted is true when its pod template has been restarted by annotation.
	Restarted bool `json:"restarted,omitempty"`
	// Pods counts its pods by state: ready, unready, terminating, succeeded, failed.
	Pods map[string]int `json:"pods,omitempty"`
	// Kubelets counts its unfinished pods by kubelet minor; "none" are without a node.
	Kubelets map[string]int `json:"kubelets,omitempty"`
}

// Snapshot is the cluster's World, for comparing and for world.json.
func (c *Cluster) Snapshot() any {
	var all []runtime.Object
	c.reg.View(func(r store.Reader) {
		for _, res := range registry.All {
			for _, o := range r.List(res.GR(), "") {
				all = append(all, o)
			}
		}
	})
	return WorldOf(c.opts.Version(), all)
}

// WorldOf makes a World of all the objects of a cluster; those of kinds that the sandbox
// does not serve are left out. It keeps and changes none of them.
func WorldOf(version string, objects []runtime.Object) World {
	w := World{Version: version, Nodes: map[string]int{}, Workloads: map[string]Workload{}, Objects: map[string]any{}}
	byUID, minors := map[types.UID]store.Object{}, map[string]string{}
	var pods []*corev1.Pod
	for _, obj := range objects {
		res := registry.For(obj)
		o, ok := obj.(store.Object)
		if res == nil || !ok {
			continue
		}
		byUID[o.GetUID()] = o
		w.add(res, o)
		switch o := o.(type) {
		case *corev1.Node:
			minors[o.Name] = release.Minor(o.Status.NodeInfo.KubeletVersion)
			w.Nodes[compute(o)+" "+minors[o.Name]]++
		case *corev1.Pod:
			pods = append(pods, o)
		}
	}
	for _, p := range pods {
		w.count(byUID, p, minors)
	}
	return w
}

// compute is the kind of compute that a node is of.
func compute(n *corev1.Node) string {
	if kind := n.Labels[fargate.LabelCompute]; kind != "" {
		return kind
	}
	return "ec2"
}

func name(res *registry.Resource, o store.Object) string {
	return store.Key(o.GetNamespace(), res.Kind+"/"+o.GetName())
}

// add takes an object in, unless it follows from another or says only when something was.
func (w *World) add(res *registry.Resource, o store.Object) {
	if metav1.GetControllerOf(o) != nil || everywhere(o) {
		return
	}
	switch o := o.(type) {
	case *corev1.Event, *corev1.Node:
	case *corev1.Namespace:
		w.Objects[name(res, o)] = string(o.Status.Phase)
	case *appsv1.Deployment:
		w.workload(res, o, o.Spec, o.Spec.Template)
	case *appsv1.ReplicaSet:
		w.workload(res, o, o.Spec, o.Spec.Template)
	case *corev1.ReplicationController:
		w.workload(res, o, o.Spec, *o.Spec.Template)
	case *registry.CloneSet:
		w.workload(res, o, o.Spec, o.Spec.Template)
	case *registry.Rollout:
		spec := o.Spec
		spec.RestartAt = nil
		w.workload(res, o, spec, o.Spec.Template)
	case *appsv1.StatefulSet:
		w.workload(res, o, o.Spec, o.Spec.Template)
	case *appsv1.DaemonSet:
		w.workload(res, o, o.Spec, o.Spec.Template)
	case *batchv1.Job:
		w.workload(res, o, jobSpec(o), o.Spec.Template)
	case *corev1.Pod:
		w.workload(res, o, podSpec(o), corev1.PodTemplateSpec{})
	case *corev1.Service:
		spec := o.Spec.DeepCopy()
		spec.ClusterIP, spec.ClusterIPs = "", nil
		w.Objects[name(res, o)] = plain(spec)
	case *corev1.ConfigMap:
		w.Objects[name(res, o)] = plain(o.Data)
	case *corev1.Secret:
		w.Objects[name(res, o)] = plain(o.Data)
	default:
		w.Objects[name(res, o)] = plain(part(o))
	}
}

// everywhere is true for what every cluster has without anybody asking for it.
func everywhere(o store.Object) bool {
	switch o.(type) {
	case *corev1.Service:
		return o.GetNamespace() == metav1.NamespaceDefault && o.GetName() == "kubernetes"
	case *corev1.ConfigMap:
		return o.GetName() == "kube-root-ca.crt"
	case *corev1.ServiceAccount:
		return o.GetName() == "default"
	case *schedulingv1.PriorityClass:
		return strings.HasPrefix(o.GetName(), "system-")
	}
	return false
}

// part is the spec of an object that has one; of Leases, whose spec is all times and
// holders, and of others only that they are there counts.
func part(o store.Object) any {
	b, err := json.Marshal(o)
	if err != nil {
		return nil
	}
	var m struct {
		Kind string `json:"kind"`
		Spec any    `json:"spec"`
	}
	if json.Unmarshal(b, &m) != nil || m.Kind == registry.Leases.Kind {
		return nil
	}
	return m.Spec
}

func (w *World) workload(res *registry.Resource, o store.Object, spec any, t corev1.PodTemplateSpec) {
	_, restarted := t.Annotations[restartedAt]
	w.Workloads[name(res, o)] = Workload{Spec: masked(plain(spec)), Restarted: restarted, Pods: map[string]int{}, Kubelets: map[string]int{}}
}

// jobSpec leaves out the labels that hold the job's uid.
func jobSpec(j *batchv1.Job) batchv1.JobSpec {
	s := *j.Spec.DeepCopy()
	if s.ManualSelector == nil || !*s.ManualSelector {
		s.Selector = nil
	}
	delete(s.Template.Labels, batchv1.ControllerUidLabel)
	delete(s.Template.Labels, "controller-uid")
	return s
}

// podSpec leaves out the node, whose name is an address.
func podSpec(p *corev1.Pod) corev1.PodSpec {
	s := *p.Spec.DeepCopy()
	s.NodeName = ""
	return s
}

// plain turns v into maps, slices and values, as JSON has them.
func plain(v any) any {
	b, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	var out any
	if json.Unmarshal(b, &out) != nil {
		return nil
	}
	return out
}

// masked replaces the time of every restartedAt.
func masked(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if k == restartedAt {
				v[k] = "set"
			} else {
				v[k] = masked(x)
			}
		}
	case []any:
		for i := range v {
			v[i] = masked(v[i])
		}
	}
	return v
}

// count adds a pod to the workload that it belongs to in the end.
func (w *World) count(byUID map[types.UID]store.Object, p *corev1.Pod, minors map[string]string) {
	top := store.Object(p)
	for {
		ref := metav1.GetControllerOf(top)
		if ref == nil {
			break
		}
		owner, ok := byUID[ref.UID]
		if !ok {
			break
		}
		top = owner
	}
	wl, ok := w.Workloads[name(registry.For(top), top)]
	if !ok {
		return
	}
	state := "unready"
	switch {
	case p.Status.Phase == corev1.PodSucceeded:
		state = "succeeded"
	case p.Status.Phase == corev1.PodFailed:
		state = "failed"
	case p.DeletionTimestamp != nil:
		state = "terminating"
	case registry.PodReady(p):
		state = "ready"
	}
	wl.Pods[state]++
	if state == "succeeded" || state == "failed" {
		return
	}
	minor := minors[p.Spec.NodeName]
	if minor == "" {
		minor = "none"
	}
	wl.Kubelets[minor]++
}
