package standby

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/eksbg/eksbg/internal/state"
)

// process prepares a command without starting it.
func (h *Hook) process(argv []string, attempt int, out *hookOutput) (*hookProcess, error) {
	env, err := h.environment(attempt)
	if err != nil {
		return nil, err
	}
	dir, err := h.dir()
	if err != nil {
		return nil, err
	}
	if len(argv) == 0 {
		return nil, errors.New("the list of the command is empty")
	}
	path, err := program(argv[0], dir, env)
	if err != nil {
		return nil, err
	}
	if h.Files != "" {
		if err := os.MkdirAll(h.Files, 0o700); err != nil {
			return nil, fmt.Errorf("make the folder for its files: %w", err)
		}
	}
	return &hookProcess{path: path, argv: argv, dir: dir, env: env, timeout: h.Hook.Timeout.D(), grace: h.Hook.Grace.D(), linger: h.Linger,
		clock: h.Clock, out: out}, nil
}

// run runs the command once more and records what comes of it.
func (h *Hook) run(ctx context.Context, rec state.Recorder, s *hookStory) error {
	attempt := s.attempts + 1
	out := &hookOutput{mask: h.mask}
	p, err := h.process(h.Hook.Command, attempt, out)
	if err != nil {
		return h.unstarted(err)
	}
	log, err := openHookLog(h.Log, hookLogHead, hookLogTail)
	if err != nil {
		return h.unstarted(fmt.Errorf("open its log: %w", err))
	}
	keep, held, err := lockHook(lockOf(h.Log), os.O_CREATE)
	if held {
		err = errors.New("another process holds it")
	}
	if err != nil {
		return h.unstarted(errors.Join(fmt.Errorf("lock %s: %w", lockOf(h.Log), err), log.close()))
	}
	defer func() {
		// Whoever finds no outcome still finds the lock: it goes last.
		_ = os.Remove(lockOf(h.Log)) // an old one does no harm
		_ = keep.Close()             // nothing was written
	}()
	argv := h.mask.all(h.Hook.Command)
	log.write(fmt.Sprintf("== %s, attempt %d, %s: %s ==", h.title(), attempt, h.Clock.Now().UTC().Format(time.RFC3339), strings.Join(argv, " ")))
	out.sinks = append(out.sinks, log.write)
	if h.Output != nil {
		out.sinks = append(out.sinks, h.Output)
	}
	intent, err := h.intend(rec, p, attempt, argv)
	if err != nil {
		return errors.Join(err, log.close())
	}
	journal := h.report(rec, p, intent, keep)
	end, err := p.run(ctx)
	if err != nil {
		text := h.mask.mask(state.Clean("it could not be started: " + err.Error()))
		return errors.Join(h.unstarted(err), h.outcome(rec, intent, state.Rejected, text, nil), log.close())
	}
	log.write(fmt.Sprintf("== %s ==", end.text()))
	d := &hookOutcome{hookEnd: end, Last: out.lines()}
	if err := log.close(); err != nil {
		d.LogError = err.Error()
	}
	return errors.Join(h.conclude(ctx, rec, intent, d), *journal)
}

// intend makes the start durable before it happens.
func (h *Hook) intend(rec state.Recorder, p *hookProcess, attempt int, argv []string) (int64, error) {
	var undo any
	if h.Undo != "" {
		undo = hookUndo{Hook: h.Undo}
	}
	intent, err := rec.Intent(hookCall, h.Name, hookIntent{Hook: h.Name, Argv: argv, Check: h.mask.all(h.Hook.Check), Dir: h.mask.mask(p.dir),
		Idempotent: h.Hook.Idempotent, Attempt: attempt, Timeout: state.Duration(p.timeout), Log: h.Log, Host: h.Host, Machine: h.Machine}, undo)
	if err != nil {
		return 0, fmt.Errorf("write to the journal that %s is about to be run: %w", h.title(), err)
	}
	return intent, nil
}

// report lets the process say how it gets on. A journal that fails meanwhile does not
// end the command, which would be left half done for it: the error is for afterwards.
func (h *Hook) report(rec state.Recorder, p *hookProcess, intent int64, keep *os.File) *error {
	journal := new(error)
	p.keep, p.beatEvery = keep, h.Heartbeat
	p.started = func(pid int) {
		err := rec.Record(state.Record{Kind: state.RecordNote, Text: fmt.Sprintf("%s runs as process %d; its output is kept in %s", h.title(), pid, h.Log),
			Detail: hookDetail(hookStarted{Intent: intent, PID: pid, Start: processStart(pid)})})
		if err != nil {
			*journal = fmt.Errorf("record that %s runs as process %d: %w", h.title(), pid, err)
		}
	}
	p.beat = func(running time.Duration) {
		text := fmt.Sprintf("%s runs for %s of at most %s", h.title(), running.Round(time.Second), p.timeout)
		if last := p.out.latest(); last != "" {
			text += ": " + last
		}
		rec.Waiting(text)
	}
	p.say = func(text string) { rec.Waiting(h.title() + " " + text) }
	return journal
}

// conclude records how the command ended, and gives the stop where it did not end well.
func (h *Hook) conclude(ctx context.Context, rec state.Recorder, intent int64, d *hookOutcome) error {
	text := "it " + d.text()
	if d.LogError != "" {
		text += "; its log is not whole: " + d.LogError
	}
	switch {
	case d.good() && len(h.Hook.Check) == 0:
		return h.outcome(rec, intent, state.Succeeded, text, d)
	case d.good():
		if err := h.outcome(rec, intent, state.Accepted, text, d); err != nil {
			return err
		}
		return h.confirm(ctx, rec, intent, text)
	}
	result := state.Failed
	if d.Exit == 0 {
		result = state.Unknown // ends with 0 when it is told to end: that says nothing of its work
	}
	stop := &state.Stop{Code: state.ExitFailed, Why: h.title() + ": " + text, Cure: fmt.Sprintf("its output is in %s;\n%s", h.Log, h.next())}
	switch d.Why {
	case hookTimedOut:
		stop.Code = state.ExitResumable
		stop.Cure = fmt.Sprintf("its output is in %s; where it needs longer, raise its timeout in the plan file;\n%s", h.Log, h.next())
	case hookInterrupted:
		stop.Code = state.ExitInterrupted
	}
	if n := len(d.Last); n > 0 {
		stop.Why += ": " + strings.TrimSpace(d.Last[n-1])
	}
	if err := h.outcome(rec, intent, result, text, d); err != nil {
		return errors.Join(stop, err)
	}
	return stop
}

// confirm asks the check whether a command that ended well has done its work.
func (h *Hook) confirm(ctx context.Context, rec state.Recorder, intent int64, text string) error {
	v, err := h.check(ctx, 0)
	if err != nil {
		return err
	}
	text += ", and " + v.text
	stop := &state.Stop{Code: state.ExitFailed, Why: h.title() + ": " + text,
		Cure: fmt.Sprintf("its output is in %s; mend the hook or its check in the plan file, then run the same command again", h.Log)}
	result := state.Failed
	switch v.answer {
	case checkDone:
		return h.outcome(rec, intent, state.Succeeded, text, nil)
	case checkUnknown:
		result, stop.Code = state.Unknown, state.ExitResumable
	}
	if err := h.outcome(rec, intent, result, text, nil); err != nil {
		return errors.Join(stop, err)
	}
	return stop
}

// unstarted is the stop for a command that cannot be started.
func (h *Hook) unstarted(err error) *state.Stop {
	return &state.Stop{Code: state.ExitFailed, Why: h.mask.mask(state.Clean(fmt.Sprintf("%s cannot be started: %v", h.title(), err))),
		Cure: fmt.Sprintf("mend it, or what the plan file says of the hook %s, then run the same command again", h.Name)}
}

func hookDetail(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // texts and numbers always encode
	}
	return b
}
