package cluster_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/eksbg/eksbg/internal/cluster"
)

// BenchmarkInventory reads 5,000 Fargate pods, one node each, of 1,000 Deployments.
func BenchmarkInventory(b *testing.B) {
	w := large(b, 5000)
	b.ReportAllocs()
	for b.Loop() {
		c := w.anew(b)
		if inv, err := c.Inventory(context.Background()); err != nil || len(inv.Pods) != 5000 {
			b.Fatal(err)
		}
	}
}

// BenchmarkFloor is what a few lines of client-go take to page through the same pods
// and nodes and drop them.
func BenchmarkFloor(b *testing.B) {
	w := large(b, 5000)
	b.ReportAllocs()
	for b.Loop() {
		core := w.anew(b).Kubernetes().CoreV1()
		for opt := (metav1.ListOptions{Limit: 500}); ; {
			l, err := core.Nodes().List(context.Background(), opt)
			if err != nil {
				b.Fatal(err)
			}
			if opt.Continue = l.Continue; opt.Continue == "" {
				break
			}
		}
		for opt := (metav1.ListOptions{Limit: 500}); ; {
			l, err := core.Pods("").List(context.Background(), opt)
			if err != nil {
				b.Fatal(err)
			}
			if opt.Continue = l.Continue; opt.Continue == "" {
				break
			}
		}
	}
}

// anew opens the cluster while the clock stands: a client's rate is for a run of eksbg,
// not for one after the other.
func (w *world) anew(b *testing.B) *cluster.Client {
	b.StopTimer()
	defer b.StartTimer()
	c, err := cluster.Open(context.Background(), w.opts)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// large is a world whose pages are encoded and compressed beforehand, as far as that
// goes as an API server sends them.
func large(tb testing.TB, pods int) *world {
	tb.Helper()
	w := newWorld(tb)
	var nodes corev1.NodeList
	var all corev1.PodList
	var deployments appsv1.DeploymentList
	var sets appsv1.ReplicaSetList
	const perDeployment, old = 5, 500
	for i := range pods / perDeployment {
		d, rs := benchDeployment(i)
		deployments.Items = append(deployments.Items, d)
		sets.Items = append(sets.Items, rs)
		for j := range perDeployment {
			p, n := benchPod(i*perDeployment+j, &rs)
			all.Items = append(all.Items, p)
			nodes.Items = append(nodes.Items, n)
		}
	}
	for i := range old {
		_, rs := benchDeployment(i)
		rs.Name, rs.UID = rs.Name+"-old", rs.UID+"-old"
		sets.Items = append(sets.Items, rs)
	}
	pages := map[string][][]byte{}
	for resource, list := range map[string]runtime.Object{"pods": &all, "nodes": &nodes, "deployments": &deployments, "replicasets": &sets} {
		pages[resource] = w.api.cut(tb, list)
	}
	w.api.before = func(_ int, rw http.ResponseWriter, r *http.Request) bool {
		cut, ok := pages[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]
		if !ok {
			return false
		}
		n, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		rw.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		rw.Header().Set("Content-Encoding", "gzip")
		_, _ = rw.Write(cut[n])
		return true
	}
	return w
}

// cut encodes a list in pages of 500.
func (s *apiServer) cut(tb testing.TB, list runtime.Object) [][]byte {
	tb.Helper()
	items, err := meta.ExtractList(list)
	if err != nil {
		tb.Fatal(err)
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		tb.Fatal(err)
	}
	var out [][]byte
	for from := 0; from < len(items); from += 500 {
		to := min(from+500, len(items))
		m.SetContinue("")
		if to < len(items) {
			m.SetContinue(strconv.Itoa(len(out) + 1))
		}
		if err := meta.SetList(list, items[from:to]); err != nil {
			tb.Fatal(err)
		}
		var buf bytes.Buffer
		z, _ := gzip.NewWriterLevel(&buf, 4)
		raw := s.encode(list)
		_, _ = z.Write(raw)
		_ = z.Close()
		if from == 0 {
			tb.Logf("%T: %d objects, a page has %d kB, %d kB compressed", list, len(items), len(raw)>>10, buf.Len()>>10)
		}
		out = append(out, buf.Bytes())
	}
	return out
}

func benchTemplate(app string) corev1.PodTemplateSpec {
	container := func(name string) corev1.Container {
		probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080), Scheme: "HTTP"}}, TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3}
		c := corev1.Container{
			Name: name, Image: "111122223333.dkr.ecr.eu-west-1.amazonaws.com/" + app + ":1.2.3", ImagePullPolicy: "IfNotPresent",
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: "TCP"}}, LivenessProbe: probe, ReadinessProbe: probe,
			Resources:              corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("250m"), "memory": resource.MustParse("512Mi")}, Limits: corev1.ResourceList{"memory": resource.MustParse("512Mi")}},
			TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: "File",
			VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/app"}, {Name: "kube-api-access-x", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}},
		}
		for i := range 12 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%02d", i), Value: "some value of " + app})
		}
		return c
	}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app.kubernetes.io/name": app, "app.kubernetes.io/instance": app, "app.kubernetes.io/managed-by": "Helm"}, Annotations: map[string]string{"checksum/config": strings.Repeat("ab", 32), "prometheus.io/scrape": "true"}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{container("app"), container("proxy")}, RestartPolicy: "Always", DNSPolicy: "ClusterFirst", ServiceAccountName: app,
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: app}}}},
				{Name: "kube-api-access-x", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}, {ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}}}}}},
			},
		},
	}
}

func benchMeta(name string, fields int, owners ...metav1.OwnerReference) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("00000000-0000-4000-8000-" + name), ResourceVersion: "123456789", Generation: 3, CreationTimestamp: metav1.Unix(1.79e9, 0), OwnerReferences: owners}
	for _, who := range []string{"kube-controller-manager", "eks", "kubelet"} {
		m.ManagedFields = append(m.ManagedFields, metav1.ManagedFieldsEntry{Manager: who, Operation: "Update", APIVersion: "v1", Time: &metav1.Time{Time: time.Unix(1.79e9, 0)}, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(strings.Repeat(`{"f:metadata":{"f:labels":{".":{},"f:app.kubernetes.io/name":{}}}}`, fields))})
	}
	return m
}

func benchDeployment(i int) (appsv1.Deployment, appsv1.ReplicaSet) {
	app := fmt.Sprintf("service-%04d", i)
	sel := &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": app}}
	five := int32(5)
	d := appsv1.Deployment{ObjectMeta: benchMeta(app, 8), Spec: appsv1.DeploymentSpec{Replicas: &five, Selector: sel, Template: benchTemplate(app)}, Status: appsv1.DeploymentStatus{Replicas: 5, ReadyReplicas: 5, UpdatedReplicas: 5, ObservedGeneration: 3}}
	rs := appsv1.ReplicaSet{ObjectMeta: benchMeta(app+"-5d9c7b", 8, owner("Deployment", app, string(d.UID))...), Spec: appsv1.ReplicaSetSpec{Replicas: &five, Selector: sel, Template: benchTemplate(app)}, Status: appsv1.ReplicaSetStatus{Replicas: 5, ReadyReplicas: 5}}
	return d, rs
}

func benchPod(i int, rs *appsv1.ReplicaSet) (corev1.Pod, corev1.Node) {
	tpl := benchTemplate(rs.Spec.Selector.MatchLabels["app.kubernetes.io/name"])
	p := corev1.Pod{ObjectMeta: benchMeta(fmt.Sprintf("%s-%05d", rs.Name, i), 10, owner("ReplicaSet", rs.Name, string(rs.UID))...), Spec: tpl.Spec}
	node := fmt.Sprintf("fargate-ip-10-%d-%d-%d.eu-west-1.compute.internal", i>>16, i>>8&255, i&255)
	p.Labels, p.Annotations = tpl.Labels, tpl.Annotations
	p.Labels["eks.amazonaws.com/fargate-profile"], p.Annotations["CapacityProvisioned"] = "shop", "0.5vCPU 1GB"
	p.Spec.NodeName, p.Spec.SchedulerName, p.Spec.PriorityClassName = node, "fargate-scheduler", "system-node-critical"
	p.Status = corev1.PodStatus{Phase: "Running", PodIP: "10.0.0.1", HostIP: "10.0.0.1", StartTime: &metav1.Time{Time: time.Unix(1.79e9, 0)}}
	for _, c := range []corev1.PodConditionType{"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: c, Status: "True", LastTransitionTime: metav1.Unix(1.79e9, 0)})
	}
	for _, c := range p.Spec.Containers {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, Ready: true, Image: c.Image, ImageID: c.Image + "@sha256:" + strings.Repeat("cd", 32), ContainerID: "containerd://" + strings.Repeat("ef", 32), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Unix(1.79e9, 0)}}})
	}
	n := nodeAt(node, "v1.31.14-eks-6ae7ca2")
	m := benchMeta(node, 12)
	m.Namespace, m.Labels = "", n.Labels
	n.ObjectMeta = m
	n.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("3977692Ki"), "pods": resource.MustParse("1"), "ephemeral-storage": resource.MustParse("30619152Ki")}
	n.Status.Allocatable = n.Status.Capacity
	n.Status.Images = []corev1.ContainerImage{{Names: []string{p.Spec.Containers[0].Image}, SizeBytes: 123456}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: "InternalIP", Address: "10.0.0.1"}, {Type: "InternalDNS", Address: node}, {Type: "Hostname", Address: node}}
	return p, n
}
