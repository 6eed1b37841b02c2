package eks

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
)

// Statuses of a version (VersionStatus of DescribeClusterVersions).
const (
	StandardSupport = "STANDARD_SUPPORT"
	ExtendedSupport = "EXTENDED_SUPPORT"
	Unsupported     = "UNSUPPORTED"
)

// Catalogue is the version catalogue of a sandbox: what EKS offers, and the older
// versions that scenarios play back. Dates are those of AWS's release calendar
// (https://docs.aws.amazon.com/eks/latest/userguide/kubernetes-versions.html), but
// the old versions count as EXTENDED_SUPPORT so that they can still be met; a
// scenario that wants it otherwise passes its own list.
func Catalogue() []Version {
	v := func(minor, patch, platform, release, standard, extended, status string) Version {
		return Version{
			Minor: minor, Patch: minor + "." + patch, Platform: platform, Status: status,
			Release: day(release), EndStandard: day(standard), EndExtended: day(extended),
			Default: minor == "1.35",
		}
	}
	return []Version{
		v("1.24", "17", "eks.43", "2022-11-15", "2024-01-31", "2025-01-31", ExtendedSupport),
		v("1.25", "16", "eks.44", "2023-02-22", "2024-05-01", "2025-05-01", ExtendedSupport),
		v("1.26", "15", "eks.45", "2023-04-11", "2024-06-11", "2025-06-11", ExtendedSupport),
		v("1.27", "16", "eks.49", "2023-05-24", "2024-07-24", "2025-07-24", ExtendedSupport),
		v("1.28", "15", "eks.55", "2023-09-26", "2024-11-26", "2025-11-26", ExtendedSupport),
		v("1.29", "15", "eks.58", "2024-01-23", "2025-03-23", "2026-03-23", ExtendedSupport),
		v("1.30", "14", "eks.58", "2024-05-23", "2025-07-23", "2026-07-23", ExtendedSupport),
		v("1.31", "14", "eks.54", "2024-09-26", "2025-11-26", "2026-11-26", ExtendedSupport),
		v("1.32", "11", "eks.46", "2025-01-23", "2026-03-23", "2027-03-23", ExtendedSupport),
		v("1.33", "10", "eks.36", "2025-05-29", "2026-07-29", "2027-07-29", ExtendedSupport),
		v("1.34", "6", "eks.24", "2025-10-02", "2026-12-02", "2027-12-02", StandardSupport),
		v("1.35", "4", "eks.12", "2026-01-27", "2027-03-27", "2028-03-27", StandardSupport),
	}
}

func day(s string) time.Time {
	t, err := time.Parse(time.DateOnly, s)
	if err != nil {
		panic(err) // the tables of this file are constants
	}
	return t
}

// AddonVersion is one version of a managed add-on.
type AddonVersion struct {
	Addon   string
	Version string
	// From and To are the first and the last cluster minor that it supports.
	From, To string
	// Compute are its compute types: ec2, fargate, hybrid, auto.
	Compute []string
}

// AddonCatalogue is what DescribeAddonVersions offers in a sandbox. kube-proxy
// supports its own minor and the next one; coredns and vpc-cni ranges of minors.
func AddonCatalogue() []AddonVersion {
	var out []AddonVersion
	for _, v := range Catalogue() {
		for _, build := range []int{2, 5} {
			out = append(out, AddonVersion{
				Addon: "kube-proxy", Version: fmt.Sprintf("v%s-eksbuild.%d", v.Patch, build),
				From: v.Minor, To: plus(v.Minor, 1), Compute: []string{"ec2", "hybrid"},
			})
		}
	}
	for _, r := range [][3]string{
		{"v1.9.3-eksbuild.22", "1.24", "1.27"}, {"v1.10.1-eksbuild.38", "1.25", "1.30"},
		{"v1.11.3-eksbuild.2", "1.27", "1.32"}, {"v1.11.4-eksbuild.28", "1.29", "1.33"},
		{"v1.12.4-eksbuild.6", "1.31", "1.34"}, {"v1.13.2-eksbuild.4", "1.33", "1.36"},
	} {
		out = append(out, AddonVersion{"coredns", r[0], r[1], r[2], []string{"ec2", "fargate", "hybrid", "auto"}})
	}
	for _, r := range [][3]string{
		{"v1.15.5-eksbuild.1", "1.24", "1.28"}, {"v1.18.6-eksbuild.1", "1.24", "1.30"},
		{"v1.19.6-eksbuild.7", "1.26", "1.32"}, {"v1.20.5-eksbuild.1", "1.29", "1.34"},
		{"v1.21.1-eksbuild.3", "1.32", "1.36"},
	} {
		out = append(out, AddonVersion{"vpc-cni", r[0], r[1], r[2], []string{"ec2"}})
	}
	return out
}

func (a AddonVersion) supports(minor string) bool {
	return compare(a.From, minor) <= 0 && compare(minor, a.To) <= 0
}

// offered are the versions of an add-on that support a minor, newest first.
func (s *Service) offered(addon, minor string) []AddonVersion {
	var out []AddonVersion
	for _, a := range s.opts.Addons {
		if a.Addon == addon && (minor == "" || a.supports(minor)) {
			out = append(out, a)
		}
	}
	slices.SortStableFunc(out, func(a, b AddonVersion) int { return compareBuilds(b.Version, a.Version) })
	return out
}

// defaultAddon is the version that an add-on has by default on a minor: the
// second newest, as AWS tends to have it, or the only one.
func (s *Service) defaultAddon(addon, minor string) string {
	list := s.offered(addon, minor)
	switch len(list) {
	case 0:
		return ""
	case 1:
		return list[0].Version
	}
	return list[1].Version
}

// DefaultAddon is the version that an add-on has by default on a minor, empty when none
// supports it.
func (s *Service) DefaultAddon(addon, minor string) string { return s.defaultAddon(addon, minor) }

// compareBuilds orders versions such as v1.11.4-eksbuild.28.
func compareBuilds(a, b string) int {
	va, errA := version.ParseSemantic(a)
	vb, errB := version.ParseSemantic(b)
	if errA != nil || errB != nil {
		return cmp.Compare(a, b)
	}
	switch {
	case va.LessThan(vb):
		return -1
	case vb.LessThan(va):
		return 1
	}
	return 0
}

// minorOf is "1.31" for "1.31", "v1.31.14-eks-6ae7ca2" or "v1.31.2-eksbuild.2";
// empty for what is no version.
func minorOf(v string) string {
	p, err := version.ParseGeneric(v)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d.%d", p.Major(), p.Minor())
}

// compare orders minors.
func compare(a, b string) int {
	va, errA := version.ParseMajorMinor(a)
	vb, errB := version.ParseMajorMinor(b)
	if errA != nil || errB != nil {
		return cmp.Compare(a, b)
	}
	return cmp.Or(cmp.Compare(va.Major(), vb.Major()), cmp.Compare(va.Minor(), vb.Minor()))
}

// steps is how many minors a is behind b (negative when it is ahead).
func steps(a, b string) int {
	va, errA := version.ParseMajorMinor(a)
	vb, errB := version.ParseMajorMinor(b)
	if errA != nil || errB != nil {
		return 0
	}
	return int(vb.Minor()) - int(va.Minor())
}

// plus is the minor n after (or before) minor.
func plus(minor string, n int) string {
	v, err := version.ParseMajorMinor(minor)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d.%d", v.Major(), int(v.Minor())+n)
}

// skewed reports whether a kubelet may not serve a control plane of that minor:
// three minors behind are allowed, two for kubelets before 1.25, none ahead
// (https://kubernetes.io/releases/version-skew-policy/#kubelet).
func skewed(kubelet, control string) bool {
	behind := steps(kubelet, control)
	allowed := 3
	if compare(kubelet, "1.25") < 0 {
		allowed = 2
	}
	return behind > allowed || behind < 0
}

func (s *Service) version(minor string) (Version, bool) {
	i := slices.IndexFunc(s.opts.Versions, func(v Version) bool { return v.Minor == minor })
	if i < 0 {
		return Version{}, false
	}
	return s.opts.Versions[i], true
}
