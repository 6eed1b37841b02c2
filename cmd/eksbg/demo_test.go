package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/ui/text"
	"github.com/eksbg/eksbg/internal/ui/view"
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

// A run that stopped says what to type next, in lines that fit unless the command itself is
// longer; in the demo it names no files that are gone when it has ended.
func TestTheLastLinesOfARunThatStopped(t *testing.T) {
	end := func(file string) string {
		var out bytes.Buffer
		a := &applied{o: &applyOptions{streams: streams{err: &out}, path: file}, session: &session{planPath: file}}
		m := view.Fold([]state.Record{{Kind: state.RecordPlan, Plan: &state.Plan{Operation: state.OperationRestart}}})
		if err := a.stopped(m, &state.Stop{Code: state.ExitInterrupted, Why: "interrupted"}); !errors.Is(err, exitError(state.ExitInterrupted)) {
			t.Errorf("%v", err)
		}
		return out.String()
	}
	if got := end("plan.yaml"); !strings.HasSuffix(got, "\nGo on       eksbg apply plan.yaml      (exit 130)\n") {
		t.Errorf("%s", got)
	}
	long := strings.Repeat("x", text.Width-len("Go on       eksbg apply "))
	if got := end(long); !strings.HasSuffix(got, "\nGo on       eksbg apply "+long+"\n            (exit 130)\n") {
		t.Errorf("%s", got)
	}
	t.Setenv(inDemo, "1")
	if got := end("plan.yaml"); strings.Contains(got, "plan.yaml") || !strings.Contains(got, "with exit 130") {
		t.Errorf("in the demo: %s", got)
	}
}
