package fargate

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

func TestProfileOf(t *testing.T) {
	profiles := []Profile{
		{Name: "fp-z", Selectors: []Selector{{Namespace: "*"}}},
		{Name: "fp-a", Selectors: []Selector{{Namespace: "other"}, {Namespace: "shop", Labels: map[string]string{"tier": "web*"}}}},
		{Name: "fp-m", Selectors: []Selector{{Namespace: "sh?p", Labels: map[string]string{"app.kubernetes.io/*": "c[a]rt"}}}},
	}
	for _, c := range []struct {
		ns     string
		labels map[string]string
		want   string
	}{
		{"default", nil, "fp-z"},
		{"shop", map[string]string{"tier": "web-front"}, "fp-a"},
		{"shop", map[string]string{"tier": "db"}, "fp-z"},
		{"ship", map[string]string{"app.kubernetes.io/name": "c[a]rt"}, "fp-m"},
		{"ship", map[string]string{"app.kubernetes.io/name": "cart"}, "fp-z"},
		{"shop", map[string]string{"tier": "web", LabelProfile: "fp-z"}, "fp-z"},
		{"shop", map[string]string{"tier": "db", LabelProfile: "fp-a"}, ""},
		{"shop", map[string]string{LabelProfile: "none"}, ""},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.ns, Labels: c.labels}}
		if got := profileOf(profiles, pod); got != c.want {
			t.Errorf("pod in %s with %v goes to %q, want %q", c.ns, c.labels, got, c.want)
		}
	}
	if got := profileOf(nil, &corev1.Pod{}); got != "" {
		t.Errorf("without profiles a pod goes to %q", got)
	}
}

func TestCapacity(t *testing.T) {
	c := func(cpu, mem string) corev1.Container {
		r := corev1.ResourceList{}
		if cpu != "" {
			r[corev1.ResourceCPU] = resource.MustParse(cpu)
		}
		if mem != "" {
			r[corev1.ResourceMemory] = resource.MustParse(mem)
		}
		return corev1.Container{Resources: corev1.ResourceRequirements{Requests: r}}
	}
	for _, x := range []struct {
		init, containers []corev1.Container
		want             string
	}{
		{nil, []corev1.Container{c("", "")}, "0.25vCPU 0.5GB"},
		{nil, []corev1.Container{c("250m", "256Mi")}, "0.25vCPU 0.5GB"},
		{nil, []corev1.Container{c("250m", "257Mi")}, "0.25vCPU 1GB"}, // 256 MiB are Fargate's own
		{nil, []corev1.Container{c("100m", "1Gi"), c("200m", "")}, "0.5vCPU 2GB"},
		{nil, []corev1.Container{c("1", "8Gi")}, "2vCPU 9GB"}, // over the 8 GB of 1 vCPU
		{[]corev1.Container{c("2", "")}, []corev1.Container{c("100m", "100Mi")}, "2vCPU 4GB"},
		{nil, []corev1.Container{c("16", "100Gi")}, "16vCPU 104GB"},
		{nil, []corev1.Container{c("17", "")}, ""},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: x.init, Containers: x.containers}}
		if got := capacity(pod); got != x.want {
			t.Errorf("%v %v is %q, want %q", x.init, x.containers, got, x.want)
		}
	}
}

// TestPool hands out addresses and takes them back: never one twice, never a reserved
// one, and as many as the subnets have.
func TestPool(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, err := newPool([]Subnet{{ID: "a", CIDR: "10.0.1.0/28"}, {ID: "b", CIDR: "10.0.2.16/28"}})
		if err != nil {
			t.Fatal(err)
		}
		var out []place
		used := map[string]bool{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(out) > 0 && rapid.Bool().Draw(t, "give") {
				i := rapid.IntRange(0, len(out)-1).Draw(t, "which")
				out[i].give()
				out[i].give() // a second time is nothing
				delete(used, out[i].ip.String())
				out = append(out[:i], out[i+1:]...)
				continue
			}
			pl, ok := p.take()
			if ok != (len(out) < 22) {
				t.Fatalf("with %d of 22 in use an address is to be had: %v", len(out), ok)
			}
			if !ok {
				continue
			}
			ip := pl.ip.String()
			if used[ip] {
				t.Fatalf("%s was handed out twice", ip)
			}
			if b := pl.ip.As4(); b[3]%16 < 4 || b[3]%16 == 15 {
				t.Fatalf("%s is reserved", ip)
			}
			used[ip] = true
			out = append(out, pl)
		}
	})
	p, err := newPool([]Subnet{{ID: "a", CIDR: "10.0.1.0/28"}})
	if err != nil {
		t.Fatal(err)
	}
	first, _ := p.take()
	first.give()
	if second, _ := p.take(); second.ip == first.ip {
		t.Errorf("%s was handed out again at once", first.ip)
	}
	for _, bad := range []string{"", "10.0.0.0", "10.0.0.0/29", "10.0.0.0/8", "fd00::/64"} {
		if _, err := newPool([]Subnet{{ID: "s", CIDR: bad}}); err == nil {
			t.Errorf("a subnet of %q is taken", bad)
		}
	}
}

func TestNames(t *testing.T) {
	p, err := newPool(nil)
	if err != nil {
		t.Fatal(err)
	}
	pl, _ := p.take()
	for region, want := range map[string]string{
		"us-east-1": "fargate-ip-10-0-0-4.ec2.internal", "eu-west-1": "fargate-ip-10-0-0-4.eu-west-1.compute.internal",
	} {
		f := &Fleet{region: region}
		if got := f.nodeName(pl); got != want {
			t.Errorf("node name %s, want %s", got, want)
		}
		if got := f.zone(pl.subnet); got != region+"a" {
			t.Errorf("zone %s", got)
		}
	}
	if got := fmt.Sprint((&Fleet{region: "x"}).zone(&subnet{Subnet: Subnet{Zone: "eu-west-1c"}})); got != "eu-west-1c" {
		t.Errorf("zone %s", got)
	}
}
