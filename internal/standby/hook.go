package standby

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/clock"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

// The defaults of HookDeps and of a planfile.Hook that was not read from a file.
const (
	DefaultHookTimeout      = time.Hour
	DefaultHookGrace        = time.Minute
	DefaultHookLinger       = 5 * time.Second
	DefaultHookCheckTimeout = 5 * time.Minute
	DefaultHookHeartbeat    = 15 * time.Second
)

// HookAnswer is what a person says of a hook of which nobody else can tell how far it
// got.
type HookAnswer string

// The answers.
const (
	// HookUnanswered: nobody has said anything; the run stops, resumable.
	HookUnanswered HookAnswer = ""
	// HookDone: the work of the hook is done.
	HookDone HookAnswer = "done"
	// HookRun: the hook is to be run, or run again.
	HookRun HookAnswer = "run"
)

// HookQuestion asks for a HookAnswer. On the command line the answers are
// --approve hook/NAME=done and --approve hook/NAME=run.
type HookQuestion struct {
	// Hook is its name, Step the id of the step.
	Hook, Step string
	// Attempts is how often it has been started in this run.
	Attempts int
	// Why says what is known, in one line.
	Why string
}

// HookDeps is what a hook works with.
type HookDeps struct {
	// Name is what the plan file calls it: provision, deploy, teardown. Undo names the hook
	// that puts back what it does; "" for none.
	Name, Undo string
	// Hook is what the plan file says of it.
	Hook planfile.Hook
	// Environ is the environment that the commands inherit, NAME=value each: eksbg's own.
	Environ []string
	Facts   HookFacts
	// Base is the folder that Hook.Dir is seen from: the plan file's.
	Base string
	// Files is a folder for files of the hook's own, made before it is run, of the owner
	// only; it stays. The hook has it as EKSBG_FILES. "" gives it none.
	Files string
	// Log is the file where its output is kept, of this run alone: 0600, bounded, without
	// secrets. Beside it, while the hook runs, is a lock named Log.lock.
	Log string
	// Secrets are masked in everything that is shown or kept, beside what looks like
	// credentials in Environ, Hook.Env and the command.
	Secrets []string
	// Output gets the output line by line, without control characters and secrets; it must
	// return, and is not called by two goroutines at a time. nil drops it.
	Output  func(line string)
	Clock   clock.Clock
	History state.History
	// Decide answers for a person, and says who it was; nil answers nothing.
	Decide func(context.Context, HookQuestion) (HookAnswer, *state.Who, error)
	// Host names this machine. Machine tells this running system, and its process ids, from
	// every other one; "" where that cannot be told.
	Host, Machine string
	// Linger is how long processes that a command leaves behind may stay, and hold its
	// output open; 0 is DefaultHookLinger. CheckTimeout bounds Hook.Check; 0 is
	// DefaultHookCheckTimeout. Heartbeat is how often it is said that the command runs; 0 is
	// DefaultHookHeartbeat.
	Linger, CheckTimeout, Heartbeat time.Duration
}

// Hook is the step that runs a command of the user's: argv, never a shell.
//
// It is done when the journal says that the command has ended with 0 (or a person, that
// its work is done) and its check, where it has one, does not say otherwise. The command
// runs at most once at a time, and a second time only where that is known to do no harm:
// its check says that the work is not done, it never started, the plan file calls it
// idempotent, or a person says so.
//
// The command has a process group of its own, no input, and the descriptors 3 and 4 are
// eksbg's: they let it end its work when eksbg was killed, and tell the next eksbg that it
// still runs. What leaves the group (setsid) is out of reach.
//
// How Act ends: nil when the work is done. Exit 1 when the command failed, could not be
// started, or ended with 0 and its check says that the work is not done. Exit 4 when it
// was ended at its timeout, still runs since a crash of eksbg, its check gives no answer,
// or a person has to say how far it got. Exit 130 when ctx ended while it ran.
type Hook struct {
	spec state.StepSpec
	HookDeps
	mask *hookMask
}

// NewHook makes the step.
func NewHook(spec state.StepSpec, d HookDeps) *Hook {
	orElse := func(d *time.Duration, otherwise time.Duration) {
		if *d <= 0 {
			*d = otherwise
		}
	}
	orElse((*time.Duration)(&d.Hook.Timeout), DefaultHookTimeout)
	orElse((*time.Duration)(&d.Hook.Grace), DefaultHookGrace)
	orElse(&d.Linger, DefaultHookLinger)
	orElse(&d.CheckTimeout, DefaultHookCheckTimeout)
	orElse(&d.Heartbeat, DefaultHookHeartbeat)
	h := &Hook{spec: spec, HookDeps: d}
	environ := append([]string(nil), d.Environ...)
	for name, value := range d.Hook.Env {
		environ = append(environ, name+"="+value)
	}
	argv := append(append([]string(nil), d.Hook.Command...), d.Hook.Check...)
	h.mask = newHookMask(append(hookSecrets(environ, argv), d.Secrets...))
	return h
}

// Spec is the step as data.
func (h *Hook) Spec() state.StepSpec { return h.spec }

// title names the hook in messages.
func (h *Hook) title() string { return "hook " + h.Name }

// Observe reads the journal and runs the check, if there is one. It is Done as Hook
// says; everything else is Ready, since it is Act that stops or asks where the command
// must not be run.
func (h *Hook) Observe(ctx context.Context) (state.Observation, error) {
	s, err := h.story()
	if err != nil {
		return state.Observation{}, err
	}
	if text := h.running(s); text != "" {
		return state.Observation{Status: state.Ready, Reason: text}, nil
	}
	ready := func(reason string) (state.Observation, error) {
		return state.Observation{Status: state.Ready, Reason: h.title() + ": " + reason}, nil
	}
	done := func(reason string) (state.Observation, error) {
		return state.Observation{Status: state.Done, Reason: h.title() + ": " + reason}, nil
	}
	if len(h.Hook.Check) == 0 {
		if s.done != "" {
			return done(s.done)
		}
		return ready(s.stands())
	}
	v, err := h.check(ctx, s.attempts)
	switch {
	case err != nil:
		return state.Observation{}, err
	case v.answer == checkDone:
		return done(v.text)
	case s.told, s.done != "" && v.answer == checkUnknown:
		return done(s.done + " (" + v.text + ")")
	}
	return ready(fmt.Sprintf("%s; %s", s.stands(), v.text))
}
