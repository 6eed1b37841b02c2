package restart

import (
	"encoding/json"
	"time"

	"github.com/eksbg/eksbg/internal/state"
)

// maxAttempts is one restart and at most two more for pods that were born on an old
// kubelet while the API servers rolled (semantics 10).
const maxAttempts = 3

// stamped is the detail of an intent: what recognises the restart later.
type stamped struct {
	Owner   string `json:"owner"`
	UID     string `json:"uid,omitempty"`
	Attempt int    `json:"attempt"`
	// Stamp is the value of the restartedAt annotation, Before the one it replaces.
	Stamp  string `json:"stamp"`
	Before string `json:"before"`
}

// landed is the detail of an outcome: the object as the patch left it. Caches that
// show an older generation do not know of the restart yet.
type landed struct {
	UID        string `json:"uid,omitempty"`
	Generation int64  `json:"generation,omitempty"`
	// Reverted says who took the stamp away again.
	Reverted string `json:"reverted,omitempty"`
	// Early: a surge was put back because the run ended, before it could have helped.
	Early bool `json:"early,omitempty"`
}

// attempt is the newest restart of one workload by this step.
type attempt struct {
	Seq    int64
	Number int
	Stamp  string
	// Open: nobody has recorded what came of it. Settled: it is seen to be done, or nobody
	// will ever know.
	Open, Settled bool
	// Failed: it was taken away again or its pods did not come up, and the run stopped
	// over it. Whoever runs it again has done something about that.
	Failed bool
	landed
}

// after gives the newest attempt once the outcome of a is known: a itself, or the
// one before it where a was refused, for that changed nothing and does not count.
func (a attempt) after(before attempt, result state.Result, detail json.RawMessage) attempt {
	if result == state.Rejected {
		return before
	}
	a.Open, a.Failed, a.Settled = false, result == state.Failed, result == state.Succeeded || result == state.Unknown
	var l landed
	if json.Unmarshal(detail, &l) == nil && (l.Generation > 0 || l.Reverted != "") {
		a.landed = l
	}
	return a
}

// newer tells whether stamp a is later than stamp b. What is not RFC 3339 is never
// later and never passed by.
func newer(a, b string) bool {
	ta, errA := time.Parse(time.RFC3339, a)
	tb, errB := time.Parse(time.RFC3339, b)
	return errA == nil && errB == nil && ta.After(tb)
}

// stampFor gives the stamp of an attempt: the one that the hop already uses for that
// attempt number, otherwise a new one from the clock that is later than the attempt
// before. A workload that somebody restarted at or after that moment gets a later
// one, for the same value again would change nothing.
func stampFor(stamps map[int]string, number int, live string, now time.Time) string {
	s, ok := stamps[number]
	if !ok {
		s = later(now.UTC().Format(time.RFC3339), stamps[number-1])
		stamps[number] = s
	}
	return later(s, live)
}

// later gives s, or a second after than where s is not later.
func later(s, than string) string {
	t, err := time.Parse(time.RFC3339, than)
	if err != nil || newer(s, than) {
		return s
	}
	return t.Add(time.Second).UTC().Format(time.RFC3339)
}
