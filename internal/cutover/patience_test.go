package cutover

import (
	"context"
	"testing"
	"time"

	eksaws "github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/state"
)

// The run may have cut the patience of calls short for the time before its first change
// (semantics 24). Whatever puts something back, or decides about it, waits as long as the
// configuration says.
func TestPutBackHasTheFullPatience(t *testing.T) {
	const short, full = 30 * time.Second, 10 * time.Minute
	isDue := func(w *world, _ string) bool { _, due := PutBackDue(w.journal); return due }
	tests := []struct {
		name string
		do   func(w *world, interrupt func())
		// late tells whether the put-back, or the decision about it, has begun.
		late func(w *world, call string) bool
		code state.Exit
	}{
		{"a gate fails", func(w *world, _ func()) { w.failingAt(50, 1) }, isDue, state.ExitPutBack},
		{"an interrupt", func(w *world, interrupt func()) { w.clock.after(4*time.Minute, interrupt) }, isDue, state.ExitInterrupted},
		{"a group is taken off again", func(w *world, _ func()) { w.lb.groups[tgGreen].unhealthy = 1 },
			// All that comes after the looks at its health.
			func(w *world, call string) bool {
				return w.calls["DescribeTargetHealth"] > 5 && call != "DescribeTargetHealth"
			}, state.ExitResumable},
		{"the journal is full", func(w *world, _ func()) {
			w.journal.refuse = func(r state.Record) bool { return r.Gate != nil && r.Gate.Gate == stageGate }
		}, nil, state.ExitResumable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			ctx, cancel := context.WithCancel(eksaws.WithPatience(context.Background(), short))
			defer cancel()
			tt.do(w, cancel)
			if tt.late == nil {
				refuse, refused := w.journal.refuse, false
				w.journal.refuse = func(r state.Record) bool { refused = refused || refuse(r); return refuse(r) }
				tt.late = func(*world, string) bool { return refused }
			}
			late := 0
			w.see = func(ctx context.Context, call string) {
				want := short
				if tt.late(w, call) {
					late++
					want = full
				}
				if got := eksaws.Patience(ctx, full); got != want {
					t.Errorf("%s has a patience of %s, want %s", call, got, want)
				}
			}
			wantStop(t, w.walk(ctx), tt.code)
			if late == 0 {
				t.Error("there was no such call")
			}
		})
	}
}
