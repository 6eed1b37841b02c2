package restart

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/state"
)

// Remedy is what keeps one Job template from leaving finished pods behind:
// ttlSecondsAfterFinished, which the TTL controller of every control plane acts on
// (Kubernetes 1.23, Automatic Cleanup for Finished Jobs).
type Remedy struct {
	// Owner is the CronJob, or the Job; Jobs is how many finished ones came from it.
	Owner cluster.Owner
	Jobs  int
	// Patch is a merge patch of Owner. Command sends it; it is empty where many Jobs have
	// a template that is in no object, and the patch is for whatever makes them.
	Patch   string
	Command string
}

// String is the command, or the patch with what it is for.
func (r Remedy) String() string {
	if r.Command != "" {
		return r.Command
	}
	return fmt.Sprintf("%s (%s): %s in whatever makes them", state.Clean(r.Owner.String()), plural(r.Jobs, "Job"), r.Patch)
}

// serial is the end of a Job's name that whoever makes it counts or draws.
var serial = regexp.MustCompile(`-([0-9]+|[bcdfghjklmnpqrstvwxz2456789]{5})$`)

// Remedies lists, by owner, the Job templates of finished Jobs that have no
// ttlSecondsAfterFinished. Jobs of workflow engines are theirs. ttl is what the
// patches say, rounded up to a whole second; 0 is an hour.
func (ls Leftovers) Remedies(inv *cluster.Inventory, ttl time.Duration) []Remedy {
	if ttl <= 0 {
		ttl = time.Hour
	}
	seconds := int((ttl + time.Second - 1) / time.Second)
	crons := map[string]cluster.CronJob{}
	for _, c := range inv.CronJobs {
		crons[c.Owner.String()] = c
	}
	found := map[string]*Remedy{}
	for _, l := range ls {
		o, ok := templateOf(l.Job, crons)
		if !ok {
			continue
		}
		stem := o
		if o.Kind == "Job" {
			stem.Name = serial.ReplaceAllString(o.Name, "-*")
		}
		r := found[stem.String()]
		if r == nil {
			r = &Remedy{Owner: o}
			found[stem.String()] = r
		} else {
			r.Owner = stem
		}
		r.Jobs++
	}
	out := make([]Remedy, 0, len(found))
	for _, r := range slices.SortedFunc(maps.Values(found), func(a, b *Remedy) int {
		return cmp.Compare(a.Owner.String(), b.Owner.String())
	}) {
		r.fill(seconds)
		out = append(out, *r)
	}
	return out
}

// templateOf is the object that holds the template of a Job without a TTL: its
// CronJob, or the Job itself.
func templateOf(j cluster.Job, crons map[string]cluster.CronJob) (cluster.Owner, bool) {
	if j.Kind == "" || j.TTL != nil || j.Controller.Kind != "" {
		return cluster.Owner{}, false
	}
	if c, ok := crons[j.CronJob.String()]; ok && j.CronJob.Kind != "" {
		return c.Owner, c.TTL == nil // set since that Job was made
	}
	return j.Owner, true
}

func (r *Remedy) fill(seconds int) {
	kind := "job"
	r.Patch = fmt.Sprintf(`{"spec":{"ttlSecondsAfterFinished":%d}}`, seconds)
	if r.Owner.Kind == "CronJob" {
		kind, r.Patch = "cronjob", fmt.Sprintf(`{"spec":{"jobTemplate":%s}}`, r.Patch)
	}
	if r.Jobs == 1 || kind == "cronjob" {
		r.Command = fmt.Sprintf("kubectl -n %s patch %s %s --type merge -p '%s'", state.Clean(r.Owner.Namespace), kind, state.Clean(r.Owner.Name), r.Patch)
	}
}
