package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/ui/text"
	"github.com/eksbg/eksbg/internal/ui/view"
)

// heartbeat is how often a step that only waits is heard of in the plain log.
const heartbeat = 30 * time.Second

// plainLog prints a line per record, and of waiting only what is new or due.
type plainLog struct {
	mu    sync.Mutex
	w     io.Writer
	model *view.Model
	heard map[string]time.Time
}

func newPlainLog(w io.Writer, m *view.Model) *plainLog {
	return &plainLog{w: w, model: m, heard: map[string]time.Time{}}
}

func (l *plainLog) record(r state.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.model.Apply(r)
	if r.Kind == state.RecordWaiting {
		if last, ok := l.heard[r.Step]; ok && r.Time.Sub(last) < heartbeat {
			return
		}
		l.heard[r.Step] = r.Time
	}
	if line := text.Line(l.model, r); line != "" {
		fmt.Fprintln(l.w, line)
	}
}
