package sandbox

import (
	"context"
	"fmt"
	"net/http"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	coreDNSPath    = "/apis/apps/v1/namespaces/kube-system/deployments/coredns"
	coreDNSBudget  = "/apis/policy/v1/namespaces/kube-system/poddisruptionbudgets/coredns"
	coreDNSService = "/api/v1/namespaces/kube-system/services/kube-dns"

	mediaStrategic = "application/strategic-merge-patch+json"
)

// installCoreDNS gives a cluster the CoreDNS that EKS gives it, or has the one that is
// there run another version. As in EKS its pods are none of Fargate's while no profile
// takes them, and those that were made before have to be made anew
// (https://docs.aws.amazon.com/eks/latest/userguide/fargate-getting-started.html); the
// add-on brings a disruption budget along, the self-managed one does not.
func (c *cluster) installCoreDNS(ctx context.Context, region, version string, managed bool) error {
	image := "602401143452.dkr.ecr." + region + ".amazonaws.com/eks/coredns:" + version
	if c.call(ctx, http.MethodGet, coreDNSPath, mediaJSON, "", nil) == nil {
		body := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"coredns","image":%q}]}}}}`, image)
		return c.call(ctx, http.MethodPatch, coreDNSPath+"?fieldManager=eks", mediaStrategic, body, nil)
	}
	for _, o := range coreDNS(image, managed) {
		if err := c.kube.Create(o); err != nil {
			return err
		}
	}
	return nil
}

func coreDNS(image string, managed bool) []runtime.Object {
	labels := map[string]string{"eks.amazonaws.com/component": "coredns", "k8s-app": "kube-dns"}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name, Labels: map[string]string{
			"eks.amazonaws.com/component": "coredns", "k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS",
		}}
	}
	ports := []corev1.ServicePort{
		{Name: "dns", Port: 53, TargetPort: intstr.FromInt32(53), Protocol: corev1.ProtocolUDP},
		{Name: "dns-tcp", Port: 53, TargetPort: intstr.FromInt32(53), Protocol: corev1.ProtocolTCP},
	}
	objs := []runtime.Object{
		&corev1.Service{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meta("kube-dns"),
			Spec: corev1.ServiceSpec{ClusterIP: "172.20.0.10", Selector: map[string]string{"k8s-app": "kube-dns"}, Ports: ports},
		},
		&appsv1.Deployment{
			TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: meta("coredns"),
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Strategy: appsv1.DeploymentStrategy{
					Type:          appsv1.RollingUpdateDeploymentStrategyType,
					RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: ptr(intstr.FromInt32(1)), MaxSurge: ptr(intstr.FromString("25%"))},
				},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "coredns", Image: image, Ports: []corev1.ContainerPort{
						{Name: "dns", ContainerPort: 53, Protocol: corev1.ProtocolUDP}, {Name: "dns-tcp", ContainerPort: 53, Protocol: corev1.ProtocolTCP},
					}}},
					PriorityClassName: "system-cluster-critical",
				}},
			},
		},
	}
	if managed {
		objs = append(objs, &policyv1.PodDisruptionBudget{
			TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}, ObjectMeta: meta("coredns"),
			Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels}},
		})
	}
	return objs
}
