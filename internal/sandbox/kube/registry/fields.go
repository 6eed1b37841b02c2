package registry

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

// Fields are the fields of an object that a fieldSelector may name.
func Fields(res *Resource, o store.Object) fields.Set {
	f := fields.Set{"metadata.name": o.GetName()}
	if res.Namespaced {
		f["metadata.namespace"] = o.GetNamespace()
	}
	switch o := o.(type) {
	case *corev1.Pod:
		f["spec.nodeName"] = o.Spec.NodeName
		f["spec.restartPolicy"] = string(o.Spec.RestartPolicy)
		f["spec.schedulerName"] = o.Spec.SchedulerName
		f["spec.serviceAccountName"] = o.Spec.ServiceAccountName
		f["status.phase"] = string(o.Status.Phase)
		f["status.podIP"] = o.Status.PodIP
		f["status.nominatedNodeName"] = o.Status.NominatedNodeName
	case *corev1.Node:
		f["spec.unschedulable"] = "false"
		if o.Spec.Unschedulable {
			f["spec.unschedulable"] = "true"
		}
	case *corev1.Namespace:
		f["status.phase"] = string(o.Status.Phase)
	case *corev1.Secret:
		f["type"] = string(o.Type)
	case *corev1.Event:
		i := o.InvolvedObject
		f["involvedObject.kind"], f["involvedObject.namespace"], f["involvedObject.name"] = i.Kind, i.Namespace, i.Name
		f["involvedObject.uid"], f["involvedObject.apiVersion"], f["involvedObject.resourceVersion"] = string(i.UID), i.APIVersion, i.ResourceVersion
		f["involvedObject.fieldPath"], f["reason"], f["type"], f["source"] = i.FieldPath, o.Reason, o.Type, o.Source.Component
		f["reportingComponent"] = o.ReportingController
	}
	return f
}
