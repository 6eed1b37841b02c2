package standby

import (
	"context"
	"fmt"
	"strings"

	"github.com/eksbg/eksbg/internal/state"
)

// Act finds out whether the command is to be run, and runs it; see Hook.
func (h *Hook) Act(ctx context.Context, rec state.Recorder) error {
	s, err := h.story()
	if err != nil {
		return err
	}
	if text := h.running(s); text != "" {
		return h.stillRuns(s, text)
	}
	due, err := h.due(ctx, rec, s)
	if err != nil || !due {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("before %s: %w", h.title(), context.Cause(ctx))
	}
	return h.run(ctx, rec, s)
}

// due tells whether the command is to be run now. Where it is not, what is known by now
// is in the journal.
func (h *Hook) due(ctx context.Context, rec state.Recorder, s *hookStory) (bool, error) {
	v := checkVerdict{}
	if len(h.Hook.Check) > 0 {
		var err error
		if v, err = h.check(ctx, s.attempts); err != nil {
			return false, err
		}
	}
	checked := len(h.Hook.Check) > 0
	ask := func(why string) (bool, error) {
		if checked {
			why += "; " + v.text
		}
		return h.ask(ctx, rec, s, why)
	}
	again := s.last != nil && s.last.result != state.Rejected
	switch {
	case v.answer == checkDone:
		return false, h.found(rec, s, v.text)
	case s.told:
		return false, nil
	case h.elsewhere(s) != "":
		return ask(fmt.Sprintf("attempt %d was begun on %s, and whether it still runs there cannot be told from here", s.last.Attempt, h.elsewhere(s)))
	case checked && v.answer == checkUnknown:
		if s.done != "" {
			return false, nil
		}
		return ask(s.stands())
	case v.answer == checkNotDone && (s.done == "" || h.Hook.Idempotent):
		return true, h.giveUp(rec, s, v.text)
	case v.answer == checkNotDone:
		return ask(s.stands())
	case s.done != "":
		return false, nil
	case !again:
		return true, nil
	case h.Hook.Idempotent:
		return true, h.giveUp(rec, s, "it is idempotent and is run again")
	}
	return ask(s.stands() + ", and it is not idempotent")
}

// ask lets a person say what nobody else can.
func (h *Hook) ask(ctx context.Context, rec state.Recorder, s *hookStory, why string) (bool, error) {
	answer, who := HookUnanswered, (*state.Who)(nil)
	if h.Decide != nil {
		var err error
		answer, who, err = h.Decide(ctx, HookQuestion{Hook: h.Name, Step: h.spec.ID, Attempts: s.attempts, Why: state.Clean(why)})
		if err != nil {
			return false, fmt.Errorf("ask how far %s got: %w", h.title(), err)
		}
	}
	by := "somebody"
	if who != nil {
		by = who.String()
	}
	var text string
	switch answer {
	case HookDone:
		text = by + " says that it is done"
	case HookRun:
		text = by + " says that it is to be run"
	default:
		return false, h.unanswered(s, why)
	}
	err := rec.Record(state.Record{Kind: state.RecordApproval, Who: who, Text: h.title() + ": " + text,
		Detail: hookDetail(hookDecision{Hook: h.Name, Answer: answer, Attempt: s.attempts})})
	if err != nil {
		return false, fmt.Errorf("record what was said of %s: %w", h.title(), err)
	}
	if answer == HookDone {
		return false, h.found(rec, s, text)
	}
	return true, h.giveUp(rec, s, text)
}

// unanswered is the stop that waits for a person.
func (h *Hook) unanswered(s *hookStory, why string) *state.Stop {
	look := "find out whether its work is done"
	if s.last != nil {
		look += ": its output is in " + s.last.Log
	}
	return &state.Stop{Code: state.ExitResumable, Why: fmt.Sprintf("%s: %s; a person has to say how to go on", h.title(), why),
		Cure: fmt.Sprintf("%s;\nthen run the same command again with --approve hook/%s=%s if it is done,\nor with --approve hook/%s=%s if it is to be run",
			look, h.Name, HookDone, h.Name, HookRun)}
}

// found records that the work is done although no outcome says so.
func (h *Hook) found(rec state.Recorder, s *hookStory, text string) error {
	switch {
	case s.last.open() || s.last != nil && (s.last.result == state.Accepted || s.last.result == state.Unknown):
		return h.outcome(rec, s.last.seq, state.Found, text, nil)
	case s.done == "":
		if err := rec.Record(state.Record{Kind: state.RecordNote, Text: h.title() + ": " + text}); err != nil {
			return fmt.Errorf("record that the work of %s is done: %w", h.title(), err)
		}
	}
	return nil
}

// giveUp closes an attempt of which nobody will hear any more.
func (h *Hook) giveUp(rec state.Recorder, s *hookStory, text string) error {
	if !s.last.open() {
		return nil
	}
	return h.outcome(rec, s.last.seq, state.Unknown, "eksbg ended before it did; "+text, nil)
}

func (h *Hook) outcome(rec state.Recorder, intent int64, result state.Result, text string, out *hookOutcome) error {
	var d any
	if out != nil {
		d = out
	}
	if err := rec.Outcome(intent, result, state.Clean(text), d); err != nil {
		return fmt.Errorf("record what came of %s (%s): %w", h.title(), text, err)
	}
	return nil
}

// next says what the same command will do after a failure.
func (h *Hook) next() string {
	again := "mend what it says, then run the same command again: "
	switch {
	case len(h.Hook.Check) > 0:
		return again + "the check tells whether it is to be run again"
	case h.Hook.Idempotent:
		return again + "it is idempotent and is run again"
	}
	return strings.TrimSuffix(again, ": ") + fmt.Sprintf(";\nwith --approve hook/%s=%s it is run again, with --approve hook/%s=%s it counts as done",
		h.Name, HookRun, h.Name, HookDone)
}
