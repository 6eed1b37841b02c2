package apiserver

import (
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/eksbg/eksbg/internal/sandbox/kube/forward"
	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

// AnnotationDNS is forward's.
const AnnotationDNS = forward.AnnotationDNS

// portforward serves pods/portforward, for the API server and the kubelet at once.
func (s *Server) portforward(w http.ResponseWriter, r *http.Request, q request) error {
	o, err := s.Registry.Get(registry.Pods, q.namespace, q.name)
	if err != nil {
		return err
	}
	pod := o.(*corev1.Pod)
	switch {
	case pod.Spec.NodeName == "":
		return apierrors.NewBadRequest("pod " + pod.Name + " does not have a host assigned")
	case pod.Status.Phase != corev1.PodRunning:
		return apierrors.NewBadRequest("unable to forward port because pod is not running. Current status=" + string(pod.Status.Phase))
	}
	forward.Serve(w, r, s.Done, forward.Pod(pod, services{s.Registry}))
	return nil
}

// services are the names that CoreDNS knows.
type services struct{ *registry.Registry }

func (s services) Service(namespace, name string) *corev1.Service {
	svc, _ := s.Store.Get(registry.Services.GR(), store.Key(namespace, name)).(*corev1.Service)
	return svc
}

func (s services) Ready(svc *corev1.Service) []string {
	var ips []string
	items, _ := s.List(registry.Pods.GR(), svc.Namespace)
	for _, o := range items {
		p := o.(*corev1.Pod)
		if registry.PodReady(p) && labels.SelectorFromSet(svc.Spec.Selector).Matches(labels.Set(p.Labels)) {
			ips = append(ips, p.Status.PodIP)
		}
	}
	return ips
}

// forwardVerbs are what discovery says of pods/portforward.
var forwardVerbs = metav1.Verbs{"create", "get"}
