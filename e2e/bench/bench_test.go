package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const metrics = `# HELP apiserver_request_total [STABLE] Counter of apiserver requests
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="cluster",subresource="",verb="LIST",version="v1"} 10
apiserver_request_total{code="410",component="apiserver",dry_run="",group="",resource="pods",scope="cluster",subresource="",verb="LIST",version="v1"} 1
apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="eviction",verb="POST",version="v1"} 1.2e+01
apiserver_request_total{code="200",component="apiserver",dry_run="",group="coordination.k8s.io",resource="leases",scope="resource",subresource="",verb="GET",version="v1"} 900
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="secrets",scope="cluster",subresource="",verb="WATCH",version="v1"} 4
apiserver_request_total{code="200",component="",dry_run="",group="",resource="",scope="",subresource="/readyz",verb="GET",version=""} 7
apiserver_request_slo_duration_seconds_count{resource="pods",verb="LIST"} 3
`

func TestMetrics(t *testing.T) {
	got, err := parseMetrics(metrics)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(Counts{"list pods": 11, "post pods/eviction": 12}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff(Counts{"list pods": 3}, got.less(Counts{"list pods": 8, "post pods/eviction": 12})); d != "" {
		t.Errorf("since (-want +got):\n%s", d)
	}
	if s := got.String(); s != "12 post pods/eviction, 11 list pods" || got.Total() != 23 {
		t.Errorf("%s, %d in all", s, got.Total())
	}
	if _, err := parseMetrics(`apiserver_request_total{verb="LIST",resource="pods"} many`); err == nil {
		t.Error("a value that is no number is read")
	}
}

func TestReport(t *testing.T) {
	cost := func(wall float64) Cost {
		return Cost{Wall: wall, CPU: wall / 2, RSS: 40e6, Requests: Counts{"list pods": 10}}
	}
	r := &result{
		Pods: 50, Deployments: 10, Parallel: 2, Startup: 3 * time.Second, Stop: time.Second, Load: 2.5, Alone: 4, Critical: 20, Loop: cost(30), Restart: cost(22),
		Reads: map[string]Cost{"floor": cost(1), "lag": cost(1.2), "wide": cost(4), "json": cost(9)},
	}
	file := filepath.Join(t.TempDir(), "results")
	if err := save(file, with([]*result{{Pods: 50}, {Pods: 20}}, r)); err != nil {
		t.Fatal(err)
	}
	all, err := load(file)
	if err != nil || len(all) != 2 || all[0].Pods != 20 {
		t.Fatalf("%v, %v", all, err)
	}
	text := report(all[1:], "A machine.")
	for _, line := range []string{
		"A machine.",
		"| 50 | `eksbg lag` | 1.20 s | 1.20 | 0.60 s | 40 MB | 10 list pods |",
		"| 50 | 3s, 1s | 10, 2 | critical path | 20 s | 1 | | | |",
		"| 50 | 3s, 1s | 10, 2 | `eksbg restart` | 22 s | 1.10 | 11.0 s | 40 MB | 1.0 |",
		"- 50 pods, shell loop: 10 list pods",
		"Load average of the machine over the minute before each size was begun: 50 pods 2.5.",
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("%q is not in:\n%s", line, text)
		}
	}
	r.Critical = 0
	if text := report([]*result{r}, ""); strings.Contains(text, "eksbg restart") {
		t.Errorf("restarts that were not measured:\n%s", text)
	}
}

func TestInsert(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("before\n"+markBegin+"old\n"+markEnd+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := insert(page, "new\n"); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if want := "before\n" + markBegin + "\nnew\n\n" + markEnd + "after\n"; err != nil || string(got) != want {
		t.Errorf("%v:\n%s", err, got)
	}
	if err := os.WriteFile(page, []byte(markBegin), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := insert(page, "new"); err == nil {
		t.Error("a page without an end mark is written")
	}
}

func TestOptions(t *testing.T) {
	o, err := parse([]string{"-pods", "200,1000"})
	if err != nil || len(o.sizes) != 2 || o.sizes[1] != (size{1000, 10 * time.Second}) || !o.restart || o.batches != 10 {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err := parse([]string{"-pods", "5,10,15", "-startup", "1s,2s"}); err != nil || o.sizes[2].startup != 2*time.Second {
		t.Errorf("%+v, %v", o, err)
	}
	for _, bad := range []string{"0", "7", "many", ""} {
		if _, err := parse([]string{"-pods", bad}); err == nil {
			t.Errorf("-pods %q is taken", bad)
		}
	}
}
