// Package release spells the full versions that EKS gives to a minor.
package release

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/version"
)

// patches are the last patch of each minor that the Kubernetes project released, or a
// late one of those still maintained. Minors that are not listed count as patch 0.
var patches = map[string]int{
	"1.21": 14, "1.22": 17, "1.23": 17, "1.24": 17, "1.25": 16, "1.26": 15, "1.27": 16, "1.28": 15,
	"1.29": 15, "1.30": 14, "1.31": 14, "1.32": 11, "1.33": 7, "1.34": 3, "1.35": 1,
}

// GitVersion is what the API server says of itself ("v1.32.11-eks-1a2b3c4"). The build
// suffix is made up, but the same for the same version.
func GitVersion(minor string) string { return full(minor, patches[minor], "control-plane") }

// Kubelet is the version of a kubelet that Fargate starts now. Its patch trails that of
// the control plane by one, which is no lag: only minors count.
func Kubelet(minor string) string { return full(minor, max(patches[minor]-1, 0), "fargate") }

func full(minor string, patch int, what string) string {
	return fmt.Sprintf("v%s.%d-eks-%s", minor, patch, hash(minor, what)[:7])
}

func hash(parts ...string) string {
	h := fnv.New64a()
	for _, p := range parts {
		h.Write([]byte(p)) //nolint:errcheck // never fails
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// Info is the answer to /version.
func Info(minor string) version.Info {
	major, min, _ := strings.Cut(minor, ".")
	return version.Info{
		Major: major, Minor: min,
		GitVersion: GitVersion(minor), GitCommit: hash(minor, "commit") + hash(minor, "a") + hash(minor, "b")[:8],
		GitTreeState: "clean", BuildDate: "2025-01-01T00:00:00Z",
		GoVersion: "go1.24.9", Compiler: "gc", Platform: "linux/amd64",
	}
}

// Minor cuts a full version to its minor: "v1.31.13-eks-113cf36" to "1.31". What is not
// a version comes back as it is.
func Minor(v string) string {
	parts := strings.SplitN(strings.TrimPrefix(v, "v"), ".", 3)
	if len(parts) < 2 {
		return v
	}
	if _, err := strconv.Atoi(parts[1]); err != nil {
		return v
	}
	return parts[0] + "." + parts[1]
}
