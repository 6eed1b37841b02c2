package survey

import (
	"fmt"
	"maps"
	"slices"

	"github.com/eksbg/eksbg/internal/cluster"
)

// allElsewhere tells whether no lagging pod is on Fargate. A node that does not say what
// it is counts as Fargate's: the end condition finds out.
func (s *subject) allElsewhere() bool {
	for _, n := range s.hosts {
		if onFargate(n) {
			return false
		}
	}
	return len(s.hosts) > 0
}

func onFargate(n cluster.Node) bool { return n.Compute == cluster.ComputeFargate || n.Compute == "" }

// elsewhere names the nodes under the lagging pods that are not Fargate's; all of them
// where all are.
func (s *subject) elsewhere() string {
	names := s.names()
	n := s.hosts[names[0]]
	out := fmt.Sprintf("%s node %s at %s", compute(n), n.Name, n.Minor)
	if more := len(names) - 1; more > 0 {
		out += fmt.Sprintf(" and %d more", more)
	}
	return out
}

// names are the nodes that are not Fargate's, or all where all are.
func (s *subject) names() []string {
	all := slices.Sorted(maps.Keys(s.hosts))
	other := slices.DeleteFunc(slices.Clone(all), func(n string) bool { return onFargate(s.hosts[n]) })
	if len(other) == 0 {
		return all
	}
	return other
}

// host is the first of them.
func (s *subject) host() cluster.Node { return s.hosts[s.names()[0]] }

// compute is the kind of a node in people's words.
func compute(n cluster.Node) string {
	switch n.Compute {
	case cluster.ComputeEC2:
		return "EC2"
	case cluster.ComputeAuto:
		return "Auto Mode"
	case cluster.ComputeFargate, "":
		return "Fargate"
	}
	return n.Compute
}

// raise is the cure for pods whose node keeps its kubelet whoever restarts them.
func (s *subject) raise() string {
	leave := ", or leave it: " + skip(s.it.Owner)
	switch s.host().Compute {
	case cluster.ComputeAuto:
		return "EKS replaces its Auto Mode nodes by itself: wait for it, or delete the NodeClaim" + leave
	case cluster.ComputeHybrid:
		return "upgrade the hybrid node with nodeadm" + leave
	case cluster.ComputeFargate, "":
		return "delete the pod" + leave
	}
	return "raise its node group" + leave
}
