package cluster

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// herd is a cluster's pods and what may stand above them, as text: an object a line,
//
//	KIND,NAMESPACE,NAME,UID[,NODE]|KIND,APIVERSION,NAME,UID[,controller]|...
//
// with its owner references behind it. Pods, Mirrors (pods that are the picture of a
// static one), ReplicaSets, ReplicationControllers and Jobs are listed; every other kind
// is one that no list shows. API servers never give the same UID to two objects.
type herd struct {
	objects []animal
	pods    []animal
}

type animal struct {
	kind string
	node string
	meta metav1.ObjectMeta
}

// mostAnimals bounds the work of one input.
const mostAnimals = 400

func parseHerd(text string) herd {
	var h herd
	taken := map[types.UID]bool{}
	for _, line := range strings.Split(text, "\n") {
		parts := strings.Split(line, "|")
		a := parseAnimal(strings.Split(parts[0], ","), parts[1:])
		if taken[a.meta.UID] || len(h.objects)+len(h.pods) >= mostAnimals {
			continue
		}
		taken[a.meta.UID] = true
		switch a.kind {
		case "Pod", "Mirror":
			h.pods = append(h.pods, a)
		case "ReplicaSet", "ReplicationController", "Job":
			h.objects = append(h.objects, a)
		}
	}
	return h
}

func parseAnimal(self []string, refs []string) animal {
	self = append(self, "", "", "", "")
	a := animal{kind: self[0], node: self[4], meta: metav1.ObjectMeta{Namespace: self[1], Name: self[2], UID: types.UID(self[3])}}
	if a.kind == "Mirror" {
		a.meta.Annotations = map[string]string{mirrorAnnotation: "x"}
	}
	for _, r := range refs {
		f := append(strings.Split(r, ","), "", "", "", "")
		ref := metav1.OwnerReference{Kind: f[0], APIVersion: f[1], Name: f[2], UID: types.UID(f[3])}
		if f[4] != "" {
			is := f[4] == "controller"
			ref.Controller = &is
		}
		a.meta.OwnerReferences = append(a.meta.OwnerReferences, ref)
	}
	return a
}

// read puts the herd through what reads a cluster.
func (h herd) read() *Inventory {
	r := &reading{inv: &Inventory{}, who: newOwners(), priority: newPriorities()}
	for _, a := range h.objects {
		switch a.kind {
		case "ReplicaSet":
			r.addReplicaSet(&appsv1.ReplicaSet{ObjectMeta: a.meta})
		case "ReplicationController":
			r.addReplicationController(&corev1.ReplicationController{ObjectMeta: a.meta})
		case "Job":
			r.addJob(&batchv1.Job{ObjectMeta: a.meta})
		}
	}
	for _, a := range h.pods {
		r.inv.Pods = append(r.inv.Pods, pod(&corev1.Pod{ObjectMeta: a.meta, Spec: corev1.PodSpec{NodeName: a.node}}))
	}
	r.conclude()
	return r.inv
}

// naive resolves the top owner of a pod as one would by hand: read the owner, look it up
// among all objects of the namespace, go on from there.
func (h herd) naive(p animal) Owner {
	ref, owned := h.controller(p)
	core := isCore(ref.APIVersion)
	switch {
	case p.kind == "Mirror", owned && ref.Kind == "Node" && core:
		return Owner{APIVersion: "v1", Kind: "Node", Name: p.node}
	case !owned:
		return Owner{APIVersion: "v1", Namespace: p.meta.Namespace, Kind: "Pod", Name: p.meta.Name, UID: string(p.meta.UID)}
	}
	first := ref
	var been []types.UID
	for {
		been = append(been, ref.UID)
		at := slices.IndexFunc(h.objects, func(a animal) bool {
			return a.meta.UID == ref.UID && a.meta.UID != "" && a.meta.Namespace == p.meta.Namespace
		})
		if at < 0 {
			break
		}
		next, owned := h.controller(h.objects[at])
		cron := next.Kind == "CronJob" && strings.HasPrefix(next.APIVersion, "batch/")
		if !owned || h.objects[at].kind == "Job" && !cron {
			break
		}
		if ref = next; slices.Contains(been, ref.UID) {
			ref = first
			break
		}
	}
	return Owner{APIVersion: ref.APIVersion, Namespace: p.meta.Namespace, Kind: ref.Kind, Name: ref.Name, UID: string(ref.UID)}
}

func isCore(apiVersion string) bool {
	at := strings.Index(apiVersion, "/")
	return at <= 0
}

// controller is the first owner that is marked as the controller, or the only one.
func (h herd) controller(a animal) (metav1.OwnerReference, bool) {
	for _, r := range a.meta.OwnerReferences {
		if r.Controller != nil && *r.Controller {
			return r, true
		}
	}
	if len(a.meta.OwnerReferences) == 1 {
		return a.meta.OwnerReferences[0], true
	}
	return metav1.OwnerReference{}, false
}

// herds begin the search: what real clusters hold, and what they should not.
var herds = []string{
	// A Deployment, an Argo Rollout, a Deployment of an operator, two of one name.
	"ReplicaSet,shop,web-1,rs1|Deployment,apps/v1,web,d1,controller\nPod,shop,web-1-a,p1|ReplicaSet,apps/v1,web-1,rs1,controller",
	"ReplicaSet,shop,api-7,rs1|Rollout,argoproj.io/v1alpha1,api,ro1,controller\nPod,shop,api-7-a,p1|ReplicaSet,apps/v1,api-7,rs1,controller",
	"ReplicaSet,a,web-1,rs1|Deployment,apps/v1,web,d1,controller\nReplicaSet,b,web-1,rs2\nPod,a,x,p1|ReplicaSet,apps/v1,web-1,rs1,controller\nPod,b,x,p2|ReplicaSet,apps/v1,web-1,rs2,controller",
	// Jobs: of a CronJob, of a workflow engine, of nobody.
	"Job,ci,n-1,j1|CronJob,batch/v1,n,c1,controller\nJob,ci,w-1,j2|Workflow,argoproj.io/v1alpha1,w,w1,controller\nJob,ci,s,j3\nPod,ci,a,p1|Job,batch/v1,n-1,j1,controller\nPod,ci,b,p2|Job,batch/v1,w-1,j2,controller\nPod,ci,c,p3|Job,batch/v1,s,j3,controller",
	"Job,ci,n-1,j1|CronJob,other.example/v1,n,c1,controller\nPod,ci,a,p1|Job,batch/v1,n-1,j1,controller",
	// An owner that is gone, one without a UID, one in another namespace.
	"Pod,shop,a,p1|ReplicaSet,apps/v1,gone-1,rs9,controller\nPod,shop,b,p2|ReplicaSet,apps/v1,gone-1,,controller\nReplicaSet,shop,,|Deployment,apps/v1,web,d1,controller",
	"ReplicaSet,b,web-1,rs1|Deployment,apps/v1,web,d1,controller\nPod,a,x,p1|ReplicaSet,apps/v1,web-1,rs1,controller",
	// Circles: of one, of three, and one that the pod is not part of.
	"ReplicaSet,shop,a,r1|ReplicaSet,apps/v1,a,r1,controller\nPod,shop,x,p1|ReplicaSet,apps/v1,a,r1,controller",
	"ReplicaSet,s,a,r1|ReplicaSet,apps/v1,b,r2\nReplicaSet,s,b,r2|ReplicaSet,apps/v1,c,r3\nReplicaSet,s,c,r3|ReplicaSet,apps/v1,a,r1\nPod,s,x,p1|ReplicaSet,apps/v1,b,r2\nPod,s,y,p2|ReplicaSet,apps/v1,z,r4\nReplicaSet,s,z,r4|ReplicaSet,apps/v1,a,r1",
	// Several owners: one controller, none, two; one that says no.
	"Pod,s,x,p1|Foo,example/v1,f,f1,no|ReplicaSet,apps/v1,a,r1,controller\nPod,s,y,p2|Foo,example/v1,f,f1|Bar,example/v1,b,b1\nPod,s,z,p3|Foo,example/v1,f,f1,controller|Bar,example/v1,b,b1,controller\nPod,s,n,p4|Foo,example/v1,f,f1,no\nReplicaSet,s,a,r1",
	// Static pods, nodes that are none, names with odd characters.
	"Mirror,kube-system,proxy-n,p1,n|Node,v1,n,u1,controller\nPod,kube-system,q,p2,n|Node,v1,n,u1,controller\nPod,chain,r,p3,n|Node,ethereum.example/v1,n,u1,controller\nMirror,kube-system,s,p4",
	"ReplicaSet,sh/op,a b,r\x001|Deployment,apps/v1,\u202eweb\x1b[2J,d/1,controller\nPod,sh/op,../x,p\xff|ReplicaSet,apps/v1,a b,r\x001,controller\nPod,,,\nPod",
	// A ReplicationController of a DeploymentConfig, and a long chain.
	"ReplicationController,s,old-1,rc1|DeploymentConfig,apps.openshift.io/v1,old,dc1,controller\nPod,s,x,p1|ReplicationController,v1,old-1,rc1,controller",
	longChain(20),
}

// longChain has a pod under n ReplicaSets, the last of which nobody owns.
func longChain(n int) string {
	var b strings.Builder
	name := func(i int) string { return strings.Repeat("i", i) }
	for i := 1; i < n; i++ {
		b.WriteString("ReplicaSet,s," + name(i) + "," + name(i) + "|ReplicaSet,apps/v1," + name(i+1) + "," + name(i+1) + "\n")
	}
	return b.String() + "ReplicaSet,s," + name(n) + "," + name(n) + "\nPod,s,x,p|ReplicaSet,apps/v1,i,i"
}

// FuzzOwners: whatever refers to whatever, the resolution ends, gives each pod exactly
// one top owner, and the one that a slow walk by hand finds.
func FuzzOwners(f *testing.F) {
	for _, h := range herds {
		f.Add(h)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h := parseHerd(text)
		inv := h.read()
		if len(inv.Pods) != len(h.pods) {
			t.Fatalf("%d pods of %d", len(inv.Pods), len(h.pods))
		}
		for i, p := range h.pods {
			got := inv.Pods[i].Owner
			if diff := cmp.Diff(h.naive(p), got); diff != "" {
				t.Fatalf("pod %s (-by hand +got):\n%s", p.meta.Name, diff)
			}
			if node := got.Kind == "Node" && isCore(got.APIVersion); got.Namespace != p.meta.Namespace && !node {
				t.Fatalf("pod %q of namespace %q has an owner in %q", p.meta.Name, p.meta.Namespace, got.Namespace)
			}
		}
		// What is restarted itself is what nothing controls.
		var alone []string
		for _, a := range h.objects {
			if _, owned := h.controller(a); !owned && a.kind != "Job" {
				alone = append(alone, string(a.meta.UID))
			}
		}
		var workloads []string
		for _, w := range inv.Workloads {
			workloads = append(workloads, w.UID)
		}
		slices.Sort(alone)
		slices.Sort(workloads)
		if !slices.Equal(alone, workloads) {
			t.Fatalf("workloads %q, want %q", workloads, alone)
		}
	})
}
