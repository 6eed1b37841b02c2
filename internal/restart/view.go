package restart

import (
	"fmt"
	"strings"
	"time"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/restart/survey"
)

// restartedAt is the key that kubectl rollout restart sets on the pod template. It is
// kept so that rollout history and GitOps diffs look familiar.
const restartedAt = cluster.RestartedAtAnnotation

// podView is what a decision needs of one unfinished pod.
type podView struct {
	Name, UID          string
	Place              place
	Terminating, Ready bool
	// Node is the pod's node, Created when the API server made it.
	Node    string
	Created time.Time
	// Waiting is true while the Fargate scheduler has not placed the pod.
	Waiting bool
	// Once is true for a pod that is meant to end: who made it may count its deletion as a
	// failure, and makes no other one perhaps.
	Once bool
	// Cost is the value of controller.kubernetes.io/pod-deletion-cost.
	Cost string
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
	// Available are those that are ready for MinReady seconds; they count where the owner
	// states a number.
	Available, MinReady int32
	Paused              bool
	Strategy            string
	// Start is the first ordinal of a StatefulSet; a rollout leaves the first Partition
	// ordinals from there on alone.
	Start, Partition int32
	// Mark is the value of the annotation that a surge leaves, ResourceVersion the object's.
	Mark, ResourceVersion string
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

// rolling tells whether a change of the template is under way, somebody's deploy: pods of
// the old template go, and a restart beside it would replace the new ones a second time.
func (v view) rolling() bool {
	want := v.Replicas
	if v.Kind == "StatefulSet" {
		want = max(0, v.Replicas-v.Partition)
	}
	return v.Observed < v.Generation || v.Updated < want
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

// leaving are the pods that are left of a rollout that is complete and whose new pods are
// all on nodes at the wanted minor; none where the rollout still goes on.
func (v view) leaving() (n int) {
	staying := 0
	for _, p := range v.Pods {
		switch {
		case p.Terminating:
			n++
		case p.Place != current:
			return 0
		default:
			staying++
		}
	}
	if !v.Found || !v.complete() || staying < int(v.Desired) {
		return 0
	}
	return n
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
		if n, ok := survey.Ordinal(p.Name); ok {
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

// numbers says what the owner's controller has got to, where all pods that there are
// stand as they should.
func (v view) numbers() string {
	switch {
	case !v.Found && len(v.Pods) == 0:
		return "it is gone, and so are its pods"
	case !v.Found:
		return fmt.Sprintf("it is gone, and %s still there", plural(len(v.Pods), "pod"))
	case v.Observed < v.Generation:
		return "its controller has not seen its newest template"
	}
	return fmt.Sprintf("%s, %d made from its newest template, %d ready, want %d", plural(int(v.Replicas), "pod"), v.Updated, v.Ready, v.Desired)
}
