package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/ui/text"
	"github.com/eksbg/eksbg/internal/ui/view"
)

// say prints a sentence for people, wrapped.
func (s streams) say(sentence string) { s.wrap("", "", sentence) }

// logged prints what happens beside the records of a run, as a line between theirs.
func (s streams) logged(what string) {
	s.wrap(s.clock.Now().UTC().Format("15:04:05")+"  ", "          ", what)
}

// wrap writes wrapped text at once, so that no line of the log comes between.
func (s streams) wrap(first, rest, what string) {
	var b strings.Builder
	text.Wrap(&b, first, rest, clean(what))
	fmt.Fprint(s.err, b.String())
}

// heartbeat is how often a step that only waits is heard of in the plain log.
const heartbeat = 30 * time.Second

// backlog is how many lines may wait for a terminal that does not take any.
const backlog = 4096

// plainLog prints a line per record, and of waiting only what is new or due. It never
// keeps the run waiting: lines that a stalled terminal does not take are dropped, and
// counted.
type plainLog struct {
	mu      sync.Mutex
	model   *view.Model
	heard   map[string]time.Time
	lines   chan logLine
	dropped int
	closed  bool
	done    chan struct{}
}

// logLine is a line to print, or the wish to hear that all before it are printed.
type logLine struct {
	text    string
	flushed chan struct{}
}

func newPlainLog(w io.Writer, m *view.Model) *plainLog {
	l := &plainLog{model: m, heard: map[string]time.Time{}, lines: make(chan logLine, backlog), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		for line := range l.lines {
			if line.flushed != nil {
				close(line.flushed)
				continue
			}
			fmt.Fprintln(w, line.text)
		}
	}()
	return l
}

func (l *plainLog) record(r state.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.model.Apply(r)
	if l.closed {
		return
	}
	if r.Kind == state.RecordWaiting {
		if last, ok := l.heard[r.Step]; ok && r.Time.Sub(last) < heartbeat {
			return
		}
		l.heard[r.Step] = r.Time
	}
	line := text.Line(l.model, r)
	if line == "" {
		return
	}
	if l.dropped > 0 {
		line = fmt.Sprintf("(%d lines are missing here: the terminal did not take them; the journal has all)\n%s", l.dropped, line)
	}
	select {
	case l.lines <- logLine{text: line}:
		l.dropped = 0
	default:
		l.dropped++
	}
}

// close waits until what is left is printed, for as long as a terminal may need.
func (l *plainLog) close() {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.closed = true
	close(l.lines)
	l.mu.Unlock()
	patiently(l.done)
}

// flush waits until what was recorded so far is printed, for as long as a terminal may
// need. A log that is not there has nothing to print.
func (l *plainLog) flush() {
	if l == nil {
		return
	}
	flushed := make(chan struct{})
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	select {
	case l.lines <- logLine{flushed: flushed}:
	default: // a terminal that has not taken so many lines takes no more
		close(flushed)
	}
	l.mu.Unlock()
	patiently(flushed)
}

// patiently waits for as long as a terminal may need.
func patiently(done <-chan struct{}) {
	select {
	case <-done:
	case <-time.After(2 * time.Second):
	}
}
