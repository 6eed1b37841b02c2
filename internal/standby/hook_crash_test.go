package standby

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"k8s.io/utils/clock"
	"pgregory.net/rapid"

	"github.com/eksbg/eksbg/internal/state"
)

// says answers every question.
func says(a HookAnswer) func(context.Context, HookQuestion) (HookAnswer, *state.Who, error) {
	return func(context.Context, HookQuestion) (HookAnswer, *state.Who, error) {
		return a, &state.Who{User: "ops"}, nil
	}
}

// eksbg is killed with SIGKILL while a hook runs. The hook goes on to its end although
// nobody reads what it writes, the next eksbg starts no second one beside it, and when it
// has ended goes on as the hook's check, the plan file or a person says.
func TestEksbgIsKilledWhileAHookRuns(t *testing.T) {
	const nobody = ""
	tests := map[string]struct {
		idempotent bool
		check      string
		host       string
		answer     HookAnswer
		// code is what Act of the next eksbg ends with, results what the journal holds then.
		code    state.Exit
		results []state.Result
		want    string
	}{
		"idempotent":                     {true, "", "bastion", nobody, 0, []state.Result{state.Unknown, state.Succeeded}, ""},
		"not idempotent":                 {false, "", "bastion", nobody, state.ExitResumable, nil, "--approve hook/provision=done if it is done"},
		"a person says done":             {false, "", "bastion", HookDone, 0, []state.Result{state.Found}, ""},
		"a person says run":              {false, "", "bastion", HookRun, 0, []state.Result{state.Unknown, state.Succeeded}, ""},
		"the check says done":            {false, `test -f "$HOME_DIR/finished" || exit 2`, "bastion", nobody, 0, []state.Result{state.Found}, ""},
		"the check says not done":        {false, `test "$EKSBG_ATTEMPT" = 0 || exit 2`, "bastion", nobody, 0, []state.Result{state.Unknown, state.Accepted, state.Succeeded}, ""},
		"the check gives no answer":      {true, `exit 1`, "bastion", nobody, state.ExitResumable, nil, "its output is in "},
		"on another host, idempotent":    {true, "", "laptop", nobody, state.ExitResumable, nil, "its output is in "},
		"on another host, the check":     {true, "exit 2", "laptop", nobody, state.ExitResumable, nil, "if it is to be run"},
		"on another host, done says the": {true, "exit 0", "laptop", nobody, 0, []state.Result{state.Found}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b, j := killedWhileItRuns(t)
			b.deps.Hook.Idempotent, b.deps.Host, b.deps.Decide = tt.idempotent, tt.host, says(tt.answer)
			if tt.check != "" {
				b.deps.Hook.Check = []string{"sh", "-c", tt.check}
			}
			err := b.hook().Act(t.Context(), j.Recorder(hookSpec.ID))
			if tt.code == 0 && err != nil {
				t.Fatal(err)
			}
			if tt.code != 0 {
				if stop := b.stop(err); stop.Code != tt.code || !strings.Contains(stop.Cure, tt.want) {
					t.Errorf("%+v", stop)
				}
			}
			var results []state.Result
			for _, r := range state.OfKind(j.Records(""), state.RecordOutcome) {
				results = append(results, r.Result)
			}
			if !slices.Equal(results, tt.results) {
				t.Errorf("%v", results)
			}
		})
	}
}

// killedWhileItRuns gives the journal and the bench of the next eksbg, after the hook has
// ended.
func killedWhileItRuns(t *testing.T) (*hookBench, *state.Journal) {
	t.Helper()
	b := newHookBench(t)
	ev := newEvents(t, b.home)
	release := pipeAt(t, filepath.Join(b.home, "go"))
	first := exec.Command(os.Args[0], append([]string{"eksbg"}, child("work")...)...)
	first.Env = append(os.Environ(), childEnv+"=1", "HOME_DIR="+b.home)
	first.Stderr = os.Stderr
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // in whichever order
		if got, err := ev.r.ReadString('\n'); err != nil || got != "at work\n" && got != "noted\n" {
			t.Fatalf("%q %v", got, err)
		}
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // killed

	j, _, err := state.Open(journalIn(b.home), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	b.deps = hookDepsIn(b.home, j, clock.RealClock{})
	b.deps.Hook.Command = child("work")
	b.deps.Hook.Idempotent = true // and yet not run beside itself
	b.wantRunning(j)
	if _, err := release.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	ev.wait("finished")
	waitForLock(t, lockOf(b.deps.Log))
	return b, j
}

func (b *hookBench) wantRunning(j *state.Journal) {
	b.Helper()
	for _, machine := range []string{"boot-1", "unknown"} { // by its process id, and by its lock
		b.deps.Machine = machine
		if obs := b.observe(); obs.Status != state.Ready || !strings.Contains(obs.Reason, "still runs") {
			b.Errorf("%+v", obs)
		}
		stop := b.stop(b.hook().Act(b.Context(), j.Recorder(hookSpec.ID)))
		if stop.Code != state.ExitResumable || !strings.Contains(stop.Why, "attempt 1, begun ") || !strings.Contains(stop.Why, "it is not started twice") ||
			!strings.Contains(stop.Cure, fmt.Sprintf("kill -INT -- -%d", b.group())) {
			b.Errorf("%+v", stop)
		}
	}
	b.deps.Machine = "boot-1"
	if n := len(state.OfKind(j.Records(""), state.RecordIntent)); n != 1 {
		b.Errorf("%d intents", n)
	}
}

// waitForLock waits until nobody holds the lock: the process has ended.
func waitForLock(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
}

// An intent whose process id did not reach the journal: the lock alone tells that it
// runs.
func TestHookRunsOfWhichOnlyTheIntentIsKnown(t *testing.T) {
	b := newHookBench(t, sh("true")...)
	b.journal.dieAt, b.journal.dieAfter = 1, true
	if err := b.act(); !errors.Is(err, errHookKilled) || b.runs() != 0 {
		t.Fatalf("%v, %d runs", err, b.runs())
	}
	b.journal.revive()
	b.deps.Hook.Idempotent = true
	f, held, err := lockHook(lockOf(b.deps.Log), os.O_CREATE)
	if err != nil || held {
		t.Fatal(held, err)
	}
	stop := b.stop(b.act())
	if stop.Code != state.ExitResumable || !strings.Contains(stop.Why, "a process that it started holds ") || !strings.Contains(stop.Cure, "lsof ") || b.runs() != 0 {
		t.Errorf("%+v, %d runs", stop, b.runs())
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.act(); err != nil || b.runs() != 1 {
		t.Errorf("%v, %d runs", err, b.runs())
	}
}

// At whichever write to the journal the process dies, before or after the record is on
// the disk: no command is begun without an intent, a hook that is not idempotent is not
// run twice unasked, and every other one is done in the end.
func TestHookKilledAtEveryWrite(t *testing.T) {
	for _, check := range []bool{false, true} {
		for _, idempotent := range []bool{false, true} {
			writes := 3
			if check {
				writes = 4
			}
			for at := 1; at <= writes; at++ {
				for _, after := range []bool{false, true} {
					name := fmt.Sprintf("check %t, idempotent %t, write %d, after it %t", check, idempotent, at, after)
					t.Run(name, func(t *testing.T) { killedAt(t, check, idempotent, at, after) })
				}
			}
		}
	}
}

func killedAt(t *testing.T, check, idempotent bool, at int, after bool) {
	b := newHookBench(t, sh(`touch "$HOME_DIR/cluster"`)...)
	b.deps.Hook.Idempotent = idempotent
	if check {
		b.deps.Hook.Check = []string{"sh", "-c", `test -f "$HOME_DIR/cluster" || exit 2`}
	}
	b.journal.dieAt, b.journal.dieAfter = at, after
	if err := b.act(); !errors.Is(err, errHookKilled) {
		t.Fatalf("got %v", err)
	}
	ran := b.runs()
	if at == 1 && ran > 0 {
		t.Fatal("run without an intent")
	}
	b.journal.revive()
	err := b.act()
	known := len(b.journal.Records("")) > 0
	switch {
	case check, idempotent, at == 1 && !after, at == 3 && after:
		if obs := b.observe(); err != nil || obs.Status != state.Done {
			t.Errorf("%v, %+v", err, obs)
		}
		if check && b.runs() != 1 || b.runs() > 2 {
			t.Errorf("%d runs", b.runs())
		}
	default:
		if stop := b.stop(err); stop.Code != state.ExitResumable || b.runs() != ran || !known {
			t.Errorf("%+v, %d runs", stop, b.runs())
		}
		b.deps.Decide = says(HookDone)
		if err := b.act(); err != nil || b.observe().Status != state.Done || b.runs() != ran {
			t.Errorf("%v, %+v, %d runs", err, b.observe(), b.runs())
		}
	}
	if open := state.OpenIntents(b.journal.Records("")); b.observe().Status == state.Done && len(open) > 0 {
		t.Errorf("open: %+v", open)
	}
}

// Whatever a hook, its check and the people do, in whichever order, and wherever the
// process dies.
func TestHookStateMachine(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		b := newHookBench(t, sh(`exit $(cat "$HOME_DIR/exit")`)...)
		checked := rapid.Bool().Draw(r, "checked")
		if checked {
			b.deps.Hook.Check = []string{"sh", "-c", `exit $(cat "$HOME_DIR/check")`}
		}
		b.deps.Hook.Idempotent = rapid.Bool().Draw(r, "idempotent")
		for range rapid.IntRange(1, 3).Draw(r, "starts") {
			set := func(file string, value int) int {
				if err := os.WriteFile(filepath.Join(b.home, file), fmt.Append(nil, value), 0o600); err != nil {
					r.Fatal(err)
				}
				return value
			}
			set("exit", rapid.SampledFrom([]int{0, 3}).Draw(r, "exit"))
			check := set("check", rapid.SampledFrom([]int{0, 1, 2}).Draw(r, "check"))
			answer := rapid.SampledFrom([]HookAnswer{HookUnanswered, HookDone, HookRun}).Draw(r, "answer")
			asked := false
			b.deps.Decide = func(context.Context, HookQuestion) (HookAnswer, *state.Who, error) {
				asked = true
				return answer, nil, nil
			}
			b.journal.revive()
			b.journal.dieAt, b.journal.dieAfter = rapid.IntRange(0, 6).Draw(r, "dies at"), rapid.Bool().Draw(r, "after it")
			before, was, runs := b.journal.Records(""), b.observe(), b.runs()
			err := b.act()
			b.journal.dead = false
			if wrong := b.rules(before, was, b.runs()-runs, err, asked && answer == HookRun, checked, check); wrong != "" {
				r.Fatal(wrong)
			}
		}
	})
}

// rules says which rule one Act has broken, or "".
func (b *hookBench) rules(before []state.Record, was state.Observation, ran int, err error, told, checked bool, check int) string {
	tried := false
	for _, r := range before {
		tried = tried || r.Kind == state.RecordIntent
	}
	switch {
	case ran > 1:
		return "ran more than once in one Act"
	case ran > 0 && was.Status == state.Done:
		return "ran what was done"
	case ran > 0 && tried && !b.deps.Hook.Idempotent && !told && (!checked || check != 2):
		return "ran again what is not idempotent"
	case ran > 0 && checked && check == 0 && !told:
		return "ran what the check says is done"
	case ran > 0 && checked && check == 1 && !told:
		return "ran with a check that gives no answer"
	case err == nil && b.observe().Status != state.Done:
		return "Act says nothing and it is not done"
	}
	for _, r := range b.journal.Records("")[len(before):] {
		if r.Kind == state.RecordOutcome && r.Result == state.Succeeded && checked && check != 0 {
			return "succeeded against its check"
		}
	}
	return ""
}
