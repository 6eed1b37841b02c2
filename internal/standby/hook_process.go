package standby

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"github.com/eksbg/eksbg/internal/state"
)

// hookPoll is the pause between two looks at what a command left running.
const hookPoll = 50 * time.Millisecond

// Why a command was told to end.
const (
	hookTimedOut    = "timeout"
	hookInterrupted = "interrupted"
)

// hookProcess is one start of a command, in a process group of its own: signals go to
// everything that it starts and that does not leave the group.
type hookProcess struct {
	path string
	argv []string
	dir  string
	env  []string
	// timeout bounds it, grace is how long it may take to end after each signal, linger
	// how long what it left running may, and how long its output may stay open after it.
	timeout, grace, linger time.Duration
	clock                  clock.Clock
	out                    *hookOutput
	// keep is given to it open as descriptor 4; nil gives it none, and then it does not
	// outlive eksbg either: it ends when it writes the next line.
	keep *os.File
	// started is told the process id, beat is called every beatEvery, say is told what is
	// done to it. All on the goroutine of run; nil calls nothing.
	started   func(pid int)
	beat      func(running time.Duration)
	beatEvery time.Duration
	say       func(text string)
}

// hookEnd is how a command ended.
type hookEnd struct {
	// Exit is its exit code, -1 where a signal ended it; Signal names that.
	Exit   int    `json:"exit"`
	Signal string `json:"signal,omitempty"`
	// Took is how long it ran.
	Took state.Duration `json:"took"`
	// Why says why eksbg told it to end: timeout, interrupted, or "" for not at all; Sent
	// are the signals.
	Why  string   `json:"why,omitempty"`
	Sent []string `json:"sent,omitempty"`
	// Left is true where processes of its group were still there when it had ended, and
	// were ended; Held where one that left the group still held its output open.
	Left bool `json:"left,omitempty"`
	Held bool `json:"held,omitempty"`
}

// text says it: "ended with exit code 3 after 2m0s".
func (e hookEnd) text() string {
	s := fmt.Sprintf("ended with exit code %d", e.Exit)
	if e.Signal != "" {
		s = "was ended by signal " + e.Signal
	}
	s += " after " + e.Took.D().Round(time.Second).String()
	switch e.Why {
	case hookTimedOut:
		s = fmt.Sprintf("did not end within its timeout, was sent %s and %s", strings.Join(e.Sent, ", "), s)
	case hookInterrupted:
		s = fmt.Sprintf("was interrupted, was sent %s and %s", strings.Join(e.Sent, ", "), s)
	}
	if e.Left {
		s += "; processes that it left running were ended"
	}
	if e.Held {
		s += "; a process that it started holds its output open and was left alone"
	}
	return s
}

// good tells whether the command ended by itself and well.
func (e hookEnd) good() bool { return e.Exit == 0 && e.Why == "" }

// run starts the command and returns when it and everything in its group has ended and
// its output is read, however that comes about. An error means that it was not started.
func (p *hookProcess) run(ctx context.Context) (hookEnd, error) {
	// A pipe of our own and not exec's: its end is waited for on the injected clock.
	r, w, err := os.Pipe()
	if err != nil {
		return hookEnd{}, err
	}
	cmd := exec.Cmd{Path: p.path, Args: p.argv, Env: p.env, Dir: p.dir, Stdout: w, Stderr: w, SysProcAttr: ownGroup()}
	if p.keep != nil {
		// With a reader of its own it is not killed by writing when eksbg was (SIGPIPE).
		own, err := inherited(r)
		if err != nil {
			return hookEnd{}, errors.Join(err, r.Close(), w.Close())
		}
		defer func() { _ = own.Close() }() // a duplicate for the child
		cmd.ExtraFiles = []*os.File{own, p.keep}
	}
	watch := &hookWatch{hookProcess: p, limit: p.clock.NewTimer(p.timeout), began: p.clock.Now()}
	defer watch.limit.Stop()
	if err := cmd.Start(); err != nil {
		return hookEnd{}, errors.Join(err, r.Close(), w.Close())
	}
	_ = w.Close() // the child's from now on
	exited, read := make(chan struct{}), make(chan struct{})
	go func() { defer close(exited); _ = cmd.Wait() }() // how it ended is in ProcessState
	go func() { defer close(read); p.out.take(r) }()
	watch.group = cmd.Process.Pid
	if p.started != nil {
		p.started(watch.group)
	}
	watch.wait(ctx, exited)
	end := watch.end
	end.status(cmd.ProcessState)
	end.Held = p.drain(r, read)
	return end, nil
}

// hookAfter bounds how much is read once a command has ended, in bytes: a pipe holds less.
const hookAfter = 4 << 20

// drain waits for the end of the output, for as long as there is any to read; true means
// that something else holds it open.
func (p *hookProcess) drain(r io.Closer, read <-chan struct{}) (held bool) {
	first := p.out.taken.Load()
	for seen := first; !held; {
		timer := p.clock.NewTimer(p.linger)
		select {
		case <-read:
			timer.Stop()
			_ = r.Close() // read to its end
			return false
		case <-timer.C():
			now := p.out.taken.Load()
			held = now == seen || now-first > hookAfter
			seen = now
		}
	}
	_ = r.Close() // ends the reading
	<-read
	return true
}

// status takes over what the system says of the end.
func (e *hookEnd) status(s *os.ProcessState) {
	e.Exit = s.ExitCode()
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e.Signal = signalName(ws.Signal())
	}
}

func signalName(s syscall.Signal) string {
	switch s {
	case syscall.SIGINT:
		return "SIGINT"
	case syscall.SIGTERM:
		return "SIGTERM"
	case syscall.SIGKILL:
		return "SIGKILL"
	case syscall.SIGPIPE:
		return "SIGPIPE"
	}
	return fmt.Sprintf("%d (%s)", int(s), s)
}

// hookWatch waits for one process group to end, and ends it where that is due.
type hookWatch struct {
	*hookProcess
	group int
	began time.Time
	limit clock.Timer
	// plan are the signals still to be sent, next when the first of them is due; spent is
	// true once none has helped.
	plan  []syscall.Signal
	next  clock.Timer
	spent bool
	// gone: the command itself has ended, and only what it left may still run.
	gone bool
	end  hookEnd
}

func (w *hookWatch) wait(ctx context.Context, exited <-chan struct{}) {
	interrupt, limit, every := ctx.Done(), w.limit.C(), w.beatEvery
	if every <= 0 {
		every = w.timeout
	}
	tick := w.clock.NewTimer(every)
	defer func() { tick.Stop(); w.arm(0) }()
	for !w.gone || !w.spent && groupRuns(w.group) {
		select {
		case <-exited:
			exited, limit, every = nil, nil, hookPoll
			w.left()
			tick.Stop()
			tick = w.clock.NewTimer(every)
		case <-interrupt:
			interrupt = nil
			w.ask(hookInterrupted, syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL)
		case <-limit:
			limit = nil
			w.ask(hookTimedOut, syscall.SIGTERM, syscall.SIGKILL)
		case <-w.due():
			w.signal()
		case <-tick.C():
			if !w.gone && w.beat != nil {
				w.beat(w.clock.Since(w.began))
			}
			tick = w.clock.NewTimer(every)
		}
	}
}

// left notes that the command has ended. What it left running may linger; where the
// whole group has been told to end, that goes on.
func (w *hookWatch) left() {
	w.gone = true
	w.end.Took = state.Duration(w.clock.Since(w.began))
	switch {
	case len(w.end.Sent) == 0:
		w.plan = []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}
		w.arm(w.linger)
	case len(w.plan) == 0:
		w.arm(w.linger)
	}
}

// ask begins to end the group, once.
func (w *hookWatch) ask(why string, plan ...syscall.Signal) {
	if len(w.end.Sent) > 0 {
		return
	}
	if !w.gone {
		w.end.Why, w.plan = why, plan
	}
	w.signal()
}

// signal sends the signal that is due.
func (w *hookWatch) signal() {
	if len(w.plan) == 0 {
		w.spent = w.gone
		w.arm(0)
		return
	}
	sig := w.plan[0]
	w.plan = w.plan[1:]
	w.end.Left = w.end.Left || w.gone && w.end.Why == ""
	w.end.Sent = append(w.end.Sent, signalName(sig))
	wait := w.grace
	if len(w.plan) == 0 {
		wait = w.linger
	}
	w.arm(wait) // before the signal, for whoever steps the clock once it has arrived
	text := fmt.Sprintf("was sent %s", signalName(sig))
	if len(w.plan) > 0 {
		text += fmt.Sprintf("; %s follows in %s", signalName(w.plan[0]), wait)
	}
	if err := signalGroup(w.group, sig); err != nil {
		text = fmt.Sprintf("cannot be sent %s: %v", signalName(sig), err)
	}
	if w.say != nil {
		w.say(text)
	}
}

// arm sets when the next signal is due; 0 means never.
func (w *hookWatch) arm(d time.Duration) {
	if w.next != nil {
		w.next.Stop()
		w.next = nil
	}
	if d > 0 {
		w.next = w.clock.NewTimer(d)
	}
}

func (w *hookWatch) due() <-chan time.Time {
	if w.next == nil {
		return nil
	}
	return w.next.C()
}
