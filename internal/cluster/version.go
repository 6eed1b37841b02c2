package cluster

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// Minor reduces a Kubernetes version to its minor: "v1.31.14-eks-6ae7ca2", "1.31.4"
// and "1.31" are all "1.31". The patch does not count: a kubelet of an older patch
// of the same minor does not lag.
func Minor(v string) (string, error) {
	p, err := version.ParseGeneric(v)
	if err != nil {
		return "", fmt.Errorf("%q is not a Kubernetes version like 1.33: %w", v, err)
	}
	return fmt.Sprintf("%d.%d", p.Major(), p.Minor()), nil
}

// CompareMinor orders two versions by major and minor: -1, 0 or 1. What cannot be
// read as a version comes before everything that can.
func CompareMinor(a, b string) int {
	va, errA := version.ParseGeneric(a)
	vb, errB := version.ParseGeneric(b)
	switch {
	case errA != nil && errB != nil:
		return 0
	case errA != nil:
		return -1
	case errB != nil:
		return 1
	}
	return cmp.Or(cmp.Compare(va.Major(), vb.Major()), cmp.Compare(va.Minor(), vb.Minor()))
}

// Skew is how many minors high is above low, negative when it is below; false when
// either is no version or their majors differ.
func Skew(low, high string) (int, bool) {
	vl, errL := version.ParseGeneric(low)
	vh, errH := version.ParseGeneric(high)
	if errL != nil || errH != nil || vl.Major() != vh.Major() {
		return 0, false
	}
	return int(vh.Minor()) - int(vl.Minor()), true
}
