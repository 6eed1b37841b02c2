package main

import (
	"testing"

	"github.com/eksbg/eksbg/internal/state"
)

// What the demo runs names no command with files that are gone when it has ended.
func TestThePlanOfTheDemoNamesNoNextCommand(t *testing.T) {
	o, p := &planOptions{path: "plan.yaml"}, &state.Plan{Steps: []state.StepSpec{{ID: "green/verify"}}}
	if got := o.next(p); got != "eksbg apply plan.yaml" {
		t.Errorf("next is %q", got)
	}
	t.Setenv(inDemo, "1")
	if got := o.next(p); got != "" {
		t.Errorf("in the demo next is %q", got)
	}
}
