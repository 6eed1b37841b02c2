package standby

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eksbg/eksbg/internal/run"
	"github.com/eksbg/eksbg/internal/state"
)

var _ run.Step = (*Hook)(nil)

// sh is a hook that is a script, whose first line counts its runs.
func sh(script string) []string {
	return []string{"sh", "-c", `echo run >>"$HOME_DIR/runs"; ` + script}
}

func TestHookRuns(t *testing.T) {
	b := newHookBench(t, sh(`echo "to stdout"; echo "to stderr" >&2; printf '\033[32mno newline'`)...)
	if obs := b.observe(); obs.Status != state.Ready || obs.Reason != "hook provision: not run yet" {
		t.Errorf("%+v", obs)
	}
	if err := b.act(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"to stdout", "to stderr", "no newline"}, b.said); diff != "" {
		t.Error(diff)
	}
	want := "== hook provision, attempt 1, 2026-12-01T10:00:00Z: sh -c " + b.deps.Hook.Command[2] + " ==\n" +
		"to stdout\nto stderr\nno newline\n== ended with exit code 0 after 0s ==\n"
	if diff := cmp.Diff(want, b.log()); diff != "" {
		t.Error(diff)
	}
	if obs := b.observe(); obs.Status != state.Done || obs.Reason != "hook provision: it ended with exit code 0 after 0s" {
		t.Errorf("%+v", obs)
	}
	if err := b.act(); err != nil || b.runs() != 1 {
		t.Errorf("%v, %d runs", err, b.runs())
	}
	if _, err := os.Stat(lockOf(b.deps.Log)); !os.IsNotExist(err) {
		t.Errorf("the lock is left: %v", err)
	}
	b.wantRecords()
}

// wantRecords holds the records of one good run: the intent before, with what undoes it,
// the process, the outcome.
func (b *hookBench) wantRecords() {
	b.Helper()
	records := b.journal.Records("")
	if len(records) != 3 {
		b.Fatalf("%+v", records)
	}
	intent, note, outcome := records[0], records[1], records[2]
	var begun hookIntent
	var started hookStarted
	var ended hookOutcome
	for _, d := range []struct {
		raw json.RawMessage
		v   any
	}{{intent.Change.Detail, &begun}, {note.Detail, &started}, {outcome.Detail, &ended}} {
		if err := json.Unmarshal(d.raw, d.v); err != nil {
			b.Fatal(err)
		}
	}
	want := hookIntent{Hook: "provision", Argv: b.deps.Hook.Command, Dir: b.home, Attempt: 1, Timeout: state.Duration(never), Log: b.deps.Log,
		Host: "bastion", Machine: "boot-1"}
	if diff := cmp.Diff(want, begun); diff != "" {
		b.Error(diff)
	}
	if intent.Change.Call != hookCall || string(intent.Change.Undo) != `{"hook":"teardown"}` {
		b.Errorf("%+v", intent.Change)
	}
	if started.Intent != intent.Seq || started.PID == 0 || outcome.Intent != intent.Seq || outcome.Result != state.Succeeded {
		b.Errorf("%+v %+v", started, outcome)
	}
	if diff := cmp.Diff([]string{"to stdout", "to stderr", "no newline"}, ended.Last); diff != "" {
		b.Error(diff)
	}
}

func TestHookFails(t *testing.T) {
	tests := map[string]struct {
		script     string
		idempotent bool
		why, cure  string
	}{
		"exit code":  {"echo; echo no such subnet; exit 3", false, "hook provision: it ended with exit code 3 after 0s: no such subnet", "--approve hook/provision=run it is run again, with --approve hook/provision=done it counts as done"},
		"idempotent": {"exit 1", true, "hook provision: it ended with exit code 1 after 0s", "run the same command again: it is idempotent and is run again"},
		"signal":     {"kill -9 $$", true, "hook provision: it was ended by signal SIGKILL after 0s", "its output is in "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newHookBench(t, sh(tt.script)...)
			b.deps.Hook.Idempotent = tt.idempotent
			stop := b.stop(b.act())
			if stop.Code != state.ExitFailed || stop.Why != tt.why || !strings.Contains(stop.Cure, tt.cure) || !strings.Contains(stop.Cure, b.deps.Log) {
				t.Errorf("%+v", stop)
			}
			if got := b.journal.results(); !slices.Equal(got, []state.Result{state.Failed}) {
				t.Errorf("%v", got)
			}
			if obs := b.observe(); obs.Status != state.Ready {
				t.Errorf("%+v", obs)
			}
			// The next start.
			stop, runs := b.stop(b.act()), 1
			if tt.idempotent {
				runs = 2
			} else if stop.Code != state.ExitResumable || !strings.Contains(stop.Why, "not idempotent; a person has to say how to go on") {
				t.Errorf("%+v", stop)
			}
			if b.runs() != runs {
				t.Errorf("%d runs", b.runs())
			}
		})
	}
}

func TestHookCannotBeStarted(t *testing.T) {
	file := func(mode os.FileMode) func(*hookBench) {
		return func(b *hookBench) {
			if err := os.WriteFile(filepath.Join(b.home, "tool"), []byte("\x00 no program"), mode); err != nil {
				b.Fatal(err)
			}
		}
	}
	tests := map[string]struct {
		command []string
		prepare func(*hookBench)
		want    string
		records int
	}{
		"in no folder of PATH": {[]string{"terraform-that-is-nowhere"}, nil, "terraform-that-is-nowhere is in no folder of PATH", 0},
		"not there":            {[]string{"./tool"}, nil, "no such file", 0},
		"no mode for it":       {[]string{"./tool"}, file(0o600), "may not be executed; set its mode: chmod +x", 0},
		"a folder":             {[]string{"./"}, nil, "is a folder", 0},
		"no program":           {[]string{"./tool"}, file(0o700), "exec format error", 2},
		"relative PATH": {[]string{"tool"}, func(b *hookBench) {
			file(0o700)(b)
			b.deps.Environ = []string{"PATH=.:bin"}
		}, "tool is in no folder of PATH", 0},
		"no folder to run in":  {[]string{"true"}, func(b *hookBench) { b.deps.Hook.Dir = "infra" }, "infra: no such file", 0},
		"a log that cannot be": {[]string{"true"}, func(b *hookBench) { b.deps.Log = filepath.Join("/dev/null", "x.log") }, "open its log", 0},
		"nothing":              {nil, nil, "the list of the command is empty", 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newHookBench(t, tt.command...)
			if tt.prepare != nil {
				tt.prepare(b)
			}
			stop := b.stop(b.act())
			if stop.Code != state.ExitFailed || !strings.Contains(stop.Why, "hook provision cannot be started: ") || !strings.Contains(stop.Why, tt.want) || stop.Cure == "" {
				t.Errorf("%+v", stop)
			}
			if records := b.journal.Records(""); len(records) != tt.records {
				t.Errorf("%+v", records)
			}
			if changed := state.Changed(b.journal.Records("")); len(changed) != 0 {
				t.Errorf("changed %q", changed)
			}
			// Nothing has happened, so it is run once it can be.
			b.deps.Hook.Command, b.deps.Hook.Dir, b.deps.Environ, b.deps.Log = sh("true"), "", []string{"PATH=" + os.Getenv("PATH")}, filepath.Join(b.home, "log")
			if err := b.act(); err != nil || b.runs() != 1 {
				t.Errorf("%v, %d runs", err, b.runs())
			}
		})
	}
}

// The command gets what eksbg was given, what the plan file adds, and the facts; what it
// has not been given it does not get.
func TestHookEnvironment(t *testing.T) {
	t.Setenv("NOT_FOR_HOOKS", "1")
	b := newHookBench(t, "sh", "-c", "env | sort; pwd; cat")
	b.deps.Environ = []string{"PATH=" + os.Getenv("PATH"), "KEPT=yes", "OVER=old", "EKSBG_RUN=stale", "EKSBG_ACTIVE=stale", "broken"}
	b.deps.Hook.Env = map[string]string{"OVER": "new", "ADDED": "a b"}
	b.deps.Hook.Dir = "infra"
	b.deps.Facts = HookFacts{Pair: "shop", Run: "run-1", Side: state.Green, Cluster: "shop-green", Region: "ap-northeast-1", FromVersion: "1.31", TargetVersion: "1.33",
		Standby: state.Green, Origin: state.Blue, Destination: state.Green, PlanFile: filepath.Join(b.home, "shop.yaml")}
	dir := filepath.Join(b.home, "infra")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := b.act(); err != nil {
		t.Fatal(err)
	}
	want := []string{"ADDED=a b", "EKSBG_ACTIVE=", "EKSBG_ATTEMPT=1", "EKSBG_CLUSTER=shop-green", "EKSBG_DESTINATION=green",
		"EKSBG_FILES=" + b.deps.Files, "EKSBG_FROM_VERSION=1.31", "EKSBG_HOOK=provision", "EKSBG_LOG=" + b.deps.Log, "EKSBG_ORIGIN=blue", "EKSBG_PAIR=shop",
		"EKSBG_PLAN_FILE=" + b.deps.Facts.PlanFile, "EKSBG_REGION=ap-northeast-1", "EKSBG_RUN=run-1", "EKSBG_SIDE=green", "EKSBG_STANDBY=green",
		"EKSBG_STEP=green/hook/provision", "EKSBG_TARGET_VERSION=1.33", "KEPT=yes", "OVER=new", "PWD=" + dir, dir}
	got := slices.DeleteFunc(b.said, func(line string) bool {
		return strings.HasPrefix(line, "PATH=") || strings.HasPrefix(line, "_=") || strings.HasPrefix(line, "SHLVL=") || strings.HasPrefix(line, "OLDPWD=")
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if info, err := os.Stat(b.deps.Files); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info, err)
	}
}

func TestHookCheck(t *testing.T) {
	const done, not, broken = "exit 0", "exit 2", "echo cannot reach AWS; exit 1"
	tests := map[string]struct {
		command, check string
		// before is what Observe says at first, code what Act ends with, runs how often the
		// command has run, results what the journal holds, after what Observe says then.
		before  state.Status
		code    state.Exit
		why     string
		runs    int
		results []state.Result
		after   state.Status
	}{
		"done already": {"true", done, state.Done, 0, "", 0, nil, state.Done},
		"no answer before": {"true", broken, state.Ready, state.ExitResumable,
			"not run yet; its check gives no answer: it ended with exit code 1 after 0s: cannot reach AWS; a person has to say", 0, nil, state.Ready},
		"a check that is not there": {"true", "", state.Ready, state.ExitResumable, "its check cannot be run: no-such-check is in no folder of PATH", 0, nil, state.Ready},
		"not done, then done": {`touch "$HOME_DIR/cluster"`, `test -f "$HOME_DIR/cluster" || exit 2`, state.Ready, 0, "", 1,
			[]state.Result{state.Accepted, state.Succeeded}, state.Done},
		"ends with 0 and does nothing": {"true", not, state.Ready, state.ExitFailed, "it ended with exit code 0 after 0s, and its check says that it is not done", 1,
			[]state.Result{state.Accepted, state.Failed}, state.Ready},
		"no answer afterwards": {`touch "$HOME_DIR/cluster"`, `test -f "$HOME_DIR/cluster" || exit 2; ` + broken, state.Ready, state.ExitResumable,
			"it ended with exit code 0 after 0s, and its check gives no answer", 1, []state.Result{state.Accepted, state.Unknown}, state.Ready},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newHookBench(t, sh(tt.command)...)
			if b.deps.Hook.Check = []string{"no-such-check"}; tt.check != "" {
				b.deps.Hook.Check = []string{"sh", "-c", tt.check}
			}
			if obs := b.observe(); obs.Status != tt.before {
				t.Errorf("before: %+v", obs)
			}
			err := b.act()
			if tt.code == 0 && err != nil {
				t.Fatal(err)
			}
			if tt.code != 0 {
				if stop := b.stop(err); stop.Code != tt.code || !strings.Contains(stop.Why, tt.why) || stop.Cure == "" {
					t.Errorf("%+v", stop)
				}
			}
			if got := b.journal.results(); !slices.Equal(got, tt.results) || b.runs() != tt.runs {
				t.Errorf("%v, %d runs", got, b.runs())
			}
			if obs := b.observe(); obs.Status != tt.after {
				t.Errorf("after: %+v", obs)
			}
		})
	}
}

// Done in this run: a check without an answer does not undo that, one that says the
// opposite does, and then an idempotent hook is run again and of another one a person is
// asked.
func TestHookThatIsNoLongerDone(t *testing.T) {
	for _, idempotent := range []bool{true, false} {
		b := newHookBench(t, sh(`touch "$HOME_DIR/cluster"`)...)
		b.deps.Hook.Idempotent = idempotent
		b.deps.Hook.Check = []string{"sh", "-c", `test ! -f "$HOME_DIR/broken" || exit 1; test -f "$HOME_DIR/cluster" || exit 2`}
		if err := b.act(); err != nil {
			t.Fatal(err)
		}
		broken := filepath.Join(b.home, "broken")
		if err := os.WriteFile(broken, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if obs := b.observe(); obs.Status != state.Done || !strings.Contains(obs.Reason, "its check gives no answer") {
			t.Errorf("%+v", obs)
		}
		if err := b.act(); err != nil || b.runs() != 1 {
			t.Errorf("%v, %d runs", err, b.runs())
		}
		if err := os.Rename(broken, broken+".away"); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(b.home, "cluster")); err != nil {
			t.Fatal(err)
		}
		if obs := b.observe(); obs.Status != state.Ready || !strings.Contains(obs.Reason, "its check says that it is not done") {
			t.Errorf("%+v", obs)
		}
		err := b.act()
		if idempotent && (err != nil || b.runs() != 2) {
			t.Errorf("%v, %d runs", err, b.runs())
		}
		if !idempotent && (b.runs() != 1 || b.stop(err).Code != state.ExitResumable) {
			t.Errorf("%v, %d runs", err, b.runs())
		}
	}
}

// A context that has ended starts nothing, neither the check nor the command.
func TestHookBeforeWhichItIsInterrupted(t *testing.T) {
	for _, check := range [][]string{nil, {"sh", "-c", "exit 2"}} {
		b := newHookBench(t, sh("true")...)
		b.deps.Hook.Check = check
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.hook().Act(ctx, b.journal); err == nil || b.runs() != 0 || len(b.journal.Records("")) != 0 {
			t.Errorf("%v, %d runs", err, b.runs())
		}
	}
}
