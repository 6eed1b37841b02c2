package restart

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/eksbg/eksbg/internal/cluster"
)

// changed is called for every event: it marks what the object belongs to, so that an
// event costs the same however many pods and workloads there are.
func (m *mirror) changed(obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	switch o := obj.(type) {
	case *node:
		pods, err := m.pods.GetIndexer().ByIndex(byNode, o.Name)
		if err != nil {
			return
		}
		for _, p := range pods {
			if p, ok := p.(*corev1.Pod); ok {
				m.podChanged(p)
			}
		}
	case *corev1.Pod:
		m.podChanged(o)
	case metav1.Object:
		m.touch(o)
	}
	m.notify()
}

// podChanged marks the pod's owners and counts it again, by what the stores hold now.
func (m *mirror) podChanged(p *corev1.Pod) {
	name := p.Namespace + "/" + p.Name
	m.mu.Lock()
	now := m.pod(p.Namespace, p.Name)
	if m.counted[name] {
		m.at--
	}
	delete(m.counted, name)
	if now != nil && !finished(now) {
		current := m.place(now.Spec.NodeName) == current
		m.counted[name] = current
		if current {
			m.at++
		}
	}
	m.mu.Unlock()
	m.touch(p)
}

// touch marks an object, its controller and that one's: the UIDs of a pod, its
// ReplicaSet and its Deployment. Objects are marked by namespace/name too, for those
// that are made again have another UID.
func (m *mirror) touch(o metav1.Object) {
	keys := []string{string(o.GetUID()), o.GetNamespace() + "/" + o.GetName()}
	if c := metav1.GetControllerOfNoCopy(o); c != nil {
		keys = append(keys, string(c.UID))
		if c.Kind == "ReplicaSet" {
			obj, ok, err := m.replicaSets.GetStore().GetByKey(o.GetNamespace() + "/" + c.Name)
			if set, isSet := obj.(metav1.Object); err == nil && ok && isSet {
				if up := metav1.GetControllerOfNoCopy(set); up != nil {
					keys = append(keys, string(up.UID))
				}
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range keys {
		m.dirty[k] = true
	}
}

func (m *mirror) budgetChanged(any) {
	m.mu.Lock()
	m.limits = true
	m.mu.Unlock()
	m.notify()
}

// take gives the keys marked since it was last called, and whether a budget changed.
func (m *mirror) take() (keys map[string]bool, limits bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys, limits = m.dirty, m.limits
	m.dirty, m.limits = map[string]bool{}, false
	return keys, limits
}

// milliCPU is what Fargate provisioned for the pods, finished ones too: they count for the
// quota as long as they are there.
func (m *mirror) milliCPU() (n int) {
	for _, obj := range m.pods.GetStore().List() {
		if p, ok := obj.(*corev1.Pod); ok {
			n += int(cluster.Provisioned(p.Annotations))
		}
	}
	return n
}

// count gives the unfinished pods of the cluster and how many of them are on nodes
// at the wanted minor.
func (m *mirror) count() (all, at int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.counted), m.at
}
