package standby

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

var hookSpec = state.StepSpec{ID: "green/hook/provision", Phase: state.PhaseUpgrade, Side: state.Green, Title: "provision"}

var errHookKilled = errors.New("killed")

// hookMemory is a journal in memory that can die.
type hookMemory struct {
	mu      sync.Mutex
	records []state.Record
	waits   []string
	// dieAt is the number of the write at which the process dies, before or after the
	// record is on the disk.
	dieAt, writes int
	dieAfter      bool
	dead          bool
}

func (m *hookMemory) Records(string) []state.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]state.Record(nil), m.records...)
}

func (m *hookMemory) add(r state.Record) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.writes++; m.dead || m.writes == m.dieAt && !m.dieAfter {
		m.dead = true
		return 0, errHookKilled
	}
	r.Seq, r.Step, r.Time = int64(len(m.records)+1), hookSpec.ID, time.Date(2026, 12, 1, 10, 0, len(m.records), 0, time.UTC)
	m.records = append(m.records, r)
	if m.writes == m.dieAt {
		m.dead = true
		return 0, errHookKilled
	}
	return r.Seq, nil
}

// revive is the next process.
func (m *hookMemory) revive() { m.dead, m.dieAt, m.writes = false, 0, 0 }

func (m *hookMemory) Intent(call, object string, detail, undo any) (int64, error) {
	return m.add(state.Record{Kind: state.RecordIntent, Change: &state.Change{Call: call, Object: object, Detail: rawOf(detail), Undo: rawOf(undo)}})
}

func (m *hookMemory) Outcome(intent int64, result state.Result, text string, detail any) error {
	_, err := m.add(state.Record{Kind: state.RecordOutcome, Intent: intent, Result: result, Text: text, Detail: rawOf(detail)})
	return err
}

func (m *hookMemory) Record(r state.Record) error { _, err := m.add(r); return err }

func (m *hookMemory) Waiting(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waits = append(m.waits, text)
}

func rawOf(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// results are the outcomes so far, in order.
func (m *hookMemory) results() []state.Result {
	var out []state.Result
	for _, r := range state.OfKind(m.Records(""), state.RecordOutcome) {
		out = append(out, r.Result)
	}
	return out
}

// hookBench is a hook with everything around it.
type hookBench struct {
	*testing.T
	home    string
	journal *hookMemory
	clock   *clocktesting.FakeClock
	deps    HookDeps
	said    []string
}

// never is a timeout that no test comes to by stepping the clock.
const never = planfile.Duration(200 * 365 * 24 * time.Hour)

func newHookBench(t *testing.T, command ...string) *hookBench {
	t.Helper()
	b := &hookBench{T: t, home: t.TempDir(), journal: &hookMemory{}, clock: clocktesting.NewFakeClock(time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC))}
	b.deps = hookDepsIn(b.home, b.journal, b.clock)
	b.deps.Hook.Command = command
	b.deps.Output = func(line string) { b.said = append(b.said, line) }
	return b
}

func hookDepsIn(home string, h state.History, clk clock.Clock) HookDeps {
	return HookDeps{
		Name: "provision", Undo: "teardown", Base: home, Files: filepath.Join(home, "files"), Log: filepath.Join(home, "provision.log"),
		Hook:    planfile.Hook{Timeout: never, Env: map[string]string{"HOME_DIR": home}},
		Environ: []string{"PATH=" + os.Getenv("PATH"), childEnv + "=1"},
		Facts:   HookFacts{Pair: "shop", Run: "run-1", Side: state.Green, Cluster: "shop-green", Region: "ap-northeast-1"},
		Clock:   clk, History: h, Host: "bastion", Machine: "boot-1",
	}
}

func (b *hookBench) hook() *Hook { return NewHook(hookSpec, b.deps) }

func (b *hookBench) observe() state.Observation {
	b.Helper()
	obs, err := b.hook().Observe(b.Context())
	if err != nil {
		b.Fatalf("Observe: %v", err)
	}
	return obs
}

func (b *hookBench) act() error { return b.hook().Act(b.Context(), b.journal) }

// begin runs Act beside the test.
func (b *hookBench) begin(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() { done <- b.hook().Act(ctx, b.journal) }()
	return done
}

// realTime is for tests in which processes end by themselves, of which no clock of the
// test's knows when.
func (b *hookBench) realTime() {
	b.deps.Clock, b.deps.Linger, b.deps.Hook.Grace = clock.RealClock{}, time.Second, planfile.Duration(time.Second)
}

// stop wants err to be a stop.
func (b *hookBench) stop(err error) *state.Stop {
	b.Helper()
	var stop *state.Stop
	if !errors.As(err, &stop) {
		b.Fatalf("got %v, want a stop", err)
	}
	return stop
}

func (b *hookBench) log() string { b.Helper(); return readText(b.T, b.deps.Log) }

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// runs counts how often a command that appends a line to the file has run.
func (b *hookBench) runs() int {
	text, err := os.ReadFile(filepath.Join(b.home, "runs"))
	if err != nil {
		return 0
	}
	return strings.Count(string(text), "\n")
}

// events is a named pipe in which children tell the test what has happened.
type events struct {
	t *testing.T
	r *bufio.Reader
}

func newEvents(t *testing.T, home string) *events {
	t.Helper()
	f := pipeAt(t, filepath.Join(home, "events"))
	return &events{t: t, r: bufio.NewReader(f)}
}

func pipeAt(t *testing.T, path string) *os.File {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0) // both ends, so that no open waits
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// wait waits for the next event, which must be the one.
func (e *events) wait(want string) {
	e.t.Helper()
	got, err := e.r.ReadString('\n')
	if err != nil || strings.TrimSpace(got) != want {
		e.t.Fatalf("event %q (%v), want %q", got, err, want)
	}
}

// event tells the test, from a child.
func event(home, what string) {
	f, err := os.OpenFile(filepath.Join(home, "events"), os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(f, what)
	_ = f.Close()
}
