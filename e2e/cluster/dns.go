package cluster

import (
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/eksbg/eksbg/internal/sandbox/kube/forward"
	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
)

// listen serves what runs in pods.
func (c *Cluster) listen(pod *corev1.Pod, port int, conn io.ReadWriter) error {
	return forward.Pod(pod, services{c})(port, conn)
}

// services are the names that CoreDNS knows.
type services struct{ *Cluster }

// Service implements forward.Names.
func (s services) Service(namespace, name string) *corev1.Service {
	svc, err := s.objects.Core().V1().Services().Lister().Services(namespace).Get(name)
	if err != nil {
		return nil // the only error of a lister is that there is none
	}
	return svc
}

// Ready implements forward.Names.
func (s services) Ready(svc *corev1.Service) []string {
	var ips []string
	sel := labels.SelectorFromSet(svc.Spec.Selector)
	for _, p := range s.mirror.pods.list() {
		if p.Namespace == svc.Namespace && registry.PodReady(p) && sel.Matches(labels.Set(p.Labels)) {
			ips = append(ips, p.Status.PodIP)
		}
	}
	return ips
}
