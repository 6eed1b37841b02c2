package cluster

import (
	"io"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/eksbg/eksbg/internal/sandbox/kube/apiserver"
	"github.com/eksbg/eksbg/internal/sandbox/kube/forward"
)

// listen serves what runs in pods: CoreDNS answers on port 53, and nobody else does.
func (c *Cluster) listen(pod *corev1.Pod, port int, conn io.ReadWriter) error {
	if port != 53 || pod.Labels["k8s-app"] != "kube-dns" {
		return forward.ErrRefused
	}
	return forward.ServeDNS(conn, func(name string) (int, []netip.Addr) {
		if rcode, ok := dns.StringToRcode[pod.Annotations[apiserver.AnnotationDNS]]; ok {
			return rcode, nil
		}
		return c.resolve(name)
	})
}

// elsewhere is what names outside of the cluster resolve to (RFC 5737).
var elsewhere = netip.AddrFrom4([4]byte{192, 0, 2, 53})

// resolve looks a name up as CoreDNS does.
func (c *Cluster) resolve(name string) (int, []netip.Addr) {
	name = strings.TrimSuffix(name, ".")
	inside, ok := strings.CutSuffix(name, ".cluster.local")
	switch {
	case name == "cluster.local":
		return dns.RcodeSuccess, nil
	case !ok:
		return dns.RcodeSuccess, []netip.Addr{elsewhere}
	}
	parts := strings.Split(inside, ".")
	if len(parts) != 3 || parts[2] != "svc" {
		return dns.RcodeNameError, nil
	}
	svc, err := c.objects.Core().V1().Services().Lister().Services(parts[1]).Get(parts[0])
	if err != nil {
		return dns.RcodeNameError, nil
	}
	ips := svc.Spec.ClusterIPs
	if svc.Spec.ClusterIP == corev1.ClusterIPNone {
		ips = nil
		sel := labels.SelectorFromSet(svc.Spec.Selector)
		for _, p := range c.mirror.pods.list() {
			if p.Namespace == svc.Namespace && p.Status.PodIP != "" && sel.Matches(labels.Set(p.Labels)) {
				ips = append(ips, p.Status.PodIP)
			}
		}
	}
	var out []netip.Addr
	for _, ip := range ips {
		if a, err := netip.ParseAddr(ip); err == nil {
			out = append(out, a)
		}
	}
	return dns.RcodeSuccess, out
}
