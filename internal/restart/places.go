package restart

import (
	"fmt"
	"strings"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/restart/survey"
)

// place is where a pod stands with respect to the wanted minor.
type place int

const (
	// nowhere: on no node yet, or on one that is not known (yet).
	nowhere place = iota
	lagging
	current
)

// places tells where pods stand by the name of their node.
func places(inv *cluster.Inventory, minor string) func(node string) place {
	at := make(map[string]place, len(inv.Nodes))
	for _, n := range inv.Nodes {
		at[n.Name] = placeOf(n.Minor, minor)
	}
	return func(node string) place { return at[node] }
}

// placeOf compares the minor of a kubelet with the wanted one; a kubelet that
// states no minor is nowhere, which is neither done nor lagging.
func placeOf(kubelet, minor string) place {
	switch {
	case kubelet == "":
		return nowhere
	case cluster.CompareMinor(kubelet, minor) < 0:
		return lagging
	}
	return current
}

// rollable tells whether the owner is of a kind whose controller replaces pods
// when the template changes.
func rollable(o cluster.Owner) bool {
	group, _ := groupVersion(o.APIVersion)
	return group == "apps" && (o.Kind == "Deployment" || o.Kind == "StatefulSet")
}

// pinned says what keeps a rollout restart from moving the pods, or "".
func pinned(kind string, paused bool, strategy string, partition int32, ordinals []int) string {
	switch {
	case kind == "Deployment" && paused:
		return "paused Deployment"
	case kind == "StatefulSet" && strategy == "OnDelete":
		return "StatefulSet with OnDelete"
	case kind == "StatefulSet":
		for _, n := range ordinals {
			if n < int(partition) {
				return fmt.Sprintf("partition %d keeps ordinals below it", partition)
			}
		}
	}
	return ""
}

func groupVersion(apiVersion string) (group, version string) {
	if g, v, ok := strings.Cut(apiVersion, "/"); ok {
		return g, v
	}
	return "", apiVersion
}

func byOwner(inv *cluster.Inventory) map[string]*cluster.Workload {
	out := make(map[string]*cluster.Workload, len(inv.Workloads))
	for i := range inv.Workloads {
		if w := &inv.Workloads[i]; known(w.Owner) {
			out[w.Owner.String()] = w
		}
	}
	return out
}

// itemNamed is the item of an owner that the journal names as namespace/Kind/name.
func itemNamed(owner, uid string) survey.Item {
	ns, rest, _ := strings.Cut(owner, "/")
	kind, name, _ := strings.Cut(rest, "/")
	o := cluster.Owner{APIVersion: "apps/v1", Namespace: ns, Kind: kind, Name: name, UID: uid}
	switch kind {
	case "ReplicationController", "Pod":
		o.APIVersion = "v1"
	case "Rollout":
		o.APIVersion = "argoproj.io/v1alpha1"
	}
	return idle(o)
}

// idle is the item of an owner without lagging pods; it is given a method where
// something of it is still to be done, and what admission goes by by survey.UnderWay.
func idle(o cluster.Owner) survey.Item {
	return survey.Item{Owner: o, Method: survey.None, Group: survey.Rest}
}

// isCoreDNS tells whether the owner is the Deployment that EKS installs CoreDNS as.
func isCoreDNS(o cluster.Owner) bool {
	group, _ := groupVersion(o.APIVersion)
	return o.Namespace == "kube-system" && group == "apps" && o.Kind == "Deployment" && o.Name == "coredns"
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
