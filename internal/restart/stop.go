package restart

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/eksbg/eksbg/internal/restart/survey"
	"github.com/eksbg/eksbg/internal/state"
)

// waitsForJobs tells whether a work is the wait for a Job that still runs.
func (w *work) waitsForJobs() bool {
	return w.method == survey.Wait && w.item.Waits() && !known(w.item.Owner) &&
		(len(w.view.standing()) > 0 || (w.item.Owner.Kind == "Job" || w.item.Owner.Kind == "CronJob") && w.view.unplaced() > 0)
}

// timedOut stops because a work was not done within its time.
func (c *campaign) timedOut(w *work) error {
	if w.waitsForJobs() {
		cure := w.item.Cure
		if cure == "" {
			cure = "wait for its end, delete it, or name it under restart.skip in the plan file"
		}
		return c.stop(w, state.ExitResumable, fmt.Sprintf("%s after %s: %s", w.item.Reason, c.JobTimeout, w.view.unsettled()),
			cure+";\nrun the same command again to go on waiting, or raise restart.jobTimeout in the plan file")
	}
	unsettled := cmp.Or(w.view.unsettled(), w.view.numbers())
	if all := c.deeds(w.name, doEvict); !w.short.IsZero() && owing(all) {
		unsettled = strings.TrimPrefix(unsettled+fmt.Sprintf("; %d of %s are there", len(w.view.Pods), plural(all[len(all)-1].Want, "pod")), "; ")
	}
	if !w.view.Found {
		// How many pods a custom owner wants is not known: it is counted anew on resume.
		for _, e := range c.deeds(w.name, doEvict) {
			if e.standing() {
				if err := c.settle(e.Seq, state.Unknown, w.name+": not seen whole again", landed{}); err != nil {
					return err
				}
			}
		}
	}
	why := fmt.Sprintf("not done after %s: %s", c.Timeout, unsettled)
	if newest := w.newest(); newest != "" {
		why += "; " + newest
	}
	if n := len(c.deeds(w.name, doPending)); n > 0 {
		why += fmt.Sprintf("; a pod that stayed Pending was made anew %s", times(n))
	}
	if text, _ := c.mirror.trouble(); text != "" {
		why += "; " + text
	}
	return c.stop(w, state.ExitResumable, why,
		"run the same command again to go on waiting, raise restart.timeout in the plan file,\n"+
			"or name it under restart.skip there if it does not come up and the rest is to go on without it")
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// stale asks for a fresh list before a work is given up as too slow. Where that shows
// the work as done, or other pods of it than the watches do, it is the watches that are
// behind: they begin anew, and so does the work's time. For the sake of other pods that
// happens once for an owner, since in a cluster pods change while one looks.
func (c *campaign) stale(ctx context.Context, w *work) error {
	l, err := c.lookAgain(ctx)
	if err != nil {
		return err
	}
	why := " is done in a fresh list and not in the watches: watching anew"
	if l.has(w.name) {
		if c.differed[w.name] || l.shows(w.name, w.view.Pods) {
			return nil
		}
		c.differed[w.name] = true
		why = " has other pods in a fresh list than in the watches: watching anew"
	}
	if err := c.record(state.RecordNote, w.name+why); err != nil {
		return err
	}
	return errStale
}

// stop names the workload, and says what of the rest is untouched.
func (c *campaign) stop(w *work, code state.Exit, why, cure string) error {
	text := fmt.Sprintf("%s: %s", w.name, why)
	waiting, rolling := 0, 0
	for _, o := range c.todo {
		switch {
		case o == w || o.done:
		case o.active:
			rolling++
		default:
			waiting++
		}
	}
	if rolling > 0 {
		text += fmt.Sprintf("; %s still rolling", plural(rolling, "other workload"))
	}
	if waiting > 0 {
		text += fmt.Sprintf("; %s not begun, untouched", plural(waiting, "workload"))
	}
	return &state.Stop{Code: code, Why: state.Clean(text), Cure: cure}
}
