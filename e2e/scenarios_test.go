package e2e_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/eksbg/eksbg/internal/sandbox"
)

// Every scenario ends on real control planes as it ends in memory: with the same exit
// code, the same AWS, the same pods on the same kubelets.
func TestScenariosEndOnRealControlPlanesAsInMemory(t *testing.T) {
	t.Parallel() // beside the other tests that wait
	for _, s := range []struct {
		scenario string
		exit     int
	}{
		{"hot", 0}, {"article", 0}, {"stuck", 1}, {"flaky", 0},
	} {
		t.Run(s.scenario, func(t *testing.T) {
			t.Parallel() // flaky waits most of its time
			memory, real := world(t, s.scenario, false), world(t, s.scenario, true)
			both := []*process{begin(t, memory, "apply", memory.PlanFile(), "--yes"), begin(t, real, "apply", real.PlanFile(), "--yes")}
			for _, p := range both {
				if got := p.exit(); got != s.exit {
					t.Fatalf("exit %d, want %d\n%s", got, s.exit, p.out.String())
				}
			}
			eventually(t, time.Minute, func() string { return cmp.Diff(ends(t, memory), ends(t, real)) })
		})
	}
}

// ends is the state of a world as far as both kinds of Kubernetes have it: specs are
// left out, since a real API server knows more fields, and the conformance suite has them.
func ends(t *testing.T, box *sandbox.Sandbox) map[string]any {
	t.Helper()
	text, err := json.Marshal(box.World())
	if err != nil {
		t.Fatal(err)
	}
	var w map[string]any
	if err := json.Unmarshal(text, &w); err != nil {
		t.Fatal(err)
	}
	for _, side := range w["kubernetes"].(map[string]any) {
		side := side.(map[string]any)
		delete(side, "objects")
		workloads, _ := side["workloads"].(map[string]any)
		for _, wl := range workloads {
			delete(wl.(map[string]any), "spec")
		}
	}
	return w
}
