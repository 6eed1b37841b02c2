package restart

import (
	"fmt"
	"strings"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/state"
)

// restartedAt is the key that kubectl rollout restart sets on the pod template. It is
// kept so that rollout history and GitOps diffs look familiar.
const restartedAt = cluster.RestartedAtAnnotation

// podView is what a decision needs of one unfinished pod.
type podView struct {
	Name               string
	Place              place
	Terminating, Ready bool
	// Trouble says what keeps the pod from ever starting, in the kubelet's own words;
	// Fatal is true where waiting cannot help.
	Trouble string
	Fatal   bool
	// Note says what a pod that is not ready waits for.
	Note string
}

// view is one workload as the watches show it.
type view struct {
	// Found is false once the object is gone; its pods may still be leaving.
	Found                             bool
	Kind, UID                         string
	Generation, Observed              int64
	Desired, Replicas, Updated, Ready int32
	Paused                            bool
	Strategy                          string
	// Start is the first ordinal of a StatefulSet; a rollout leaves the first Partition
	// ordinals from there on alone.
	Start, Partition int32
	// Stamp is the live value of the restartedAt annotation.
	Stamp string
	// Deadline is the controller's message when it has given the rollout up.
	Deadline string
	// Note is the controller's newest complaint.
	Note string
	Pods []podView
}

// complete tells whether the controller has seen the newest template and every
// replica is made from it and ready (semantics 11).
func (v view) complete() bool {
	updated := v.Desired
	if v.Kind == "StatefulSet" {
		updated = max(0, v.Desired-v.Partition)
	}
	return v.Observed >= v.Generation && v.Replicas == v.Desired && v.Ready == v.Desired && v.Updated >= updated &&
		v.Updated <= v.Desired
}

// standing are the lagging pods that will not leave by themselves.
func (v view) standing() []podView {
	var out []podView
	for _, p := range v.Pods {
		if p.Place == lagging && !p.Terminating {
			out = append(out, p)
		}
	}
	return out
}

// current counts the pods on nodes at the wanted minor.
func (v view) current() (n int) {
	for _, p := range v.Pods {
		if p.Place == current {
			n++
		}
	}
	return n
}

// restarted tells whether a workload that this step has restarted is done: complete,
// and every unfinished pod, terminating ones included, on a node at the wanted
// minor (semantics 11). Pods that the watch does not show yet are missed by number.
func (v view) restarted() bool {
	staying := 0
	for _, p := range v.Pods {
		if p.Place != current {
			return false
		}
		if !p.Terminating {
			staying++
		}
	}
	return v.complete() && staying >= int(v.Desired)
}

// clear tells whether a workload that this step has not restarted needs it no
// longer: no pod lags, and not all of them are still on no node.
func (v view) clear() bool {
	for _, p := range v.Pods {
		if p.Place == lagging {
			return false
		}
	}
	return len(v.Pods) == 0 || v.current() > 0
}

// settled is restarted or clear, as the workload is ours or not.
func (v view) settled(ours bool) bool {
	switch {
	case !v.Found || v.Desired == 0:
		return len(v.Pods) == 0
	case ours:
		return v.restarted()
	}
	return v.clear()
}

// pinned says what keeps a restart from moving the standing pods, or "".
func (v view) pinned() string {
	var ordinals []int
	for _, p := range v.standing() {
		if n, ok := ordinal(p.Name); ok {
			ordinals = append(ordinals, n)
		}
	}
	return pinned(v.Kind, v.Paused, v.Strategy, v.Start+v.Partition, ordinals)
}

// newest is the newest thing that the workload or one of its pods says about why it
// is not done, or "".
func (v view) newest() string {
	for _, p := range v.Pods {
		if p.Trouble != "" && p.Place != lagging && !p.Terminating {
			return p.Name + ": " + p.Trouble
		}
	}
	if v.Deadline != "" {
		return v.Deadline
	}
	for _, p := range v.Pods {
		if p.Note != "" && p.Place != lagging {
			return p.Name + ": " + p.Note
		}
	}
	return v.Note
}

// trouble is what keeps the rollout from ever being done, and whether that is
// certain already. Pods of before the restart do not count: they are going.
func (v view) trouble() (text string, fatal bool) {
	for _, p := range v.Pods {
		if p.Trouble == "" || p.Place == lagging || p.Terminating {
			continue
		}
		if text == "" || p.Fatal {
			text, fatal = p.Name+": "+p.Trouble, p.Fatal
		}
		if fatal {
			return text, true
		}
	}
	if v.Deadline != "" && v.Observed >= v.Generation {
		return v.Deadline, true
	}
	return text, false
}

// unsettled names the pods that are not where they should be.
func (v view) unsettled() string {
	var out []string
	for _, p := range v.Pods {
		switch {
		case p.Place == lagging && p.Terminating:
			out = append(out, p.Name+" (terminating on the old kubelet)")
		case p.Place == lagging:
			out = append(out, p.Name+" (on the old kubelet)")
		case p.Place == nowhere:
			out = append(out, p.Name+" (on no node)")
		case !p.Ready && !p.Terminating:
			out = append(out, p.Name+" (not ready)")
		}
	}
	return strings.Join(out, ", ")
}

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
	case !v.complete() && ours:
		return verdict{act: actWait}
	case v.pinned() != "":
		return verdict{act: actPinned, text: v.pinned()}
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
	if live != a.Stamp {
		s += fmt.Sprintf("; somebody (a GitOps controller, an operator) took %s=%s away again", restartedAt, a.Stamp)
	}
	return s
}
