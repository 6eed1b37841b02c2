package cluster

import (
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// mirrorAnnotation marks the API server's picture of a static pod.
const mirrorAnnotation = corev1.MirrorPodAnnotationKey

// owners resolves the top owner of pods from what the lists held. Only objects
// that stand between a pod and the one that decides over its template are entered:
// ReplicaSets, ReplicationControllers and the Jobs of CronJobs. A Deployment of an
// operator is still the one to restart.
type owners struct {
	mu sync.Mutex
	// above holds, by UID, the controller of every such object that has one, in the
	// object's own namespace.
	above map[types.UID]Owner
}

func newOwners() *owners { return &owners{above: map[types.UID]Owner{}} }

// add enters an object that may stand in the middle of a chain; false for one that
// has nothing above it. Lists that are read at the same time may call it.
func (o *owners) add(m *metav1.ObjectMeta) bool {
	ref := controller(m)
	o.mu.Lock()
	defer o.mu.Unlock()
	if ref == nil { // a list that is begun anew may show it without the one that it had
		delete(o.above, m.UID)
		return false
	}
	o.above[m.UID] = ownerOf(m.Namespace, *ref)
	return true
}

// direct is the owner that the pod itself names: its Node for a static pod, itself
// for a bare one.
func direct(p *corev1.Pod) Owner {
	ref := controller(&p.ObjectMeta)
	_, mirror := p.Annotations[mirrorAnnotation]
	switch {
	case mirror, ref != nil && isNode(ownerOf(p.Namespace, *ref)):
		return Owner{APIVersion: "v1", Kind: "Node", Name: p.Spec.NodeName}
	case ref == nil:
		return Owner{APIVersion: "v1", Namespace: p.Namespace, Kind: "Pod", Name: p.Name, UID: string(p.UID)}
	}
	return ownerOf(p.Namespace, *ref)
}

// top follows the chain from a pod's direct owner, however long it is. A reference whose
// object is not there is kept as it is, and so are kinds that eksbg does not know. An
// object of another namespace owns nothing here (the API allows no such reference, and
// the garbage collector takes it for one to an object that is not there). A chain that
// leads round in a circle has no top: the direct owner is the one that people see.
func (o *owners) top(from Owner) Owner {
	at, mark, steps, most := from, from.UID, 0, 1
	for at.UID != "" {
		next, ok := o.above[types.UID(at.UID)]
		if !ok || next.Namespace != from.Namespace {
			break
		}
		at = next
		if at.UID == mark {
			return from
		}
		// The mark moves on after 1, 2, 4, ... steps (Brent), so that it comes to lie in the
		// circle wherever that begins.
		if steps++; steps == most {
			mark, steps, most = at.UID, 0, 2*most
		}
	}
	return at
}

// isNode tells whether the owner is a node of the cluster: custom kinds are called so too.
func isNode(o Owner) bool { return o.Kind == "Node" && group(o.APIVersion) == "" }

// group is the API group of an apiVersion; "" for the core.
func group(apiVersion string) string {
	g, _, ok := strings.Cut(apiVersion, "/")
	if !ok {
		return ""
	}
	return g
}

func ownerOf(namespace string, ref metav1.OwnerReference) Owner {
	return Owner{APIVersion: ref.APIVersion, Namespace: namespace, Kind: ref.Kind, Name: ref.Name, UID: string(ref.UID)}
}

// controller is the owner that manages the object; one that is not marked as such
// counts when it is the only one.
func controller(m *metav1.ObjectMeta) *metav1.OwnerReference {
	if ref := metav1.GetControllerOfNoCopy(m); ref != nil {
		return ref
	}
	if len(m.OwnerReferences) == 1 {
		return &m.OwnerReferences[0]
	}
	return nil
}
