package restart

import (
	"testing"
	"time"

	"github.com/eksbg/eksbg/internal/state"
)

const cart = "shop/Deployment/cart"

func TestRestartsDeployment(t *testing.T) {
	b := newBench(t)
	b.deployment("shop", "cart", 3, oldKubelet)
	b.deployment("shop", "new", 2, newKubelet)
	if obs := b.observe(); obs.Status != state.Ready || obs.Reason != "3 pods of 1 owner below 1.33" {
		t.Fatalf("before: %+v", obs)
	}
	if err := b.drive(t.Context()); err != nil {
		t.Fatal(err)
	}
	if obs := b.observe(); obs.Status != state.Done || obs.Reason != "5 pods, none below 1.33" {
		t.Errorf("after: %+v", obs)
	}
	stamps := b.restarts(cart)
	if len(stamps) != 1 || newer(start.Format(time.RFC3339), stamps[0]) || newer(stamps[0], b.clock.Now().Format(time.RFC3339)) {
		t.Fatalf("stamps %v", stamps)
	}
	if got := b.restarts("shop/Deployment/new"); len(got) != 0 {
		t.Errorf("a workload that does not lag was restarted: %v", got)
	}
	want := stamped{Owner: cart, UID: b.journal.intents()[0].UID, Attempt: 1, Stamp: stamps[0]}
	if got := b.journal.intents(); len(got) != 1 || got[0] != want {
		t.Errorf("intents %+v", got)
	}
	if got := b.journal.results(cart); len(got) != 2 || got[0] != state.Accepted || got[1] != state.Succeeded {
		t.Errorf("results %v", got)
	}
	var seen []string
	for _, r := range b.journal.Records("") {
		if r.Kind == state.RecordCluster {
			seen = append(seen, r.Text)
		}
	}
	if len(seen) != 2 || seen[0] != "5 pods, 3 below 1.33" || seen[1] != "5 pods, 0 below 1.33" {
		t.Errorf("cluster records %v", seen)
	}
}

func TestRestartsStatefulSet(t *testing.T) {
	b := newBench(t)
	b.statefulSet("data", "db", 3, oldKubelet)
	if err := b.drive(t.Context()); err != nil {
		t.Fatal(err)
	}
	if obs := b.observe(); obs.Status != state.Done {
		t.Errorf("after: %+v", obs)
	}
	if got := b.journal.Records("")[1].Change.Call; got != "k8s:patch statefulsets" {
		t.Errorf("call %q", got)
	}
}
