package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

// ExpiredSkips are the warnings about skips that are over, since they skip nothing.
func ExpiredSkips(r planfile.Restart, at time.Time) []state.Finding {
	var out []state.Finding
	for _, k := range r.ExpiredSkips(at) {
		out = append(out, state.Finding{Check: "skip/" + k.Owner, Severity: state.SeverityWarn,
			Text: fmt.Sprintf("the skip of %s ended on %s", k.Owner, k.Until.Format(time.DateOnly)), Cure: "take it out, or give it a new end and reason"})
	}
	return out
}

// Unmatched are the warnings about entries of restart.skip, restart.allow and
// restart.order that name nothing in any of the clusters given: most often a wrong kind
// or a slip of the pen. Skips that are over at at are left to ExpiredSkips.
func Unmatched(r planfile.Restart, at time.Time, invs ...*cluster.Inventory) []state.Finding {
	k := known{owners: map[string]bool{}, spaces: map[string]bool{}, alike: map[string][]string{}}
	for _, inv := range invs {
		k.read(inv)
	}
	if len(k.where) == 0 {
		return nil
	}
	var out []state.Finding
	for _, s := range r.Skip {
		if at.Before(s.Until.End()) {
			out = k.owner(out, "skip", s.Owner)
		}
	}
	for _, a := range r.Allow {
		out = k.owner(out, "allow", a.Owner)
	}
	for _, ns := range r.Order {
		if !k.spaces[ns] {
			out = append(out, state.Finding{Check: "order/" + ns, Severity: state.SeverityWarn,
				Text: fmt.Sprintf("restart.order names namespace %s, and nothing that runs in it is in %s", ns, k.clusters()), Cure: "correct its name, or take it out"})
		}
	}
	return out
}

// known is what entries of a plan file may name.
type known struct {
	where          []string
	owners, spaces map[string]bool
	// alike are the owners of a namespace/name, of whatever kind.
	alike map[string][]string
}

func (k *known) read(inv *cluster.Inventory) {
	if inv == nil {
		return
	}
	k.where = append(k.where, inv.Name)
	for _, w := range inv.Workloads {
		k.add(w.Owner)
	}
	for _, c := range inv.CronJobs {
		k.add(c.Owner)
	}
	for _, j := range inv.Jobs {
		if j.CronJob.Kind == "" {
			k.add(j.Owner)
			continue
		}
		k.like(j.Owner, j.CronJob.String()) // entries go by the CronJob
	}
	for _, p := range inv.Pods {
		k.spaces[p.Namespace] = true
		k.add(p.Owner)
	}
	for _, n := range inv.Nodes {
		k.owners["Node/"+n.Name] = true
	}
}

func (k *known) add(o cluster.Owner) {
	if o.Kind == "" || k.owners[o.String()] {
		return
	}
	k.owners[o.String()] = true
	k.spaces[o.Namespace] = true
	k.like(o, o.String())
}

func (k *known) like(o cluster.Owner, means string) {
	at := o.Namespace + "/" + o.Name
	if !slices.Contains(k.alike[at], means) {
		k.alike[at] = append(k.alike[at], means)
	}
}

// clusters names what was looked at.
func (k *known) clusters() string { return strings.Join(k.where, " or ") }

func (k *known) owner(out []state.Finding, list, owner string) []state.Finding {
	check := list + "/" + owner
	if k.owners[owner] || slices.ContainsFunc(out, func(f state.Finding) bool { return f.Check == check }) {
		return out
	}
	f := state.Finding{Check: check, Severity: state.SeverityWarn, Cure: "correct it, or take it out",
		Text: fmt.Sprintf("restart.%s names %s, and nothing of that name is in %s", list, owner, k.clusters())}
	if parts := strings.Split(owner, "/"); len(parts) == 3 {
		if other := k.alike[parts[0]+"/"+parts[2]]; len(other) > 0 {
			slices.Sort(other)
			f.Text += "; there is " + strings.Join(other, " and ")
			f.Cure = "name " + strings.Join(other, " or ") + ", or take it out"
		}
	}
	return append(out, f)
}
