package planfile_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/eksbg/eksbg/internal/planfile"
)

func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../plans/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	schema := schemaOf(t)
	for _, file := range files {
		if _, err := planfile.Load(file); err != nil {
			t.Errorf("%v", err)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range violations(schema, schema, generic(t, content), "") {
			t.Errorf("%s does not fit the schema: %s", file, bad)
		}
	}
}

// TestWholeFile reads every field: the golden file is the same as JSON, and says what
// each became.
func TestWholeFile(t *testing.T) {
	f, err := planfile.Parse("whole.yaml", []byte(whole(t)))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/whole.golden", append(b, '\n'))
	var again planfile.File
	if err := json.Unmarshal(b, &again); err != nil {
		t.Fatal(err)
	}
	again.Path, again.Sum = f.Path, f.Sum
	if diff := cmp.Diff(*f, again); diff != "" {
		t.Errorf("JSON there and back:\n%s", diff)
	}
	if f.Path != "whole.yaml" || len(f.Sum) != 64 {
		t.Errorf("path %q, sum %q", f.Path, f.Sum)
	}
}

func TestOtherSpellings(t *testing.T) {
	base := whole(t)
	want, err := planfile.Parse("shop.yaml", []byte(base))
	if err != nil {
		t.Fatal(err)
	}
	for name, edits := range map[string][]string{
		"carriage returns":   {"\n", "\r\n"},
		"byte order mark":    {"apiVersion:", "\uFEFFapiVersion:"},
		"document marks":     {"apiVersion:", "%YAML 1.2\n---\napiVersion:", "restart-live]\n", "restart-live]\n...\n"},
		"number of per cent": {"99.9%", "99.9", "100%}", "100}"},
		"quotes":             {"until: 2026-12-04", "until: '2026-12-04'", "hold: 5m", `"hold": "300s"`},
		"folded text":        {`check: insight/deprecated-apis, reason: "old client retires on Friday", until: 2026-12-04}`, "check: insight/deprecated-apis,\n     reason: old client\n       retires on Friday, until: 2026-12-04}"},
		"resolve":            {"resolve: kubernetes.default.svc.cluster.local", "resolve: Kubernetes.default.svc.cluster.local."},
		"trailing dots":      {"zone: shop.example.com", "zone: Shop.example.com.", "record: api.", "record: API."},
		"anchors":            {"types: [A, AAAA]", "types: &t [&a A, AAAA]", "onStop: back", "onStop: &o back"},
		"merge keys": {"{name: shop-blue, profile: shop-blue}", "&c {name: shop-blue, profile: shop-blue}",
			"{name: shop-green, profile: shop-green,", "{<<: *c, name: shop-green, profile: shop-green,"},
		"two merge keys": {"{check: insight/deprecated-apis, reason: \"old client retires on Friday\", until: 2026-12-04}", "&w {check: insight/deprecated-apis, reason: \"old client retires on Friday\", until: 2026-12-04}",
			"{owner: shop/Job/nightly-report, reason: \"ends by itself at 04:00\", until: 2026-12-05}", "{owner: shop/Job/nightly-report, reason: \"ends by itself at 04:00\", until: 2026-12-05}"},
	} {
		content := strings.NewReplacer(edits...).Replace(base)
		have, err := planfile.Parse("shop.yaml", []byte(content))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		have.Sum = want.Sum
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// TestMergeKeepsWhatIsThere: a merged field never replaces one of the mapping itself,
// and of two merged ones the first counts (YAML merge key type, 2005).
func TestMergeKeepsWhatIsThere(t *testing.T) {
	base := strings.NewReplacer(
		"{check: insight/deprecated-apis, reason: \"old client retires on Friday\", until: 2026-12-04}",
		"&first {check: one, reason: first, until: 2026-01-01}\n  - &second {check: two, reason: second, until: 2026-01-02}\n  - {<<: [*first, *second], check: own}",
	).Replace(whole(t))
	f, err := planfile.Parse("shop.yaml", []byte(base))
	if err != nil {
		t.Fatal(err)
	}
	if w := f.Waive[2]; w.Check != "own" || w.Reason != "first" || w.Until.String() != "2026-01-01" {
		t.Errorf("merged to %+v", w)
	}
}

func TestAtLeastFollowsFewSamples(t *testing.T) {
	for edit, want := range map[string]int{"samples: 5,": 5, "samples: 5, atLeast: 3,": 3, "samples: 500,": 20} {
		base := strings.NewReplacer("samples: 2000,", edit, " atLeast: 20,", "").Replace(whole(t))
		f, err := planfile.Parse("shop.yaml", []byte(base))
		if err != nil {
			t.Error(err)
		} else if have := f.Cutover.Gates[1].HTTP.AtLeast; have != want {
			t.Errorf("%s: at least %d, want %d", edit, have, want)
		}
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "shop.yaml")
	if _, err := planfile.Load(missing); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), missing) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := planfile.Load(filepath.Dir(missing)); err == nil || !strings.Contains(err.Error(), filepath.Dir(missing)) {
		t.Errorf("folder: %v", err)
	}
}

func TestAcceptedUntilTheEndOfTheDay(t *testing.T) {
	f, err := planfile.Parse("shop.yaml", []byte(whole(t)))
	if err != nil {
		t.Fatal(err)
	}
	last := time.Date(2026, 12, 4, 23, 59, 59, 0, time.UTC)
	// The day is UTC's wherever the clock is: 05:00 on the 5th in Tokyo.
	last = last.In(time.FixedZone("JST", 9*3600))
	if w, ok := f.Waiver("insight/deprecated-apis", last); !ok || w.Reason != "old client retires on Friday" {
		t.Errorf("on its last day: %+v, %v", w, ok)
	}
	if len(f.ExpiredWaivers(last)) != 0 {
		t.Error("expired on its last day")
	}
	over := last.Add(time.Second)
	if _, ok := f.Waiver("insight/deprecated-apis", over); ok {
		t.Error("waived after its last day")
	}
	if e := f.ExpiredWaivers(over); len(e) != 1 || e[0].Check != "insight/deprecated-apis" {
		t.Errorf("expired %v", e)
	}
	if _, ok := f.Waiver("insight/another", last); ok {
		t.Error("waived what it does not name")
	}
	day := 24 * time.Hour
	if s, ok := f.Restart.Skipped("shop/Job/nightly-report", last.Add(day)); !ok || s.Reason == "" {
		t.Errorf("skip on its last day: %+v, %v", s, ok)
	}
	if _, ok := f.Restart.Skipped("shop/Job/nightly-report", over.Add(day)); ok || len(f.Restart.ExpiredSkips(over.Add(day))) != 1 {
		t.Error("skipped after its last day")
	}
	if _, ok := f.Restart.Skipped("shop/Job/nightly", last); ok {
		t.Error("skipped what it does not name")
	}
}

// TestRestartValues: what the form of restart allows beside the usual.
func TestRestartValues(t *testing.T) {
	for edit, good := range map[string][]string{
		"resolve off":            {"resolve: kubernetes.default.svc.cluster.local", "resolve: off"},
		"resolve elsewhere":      {"resolve: kubernetes.default.svc.cluster.local", "resolve: api.shop.example.com"},
		"static pods of a node":  {"shop/Job/nightly-report", "Node/ip-10-0-1-2.ec2.internal"},
		"custom owner":           {"shop/Deployment/legacy-cart", "shop/Kafka/events.main"},
		"argo rollout":           {"shop/StatefulSet/ledger", "shop/Rollout/ledger"},
		"two actions, one owner": {"owner: shop/Deployment/legacy-cart", "owner: shop/StatefulSet/ledger"},
		"no age":                 {"finishedAge: 2h", "finishedAge: 0s"},
	} {
		if _, err := planfile.Parse("shop.yaml", []byte(strings.Replace(whole(t), good[0], good[1], 1))); err != nil {
			t.Errorf("%s: %v", edit, err)
		}
	}
	f, err := planfile.Parse("shop.yaml", []byte(whole(t)))
	if err != nil {
		t.Fatal(err)
	}
	if a, ok := f.Restart.Allowed("shop/StatefulSet/ledger", planfile.ActionEvict); !ok || a.Reason == "" {
		t.Errorf("allowed: %+v, %v", a, ok)
	}
	if _, ok := f.Restart.Allowed("shop/StatefulSet/ledger", planfile.ActionOutage); ok {
		t.Error("allows an action that it does not name")
	}
}

func TestTargetIDs(t *testing.T) {
	const lb = "arn:aws:elasticloadbalancing:ap-northeast-1:111122223333:"
	for want, target := range map[string]planfile.Target{
		"route53/api.shop.example.com":          {Route53: &planfile.Route53{Zone: "shop.example.com", Record: "api.shop.example.com"}},
		"route53/Z0ABCDEF/api.shop.example.com": {Route53: &planfile.Route53{ZoneID: "Z0ABCDEF", Record: "api.shop.example.com"}},
		"alb/shop/f2f7dc8efc522ab2":             {ALB: &planfile.ALB{Listener: lb + "listener/app/shop/50dc6c495c0c9188/f2f7dc8efc522ab2"}},
		"alb/shop/rule-9683b2d02a6cabee":        {ALB: &planfile.ALB{Rule: lb + "listener-rule/app/shop/50dc6c495c0c9188/f2f7dc8efc522ab2/9683b2d02a6cabee"}},
		"":                                      {},
	} {
		if have := target.ID(); have != want {
			t.Errorf("have %q, want %q", have, want)
		}
	}
}
