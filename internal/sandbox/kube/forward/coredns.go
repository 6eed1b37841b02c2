package forward

import (
	"io"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
)

// AnnotationDNS on a CoreDNS pod is what it answers every question with: SERVFAIL,
// NXDOMAIN, REFUSED.
const AnnotationDNS = "sandbox.eksbg/dns"

// Names is where CoreDNS looks names up.
type Names interface {
	// Service finds a Service, or nil.
	Service(namespace, name string) *corev1.Service
	// Ready lists the addresses of the ready pods behind a headless Service.
	Ready(svc *corev1.Service) []string
}

// Pod listens as a pod does: CoreDNS (label k8s-app: kube-dns) on port 53, and nobody
// else anywhere.
func Pod(pod *corev1.Pod, names Names) Listener {
	return func(port int, conn io.ReadWriter) error {
		if port != 53 || pod.Labels["k8s-app"] != "kube-dns" {
			return ErrRefused
		}
		return ServeDNS(conn, func(name string) (int, []netip.Addr) {
			if rcode, ok := dns.StringToRcode[pod.Annotations[AnnotationDNS]]; ok {
				return rcode, nil
			}
			return Resolve(names, name)
		})
	}
}

// elsewhere is what names outside of the cluster resolve to (RFC 5737).
var elsewhere = netip.AddrFrom4([4]byte{192, 0, 2, 53})

// Resolve looks a name up as CoreDNS does: Services of the cluster domain, and everything
// else somewhere upstream.
func Resolve(names Names, name string) (int, []netip.Addr) {
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
	svc := names.Service(parts[1], parts[0])
	if svc == nil {
		return dns.RcodeNameError, nil
	}
	ips := svc.Spec.ClusterIPs
	if svc.Spec.ClusterIP == corev1.ClusterIPNone {
		ips = names.Ready(svc)
	}
	var out []netip.Addr
	for _, ip := range ips {
		if a, err := netip.ParseAddr(ip); err == nil {
			out = append(out, a)
		}
	}
	return dns.RcodeSuccess, out
}
