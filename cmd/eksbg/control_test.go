package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

// silent is a terminal at which nobody types anything.
type silent struct{ gone chan struct{} }

func (s silent) Read([]byte) (int, error) { <-s.gone; return 0, io.EOF }

// Interrupted in the middle of the cutover a terminal is asked; one that is gone, or at which
// nobody sits, is none: the plan file says what is done then (semantics 20).
func TestWhoDoesNotAnswerLeavesItToThePlanFile(t *testing.T) {
	for name, tt := range map[string]struct {
		answer, onStop string
		back           bool
		waits          time.Duration
	}{
		"yes":                 {"yes\n", "hold", true, 0},
		"no":                  {"no\n", "back", false, 0},
		"an empty line":       {"\n", "back", false, 0},
		"gone, back":          {"", "back", true, 0},
		"gone, hold":          {"", "hold", false, 0},
		"nobody there, back":  {"-", "back", true, time.Minute},
		"nobody there, hold":  {"-", "hold", false, time.Minute},
		"yes without newline": {"yes", "hold", true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said bytes.Buffer
				s := streams{in: strings.NewReader(tt.answer), err: &said, clock: clock.RealClock{}, interactive: true}
				gone := make(chan struct{})
				if tt.answer == "-" {
					s.in = silent{gone}
				}
				a := &applied{o: &applyOptions{streams: s}, file: &planfile.File{Cutover: planfile.Cutover{OnStop: tt.onStop}}}
				begin := time.Now()
				if got := a.back(); got != tt.back {
					t.Errorf("puts back: %v", got)
				}
				if took := time.Since(begin); took != tt.waits {
					t.Errorf("took %s", took)
				}
				if !strings.Contains(said.String(), "without an answer within 1m: "+tt.onStop) {
					t.Errorf("asked %q", said.String())
				}
				close(gone)
			})
		})
	}
}

// A terminal that takes nothing more (Ctrl-S) keeps nobody from interrupting.
func TestAnInterruptWaitsForNoTerminal(t *testing.T) {
	stuck := &stuckWriter{release: make(chan struct{})}
	defer close(stuck.release)
	ctx, stop := withSignals(t.Context(), streams{err: stuck}, finishing)
	defer stop()
	p, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
}

type stuckWriter struct{ release chan struct{} }

func (w *stuckWriter) Write(p []byte) (int, error) { <-w.release; return len(p), nil }

// The exit code of a run does not hang on who reads its document.
func TestTheExitCodeOutlivesTheDocument(t *testing.T) {
	full := streams{out: failing{}}
	for code, want := range map[state.Exit]error{state.ExitDisplaced: exitError(9), state.ExitPutBack: exitError(5), 0: io.ErrClosedPipe} {
		if got := (outcome{Exit: int(code)}).write(full, struct{}{}); !errors.Is(got, want) {
			t.Errorf("exit %d: %v", code, got)
		}
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// A saved plan takes the place of a file alone: a rename over /dev/null would take that from
// everybody.
func TestASavedPlanReplacesFilesAlone(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "null")
	if err := os.Symlink(os.DevNull, link); err != nil {
		t.Fatal(err)
	}
	for path, allowed := range map[string]bool{"": true, filepath.Join(dir, "new"): true, link: false, os.DevNull: false, dir: false} {
		if err := mayReplace(path); (err == nil) != allowed {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// A journal that cannot be made is told before anybody is asked, and before the lock.
func TestAJournalThatCannotBeMadeIsToldFirst(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Log("root writes anywhere: only what no file can be made in is tried")
	}
	box := startSandbox(t, "hot", testSpeed)
	out, exit := runOnce(t, box, nil, "apply", box.PlanFile(), "--yes", "--state", "/proc/eksbg/shop.journal")
	if exit != 1 {
		t.Errorf("exit %d, want 1\n%s", exit, out)
	}
	says(t, out, "/proc/eksbg")
	for _, e := range requests(t, box) {
		if e.Changing {
			t.Errorf("%s %s was sent", e.Call, e.Object)
		}
	}
}
