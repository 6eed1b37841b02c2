package fargate

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eksbg/eksbg/internal/sandbox/kube/release"
)

// dnsName is the private DNS name that a VPC gives to an address.
func (f *Fleet) dnsName(pl place) string {
	ip := "ip-" + strings.ReplaceAll(pl.ip.String(), ".", "-")
	if f.region == "us-east-1" {
		return ip + ".ec2.internal"
	}
	return ip + "." + f.region + ".compute.internal"
}

func (f *Fleet) nodeName(pl place) string { return "fargate-" + f.dnsName(pl) }

// zone is the full name of a subnet's availability zone.
func (f *Fleet) zone(s *subnet) string {
	if len(s.Zone) <= 1 {
		return f.region + s.Zone
	}
	return s.Zone
}

// newNode makes the node of a pod, with the kubelet of this moment.
func (f *Fleet) newNode(s *slot, pod *corev1.Pod) *corev1.Node {
	at := f.now()
	zone, host := f.zone(s.subnet), f.dnsName(s.place)
	kubelet := release.Kubelet(f.version())
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("2"),
		corev1.ResourceMemory:           resource.MustParse("7926308Ki"),
		corev1.ResourceEphemeralStorage: resource.MustParse("30787492Ki"),
		corev1.ResourcePods:             resource.MustParse("1"),
		"hugepages-1Gi":                 resource.MustParse("0"),
		"hugepages-2Mi":                 resource.MustParse("0"),
	}
	allocatable := capacity.DeepCopy()
	allocatable[corev1.ResourceMemory] = resource.MustParse("7823908Ki")
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.node,
			Labels: map[string]string{
				"beta.kubernetes.io/arch":           "amd64",
				"beta.kubernetes.io/os":             "linux",
				LabelCompute:                        "fargate",
				corev1.LabelFailureDomainBetaRegion: f.region,
				corev1.LabelFailureDomainBetaZone:   zone,
				corev1.LabelArchStable:              "amd64",
				corev1.LabelHostname:                host,
				corev1.LabelOSStable:                "linux",
				corev1.LabelTopologyRegion:          f.region,
				corev1.LabelTopologyZone:            zone,
			},
			Annotations: map[string]string{
				"node.alpha.kubernetes.io/ttl":                           "0",
				"volumes.kubernetes.io/controller-managed-attach-detach": "true",
			},
		},
		Spec: corev1.NodeSpec{
			Taints:     []corev1.Taint{{Key: LabelCompute, Value: "fargate", Effect: corev1.TaintEffectNoSchedule}},
			ProviderID: fmt.Sprintf("aws:///%s/%s/%s", zone, providerPart(pod), s.node),
		},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: allocatable, Conditions: conditions(at),
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: s.ip.String()},
				{Type: corev1.NodeInternalDNS, Address: host},
				{Type: corev1.NodeHostName, Address: host},
			},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
			NodeInfo: corev1.NodeSystemInfo{
				SystemUUID: strings.ToUpper(string(pod.UID)), BootID: string(pod.UID),
				KernelVersion: "5.10.245-241.978.amzn2.x86_64", OSImage: "Amazon Linux 2", OperatingSystem: "linux", Architecture: "amd64",
				ContainerRuntimeVersion: "containerd://1.7.29", KubeletVersion: kubelet,
				KubeProxyVersion: kubelet, //nolint:staticcheck // kubelets of these minors still report it
			},
		},
	}
}

// providerPart is the middle of a Fargate provider id: two groups of hexadecimal digits.
func providerPart(pod *corev1.Pod) string {
	hex := strings.ReplaceAll(string(pod.UID), "-", "")
	return fmt.Sprintf("%.10s-%s", hex, hex)
}

func conditions(at metav1.Time) []corev1.NodeCondition {
	c := func(t corev1.NodeConditionType, s corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: t, Status: s, LastHeartbeatTime: at, LastTransitionTime: at, Reason: reason, Message: message}
	}
	return []corev1.NodeCondition{
		c(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
		c(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
		c(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
		c(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"),
	}
}
