package restart

import (
	"fmt"

	"github.com/eksbg/eksbg/internal/state"
)

// act is what to do next about one workload.
type act int

const (
	// actWait: something is under way.
	actWait act = iota
	// actDone: nothing is left to do.
	actDone
	// actClose: an open intent needs no patch; write its outcome and decide again.
	actClose
	// actResend: send the patch of the open intent again, same value.
	actResend
	// actRestart: a new attempt.
	actRestart
	// actForeign: somebody else's restart is under way; wait for that one.
	actForeign
	// actPinned: it can no longer be restarted this way.
	actPinned
	// actReverted: somebody took the stamp away again, and it lags.
	actReverted
	// actExhausted: all attempts are used up and it still lags.
	actExhausted
)

// verdict is an act with its reason; result is the outcome for actClose.
type verdict struct {
	act    act
	text   string
	result state.Result
}

// decide is the whole of semantics 10 and 11 for one workload: what the watches show
// of it, the newest attempt of this step (zero when there is none), and the stamp
// that the hop uses for the first attempt ("" when none is in use yet).
func decide(v view, a attempt, first string) verdict {
	ours := a.Number > 0
	switch {
	case v.Found && ours && v.UID == a.UID && v.Generation < a.Generation:
		return verdict{act: actWait, text: "the watch does not show the restart yet"}
	case v.Found && a.Open:
		return decideOpen(v, a)
	case v.Found && v.Desired > 0 && !v.complete() && !ours && touched(first, v.Stamp) && v.pinned() == "":
		// Before settled, which takes what is not ours for done with one pod moved.
		return foreign(v)
	case v.settled(ours):
		return verdict{act: actDone}
	case !v.Found || v.Desired == 0 || len(v.standing()) == 0:
		return verdict{act: actWait}
	case !v.complete() && (ours && newer(v.Stamp, a.Stamp) || !ours && touched(first, v.Stamp)):
		return foreign(v)
	case v.pinned() != "":
		return verdict{act: actPinned, text: v.pinned()}
	case !v.complete() && (ours || v.rolling()):
		return verdict{act: actWait}
	case ours && !a.Failed && v.UID == a.UID && v.Stamp != a.Stamp && !newer(v.Stamp, a.Stamp):
		return verdict{act: actReverted}
	case a.Number >= maxAttempts:
		return verdict{act: actExhausted, text: exhausted(a, v.Stamp)}
	}
	return verdict{act: actRestart}
}

// foreign waits for a restart that somebody else has begun.
func foreign(v view) verdict {
	return verdict{act: actForeign, text: "restarted by somebody else at " + state.Clean(v.Stamp)}
}

// touched tells whether somebody has restarted a workload since the hop began: its
// live stamp is not older than the one that the hop uses.
func touched(first, live string) bool { return first != "" && live != "" && !newer(first, live) }

// decideOpen settles an intent that has no outcome: the patch has landed, or it has
// not and is sent again with the same value, or it is no longer needed.
func decideOpen(v view, a attempt) verdict {
	switch {
	case v.Stamp == a.Stamp:
		return verdict{act: actClose, result: state.Found, text: "the stamp is there"}
	case newer(v.Stamp, a.Stamp):
		return verdict{act: actClose, result: state.Unknown, text: "overtaken by a restart at " + state.Clean(v.Stamp)}
	case v.Desired == 0 || len(v.standing()) == 0:
		return verdict{act: actClose, result: state.Unknown, text: "the stamp is not there and no pod lags any longer; not sent again"}
	case v.pinned() != "":
		return verdict{act: actClose, result: state.Unknown, text: "the stamp is not there; not sent again: " + v.pinned()}
	}
	return verdict{act: actResend}
}

// exhausted says that restarts do not help.
func exhausted(a attempt, live string) string {
	s := fmt.Sprintf("still lags after %d restarts", a.Number)
	if a.Reverted != "" {
		return s + "; " + revertedText(a.Reverted)
	}
	if live != a.Stamp {
		s += fmt.Sprintf("; somebody (a GitOps controller, an operator) took %s=%s away again", restartedAt, a.Stamp)
	}
	return s
}
