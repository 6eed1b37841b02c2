package restart_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/restart"
	"github.com/eksbg/eksbg/internal/state"
)

var jobsSpec = state.StepSpec{ID: "green/jobs/1", Phase: state.PhaseRestart, Kind: state.KindJobs, Side: state.Green}

// noon is when the inventories of these tests are looked at.
var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func owner(apiVersion, ns, kind, name string) cluster.Owner {
	return cluster.Owner{APIVersion: apiVersion, Namespace: ns, Kind: kind, Name: name, UID: "uid-" + ns + "-" + kind + "-" + name}
}

// yard is a cluster with finished things in it.
type yard struct {
	inv cluster.Inventory
}

func (y *yard) job(ns, name string, ago time.Duration, change ...func(*cluster.Job)) *yard {
	j := cluster.Job{Owner: owner("batch/v1", ns, "Job", name), Finished: true, FinishedAt: noon.Add(-ago), CreatedAt: noon.Add(-ago - time.Minute)}
	for _, c := range change {
		c(&j)
	}
	y.inv.Jobs = append(y.inv.Jobs, j)
	return y
}

// pod adds a finished pod on a Fargate node of its own.
func (y *yard) pod(ns, name string, of cluster.Owner, ago time.Duration) *yard {
	node := fmt.Sprintf("fargate-%d", len(y.inv.Nodes))
	y.inv.Nodes = append(y.inv.Nodes, cluster.Node{Name: node, Minor: "1.31", Compute: cluster.ComputeFargate})
	y.inv.Pods = append(y.inv.Pods, cluster.Pod{Namespace: ns, Name: name, UID: "uid-" + ns + "-pod-" + name, Node: node, Phase: "Succeeded",
		Finished: true, FinishedAt: noon.Add(-ago), Owner: of})
	return y
}

// of says of the last pod that a Job made it; inventories name the top owner.
func (y *yard) of(job string) *yard {
	p := &y.inv.Pods[len(y.inv.Pods)-1]
	p.Job = owner("batch/v1", p.Namespace, "Job", job).UID
	return y
}

func (y *yard) cron(ns, name string, succeeded, failed int32) cluster.Owner {
	o := owner("batch/v1", ns, "CronJob", name)
	y.inv.CronJobs = append(y.inv.CronJobs, cluster.CronJob{Owner: o, KeepSucceeded: succeeded, KeepFailed: failed})
	return o
}

func byCron(o cluster.Owner) func(*cluster.Job) { return func(j *cluster.Job) { j.CronJob = o } }

func names(ls restart.Leftovers) []string {
	out := []string{}
	for _, l := range ls {
		out = append(out, l.Owner().String())
	}
	return out
}

func TestWhichFinishedJobsMayGo(t *testing.T) {
	y := &yard{}
	nightly := y.cron("shop", "nightly", 1, 1)
	for i, ago := range []time.Duration{26 * time.Hour, 50 * time.Hour, 74 * time.Hour} {
		name := fmt.Sprintf("nightly-2941%d", 9-i)
		y.job("shop", name, ago, byCron(nightly)).pod("shop", name+"-x2x4z", nightly, ago).of(name)
	}
	y.job("shop", "nightly-29400", 99*time.Hour, byCron(nightly), func(j *cluster.Job) { j.Failed = true })
	y.job("shop", "gone-29400", 99*time.Hour, byCron(owner("batch/v1", "shop", "CronJob", "gone")))
	y.job("shop", "import-1", 3*time.Hour).pod("shop", "import-1-aaaaa", owner("batch/v1", "shop", "Job", "import-1"), 3*time.Hour).of("import-1")
	y.job("shop", "import-2", 59*time.Minute).pod("shop", "import-2-aaaaa", owner("batch/v1", "shop", "Job", "import-2"), 59*time.Minute).of("import-2")
	y.job("shop", "unknown", 0, func(j *cluster.Job) { j.FinishedAt = time.Time{} })
	y.job("shop", "running", 3*time.Hour, func(j *cluster.Job) { j.Finished = false }).
		pod("shop", "running-0-aaaaa", owner("batch/v1", "shop", "Job", "running"), 3*time.Hour).of("running").
		pod("shop", "running-1-bbbbb", owner("batch/v1", "shop", "Job", "running"), 2*time.Hour).of("running")
	flow := owner("argoproj.io/v1alpha1", "shop", "Workflow", "etl")
	y.job("shop", "etl-1", 9*time.Hour, func(j *cluster.Job) { j.Controller = flow }).pod("shop", "etl-1-0-aaaaa", flow, 9*time.Hour).of("etl-1")
	y.pod("shop", "etl-step", flow, 9*time.Hour)
	y.pod("ops", "toolbox", owner("v1", "ops", "Pod", "toolbox"), 2*time.Hour)
	y.pod("ops", "fresh", owner("v1", "ops", "Pod", "fresh"), 2*time.Minute)
	y.pod("shop", "cart-7d9f-evict", owner("apps/v1", "shop", "Deployment", "cart"), 2*time.Hour)
	y.pod("shop", "db-0", owner("apps/v1", "shop", "StatefulSet", "db"), 2*time.Hour)
	ls := restart.Finished(&y.inv, time.Hour, noon)

	want := []string{"shop/Job/gone-29400", "shop/Job/nightly-29417", "shop/Job/nightly-29418", "shop/Job/import-1", "ops/Pod/toolbox", "shop/Pod/cart-7d9f-evict"}
	if got := names(ls.Deletable()); !slices.Equal(got, want) {
		t.Errorf("deletes %v\nwant    %v", got, want)
	}
	why := map[string]string{}
	for _, l := range ls.Kept() {
		why[l.Owner().String()] = l.Keep
	}
	for name, part := range map[string]string{
		"shop/Job/nightly-29419":   "history limits of shop/CronJob/nightly",
		"shop/Job/nightly-29400":   "history limits of shop/CronJob/nightly",
		"shop/Job/import-2":        "less than 1h0m0s",
		"shop/Job/unknown":         "does not say when",
		"shop/Job/etl-1":           "Workflow.argoproj.io etl",
		"shop/Pod/etl-step":        "belongs to shop/Workflow/etl",
		"shop/Pod/db-0":            "belongs to shop/StatefulSet/db",
		"ops/Pod/fresh":            "less than",
		"shop/Pod/running-0-aaaaa": "its Job still runs",
		"shop/Pod/running-1-bbbbb": "its Job still runs",
	} {
		if !strings.Contains(why[name], part) {
			t.Errorf("%s: kept because %q, want %q", name, why[name], part)
		}
		delete(why, name)
	}
	if len(why) > 0 {
		t.Errorf("kept as well: %v", why)
	}
	if n := ls.Deletable().Addresses(); n != 5 {
		t.Errorf("frees %d addresses, want 5", n)
	}
	if got := ls.Deletable().String(); got != "4 finished Jobs and 2 finished pods hold 5 Fargate addresses" {
		t.Error(got)
	}
}

// The pods of a Job are found where their names are cut short, and what a Job that still
// runs has finished is reported with the addresses it holds.
func TestPodsOfJobsGoByUID(t *testing.T) {
	y := &yard{}
	long := strings.Repeat("settlement-", 5) + "29412345"
	daily := y.cron("shop", long[:52], 0, 0)
	y.job("shop", long, 9*time.Hour, byCron(daily)).pod("shop", long[:57]+"-x2x4z", daily, 9*time.Hour).of(long)
	y.job("shop", "index", 0, func(j *cluster.Job) { j.Finished = false })
	for i := range 3 {
		y.pod("shop", fmt.Sprintf("index-%d-aaaaa", i), owner("batch/v1", "shop", "Job", "index"), time.Hour).of("index")
	}
	ls := restart.Finished(&y.inv, time.Hour, noon)
	if got := ls.Deletable().String(); got != "1 finished Job holds 1 Fargate address" {
		t.Error(got)
	}
	if got := ls.Kept().String(); got != "3 finished pods hold 3 Fargate addresses" {
		t.Error(got)
	}
}

// Nothing that still runs, nothing young and nothing that a history limit keeps is
// ever deleted, and every finished Job and pod is there once.
func TestFinishedProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		y := &yard{}
		var crons []cluster.Owner
		for i := range rapid.IntRange(0, 3).Draw(t, "crons") {
			crons = append(crons, y.cron("ns", fmt.Sprintf("cron-%d", i), int32(rapid.IntRange(0, 4).Draw(t, "ok")), int32(rapid.IntRange(0, 2).Draw(t, "bad"))))
		}
		for i := range rapid.IntRange(0, 20).Draw(t, "jobs") {
			ago := time.Duration(rapid.IntRange(0, 300).Draw(t, "minutes")) * time.Minute
			y.job("ns", fmt.Sprintf("job-%d", i), ago, func(j *cluster.Job) {
				j.Finished, j.Failed = rapid.Bool().Draw(t, "finished"), rapid.Bool().Draw(t, "failed")
				if n := rapid.IntRange(-1, len(crons)-1).Draw(t, "cron"); n >= 0 {
					j.CronJob = crons[n]
				}
			})
		}
		ls := restart.Finished(&y.inv, time.Hour, noon)
		finished := 0
		for _, j := range y.inv.Jobs {
			if j.Finished {
				finished++
			}
		}
		if len(ls) != finished {
			t.Fatalf("%d of %d finished Jobs", len(ls), finished)
		}
		left := map[string][2]int32{}
		gone := map[string]bool{}
		for _, l := range ls.Deletable() {
			if !l.Job.Finished || noon.Sub(l.Job.FinishedAt) < time.Hour {
				t.Fatalf("deletes %+v", l.Job)
			}
			gone[l.Job.UID] = true
		}
		for _, j := range y.inv.Jobs {
			if j.CronJob.Kind != "" && j.Finished && !gone[j.UID] {
				n := left[j.CronJob.Name]
				n[map[bool]int{false: 0, true: 1}[j.Failed]]++
				left[j.CronJob.Name] = n
			}
		}
		for _, c := range y.inv.CronJobs {
			want := [2]int32{}
			for _, j := range y.inv.Jobs {
				if j.Finished && j.CronJob.Name == c.Name {
					want[map[bool]int{false: 0, true: 1}[j.Failed]]++
				}
			}
			if n := left[c.Name]; n[0] < min(want[0], c.KeepSucceeded) || n[1] < min(want[1], c.KeepFailed) {
				t.Fatalf("%s keeps %v of %v, limits %d and %d", c.Name, n, want, c.KeepSucceeded, c.KeepFailed)
			}
		}
	})
}

func TestRemedies(t *testing.T) {
	y := &yard{}
	nightly := y.cron("shop", "nightly", 3, 1)
	y.job("shop", "nightly-1", time.Hour, byCron(nightly)).job("shop", "nightly-2", 2*time.Hour, byCron(nightly))
	y.job("shop", "import-xk2zw", time.Hour).job("shop", "import-9q4bd", time.Hour)
	y.job("shop", "migrate-v2", time.Hour)
	y.job("shop", "tidy", time.Hour, func(j *cluster.Job) { j.TTL = new(int32(60)) })
	y.job("shop", "etl", time.Hour, func(j *cluster.Job) { j.Controller = owner("argoproj.io/v1alpha1", "shop", "Workflow", "etl") })
	var got []string
	for _, r := range restart.Finished(&y.inv, time.Hour, noon).Remedies(&y.inv, 90*time.Minute) {
		got = append(got, fmt.Sprintf("%s %d %s | %s", r.Owner, r.Jobs, r.Patch, r.Command))
	}
	want := []string{
		`shop/CronJob/nightly 2 {"spec":{"jobTemplate":{"spec":{"ttlSecondsAfterFinished":5400}}}} | kubectl -n shop patch cronjob nightly --type merge -p '{"spec":{"jobTemplate":{"spec":{"ttlSecondsAfterFinished":5400}}}}'`,
		`shop/Job/import-* 2 {"spec":{"ttlSecondsAfterFinished":5400}} | `,
		`shop/Job/migrate-v2 1 {"spec":{"ttlSecondsAfterFinished":5400}} | kubectl -n shop patch job migrate-v2 --type merge -p '{"spec":{"ttlSecondsAfterFinished":5400}}'`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
