// Package registry is what lies between the wire and the store of a simulated API
// server: which resources there are, and what creating, updating, deleting and evicting
// one of them means. Controllers and HTTP clients go through it alike.
package registry

import (
	"reflect"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

// Resource is one resource of the API.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Singular   string
	Short      []string
	Categories []string
	Namespaced bool
	// Status and Scale say which subresources it has.
	Status, Scale bool
	// Generation is true where metadata.generation counts changes of the spec.
	Generation bool
	// Custom resources have no protobuf form and no strategic merge patch.
	Custom bool

	// spec is the Go field whose changes the generation counts.
	spec string
	// pinned resources refuse updates without a resourceVersion; putCreates are made by a
	// PUT where there are none.
	pinned, putCreates bool

	obj, list reflect.Type
	defaults  func(store.Object)
	create    func(store.Object) fieldErrors
	update    func(next, old store.Object) fieldErrors
}

// GVK is the kind of an object of the resource.
func (r *Resource) GVK() schema.GroupVersionKind {
	return r.GroupVersion().WithKind(r.Kind)
}

// GR names the resource in the store.
func (r *Resource) GR() schema.GroupResource { return r.GroupResource() }

// New makes an empty object with its kind set.
func (r *Resource) New() store.Object {
	o := reflect.New(r.obj).Interface().(store.Object)
	o.GetObjectKind().SetGroupVersionKind(r.GVK())
	return o
}

// NewList makes a list of the objects, with its kind set. Items come without theirs, as
// the API server sends them.
func (r *Resource) NewList(items []store.Object) runtime.Object {
	l := reflect.New(r.list)
	s := reflect.MakeSlice(reflect.SliceOf(r.obj), len(items), len(items))
	for i, o := range items {
		s.Index(i).Set(reflect.ValueOf(o).Elem())
		s.Index(i).Addr().Interface().(runtime.Object).GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	l.Elem().FieldByName("Items").Set(s)
	o := l.Interface().(runtime.Object)
	o.GetObjectKind().SetGroupVersionKind(r.GroupVersion().WithKind(r.Kind + "List"))
	return o
}

// resource declares a resource with its types; O is the object's type, L its list's.
func resource[O, L any](gv schema.GroupVersion, plural, singular string) *Resource {
	obj := reflect.TypeFor[O]()
	return &Resource{
		GroupVersionResource: gv.WithResource(plural),
		Kind:                 obj.Name(),
		Singular:             singular,
		Namespaced:           true,
		spec:                 "Spec",
		obj:                  obj,
		list:                 reflect.TypeFor[L](),
	}
}

func (r *Resource) short(names ...string) *Resource  { r.Short = names; return r }
func (r *Resource) inAll() *Resource                 { r.Categories = []string{"all"}; return r }
func (r *Resource) clusterScoped() *Resource         { r.Namespaced = false; return r }
func (r *Resource) withStatus() *Resource            { r.Status = true; return r }
func (r *Resource) withScale() *Resource             { r.Scale = true; return r }
func (r *Resource) counted() *Resource               { r.Generation = true; return r }
func (r *Resource) countedBy(field string) *Resource { r.Generation, r.spec = true, field; return r }
func (r *Resource) pin() *Resource                   { r.pinned = true; return r }
func (r *Resource) custom() *Resource                { r.Custom, r.pinned = true, true; return r }
func (r *Resource) with(f func(*Resource)) *Resource { f(r); return r }

// The resources of the simulated cluster. Some are only kept (nothing acts on them):
// ConfigMaps, Secrets, ServiceAccounts, PodTemplates, HorizontalPodAutoscalers and the
// webhook configurations, whose webhooks are never called.
var (
	Namespaces = resource[corev1.Namespace, corev1.NamespaceList](corev1.SchemeGroupVersion, "namespaces", "namespace").
			clusterScoped().short("ns").withStatus().with(namespaceRules)
	Nodes = resource[corev1.Node, corev1.NodeList](corev1.SchemeGroupVersion, "nodes", "node").
		clusterScoped().short("no").withStatus()
	Pods = resource[corev1.Pod, corev1.PodList](corev1.SchemeGroupVersion, "pods", "pod").
		short("po").inAll().withStatus().with(podRules)
	Services = resource[corev1.Service, corev1.ServiceList](corev1.SchemeGroupVersion, "services", "service").
			short("svc").inAll().withStatus().with(serviceRules)
	Events = resource[corev1.Event, corev1.EventList](corev1.SchemeGroupVersion, "events", "event").
		short("ev")
	ConfigMaps = resource[corev1.ConfigMap, corev1.ConfigMapList](corev1.SchemeGroupVersion, "configmaps", "configmap").
			short("cm")
	Secrets         = resource[corev1.Secret, corev1.SecretList](corev1.SchemeGroupVersion, "secrets", "secret").with(secretRules)
	ServiceAccounts = resource[corev1.ServiceAccount, corev1.ServiceAccountList](corev1.SchemeGroupVersion, "serviceaccounts", "serviceaccount").
			short("sa")
	Claims = resource[corev1.PersistentVolumeClaim, corev1.PersistentVolumeClaimList](corev1.SchemeGroupVersion, "persistentvolumeclaims", "persistentvolumeclaim").
		short("pvc").withStatus().with(claimRules)

	PodTemplates = resource[corev1.PodTemplate, corev1.PodTemplateList](corev1.SchemeGroupVersion, "podtemplates", "podtemplate").
			countedBy("Template").with(podTemplateRules)
	ReplicationControllers = resource[corev1.ReplicationController, corev1.ReplicationControllerList](corev1.SchemeGroupVersion, "replicationcontrollers", "replicationcontroller").
				short("rc").inAll().withStatus().withScale().counted().with(replicationControllerRules)

	Deployments = resource[appsv1.Deployment, appsv1.DeploymentList](appsv1.SchemeGroupVersion, "deployments", "deployment").
			short("deploy").inAll().withStatus().withScale().counted().with(deploymentRules)
	ReplicaSets = resource[appsv1.ReplicaSet, appsv1.ReplicaSetList](appsv1.SchemeGroupVersion, "replicasets", "replicaset").
			short("rs").inAll().withStatus().withScale().counted().with(replicaSetRules)
	StatefulSets = resource[appsv1.StatefulSet, appsv1.StatefulSetList](appsv1.SchemeGroupVersion, "statefulsets", "statefulset").
			short("sts").inAll().withStatus().withScale().counted().with(statefulSetRules)
	DaemonSets = resource[appsv1.DaemonSet, appsv1.DaemonSetList](appsv1.SchemeGroupVersion, "daemonsets", "daemonset").
			short("ds").inAll().withStatus().counted().with(daemonSetRules)
	ControllerRevisions = resource[appsv1.ControllerRevision, appsv1.ControllerRevisionList](appsv1.SchemeGroupVersion, "controllerrevisions", "controllerrevision")

	Jobs = resource[batchv1.Job, batchv1.JobList](batchv1.SchemeGroupVersion, "jobs", "job").
		inAll().withStatus().counted().with(jobRules)
	CronJobs = resource[batchv1.CronJob, batchv1.CronJobList](batchv1.SchemeGroupVersion, "cronjobs", "cronjob").
			short("cj").inAll().withStatus().counted().with(cronJobRules)

	PodDisruptionBudgets = resource[policyv1.PodDisruptionBudget, policyv1.PodDisruptionBudgetList](policyv1.SchemeGroupVersion, "poddisruptionbudgets", "poddisruptionbudget").
				short("pdb").withStatus().counted().pin().with(budgetRules)

	HorizontalPodAutoscalers = resource[autoscalingv2.HorizontalPodAutoscaler, autoscalingv2.HorizontalPodAutoscalerList](autoscalingv2.SchemeGroupVersion, "horizontalpodautoscalers", "horizontalpodautoscaler").
					short("hpa").inAll().withStatus().with(autoscalerRules)

	Leases = resource[coordinationv1.Lease, coordinationv1.LeaseList](coordinationv1.SchemeGroupVersion, "leases", "lease").
		pin().with(func(r *Resource) { r.putCreates = true })

	PriorityClasses = resource[schedulingv1.PriorityClass, schedulingv1.PriorityClassList](schedulingv1.SchemeGroupVersion, "priorityclasses", "priorityclass").
			clusterScoped().short("pc").countedBy("Value").with(priorityClassRules)
	ValidatingWebhooks = resource[admissionv1.ValidatingWebhookConfiguration, admissionv1.ValidatingWebhookConfigurationList](admissionv1.SchemeGroupVersion, "validatingwebhookconfigurations", "validatingwebhookconfiguration").
				clusterScoped().countedBy("Webhooks").pin().with(validatingWebhookRules)
	MutatingWebhooks = resource[admissionv1.MutatingWebhookConfiguration, admissionv1.MutatingWebhookConfigurationList](admissionv1.SchemeGroupVersion, "mutatingwebhookconfigurations", "mutatingwebhookconfiguration").
				clusterScoped().countedBy("Webhooks").pin().with(mutatingWebhookRules)

	Rollouts = resource[Rollout, RolloutList](RolloutGroup, "rollouts", "rollout").
			short("ro").withStatus().withScale().counted().custom().with(rolloutRules)
	CloneSets = resource[CloneSet, CloneSetList](CloneSetGroup, "clonesets", "cloneset").
			short("clone").withStatus().withScale().counted().custom().with(cloneSetRules)
)

// All are the resources in the order in which discovery lists them.
var All = []*Resource{
	ConfigMaps, Events, Namespaces, Nodes, Claims, Pods, PodTemplates, ReplicationControllers, Secrets, ServiceAccounts, Services,
	MutatingWebhooks, ValidatingWebhooks,
	ControllerRevisions, DaemonSets, Deployments, ReplicaSets, StatefulSets,
	CronJobs, Jobs,
	HorizontalPodAutoscalers,
	PodDisruptionBudgets,
	PriorityClasses,
	Leases,
	Rollouts, CloneSets,
}

var (
	byGVR  = map[schema.GroupVersionResource]*Resource{}
	byGR   = map[schema.GroupResource]*Resource{}
	byType = map[reflect.Type]*Resource{}
	byKind = map[string]*Resource{}
)

func init() {
	for _, r := range All {
		byGVR[r.GroupVersionResource] = r
		byGR[r.GR()] = r
		byType[r.obj] = r
		byKind[r.GroupVersion().String()+" "+r.Kind] = r
	}
}

// Lookup finds a resource by name, or nil.
func Lookup(gvr schema.GroupVersionResource) *Resource { return byGVR[gvr] }

// For finds the resource that objects of o's Go type belong to, or nil.
func For(o runtime.Object) *Resource {
	t := reflect.TypeOf(o)
	if t == nil || t.Kind() != reflect.Pointer {
		return nil
	}
	return byType[t.Elem()]
}

// PutCreates is true for resources that a PUT makes where there is none.
func (r *Resource) PutCreates() bool { return r.putCreates }

// ByKind finds the resource of a kind as owner references name it, or nil.
func ByKind(apiVersion, kind string) *Resource { return byKind[apiVersion+" "+kind] }

// ByGR finds a resource by group and name, or nil.
func ByGR(gr schema.GroupResource) *Resource { return byGR[gr] }
