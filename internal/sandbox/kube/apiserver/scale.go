package apiserver

import (
	"errors"
	"fmt"
	"net/http"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

var scaleKind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

// scaleOf shows a workload as its scale subresource.
func scaleOf(o store.Object) *autoscalingv1.Scale {
	s := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{
		Name: o.GetName(), Namespace: o.GetNamespace(), UID: o.GetUID(),
		ResourceVersion: o.GetResourceVersion(), CreationTimestamp: o.GetCreationTimestamp(),
	}}
	s.SetGroupVersionKind(scaleKind)
	var sel *metav1.LabelSelector
	switch w := o.(type) {
	case *appsv1.Deployment:
		s.Spec.Replicas, s.Status.Replicas, sel = *w.Spec.Replicas, w.Status.Replicas, w.Spec.Selector
	case *appsv1.ReplicaSet:
		s.Spec.Replicas, s.Status.Replicas, sel = *w.Spec.Replicas, w.Status.Replicas, w.Spec.Selector
	case *appsv1.StatefulSet:
		s.Spec.Replicas, s.Status.Replicas, sel = *w.Spec.Replicas, w.Status.Replicas, w.Spec.Selector
	case *registry.CloneSet:
		s.Spec.Replicas, s.Status.Replicas, sel = *w.Spec.Replicas, w.Status.Replicas, w.Spec.Selector
	case *registry.Rollout:
		s.Spec.Replicas, s.Status.Replicas, sel = *w.Spec.Replicas, w.Status.Replicas, w.Spec.Selector
	case *corev1.ReplicationController:
		s.Spec.Replicas, s.Status.Replicas = *w.Spec.Replicas, w.Status.Replicas
		s.Status.Selector = labels.FormatLabels(w.Spec.Selector)
		return s
	}
	if ls, err := metav1.LabelSelectorAsSelector(sel); err == nil {
		s.Status.Selector = ls.String()
	}
	return s
}

// setReplicas returns a copy of a workload with another number of replicas.
func setReplicas(o store.Object, n int32) store.Object {
	next := o.DeepCopyObject().(store.Object)
	switch w := next.(type) {
	case *appsv1.Deployment:
		w.Spec.Replicas = &n
	case *appsv1.ReplicaSet:
		w.Spec.Replicas = &n
	case *appsv1.StatefulSet:
		w.Spec.Replicas = &n
	case *corev1.ReplicationController:
		w.Spec.Replicas = &n
	case *registry.CloneSet:
		w.Spec.Replicas = &n
	case *registry.Rollout:
		w.Spec.Replicas = &n
	}
	return next
}

func (s *Server) getScale(w http.ResponseWriter, r *http.Request, q request) error {
	o, err := s.Registry.Get(q.res, q.namespace, q.name)
	if err != nil {
		return err
	}
	return s.renderScale(w, r, o)
}

func (s *Server) renderScale(w http.ResponseWriter, r *http.Request, o store.Object) error {
	a, err := negotiate(r, nil, false)
	if err != nil {
		return err
	}
	a.write(w, http.StatusOK, scaleOf(o))
	return nil
}

func (s *Server) updateScale(w http.ResponseWriter, r *http.Request, q request) error {
	b, err := readBody(r)
	if err != nil {
		return err
	}
	in, err := decode(r, b, scaleKind)
	if err != nil {
		return err
	}
	want, ok := in.(*autoscalingv1.Scale)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("expected a Scale, got %T", in))
	}
	return s.rescale(w, r, q, func(store.Object) (*autoscalingv1.Scale, error) { return want, nil })
}

func (s *Server) patchScale(w http.ResponseWriter, r *http.Request, q request) error {
	p, t, err := readPatch(r, false)
	if err != nil {
		return err
	}
	if t == types.ApplyYAMLPatchType {
		return apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch", q.res.GR(), q.name, "the sandbox applies no Scales", 0, true)
	}
	return s.rescale(w, r, q, func(old store.Object) (*autoscalingv1.Scale, error) {
		next := &autoscalingv1.Scale{}
		return next, apply(r, p, t, scaleOf(old), next)
	})
}

func (s *Server) rescale(w http.ResponseWriter, r *http.Request, q request, f func(store.Object) (*autoscalingv1.Scale, error)) error {
	dry, err := dryRun(r)
	if err != nil {
		return err
	}
	o, err := s.Registry.ChangeAs(writer(r), q.res, q.namespace, q.name, registry.Whole, dry, func(old store.Object) (store.Object, error) {
		sc, err := f(old)
		if err != nil {
			return nil, err
		}
		if sc.Name != q.name {
			return nil, apierrors.NewBadRequest("the name of the Scale does not match the name on the URL")
		}
		if sc.Spec.Replicas < 0 {
			return nil, apierrors.NewInvalid(scaleKind.GroupKind(), q.name, field.ErrorList{
				field.Invalid(field.NewPath("spec", "replicas"), sc.Spec.Replicas, "must be greater than or equal to 0")})
		}
		if rv := sc.ResourceVersion; rv != "" && rv != old.GetResourceVersion() {
			return nil, apierrors.NewConflict(q.res.GR(), q.name, errors.New(
				"the object has been modified; please apply your changes to the latest version and try again"))
		}
		return setReplicas(old, sc.Spec.Replicas), nil
	})
	if err != nil {
		return err
	}
	return s.renderScale(w, r, o)
}
