package fargate

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// sizes are the combinations of vCPU (thousandths) and memory (MiB) that Fargate offers
// ("Fargate Pod configuration" in the EKS user guide): memory from, to, step.
var sizes = []struct{ cpu, from, to, step int64 }{
	{250, 512, 512, 512}, {250, 1024, 2048, 1024},
	{500, 1024, 4096, 1024},
	{1000, 2048, 8192, 1024},
	{2000, 4096, 16384, 1024},
	{4000, 8192, 30720, 1024},
	{8000, 16384, 61440, 4096},
	{16000, 32768, 122880, 8192},
}

// reserved is what Fargate adds to a pod's memory for kubelet, kube-proxy and containerd.
const reserved = 256

// capacity is the smallest size that holds a pod, as the annotation CapacityProvisioned
// spells it; "" when there is none.
func capacity(pod *corev1.Pod) string {
	cpu, mem := size(pod)
	if cpu == 0 {
		return ""
	}
	return fmt.Sprintf("%gvCPU %gGB", float64(cpu)/1000, float64(mem)/1024)
}

// size is the smallest size that holds a pod, in thousandths of a vCPU and MiB; zeros
// when there is none.
func size(pod *corev1.Pod) (milliCPU, mib int64) {
	cpu, mem := requests(pod)
	mem += reserved
	for _, s := range sizes {
		if s.cpu < cpu || s.to < mem {
			continue
		}
		m := s.from
		for m < mem {
			m += s.step
		}
		return s.cpu, m
	}
	return 0, 0
}

// requests sums the containers and takes the largest init container if that is more.
func requests(pod *corev1.Pod) (cpu, mem int64) {
	const mib = 1 << 20
	of := func(c corev1.Container) (int64, int64) {
		q := func(n corev1.ResourceName) *resource.Quantity {
			if v, ok := c.Resources.Requests[n]; ok {
				return &v
			}
			v := c.Resources.Limits[n]
			return &v
		}
		return q(corev1.ResourceCPU).MilliValue(), (q(corev1.ResourceMemory).Value() + mib - 1) / mib
	}
	for _, c := range pod.Spec.Containers {
		dc, dm := of(c)
		cpu, mem = cpu+dc, mem+dm
	}
	for _, c := range pod.Spec.InitContainers {
		dc, dm := of(c)
		cpu, mem = max(cpu, dc), max(mem, dm)
	}
	return cpu, mem
}
