package restart

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/eksbg/eksbg/internal/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var spec = state.StepSpec{ID: "green/restart/1", Phase: state.PhaseRestart, Kind: state.KindRestart, Side: state.Green, To: "1.33"}

// start is when the clock of every bubble begins.
var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// bubble runs a test on a clock of its own, which goes on only when nothing moves.
func bubble(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newBench(t)) })
}

// memory is a journal of one step in memory.
type memory struct {
	mu      sync.Mutex
	now     func() time.Time
	records []state.Record
	waits   []string
	waitAt  []time.Time
	// refuse makes Intent fail.
	refuse error
	// killAt is the number of the write at which the process dies, before or after the
	// record is on the disk; writes counts, dead is true from then on.
	killAt, writes int
	killAfter      bool
	dead           bool
	// onIntent is told the number of each intent.
	onIntent func(int)
	intended int
}

var errKilled = errors.New("killed")

// write gives errKilled once the process is dead; keep tells whether the record got
// onto the disk.
func (m *memory) write() (keep bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return false, errKilled
	}
	if m.writes++; m.writes == m.killAt {
		m.dead = true
		return m.killAfter, errKilled
	}
	return true, nil
}

func (m *memory) Records(string) []state.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]state.Record(nil), m.records...)
}

func (m *memory) add(r state.Record) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.Seq, r.Step, r.Time = int64(len(m.records)+1), spec.ID, m.now()
	m.records = append(m.records, r)
	return r.Seq
}

func raw(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	b, err := json.Marshal(v)
	must(err)
	return b
}

func (m *memory) Intent(call, object string, detail, undo any) (int64, error) {
	if m.refuse != nil {
		return 0, m.refuse
	}
	keep, err := m.write()
	if !keep {
		return 0, err
	}
	m.intended++
	if m.onIntent != nil {
		m.onIntent(m.intended)
	}
	return m.add(state.Record{Kind: state.RecordIntent, Change: &state.Change{Call: call, Object: object, Detail: raw(detail), Undo: raw(undo)}}), err
}

func (m *memory) Outcome(intent int64, result state.Result, text string, detail any) error {
	keep, err := m.write()
	if keep {
		m.add(state.Record{Kind: state.RecordOutcome, Intent: intent, Result: result, Text: text, Detail: raw(detail)})
	}
	return err
}

func (m *memory) Record(r state.Record) error { m.add(r); return nil }

func (m *memory) Waiting(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waits, m.waitAt = append(m.waits, text), append(m.waitAt, m.now())
}

// intents are the details of all intents, in order.
func (m *memory) intents() []stamped {
	var out []stamped
	for _, r := range m.Records("") {
		if r.Kind == state.RecordIntent {
			var d stamped
			must(json.Unmarshal(r.Change.Detail, &d))
			if d.Stamp != "" {
				out = append(out, d)
			}
		}
	}
	return out
}

// results are the results of the intents of one owner, in order.
func (m *memory) results(owner string) []state.Result {
	var out []state.Result
	mine := map[int64]bool{}
	for _, r := range m.Records("") {
		switch {
		case r.Kind == state.RecordIntent && r.Change.Object == owner:
			mine[r.Seq] = true
		case r.Kind == state.RecordOutcome && mine[r.Intent]:
			out = append(out, r.Result)
		}
	}
	return out
}

// bench is a simulated cluster with a journal and a clock.
type bench struct {
	*testing.T
	*sim
	clock   clock.Clock
	journal *memory
	deps    Deps
}

func newBench(t *testing.T) *bench {
	clk := clock.RealClock{}
	s := newSim()
	t.Cleanup(s.close)
	j := &memory{now: clk.Now}
	s.client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.dead {
			return true, nil, errKilled
		}
		return false, nil, nil
	})
	d := s.argo()
	d.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.dead {
			return true, nil, errKilled
		}
		return false, nil, nil
	})
	return &bench{T: t, sim: s, clock: clk, journal: j, deps: Deps{Kubernetes: s.client, Dynamic: d, Inventory: s.inventory("1.33"), Clock: clk, History: j,
		MaxParallel: 2, Timeout: time.Hour}}
}

func (b *bench) step() *Restart { return New(spec, b.deps) }

func (b *bench) observe() state.Observation {
	b.Helper()
	obs, err := b.step().Observe(b.Context())
	if err != nil {
		b.Fatalf("Observe: %v", err)
	}
	return obs
}

// drive runs Act to its end.
func (b *bench) drive(ctx context.Context) error {
	b.expectWatches()
	return b.step().Act(ctx, b.journal)
}

// held runs Act until nothing moves any more and gives what it will return.
func (b *bench) held(ctx context.Context) (end <-chan error) {
	b.Helper()
	b.expectWatches()
	done := make(chan error, 1)
	go func() { done <- b.step().Act(ctx, b.journal) }()
	synctest.Wait()
	select {
	case err := <-done:
		b.Fatalf("Act returned early: %v", err)
	default:
	}
	return done
}

func (b *bench) restarts(owner string) []string {
	b.sim.mu.Lock()
	defer b.sim.mu.Unlock()
	return append([]string(nil), b.stamps[owner]...)
}

func stopOf(t *testing.T, err error) *state.Stop {
	t.Helper()
	var stop *state.Stop
	if !errors.As(err, &stop) {
		t.Fatalf("got %v, want a stop", err)
	}
	return stop
}
