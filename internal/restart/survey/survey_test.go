package survey

import (
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/planfile"
)

func TestSurveyCountsEveryLaggingPodOnce(t *testing.T) {
	cart, gone := deploy("shop", "cart"), deploy("shop", "gone")
	w := newWorld().workload(cart, 1, nil).
		pods(cart, 1, "old", terminating).pods(cart, 1, "new").pods(cart, 1, "").pods(cart, 1, "unseen").
		pods(cart, 1, "old", func(p *cluster.Pod) { p.Finished = true }).
		pods(deploy("shop", "patched"), 1, "patch").pods(deploy("shop", "unsaid"), 1, "mute").
		pods(gone, 1, "old").
		pods(own("v1", "shop", "Widget", "odd"), 1, "old").
		pods(own("apps/v1", "shop", "Widget", "odd"), 1, "old").
		// The same name in another API group is another owner.
		pods(own("apps.kruise.io/v1", "shop", "Deployment", "cart"), 2, "old")
	want := []string{
		"2 evict -1+1 shop/Deployment/cart: 2 pods, one by one: the controller of Deployment.apps.kruise.io has to make them again",
		"2 rollout -0+1 shop/Deployment/cart: 2 pods",
		"2 none -0+0 shop/Deployment/gone: 1 pod, Deployment is not there: its pods have lost their owner (stuck)",
		"2 none -0+0 shop/Widget/odd: 1 pod, owner kind Widget.apps is unknown (stuck)",
		"2 none -0+0 shop/Widget/odd: 1 pod, owner kind Widget is unknown (stuck)",
	}
	got := rows(Survey(w.Inventory, Options{}))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	rand.New(rand.NewSource(1)).Shuffle(len(w.Pods), func(i, j int) { w.Pods[i], w.Pods[j] = w.Pods[j], w.Pods[i] })
	if diff := cmp.Diff(want, rows(Survey(w.Inventory, Options{}))); diff != "" {
		t.Errorf("in another order of pods:\n%s", diff)
	}
}

// Custom kinds may be called Node; only those of the core are what a static pod runs on.
func TestACustomNodeIsACustomOwner(t *testing.T) {
	if it := only(newWorld().pods(own("ethereum.example/v1", "chain", "Node", "geth"), 2, "old"), Options{}); it.Method != Evict {
		t.Errorf("got %q", row(it))
	}
}

func TestSurveyOrder(t *testing.T) {
	vip := func(w *cluster.Workload) { w.Priority = 1000 }
	hook := deploy("zoo", "hook")
	w := newWorld().
		workload(deploy("audit", "log"), 1, nil).
		workload(deploy("shop", "a-low"), 1, nil).
		workload(stateful("shop", "vip"), 2, vip).
		workload(deploy("shop", "vip"), 1, vip).
		workload(deploy("platform", "gate"), 1, nil).
		workload(deploy("data", "db"), 1, nil).
		workload(deploy("data", "hook"), 1, nil).
		workload(hook, 1, nil).
		workload(deploy("kube-system", "coredns"), 2, nil).
		workload(deploy("kube-system", "metrics"), 1, nil).
		workload(deploy("shop", "coredns"), 1, nil).
		webhook("a", hook, deploy("data", "hook")).webhook("b", hook)
	var got []string
	for _, it := range Survey(w.Inventory, Options{Order: []string{"platform", "data", "platform"}}) {
		got = append(got, it.Owner.String()+" "+strings.Join(it.Webhooks, ","))
	}
	if diff := cmp.Diff([]string{
		"kube-system/Deployment/coredns ",
		"data/Deployment/hook guard/a", "zoo/Deployment/hook guard/a,guard/b",
		"platform/Deployment/gate ", "data/Deployment/db ",
		"audit/Deployment/log ", "kube-system/Deployment/metrics ",
		"shop/Deployment/vip ", "shop/StatefulSet/vip ", "shop/Deployment/a-low ", "shop/Deployment/coredns ",
	}, got); diff != "" {
		t.Error(diff)
	}
}

func TestSurveyAgainstAnotherMinor(t *testing.T) {
	w := newWorld().workload(deploy("shop", "cart"), 2, nil)
	if got := Survey(w.Inventory, Options{Minor: "1.32"}); len(got) != 0 {
		t.Errorf("got %q at 1.32, want nothing", rows(got))
	}
	w.Pods[0].Node = "new"
	if got := Survey(w.Inventory, Options{Minor: "1.34"}); len(got) != 1 || len(got[0].Pods) != 2 {
		t.Errorf("got %q at 1.34, want both pods", rows(got))
	}
}

func TestSurveySkipsUntilTheEndOfTheDay(t *testing.T) {
	w := newWorld().pods(own("batch/v1", "shop", "Job", "seed"), 1, "old", once)
	skips := []planfile.Skip{{Owner: "shop/Job/other", Reason: "no", Until: planfile.Date{Time: day}},
		{Owner: "shop/Job/seed", Reason: "ends at 04:00", Until: planfile.Date{Time: day}}}
	for name, tt := range map[string]struct {
		now  time.Time
		want string
	}{
		"today":     {day.Add(24*time.Hour - time.Minute), "2 none -0+0 shop/Job/seed: 1 pod, ends at 04:00 (skipped)"},
		"yesterday": {day.Add(24 * time.Hour), "2 wait -0+0 shop/Job/seed: 1 pod, Job still running"},
	} {
		t.Run(name, func(t *testing.T) {
			it := only(w, Options{Skips: skips, Now: tt.now})
			if row(it) != tt.want {
				t.Errorf("got %q, want %q", row(it), tt.want)
			}
			if it.Skipped && (it.Stuck() || it.Waits() || it.Works()) {
				t.Errorf("%q is skipped and yet counts", row(it))
			}
		})
	}
}

func TestSurveyFillsProfileFromTheNewestPod(t *testing.T) {
	cart := deploy("shop", "cart")
	w := newWorld().workload(cart, 3, nil).budget("cart", 1, cart)
	for i, p := range []string{"fp-first", "fp-now", ""} {
		w.Pods[i].Profile, w.Pods[i].MilliCPU = p, int32(1000*(i+1))
		w.Pods[i].CreatedAt = day.Add(time.Duration([]int{1, 3, 2}[i]) * time.Hour)
	}
	it := only(w, Options{})
	if it.Profile != "fp-now" || it.MilliCPU != 3000 || it.Replicas != 3 || !slices.Equal(it.Budgets, []string{"shop/cart"}) {
		t.Errorf("got profile %s, %dm, %d replicas, budgets %q", it.Profile, it.MilliCPU, it.Replicas, it.Budgets)
	}
	w.Pods[2].CreatedAt = day.Add(9 * time.Hour)
	if it := only(w, Options{}); it.Profile != "fp-node" {
		t.Errorf("a pod without the label: got profile %q, want its node's", it.Profile)
	}
}

func TestPartitionCountsFromStart(t *testing.T) {
	db := stateful("data", "db")
	for name, tt := range map[string]struct {
		start, partition int32
		pod              string
		terminating      bool
		want             Method
	}{
		"below":              {0, 2, "db-1", false, None},
		"at the partition":   {0, 2, "db-2", false, Rollout},
		"start counts":       {5, 2, "db-6", false, None},
		"at start+partition": {5, 2, "db-7", false, Rollout},
		"no ordinal":         {0, 2, "db-x", false, None},
		"huge ordinal":       {0, 2, "db-99999999999", false, None},
		"terminating":        {0, 2, "db-1", true, Rollout},
		"no partition":       {0, 0, "db-x", false, Rollout},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld().workload(db, 0, func(w *cluster.Workload) {
				w.Replicas, w.Start, w.Partition = 3, tt.start, tt.partition
			}).pods(db, 1, "old", func(p *cluster.Pod) { p.Name, p.Terminating = tt.pod, tt.terminating }).
				pods(db, 1, "old", func(p *cluster.Pod) { p.Name = "db-9" }).pods(db, 1, "new")
			if it := only(w, Options{}); it.Method != tt.want {
				t.Errorf("got %s, want %s", row(it), tt.want)
			}
		})
	}
}

func TestOrdinal(t *testing.T) {
	for name, want := range map[string]int{"db-0": 0, "my-db-12": 12, "db-007": 7,
		"": -1, "db": -1, "db-": -1, "-1": -1, "12": -1, "db-1x": -1, "db-+1": -1, "db--1": 1, "db-4294967296": -1} {
		got, ok := Ordinal(name)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("Ordinal(%q) = %d, %v, want %d", name, got, ok, want)
		}
	}
}
