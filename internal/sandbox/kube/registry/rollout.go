package registry

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

// RolloutGroup is the group and version of Argo Rollouts.
var RolloutGroup = schema.GroupVersion{Group: "argoproj.io", Version: "v1alpha1"}

// Rollout is the custom resource of Argo Rollouts, as far as something here or in a
// client reads it (pkg/apis/rollouts/v1alpha1 of argo-rollouts). Like any custom resource
// it has no protobuf form and takes no strategic merge patches.
type Rollout struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              RolloutSpec   `json:"spec"`
	Status            RolloutStatus `json:"status,omitempty"`
}

// RolloutSpec is what a Rollout should be.
type RolloutSpec struct {
	Replicas        *int32                 `json:"replicas,omitempty"`
	Selector        *metav1.LabelSelector  `json:"selector,omitempty"`
	Template        corev1.PodTemplateSpec `json:"template,omitempty"`
	MinReadySeconds int32                  `json:"minReadySeconds,omitempty"`
	Paused          bool                   `json:"paused,omitempty"`
	// RestartAt evicts every pod that was made before it.
	RestartAt *metav1.Time    `json:"restartAt,omitempty"`
	Strategy  RolloutStrategy `json:"strategy"`
}

// RolloutStrategy is how a new template is rolled out; the sandbox knows canaries without
// steps.
type RolloutStrategy struct {
	Canary *CanaryStrategy `json:"canary,omitempty"`
}

// CanaryStrategy bounds a rollout as a Deployment's strategy does.
type CanaryStrategy struct {
	MaxSurge       *intstr.IntOrString `json:"maxSurge,omitempty"`
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// RolloutStatus is what a Rollout is.
type RolloutStatus struct {
	// ObservedGeneration is a string, unlike that of everybody else.
	ObservedGeneration string       `json:"observedGeneration,omitempty"`
	CurrentPodHash     string       `json:"currentPodHash,omitempty"`
	StableRS           string       `json:"stableRS,omitempty"`
	Replicas           int32        `json:"replicas,omitempty"`
	UpdatedReplicas    int32        `json:"updatedReplicas,omitempty"`
	ReadyReplicas      int32        `json:"readyReplicas,omitempty"`
	AvailableReplicas  int32        `json:"availableReplicas,omitempty"`
	RestartedAt        *metav1.Time `json:"restartedAt,omitempty"`
	Selector           string       `json:"selector,omitempty"`
	// Phase is Healthy, Progressing, Paused or Degraded; Message says why.
	Phase   string `json:"phase,omitempty"`
	Message string `json:"message,omitempty"`
}

// RolloutList is a list of Rollouts.
type RolloutList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Rollout `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (r *Rollout) DeepCopyObject() runtime.Object { return r.DeepCopy() }

// DeepCopy copies everything below r.
func (r *Rollout) DeepCopy() *Rollout {
	out := *r
	r.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Replicas = copied(r.Spec.Replicas)
	out.Spec.Selector = r.Spec.Selector.DeepCopy()
	r.Spec.Template.DeepCopyInto(&out.Spec.Template)
	out.Spec.RestartAt = r.Spec.RestartAt.DeepCopy()
	if c := r.Spec.Strategy.Canary; c != nil {
		out.Spec.Strategy.Canary = &CanaryStrategy{copied(c.MaxSurge), copied(c.MaxUnavailable)}
	}
	out.Status.RestartedAt = r.Status.RestartedAt.DeepCopy()
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *RolloutList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Rollout, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopy()
	}
	return &out
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// Scheme knows every type that is served: those of client-go, and the custom ones.
var Scheme = newScheme()

// Codecs encode and decode what Scheme knows.
var Codecs = serializer.NewCodecFactory(Scheme)

// Parameters reads and writes options as query parameters.
var Parameters = clientscheme.ParameterCodec

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := clientscheme.AddToScheme(s); err != nil {
		panic(err) // client-go's own types
	}
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	s.AddKnownTypeWithName(RolloutGroup.WithKind("Rollout"), &Rollout{})
	s.AddKnownTypeWithName(RolloutGroup.WithKind("RolloutList"), &RolloutList{})
	metav1.AddToGroupVersion(s, RolloutGroup)
	s.AddKnownTypeWithName(CloneSetGroup.WithKind("CloneSet"), &CloneSet{})
	s.AddKnownTypeWithName(CloneSetGroup.WithKind("CloneSetList"), &CloneSetList{})
	metav1.AddToGroupVersion(s, CloneSetGroup)
	return s
}
