package apiserver

import (
	"io"
	"net/http"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/eksbg/eksbg/internal/sandbox/kube/forward"
	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
	"github.com/eksbg/eksbg/internal/sandbox/kube/store"
)

// AnnotationDNS on a CoreDNS pod is what it answers every question with: SERVFAIL,
// NXDOMAIN, REFUSED.
const AnnotationDNS = "sandbox.eksbg/dns"

// portforward serves pods/portforward. CoreDNS (label k8s-app: kube-dns) listens on port
// 53; on other ports and in other pods nobody does.
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
	forward.Serve(w, r, s.Done, func(port int, conn io.ReadWriter) error {
		if port != 53 || pod.Labels["k8s-app"] != "kube-dns" {
			return forward.ErrRefused
		}
		return forward.ServeDNS(conn, func(name string) (int, []netip.Addr) {
			if rcode, ok := dns.StringToRcode[pod.Annotations[AnnotationDNS]]; ok {
				return rcode, nil
			}
			return s.resolve(name)
		})
	})
	return nil
}

// elsewhere is what names outside of the cluster resolve to (RFC 5737).
var elsewhere = netip.AddrFrom4([4]byte{192, 0, 2, 53})

// resolve looks a name up as CoreDNS does: Services of the cluster domain, and everything
// else somewhere upstream.
func (s *Server) resolve(name string) (int, []netip.Addr) {
	name = strings.TrimSuffix(name, ".")
	if name == "cluster.local" {
		return dns.RcodeSuccess, nil
	}
	inside, ok := strings.CutSuffix(name, ".cluster.local")
	if !ok {
		return dns.RcodeSuccess, []netip.Addr{elsewhere}
	}
	parts := strings.Split(inside, ".")
	if len(parts) != 3 || parts[2] != "svc" {
		return dns.RcodeNameError, nil
	}
	svc, ok := s.Registry.Store.Get(registry.Services.GR(), store.Key(parts[1], parts[0])).(*corev1.Service)
	if !ok {
		return dns.RcodeNameError, nil
	}
	if svc.Spec.ClusterIP != corev1.ClusterIPNone {
		return dns.RcodeSuccess, addresses(svc.Spec.ClusterIP)
	}
	var ips []netip.Addr
	items, _ := s.Registry.List(registry.Pods.GR(), svc.Namespace)
	for _, o := range items {
		p := o.(*corev1.Pod)
		if registry.PodReady(p) && labels.SelectorFromSet(svc.Spec.Selector).Matches(labels.Set(p.Labels)) {
			ips = append(ips, addresses(p.Status.PodIP)...)
		}
	}
	return dns.RcodeSuccess, ips
}

func addresses(ip string) []netip.Addr {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return nil
	}
	return []netip.Addr{a}
}

// forwardVerbs are what discovery says of pods/portforward.
var forwardVerbs = metav1.Verbs{"create", "get"}
