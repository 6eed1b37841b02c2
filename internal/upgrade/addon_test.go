package upgrade_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/upgrade"
)

const (
	proxyOld = "v1.31.3-eksbuild.2"
	proxyNew = "v1.32.6-eksbuild.2"
)

func newAddonWorld() *world {
	w := newWorld()
	w.takes = 90 * time.Second
	w.addon = &ekstypes.Addon{AddonName: p("kube-proxy"), AddonVersion: p(proxyOld), Status: ekstypes.AddonStatusActive,
		ConfigurationValues: p(`{"computeType":"Fargate"}`), PodIdentityAssociations: []string{"a-1"}}
	return w
}

func addonSpec() state.StepSpec {
	return upgrade.AddonSpec(state.Green, upgrade.AddonRaise{Name: "kube-proxy", From: proxyOld, To: proxyNew, Hop: "1.32"})
}

func (w *world) raise(change ...func(*upgrade.Deps)) *upgrade.Addon {
	d := w.deps()
	for _, c := range change {
		c(&d)
	}
	w.j.step = addonSpec().ID
	return upgrade.NewAddon(addonSpec(), d)
}

func (w *world) addonStatus(t *testing.T) state.Observation {
	t.Helper()
	o, err := w.raise().Observe(bg)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestAddon(t *testing.T) {
	w := newAddonWorld()
	w.addon.ServiceAccountRoleArn = p("arn:aws:iam::111122223333:role/proxy")
	if got := w.addonStatus(t); got.Status != state.Ready {
		t.Fatalf("before: %+v", got)
	}
	if err := w.raise().Act(bg, w.j); err != nil {
		t.Fatal(err)
	}
	if got := w.addonStatus(t); got.Status != state.Done || !strings.Contains(got.Reason, proxyNew) {
		t.Errorf("after: %+v", got)
	}
	w.wantStory(t, "intent 1", "accepted u-0000001", "succeeded u-0000001")
	in, ok := w.inputs[0].(*eks.UpdateAddonInput)
	if !ok || in.ResolveConflicts != ekstypes.ResolveConflictsPreserve || in.PodIdentityAssociations != nil || in.ConfigurationValues != nil {
		t.Errorf("sent %+v", w.inputs[0])
	}
	if in.ServiceAccountRoleArn == nil || *in.ServiceAccountRoleArn != *w.addon.ServiceAccountRoleArn {
		t.Error("the service account's role would be lost")
	}
	if s := addonSpec(); s.ID != "green/addon/kube-proxy/1.32" || s.Title != "add-on kube-proxy to v1.32.6" {
		t.Errorf("spec %+v", s)
	}
}

func TestAddonConfigurationIsWatched(t *testing.T) {
	for name, lost := range map[string]bool{"kept": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			w := newAddonWorld()
			w.j.onWait = func(string) {
				if lost {
					w.addon.ConfigurationValues = nil
				}
			}
			if err := w.raise().Act(bg, w.j); err != nil {
				t.Fatal(err)
			}
			warned := slices.ContainsFunc(w.j.records, func(r state.Record) bool { return r.Kind == state.RecordWarning })
			if warned != lost {
				t.Errorf("warned: %v", warned)
			}
		})
	}
}

func TestAddonObserve(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world)
		want   state.Status
	}{
		"higher than wanted": {func(w *world) { w.addon.AddonVersion = p("v1.32.6-eksbuild.10") }, state.Done},
		"there but degraded": {func(w *world) { w.addon.AddonVersion, w.addon.Status = p(proxyNew), "DEGRADED" }, state.Ready},
		"removed":            {func(w *world) { w.addon = nil }, state.Blocked},
	} {
		t.Run(name, func(t *testing.T) {
			w := newAddonWorld()
			tc.change(w)
			if got := w.addonStatus(t); got.Status != tc.want {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestAddonResumeAnywhere(t *testing.T) {
	undisturbed := newAddonWorld()
	var points []string
	note := func(what string) error { points = append(points, what); return nil }
	undisturbed.crash, undisturbed.j.crash = note, note
	if err := undisturbed.raise().Act(bg, undisturbed.j); err != nil {
		t.Fatal(err)
	}
	for at := range points {
		t.Run(fmt.Sprintf("%d %s", at, points[at]), func(t *testing.T) {
			w := newAddonWorld()
			n := 0
			crash := func(string) error {
				if n++; n == at+1 {
					return errCrash
				}
				return nil
			}
			w.crash, w.j.crash = crash, crash
			if err := w.raise().Act(bg, w.j); !errors.Is(err, errCrash) {
				t.Fatalf("got %v", err)
			}
			if err := w.raise().Act(bg, w.j); err != nil {
				t.Fatal(err)
			}
			if got := w.addonStatus(t); len(w.updates) != 1 || got.Status != state.Done || len(w.unguarded) > 0 {
				t.Errorf("%d updates, %+v, unguarded %v", len(w.updates), got, w.unguarded)
			}
			if story := strings.Join(w.j.story(), " "); strings.Count(story, "intent") != 1 {
				t.Errorf("story %v", story)
			}
		})
	}
}

func TestBusyAddon(t *testing.T) {
	t.Run("the same update is adopted", func(t *testing.T) {
		w := newAddonWorld()
		// The add-on still reads ACTIVE when the request is refused.
		w.refusals = []error{busy("AddonUpdate", "u-0000001")}
		w.j.crash = func(what string) error {
			if what == "wrote intent" {
				w.start("AddonUpdate", proxyNew, time.Minute, "Successful")
			}
			return nil
		}
		if err := w.raise().Act(bg, w.j); err != nil {
			t.Fatal(err)
		}
		w.wantStory(t, "intent 1", "found u-0000001", "succeeded u-0000001")
	})
	t.Run("somebody's update to the same version is followed", func(t *testing.T) {
		w := newAddonWorld()
		w.start("AddonUpdate", proxyNew, time.Minute, "Successful")
		if err := w.raise().Act(bg, w.j); err != nil {
			t.Fatal(err)
		}
		w.wantStory(t, "note")
	})
	t.Run("an update of the cluster is waited for", func(t *testing.T) {
		w := newAddonWorld()
		u := w.start("VersionUpdate", "1.32", 5*time.Minute, "Successful")
		w.refusals = []error{busy("VersionUpdate", u.id)}
		if err := w.raise().Act(bg, w.j); err != nil {
			t.Fatal(err)
		}
		w.wantStory(t, "intent 1", "rejected", "note", "intent 2", "accepted u-0000002", "succeeded u-0000002")
		if !slices.ContainsFunc(w.j.waits, func(s string) bool { return strings.Contains(s, u.id+" (VersionUpdate to 1.32)") }) {
			t.Errorf("waits %q", w.j.waits)
		}
	})
	t.Run("another one is waited for", func(t *testing.T) {
		w := newAddonWorld()
		w.start("AddonUpdate", "v1.31.9-eksbuild.1", time.Minute, "Successful")
		if err := w.raise().Act(bg, w.j); err != nil {
			t.Fatal(err)
		}
		w.wantStory(t, "note", "intent 1", "accepted u-0000002", "succeeded u-0000002")
		if !slices.ContainsFunc(w.j.waits, func(s string) bool { return strings.Contains(s, "u-0000001 (AddonUpdate to v1.31.9-eksbuild.1)") }) {
			t.Errorf("waits %q", w.j.waits)
		}
	})
}

func TestSickAddon(t *testing.T) {
	health := &ekstypes.AddonHealth{Issues: []ekstypes.AddonIssue{{Code: "InsufficientNumberOfReplicas", Message: p("not enough pods"), ResourceIds: []string{"coredns"}}}}
	t.Run("hangs", func(t *testing.T) {
		w := newAddonWorld()
		w.takes, w.addon.Health = 24*time.Hour, health
		err := w.raise().Act(bg, w.j)
		if err == nil || !strings.Contains(err.Error(), "InsufficientNumberOfReplicas: not enough pods (coredns)") || !strings.Contains(err.Error(), "20m0s") {
			t.Fatalf("got %v", err)
		}
		// The update may still end: the attempt stays open and is taken up again.
		w.wantStory(t, "intent 1", "accepted u-0000001")
		w.updates[0].takes = time.Minute
		if err := w.raise().Act(bg, w.j); err != nil {
			t.Fatal(err)
		}
		w.wantStory(t, "intent 1", "accepted u-0000001", "succeeded u-0000001")
	})
	t.Run("stays degraded", func(t *testing.T) {
		w := newAddonWorld()
		w.addon.Status, w.addon.Health, w.addon.AddonVersion = "DEGRADED", health, p(proxyNew)
		err := w.raise().Act(bg, w.j)
		if err == nil || !strings.Contains(err.Error(), "DEGRADED") || !strings.Contains(err.Error(), "not enough pods") {
			t.Fatalf("got %v", err)
		}
		if !strings.Contains(w.j.waits[0], "not enough pods") || w.count("UpdateAddon") != 0 {
			t.Errorf("waits %q", w.j.waits[0])
		}
	})
	t.Run("update fails", func(t *testing.T) {
		w := newAddonWorld()
		w.ends, w.errors = "Failed", []ekstypes.ErrorDetail{{ErrorCode: "ConfigurationConflict", ErrorMessage: p("field owned by kubectl")}}
		err := w.raise().Act(bg, w.j)
		if err == nil || !strings.Contains(err.Error(), "ConfigurationConflict: field owned by kubectl") {
			t.Fatalf("got %v", err)
		}
		w.wantStory(t, "intent 1", "accepted u-0000001", "failed u-0000001")
	})
	t.Run("refused", func(t *testing.T) {
		w := newAddonWorld()
		w.refusals = []error{&ekstypes.InvalidParameterException{Message: p("version is not supported")}}
		if err := w.raise().Act(bg, w.j); err == nil || !strings.Contains(err.Error(), "version is not supported") {
			t.Fatalf("got %v", err)
		}
		w.wantStory(t, "intent 1", "rejected")
	})
	t.Run("removed", func(t *testing.T) {
		w := newAddonWorld()
		w.addon = nil
		var stop *state.Stop
		if err := w.raise().Act(bg, w.j); !errors.As(err, &stop) || stop.Code != state.ExitBlocked {
			t.Fatalf("got %v", err)
		}
	})
}

func version(v, def string, minors ...string) ekstypes.AddonVersionInfo {
	i := ekstypes.AddonVersionInfo{AddonVersion: &v}
	for _, m := range minors {
		i.Compatibilities = append(i.Compatibilities, ekstypes.Compatibility{ClusterVersion: p(m), DefaultVersion: m == def})
	}
	return i
}

func TestAddons(t *testing.T) {
	for name, tc := range map[string]struct {
		versions []ekstypes.AddonVersionInfo
		at, to   string
		want     string
	}{
		"supports the new minor": {[]ekstypes.AddonVersionInfo{version("v1.0.0-eksbuild.1", "", "1.31", "1.32")}, "v1.0.0-eksbuild.1", "1.32", "[]"},
		"valid for both, before the hop": {[]ekstypes.AddonVersionInfo{
			version("v1.2.0-eksbuild.1", "1.32", "1.32"), version("v1.1.0-eksbuild.2", "", "1.31", "1.32"), version("v1.1.0-eksbuild.10", "", "1.31", "1.32"), version("v1.0.0-eksbuild.1", "1.31", "1.31"),
		}, "v1.0.0-eksbuild.1", "1.32", "[{kube-proxy v1.0.0-eksbuild.1 v1.1.0-eksbuild.10 1.32 true}]"},
		"the default wins among those": {[]ekstypes.AddonVersionInfo{
			version("v1.3.0-eksbuild.1", "", "1.31", "1.32"), version("v1.2.0-eksbuild.1", "1.32", "1.31", "1.32"), version("v1.0.0-eksbuild.1", "", "1.31"),
		}, "v1.0.0-eksbuild.1", "1.32", "[{kube-proxy v1.0.0-eksbuild.1 v1.2.0-eksbuild.1 1.32 true}]"},
		"none for both, after the hop": {[]ekstypes.AddonVersionInfo{
			version("v1.32.6-eksbuild.2", "1.32", "1.32"), version("v1.32.9-eksbuild.1", "", "1.32"), version("v1.31.3-eksbuild.2", "1.31", "1.31"),
		}, "v1.31.3-eksbuild.2", "1.32", "[{kube-proxy v1.31.3-eksbuild.2 v1.32.6-eksbuild.2 1.32 false}]"},
		"each hop starts where the last one left it": {[]ekstypes.AddonVersionInfo{
			version("v1.33.0-eksbuild.1", "1.33", "1.33"), version("v1.32.6-eksbuild.2", "1.32", "1.32"), version("v1.31.3-eksbuild.2", "1.31", "1.31"),
		}, "v1.31.3-eksbuild.2", "1.33", "[{kube-proxy v1.31.3-eksbuild.2 v1.32.6-eksbuild.2 1.32 false} {kube-proxy v1.32.6-eksbuild.2 v1.33.0-eksbuild.1 1.33 false}]"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newAddonWorld()
			w.addon.AddonVersion, w.addonsAt["kube-proxy"] = p(tc.at), tc.versions
			got, err := upgrade.Addons(bg, w, "shop-green", "1.31", tc.to, upgrade.AddonsRequired)
			if err != nil || fmt.Sprint(got) != tc.want {
				t.Errorf("got %v, %v, want %s", got, err, tc.want)
			}
			if got, err := upgrade.Addons(bg, w, "shop-green", "1.31", tc.to, upgrade.AddonsKeep); err != nil || got != nil {
				t.Errorf("keep: %v, %v", got, err)
			}
		})
	}
	t.Run("no version for the new minor", func(t *testing.T) {
		w := newAddonWorld()
		w.addonsAt["kube-proxy"] = []ekstypes.AddonVersionInfo{version(proxyOld, "1.31", "1.31")}
		_, err := upgrade.Addons(bg, w, "shop-green", "1.31", "1.32", upgrade.AddonsRequired)
		var stop *state.Stop
		if !errors.As(err, &stop) || stop.Code != state.ExitBlocked || !strings.Contains(stop.Why, "kube-proxy") || stop.Cure == "" {
			t.Errorf("got %v", err)
		}
	})
}
