package standby

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/eksbg/eksbg/internal/state"
)

// hookCall is the call in the intents of hooks.
const hookCall = "hook:run"

// hookIntent is the detail of an intent: what recognises the command later.
type hookIntent struct {
	Hook string `json:"hook"`
	// Argv and Check are without secrets.
	Argv       []string       `json:"argv"`
	Check      []string       `json:"check,omitempty"`
	Dir        string         `json:"dir"`
	Idempotent bool           `json:"idempotent"`
	Attempt    int            `json:"attempt"`
	Timeout    state.Duration `json:"timeout"`
	Log        string         `json:"log"`
	Host       string         `json:"host,omitempty"`
	Machine    string         `json:"machine,omitempty"`
}

// hookUndo is how an intent says what puts it back.
type hookUndo struct {
	Hook string `json:"hook"`
}

// hookStarted is the detail of the note that follows an intent.
type hookStarted struct {
	Intent int64 `json:"intent"`
	PID    int   `json:"pid"`
	// Start is what processStart says.
	Start string `json:"start,omitempty"`
}

// hookOutcome is the detail of an outcome: how the command ended and what it said last.
type hookOutcome struct {
	hookEnd
	Last []string `json:"last,omitempty"`
	// LogError is why its log is not whole.
	LogError string `json:"logError,omitempty"`
}

// hookDecision is the detail of the approval that holds what a person said.
type hookDecision struct {
	Hook    string     `json:"hook"`
	Answer  HookAnswer `json:"answer"`
	Attempt int        `json:"attempt"`
}

// hookAttempt is one start of the command as the journal tells it.
type hookAttempt struct {
	hookIntent
	seq int64
	at  time.Time
	// result is the newest outcome, "" while there is none; text says it.
	result  state.Result
	text    string
	started *hookStarted
}

// open tells whether nobody knows yet what came of it.
func (a *hookAttempt) open() bool { return a != nil && a.result == "" }

// hookStory is what the journal holds of a hook.
type hookStory struct {
	attempts int
	// last is the newest attempt, nil before the first.
	last *hookAttempt
	// done says why the journal takes the work for done; "" when it does not. told is true
	// where that is because a person said so, who had the check's answer to look at.
	done string
	told bool
}

// story reads the records of the step.
func (h *Hook) story() (*hookStory, error) {
	s := &hookStory{}
	for _, r := range h.History.Records(h.spec.ID) {
		if err := s.take(r); err != nil {
			return nil, fmt.Errorf("read what the journal holds of %s: record %d: %w", h.title(), r.Seq, err)
		}
	}
	return s, nil
}

func (s *hookStory) take(r state.Record) error {
	switch {
	case r.Kind == state.RecordIntent && r.Change != nil && r.Change.Call == hookCall:
		s.last = &hookAttempt{seq: r.Seq, at: r.Time}
		s.attempts++
		s.done, s.told = "", false
		return json.Unmarshal(r.Change.Detail, &s.last.hookIntent)
	case r.Kind == state.RecordOutcome && s.last != nil && r.Intent == s.last.seq:
		s.last.result, s.last.text = r.Result, r.Text
		if r.Result == state.Succeeded || r.Result == state.Found {
			s.done = r.Text
		}
	case r.Kind == state.RecordNote && s.last != nil && len(r.Detail) > 0:
		var d hookStarted
		if err := json.Unmarshal(r.Detail, &d); err != nil {
			return err
		}
		if d.Intent == s.last.seq {
			s.last.started = &d
		}
	case r.Kind == state.RecordApproval && len(r.Detail) > 0:
		var d hookDecision
		if err := json.Unmarshal(r.Detail, &d); err != nil {
			return err
		}
		if d.Hook != "" && d.Answer == HookDone {
			s.done, s.told = strings.TrimPrefix(r.Text, "hook "+d.Hook+": "), true
		}
	}
	return nil
}

// stands says in a few words where the hook stands.
func (s *hookStory) stands() string {
	switch {
	case s.done != "":
		return s.done
	case s.last == nil:
		return "not run yet"
	case s.last.open():
		return fmt.Sprintf("attempt %d was begun %s and eksbg ended before it did", s.last.Attempt, s.last.at.UTC().Format(time.RFC3339))
	}
	return s.last.text
}

// elsewhere names the host where the open attempt was begun, if that is another one:
// whether it still runs there cannot be told.
func (h *Hook) elsewhere(s *hookStory) string {
	if !s.last.open() || s.last.Host == "" || s.last.Host == h.Host {
		return ""
	}
	return s.last.Host
}

// running says that the last attempt still runs, or something that it started; "" when
// it does not, or when nothing tells.
func (h *Hook) running(s *hookStory) string {
	if !s.last.open() {
		return ""
	}
	begun := fmt.Sprintf("%s: attempt %d, begun %s, still runs", h.title(), s.last.Attempt, s.last.at.UTC().Format(time.RFC3339))
	p := s.last.started
	if p != nil && p.Start != "" && h.Machine != "" && s.last.Machine == h.Machine && processStart(p.PID) == p.Start {
		return fmt.Sprintf("%s as process %d", begun, p.PID)
	}
	f, held, err := lockHook(lockOf(s.last.Log), 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ""
	case err != nil:
		return fmt.Sprintf("%s, for all that can be told: %v", begun, err)
	case held:
		return begun + ": a process that it started holds " + lockOf(s.last.Log) + " open"
	}
	_ = f.Close() // lets go of the lock
	return ""
}

// stillRuns is the stop for a command that runs since before eksbg was started.
func (h *Hook) stillRuns(s *hookStory, text string) *state.Stop {
	find := "find it with: lsof " + lockOf(s.last.Log)
	if p := s.last.started; p != nil {
		find = fmt.Sprintf("to end it: kill -INT -- -%d", p.PID)
	}
	return &state.Stop{Code: state.ExitResumable, Why: text + "; it is not started twice",
		Cure: "wait until it has ended (what it writes since eksbg was killed is kept nowhere);\n" + find + "\nthen run the same command again"}
}

func lockOf(log string) string { return filepath.Clean(log) + ".lock" }
