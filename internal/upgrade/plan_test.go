package upgrade_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/upgrade"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEveryChangingCallHasAToken keeps the habit: whatever the package can change
// takes a ClientRequestToken, and is in the list that the resume tests cover.
func TestEveryChangingCallHasAToken(t *testing.T) {
	// No intent is journaled for these, for they can change nothing that a run or a
	// user could want undone or found again: their only input is which cluster.
	harmless := map[string]bool{"StartInsightsRefresh": true}
	api := reflect.TypeFor[upgrade.API]()
	var changing []string
	for i := range api.NumMethod() {
		m := api.Method(i)
		if strings.HasPrefix(m.Name, "Describe") || strings.HasPrefix(m.Name, "List") {
			continue
		}
		changing = append(changing, m.Name)
		in := m.Type.In(1).Elem()
		if harmless[m.Name] {
			for f := range in.NumField() {
				if name := in.Field(f).Name; in.Field(f).IsExported() && name != "ClusterName" {
					t.Errorf("%s takes %s: it wants something of the cluster and needs an intent", m.Name, name)
				}
			}
			continue
		}
		if _, ok := in.FieldByName("ClientRequestToken"); !ok {
			t.Errorf("%s takes no ClientRequestToken", m.Name)
		}
	}
	if d := cmp.Diff([]string{"StartInsightsRefresh", "UpdateAddon", "UpdateClusterVersion"}, changing); d != "" {
		t.Errorf("a changing call without a resume test (-want +got):\n%s", d)
	}
}

// A run that is killed around a refresh of the insights leaves nothing to find again.
func TestKilledAroundARefreshOfTheInsights(t *testing.T) {
	for _, at := range []string{"call StartInsightsRefresh", "call DescribeInsightsRefresh", "call ListInsights"} {
		t.Run(at, func(t *testing.T) {
			w := newWorld()
			ctx, kill := context.WithCancel(bg)
			w.crash = func(what string) error {
				if what == at {
					kill()
					return errCrash
				}
				return nil
			}
			insights := func(d *upgrade.Deps) { d.Check = nil }
			if err := w.step(insights).Act(ctx, w.j); !errors.Is(err, errCrash) || len(w.j.records) > 0 {
				t.Fatalf("got %v with %v", err, w.j.story())
			}
			w.crash = nil
			w.fail["StartInsightsRefresh"] = &ekstypes.InvalidRequestException{Message: p("An insights refresh is already in progress")}
			if err := w.step(insights).Act(bg, w.j); err != nil {
				t.Fatal(err)
			}
			w.wantStory(t, "intent 1", "accepted u-0000001", "succeeded u-0000001")
		})
	}
}

func offers(minors ...string) []upgrade.Offer {
	var out []upgrade.Offer
	for _, m := range minors {
		out = append(out, upgrade.Offer{Minor: m, Status: "STANDARD_SUPPORT"})
	}
	return out
}

func TestOffered(t *testing.T) {
	w := newWorld()
	for _, v := range []string{"1.33", "1.9", "1.32", "1.31", "1.33"} {
		w.offered = append(w.offered, ekstypes.ClusterVersionInformation{ClusterVersion: p(v), VersionStatus: "EXTENDED_SUPPORT", EndOfStandardSupportDate: &start})
	}
	w.offered[1].VersionStatus, w.offered[1].Status = "", "unsupported"
	got, err := upgrade.Offered(bg, w)
	if err != nil {
		t.Fatal(err)
	}
	want := []upgrade.Offer{
		{Minor: "1.9", Status: "UNSUPPORTED", EndOfStandard: start}, {Minor: "1.31", Status: "EXTENDED_SUPPORT", EndOfStandard: start},
		{Minor: "1.32", Status: "EXTENDED_SUPPORT", EndOfStandard: start}, {Minor: "1.33", Status: "EXTENDED_SUPPORT", EndOfStandard: start},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	w.fail["DescribeClusterVersions"] = &smithy.GenericAPIError{Code: "AccessDeniedException"}
	if _, err := upgrade.Offered(bg, w); err == nil || !strings.Contains(err.Error(), "eks:DescribeClusterVersions") {
		t.Errorf("got %v", err)
	}
}

func TestHops(t *testing.T) {
	all := offers("1.30", "1.31", "1.32", "1.33")
	for name, tc := range map[string]struct {
		from, to string
		offered  []upgrade.Offer
		want     string
		err      []string
	}{
		"two hops":      {"1.31", "1.33", all, "[1.32 1.33]", nil},
		"there already": {"1.33", "1.33", all, "[]", nil},
		"with a patch":  {"1.31", "v1.32.4", all, "[1.32]", nil},
		"below":         {"1.31", "1.30", all, "", []string{"1.30", "below the cluster's 1.31", "one of 1.31, 1.32, 1.33"}},
		"not offered":   {"1.31", "1.35", all, "", []string{"does not offer 1.34", "1.31, 1.32, 1.33"}},
		"unsupported":   {"1.31", "1.32", []upgrade.Offer{{Minor: "1.31"}, {Minor: "1.32", Status: "UNSUPPORTED"}}, "", []string{"does not offer 1.32"}},
		"hole":          {"1.31", "1.33", offers("1.31", "1.33"), "", []string{"does not offer 1.32", "1.31 to 1.33"}},
		"malformed":     {"1.31", "latest", all, "", []string{`"latest"`, "1.31, 1.32, 1.33"}},
		"other major":   {"1.31", "2.0", all, "", []string{"another major"}},
		"nothing above": {"1.34", "1.35", all, "", []string{"EKS offers nothing at or above 1.34"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := upgrade.Hops(tc.from, tc.to, tc.offered)
			if tc.err == nil && (err != nil || fmt.Sprint(got) != tc.want) {
				t.Errorf("got %v, %v", got, err)
			}
			for _, part := range tc.err {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in %v", part, err)
				}
			}
		})
	}
}

func TestHopsAreConsecutive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, n := rapid.IntRange(20, 40).Draw(t, "from"), rapid.IntRange(-3, 6).Draw(t, "hops")
		hole := rapid.IntRange(0, 12).Draw(t, "hole")
		var offered []upgrade.Offer
		for m := 18; m < 50; m++ {
			if m-from != hole {
				offered = append(offered, upgrade.Offer{Minor: fmt.Sprintf("1.%d", m), Status: rapid.SampledFrom([]string{"STANDARD_SUPPORT", "EXTENDED_SUPPORT"}).Draw(t, "status")})
			}
		}
		start, end := fmt.Sprintf("1.%d", from), fmt.Sprintf("1.%d", from+n)
		got, err := upgrade.Hops(start, end, offered)
		if n < 0 || (hole >= 1 && hole <= n) {
			if err == nil || !strings.Contains(err.Error(), "set version to one of") {
				t.Fatalf("%s to %s: %v, %v", start, end, got, err)
			}
			return
		}
		if err != nil || len(got) != n {
			t.Fatalf("%s to %s: %v, %v", start, end, got, err)
		}
		at := start
		for _, hop := range got {
			if skew, ok := cluster.Skew(at, hop); !ok || skew != 1 {
				t.Fatalf("%s to %s is not one minor", at, hop)
			}
			at = hop
		}
		if at != end {
			t.Fatalf("ends at %s, want %s", at, end)
		}
	})
}

func TestRestartBefore(t *testing.T) {
	for _, tc := range []struct {
		hop, kubelet string
		want         bool
	}{
		{"1.32", "1.31", false}, {"1.33", "1.30", false}, {"1.34", "1.30", true}, {"1.28", "1.25", false},
		{"1.27", "1.24", true}, {"1.26", "1.24", false}, {"1.32", "", false}, {"1.32", "unreadable", true}, {"1.32", "1.33", false},
	} {
		if got := upgrade.RestartBefore(tc.hop, tc.kubelet); got != tc.want {
			t.Errorf("hop to %s over kubelet %q: %v", tc.hop, tc.kubelet, got)
		}
	}
}
