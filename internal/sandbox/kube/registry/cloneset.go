package registry

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

// CloneSetGroup is the group and version of OpenKruise.
var CloneSetGroup = schema.GroupVersion{Group: "apps.kruise.io", Version: "v1alpha1"}

// CloneSet is a custom owner of pods of which eksbg knows nothing (OpenKruise has it): its
// controller makes a pod anew that is gone, and that is all there is to know.
type CloneSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              CloneSetSpec   `json:"spec"`
	Status            CloneSetStatus `json:"status,omitempty"`
}

// CloneSetSpec is what a CloneSet should be.
type CloneSetSpec struct {
	Replicas *int32                 `json:"replicas,omitempty"`
	Selector *metav1.LabelSelector  `json:"selector,omitempty"`
	Template corev1.PodTemplateSpec `json:"template,omitempty"`
}

// CloneSetStatus is what a CloneSet is.
type CloneSetStatus struct {
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	Replicas           int32 `json:"replicas"`
	ReadyReplicas      int32 `json:"readyReplicas"`
	AvailableReplicas  int32 `json:"availableReplicas"`
}

// CloneSetList is a list of CloneSets.
type CloneSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CloneSet `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (s *CloneSet) DeepCopyObject() runtime.Object { return s.DeepCopy() }

// DeepCopy copies everything below s.
func (s *CloneSet) DeepCopy() *CloneSet {
	out := *s
	s.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Replicas = copied(s.Spec.Replicas)
	out.Spec.Selector = s.Spec.Selector.DeepCopy()
	s.Spec.Template.DeepCopyInto(&out.Spec.Template)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *CloneSetList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]CloneSet, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopy()
	}
	return &out
}

func cloneSetRules(r *Resource) {
	r.defaults = func(o store.Object) {
		defp(&o.(*CloneSet).Spec.Replicas, 1)
		defaultPodSpec(&o.(*CloneSet).Spec.Template.Spec)
	}
	r.create = func(o store.Object) fieldErrors {
		s := o.(*CloneSet).Spec
		return validateWorkload(s.Selector, s.Template, s.Replicas)
	}
}

// AsReplicaSet shows an owner that does what a ReplicaSet does as one, for whoever counts
// and makes its pods; false for all others.
func AsReplicaSet(o store.Object) (*appsv1.ReplicaSet, bool) {
	switch o := o.(type) {
	case *appsv1.ReplicaSet:
		return o, true
	case *corev1.ReplicationController:
		st := o.Status
		return &appsv1.ReplicaSet{
			ObjectMeta: o.ObjectMeta,
			Spec: appsv1.ReplicaSetSpec{Replicas: o.Spec.Replicas, MinReadySeconds: o.Spec.MinReadySeconds,
				Selector: &metav1.LabelSelector{MatchLabels: o.Spec.Selector}, Template: *o.Spec.Template},
			Status: appsv1.ReplicaSetStatus{Replicas: st.Replicas, FullyLabeledReplicas: st.FullyLabeledReplicas, ReadyReplicas: st.ReadyReplicas,
				AvailableReplicas: st.AvailableReplicas, ObservedGeneration: st.ObservedGeneration},
		}, true
	case *CloneSet:
		st := o.Status
		return &appsv1.ReplicaSet{
			ObjectMeta: o.ObjectMeta,
			Spec:       appsv1.ReplicaSetSpec{Replicas: o.Spec.Replicas, Selector: o.Spec.Selector, Template: o.Spec.Template},
			Status: appsv1.ReplicaSetStatus{Replicas: st.Replicas, ReadyReplicas: st.ReadyReplicas,
				AvailableReplicas: st.AvailableReplicas, ObservedGeneration: st.ObservedGeneration},
		}, true
	}
	return nil, false
}

// SetReplicaStatus writes back what was counted for an owner that AsReplicaSet shows.
func SetReplicaStatus(o store.Object, s appsv1.ReplicaSetStatus) {
	switch o := o.(type) {
	case *appsv1.ReplicaSet:
		o.Status = s
	case *corev1.ReplicationController:
		to := &o.Status
		to.Replicas, to.FullyLabeledReplicas, to.ReadyReplicas = s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas
		to.AvailableReplicas, to.ObservedGeneration = s.AvailableReplicas, s.ObservedGeneration
	case *CloneSet:
		o.Status = CloneSetStatus{s.ObservedGeneration, s.Replicas, s.ReadyReplicas, s.AvailableReplicas}
	}
}
