package upgrade

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/state"
)

// AddonRaise is one add-on that has to go to another version for a hop.
type AddonRaise struct {
	Name string
	// From and To are add-on versions, "v1.31.3-eksbuild.2".
	From string
	To   string
	// Hop is the minor whose hop it is for.
	Hop string
	// Before says that To is valid for both minors, so that the raise goes before the
	// hop; otherwise it goes after it (semantics 26).
	Before bool
}

// Addons works out which managed add-ons of a cluster have to be raised on the way
// from one minor to another, hop by hop: those whose version does not support the
// new minor. Raised before the hop to a version valid for both minors where there is
// one, the default of the new minor if it is among them; otherwise after the hop to
// the new minor's default. With mode AddonsKeep there are none. An add-on that has
// no version for a minor at all is a *state.Stop with ExitBlocked.
func Addons(ctx context.Context, api AddonsAPI, clusterName, from, to, mode string) ([]AddonRaise, error) {
	if mode == AddonsKeep {
		return nil, nil
	}
	n, ok := cluster.Skew(from, to)
	if !ok {
		return nil, fmt.Errorf("add-ons from %s to %s: not two Kubernetes minors", from, to)
	}
	names, err := addonNames(ctx, api, clusterName)
	if err != nil {
		return nil, err
	}
	var out []AddonRaise
	for _, name := range names {
		raises, err := raisesOf(ctx, api, clusterName, name, from, n)
		if err != nil {
			return nil, err
		}
		out = append(out, raises...)
	}
	slices.SortStableFunc(out, func(a, b AddonRaise) int { return cluster.CompareMinor(a.Hop, b.Hop) })
	return out, nil
}

// AddonSpec is the step that makes a raise.
func AddonSpec(side state.Side, r AddonRaise) state.StepSpec {
	return state.StepSpec{
		ID:    fmt.Sprintf("%s/addon/%s/%s", side, r.Name, r.Hop),
		Phase: state.PhaseUpgrade, Kind: state.KindAddon, Side: side,
		Title:   fmt.Sprintf("add-on %s to %s", r.Name, shortVersion(r.To)),
		Changes: callUpdateAddon,
		Expect:  state.Expect{Min: state.Duration(time.Minute), Max: state.Duration(3 * time.Minute)},
		From:    r.From, To: r.To, Addon: r.Name,
	}
}

// shortVersion leaves the build out, for people: v1.32.6 for v1.32.6-eksbuild.2.
func shortVersion(v string) string {
	short, _, _ := strings.Cut(v, "-")
	return short
}

func addonNames(ctx context.Context, api AddonsAPI, clusterName string) ([]string, error) {
	var names []string
	in := &eks.ListAddonsInput{ClusterName: &clusterName}
	for {
		page, err := api.ListAddons(ctx, in)
		if err != nil {
			return nil, fmt.Errorf("list the add-ons of cluster %s (eks:ListAddons): %w", clusterName, err)
		}
		names = append(names, page.Addons...)
		if in.NextToken = page.NextToken; awssdk.ToString(page.NextToken) == "" {
			slices.Sort(names)
			return names, nil
		}
	}
}

// raisesOf walks the hops with one add-on.
func raisesOf(ctx context.Context, api AddonsAPI, clusterName, name, from string, hops int) ([]AddonRaise, error) {
	got, err := api.DescribeAddon(ctx, &eks.DescribeAddonInput{ClusterName: &clusterName, AddonName: &name})
	if err != nil {
		return nil, fmt.Errorf("read add-on %s of cluster %s (eks:DescribeAddon): %w", name, clusterName, err)
	}
	if got.Addon == nil {
		return nil, fmt.Errorf("read add-on %s of cluster %s: the answer holds no add-on", name, clusterName)
	}
	known, err := addonVersions(ctx, api, name)
	if err != nil {
		return nil, err
	}
	var out []AddonRaise
	major, minor := split(from)
	at := awssdk.ToString(got.Addon.AddonVersion)
	for i := 1; i <= hops; i++ {
		cur, next := fmt.Sprintf("%d.%d", major, minor+i-1), fmt.Sprintf("%d.%d", major, minor+i)
		if known.supports(at, next) {
			continue
		}
		to, before := known.choose(at, cur, next)
		if to == "" {
			return nil, &state.Stop{
				Code: state.ExitBlocked,
				Why:  fmt.Sprintf("add-on %s of cluster %s (%s) has no version that supports %s", name, clusterName, at, next),
				Cure: fmt.Sprintf("wait for one, remove the add-on (`aws eks delete-addon --preserve`), or set upgrade.addons: keep if it is known to work on %s", next),
			}
		}
		out = append(out, AddonRaise{Name: name, From: at, To: to, Hop: next, Before: before})
		at = to
	}
	return out, nil
}

// addonVersionList is what one add-on offers, as DescribeAddonVersions states it.
type addonVersionList []ekstypes.AddonVersionInfo

func addonVersions(ctx context.Context, api AddonsAPI, name string) (addonVersionList, error) {
	var out addonVersionList
	in := &eks.DescribeAddonVersionsInput{AddonName: &name}
	for {
		page, err := api.DescribeAddonVersions(ctx, in)
		if err != nil {
			return nil, fmt.Errorf("ask EKS for the versions of add-on %s (eks:DescribeAddonVersions): %w", name, err)
		}
		for _, a := range page.Addons {
			if awssdk.ToString(a.AddonName) == name {
				out = append(out, a.AddonVersions...)
			}
		}
		if in.NextToken = page.NextToken; awssdk.ToString(page.NextToken) == "" {
			return out, nil
		}
	}
}

func (l addonVersionList) supports(v, minor string) bool {
	return slices.ContainsFunc(l, func(i ekstypes.AddonVersionInfo) bool {
		return awssdk.ToString(i.AddonVersion) == v && compatible(i, minor)
	})
}

// choose picks the version to go to for a hop, and whether it is valid before it.
func (l addonVersionList) choose(at, cur, next string) (to string, before bool) {
	var both, only []ekstypes.AddonVersionInfo
	for _, i := range l {
		if !compatible(i, next) {
			continue
		}
		only = append(only, i)
		if compatible(i, cur) && compareAddon(awssdk.ToString(i.AddonVersion), at) > 0 {
			both = append(both, i)
		}
	}
	if v := best(both, next); v != "" {
		return v, true
	}
	return best(only, next), false
}

// best is the default of the minor, or else the highest version.
func best(list []ekstypes.AddonVersionInfo, minor string) string {
	top := ""
	for _, i := range list {
		v := awssdk.ToString(i.AddonVersion)
		for _, c := range i.Compatibilities {
			if c.DefaultVersion && awssdk.ToString(c.ClusterVersion) == minor {
				return v
			}
		}
		if top == "" || compareAddon(v, top) > 0 {
			top = v
		}
	}
	return top
}

func compatible(i ekstypes.AddonVersionInfo, minor string) bool {
	return slices.ContainsFunc(i.Compatibilities, func(c ekstypes.Compatibility) bool {
		return awssdk.ToString(c.ClusterVersion) == minor
	})
}

// compareAddon orders add-on versions: v1.32.6-eksbuild.10 is above
// v1.32.6-eksbuild.2. What is no semantic version is ordered as text.
func compareAddon(a, b string) int {
	va, errA := version.ParseSemantic(a)
	vb, errB := version.ParseSemantic(b)
	if errA != nil || errB != nil {
		return strings.Compare(a, b)
	}
	switch {
	case va.LessThan(vb):
		return -1
	case vb.LessThan(va):
		return 1
	}
	return 0
}
