package standby

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

// ended is the detail of the last outcome.
func (b *hookBench) ended() hookOutcome {
	b.Helper()
	r, ok := state.LastOf(b.journal.Records(""), state.RecordOutcome)
	var d hookOutcome
	if !ok || json.Unmarshal(r.Detail, &d) != nil {
		b.Fatalf("no outcome in %+v", b.journal.Records(""))
	}
	return d
}

// A command that does not end in time is told to with SIGTERM and killed after the
// grace; one that is interrupted is told to with SIGINT first, as terraform wants it.
func TestHookIsToldToEnd(t *testing.T) {
	const timeout, grace = time.Hour, time.Minute
	tests := map[string]struct {
		interrupt bool
		// heeds is the signal at which the child ends, 7 or with a + 0; "" none.
		heeds  string
		sent   []string
		code   state.Exit
		result state.Result
		why    string
	}{
		"timeout, heeded": {false, "SIGTERM", []string{"SIGTERM"}, state.ExitResumable, state.Failed,
			"it did not end within its timeout, was sent SIGTERM and ended with exit code 7 after 1h0m0s: got SIGTERM"},
		"timeout, not heeded": {false, "", []string{"SIGTERM", "SIGKILL"}, state.ExitResumable, state.Failed,
			"it did not end within its timeout, was sent SIGTERM, SIGKILL and was ended by signal SIGKILL after 1h1m0s: got SIGTERM"},
		"timeout, ended with 0": {false, "SIGTERM+", []string{"SIGTERM"}, state.ExitResumable, state.Unknown,
			"it did not end within its timeout, was sent SIGTERM and ended with exit code 0 after 1h0m0s: got SIGTERM"},
		"interrupted, heeded": {true, "SIGINT", []string{"SIGINT"}, state.ExitInterrupted, state.Failed,
			"it was interrupted, was sent SIGINT and ended with exit code 7 after 0s: got SIGINT"},
		"interrupted, heeded late": {true, "SIGTERM", []string{"SIGINT", "SIGTERM"}, state.ExitInterrupted, state.Failed,
			"it was interrupted, was sent SIGINT, SIGTERM and ended with exit code 7 after 1m0s: got SIGTERM"},
		"interrupted, not heeded": {true, "", []string{"SIGINT", "SIGTERM", "SIGKILL"}, state.ExitInterrupted, state.Failed,
			"it was interrupted, was sent SIGINT, SIGTERM, SIGKILL and was ended by signal SIGKILL after 2m0s: got SIGTERM"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newHookBench(t, child("heed", tt.heeds)...)
			b.deps.Hook.Timeout, b.deps.Hook.Grace = planfile.Duration(timeout), planfile.Duration(grace)
			b.deps.Heartbeat = 1000 * time.Hour
			ev := newEvents(t, b.home)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := b.begin(ctx)
			ev.wait("ready")
			if tt.interrupt {
				cancel()
			} else {
				b.clock.Step(timeout)
			}
			for i, sig := range tt.sent {
				if i > 0 {
					b.clock.Step(grace)
				}
				if sig != "SIGKILL" {
					ev.wait(sig)
				}
			}
			stop := b.stop(<-done)
			if stop.Code != tt.code || stop.Why != "hook provision: "+tt.why || !strings.Contains(stop.Cure, "--approve hook/provision=run") {
				t.Errorf("%+v", stop)
			}
			if got := b.journal.results(); !slices.Equal(got, []state.Result{tt.result}) || !slices.Equal(b.ended().Sent, tt.sent) {
				t.Errorf("%v %+v", got, b.ended())
			}
			if !slices.ContainsFunc(b.journal.waits, func(s string) bool { return strings.HasPrefix(s, "hook provision was sent "+tt.sent[0]) }) {
				t.Errorf("said %q", b.journal.waits)
			}
		})
	}
}

// The check is bounded too, and no answer of it counts as one.
func TestHookCheckIsToldToEnd(t *testing.T) {
	b := newHookBench(t, sh("true")...)
	b.deps.Hook.Check = child("heed", "SIGTERM+")
	b.deps.CheckTimeout = time.Minute
	ev := newEvents(t, b.home)
	done := b.begin(t.Context())
	ev.wait("ready")
	b.clock.Step(time.Minute)
	ev.wait("SIGTERM")
	stop := b.stop(<-done)
	if stop.Code != state.ExitResumable || !strings.Contains(stop.Why, "its check gives no answer: it did not end within its timeout") || b.runs() != 0 {
		t.Errorf("%+v, %d runs", stop, b.runs())
	}
}

// While a command runs it is said how long it does, and what it said last.
func TestHookHeartbeat(t *testing.T) {
	b := newHookBench(t, child("heed", "SIGINT")...)
	b.deps.Hook.Timeout = planfile.Duration(time.Hour)
	ev := newEvents(t, b.home)
	lines := make(chan string, 9)
	b.deps.Output = func(line string) { lines <- line }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := b.begin(ctx)
	ev.wait("ready")
	<-lines
	want := "hook provision runs for 15s of at most 1h0m0s: at work"
	for len(b.saidWaiting()) == 0 {
		if b.clock.Waiters() >= 2 { // the timeout and the heartbeat
			b.clock.Step(DefaultHookHeartbeat)
		}
		runtime.Gosched()
	}
	cancel()
	ev.wait("SIGINT")
	<-done
	if got := b.saidWaiting(); got[0] != want {
		t.Errorf("said %q, want %q", got, want)
	}
}

func (b *hookBench) saidWaiting() []string {
	b.journal.mu.Lock()
	defer b.journal.mu.Unlock()
	return slices.Clone(b.journal.waits)
}

// What is still in the pipe when the command has ended is read.
func TestHookOutputIsWhole(t *testing.T) {
	b := newHookBench(t, "sh", "-c", "i=0; while test $i -lt 20000; do echo line $i; i=$((i+1)); done")
	b.realTime()
	if err := b.act(); err != nil {
		t.Fatal(err)
	}
	if n := len(b.said); n != 20000 || b.said[n-1] != "line 19999" {
		t.Errorf("%d lines", n)
	}
}

// What a command leaves running in its group is ended, whether it holds the output open
// or not, and with it the reading of the output.
func TestHookLeavesSomethingRunning(t *testing.T) {
	for name, script := range map[string]string{
		"with its output": `sleep 1000 & echo $! >"$HOME_DIR/left"; echo begun`,
		"without":         `sleep 1000 >/dev/null 2>&1 & echo $! >"$HOME_DIR/left"; echo begun`,
		"that heeds not":  `sh -c 'trap "" TERM; echo $$ >"$HOME_DIR/left"; echo begun; while :; do sleep 1000; done' & while ! test -s "$HOME_DIR/left"; do :; done`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newHookBench(t, sh(script)...)
			b.realTime()
			if err := b.act(); err != nil {
				t.Fatal(err)
			}
			if end := b.ended(); !end.Left || end.Exit != 0 || end.Why != "" {
				t.Errorf("%+v", end)
			}
			if r, _ := state.LastOf(b.journal.Records(""), state.RecordOutcome); r.Result != state.Succeeded || !strings.Contains(r.Text, "processes that it left running were ended") {
				t.Errorf("%+v", r)
			}
			if diff := cmp.Diff([]string{"begun"}, b.said); diff != "" {
				t.Error(diff)
			}
			gone(t, readText(t, filepath.Join(b.home, "left")))
		})
	}
}

// gone wants a process to be no more; being told to end and having ended are not one
// moment.
func gone(t *testing.T, pid string) {
	t.Helper()
	for exec.Command("sh", "-c", "kill -0 "+strings.TrimSpace(pid)).Run() == nil && running(strings.TrimSpace(pid)) {
		runtime.Gosched()
	}
}

// running tells a process from one that only waits to be noticed.
func running(pid string) bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", pid).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(out)), "Z")
}

// What leaves the group is let alone, and nobody waits for the end of its output.
func TestHookLeavesSomethingOutOfReach(t *testing.T) {
	b := newHookBench(t, child("leave")...)
	ev := newEvents(t, b.home)
	release := pipeAt(t, filepath.Join(b.home, "go"))
	b.realTime()
	done := b.begin(t.Context())
	ev.wait("holding")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if end := b.ended(); !end.Held || end.Left {
		t.Errorf("%+v", end)
	}
	if diff := cmp.Diff([]string{"left a process"}, b.said); diff != "" {
		t.Error(diff)
	}
	if _, err := release.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	ev.wait("let go")
}

// Interrupted, the whole group is told, also what the command has started.
func TestHookGroupIsToldToEnd(t *testing.T) {
	b := newHookBench(t, "sh", "-c", `"$0" heed SIGINT; echo never`, os.Args[0])
	b.realTime()
	b.deps.Hook.Grace = planfile.Duration(time.Minute)
	ev := newEvents(t, b.home)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := b.begin(ctx)
	ev.wait("ready")
	cancel()
	ev.wait("SIGINT")
	stop := b.stop(<-done)
	if stop.Code != state.ExitInterrupted || slices.Contains(b.said, "never") {
		t.Errorf("%+v, %q", stop, b.said)
	}
	if err := syscall.Kill(-b.group(), 0); err == nil && groupRuns(b.group()) {
		t.Error("the group still runs")
	}
}

// group is the process group of the last attempt.
func (b *hookBench) group() int {
	b.Helper()
	s, err := b.hook().story()
	if err != nil || s.last == nil || s.last.started == nil {
		b.Fatalf("%+v %v", s, err)
	}
	return s.last.started.PID
}
