package forward_test

import (
	"fmt"
	"testing"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"

	"github.com/eksbg/eksbg/internal/sandbox/kube/forward"
)

type names map[string]*corev1.Service

func (n names) Service(namespace, name string) *corev1.Service { return n[namespace+"/"+name] }
func (n names) Ready(*corev1.Service) []string                 { return []string{"10.0.0.4", "10.0.0.5"} }

func TestResolve(t *testing.T) {
	known := names{
		"shop/cart":  {Spec: corev1.ServiceSpec{ClusterIP: "172.20.1.2", ClusterIPs: []string{"172.20.1.2"}}},
		"shop/queue": {Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}},
	}
	for name, want := range map[string]string{
		"cart.shop.svc.cluster.local.":   "NOERROR [172.20.1.2]",
		"queue.shop.svc.cluster.local":   "NOERROR [10.0.0.4 10.0.0.5]",
		"none.shop.svc.cluster.local.":   "NXDOMAIN []",
		"a.cart.shop.svc.cluster.local.": "NXDOMAIN []",
		"cart.shop.pod.cluster.local.":   "NXDOMAIN []",
		"cluster.local.":                 "NOERROR []",
		"sts.amazonaws.com.":             "NOERROR [192.0.2.53]",
		"":                               "NOERROR [192.0.2.53]",
	} {
		rcode, ips := forward.Resolve(known, name)
		if got := fmt.Sprint(dns.RcodeToString[rcode], " ", ips); got != want {
			t.Errorf("%q resolves to %s, want %s", name, got, want)
		}
	}
}
