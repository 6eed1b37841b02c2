package restart

import (
	"fmt"
	"slices"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/restart/survey"
	"github.com/eksbg/eksbg/internal/state"
)

// judged is what the judgement of a survey about one owner stands on and a watch shows:
// a wave takes long, and what has another shape by the time that its turn comes is not
// what was judged.
type judged struct {
	// workload is nil for owners of kinds that are not watched.
	workload *cluster.Workload
	// budgets are the PodDisruptionBudgets of the namespace with the state of their specs.
	budgets string
}

// judgements gives what an inventory shows of an owner.
func judgements(inv *cluster.Inventory) func(cluster.Owner) judged {
	workloads, budgets := byOwner(inv), map[string][]string{}
	for _, b := range inv.Budgets {
		budgets[b.Namespace] = append(budgets[b.Namespace], budgetMark(b.Name, b.UID, b.Generation))
	}
	return func(o cluster.Owner) judged {
		j := judged{budgets: marks(budgets[o.Namespace])}
		if known(o) {
			j.workload = workloads[o.String()]
		}
		return j
	}
}

// judged gives what the watches show of an owner.
func (m *mirror) judged(o cluster.Owner) judged {
	j := judged{}
	if i := m.workloads[o.Kind]; i != nil && known(o) {
		if obj, ok, err := i.GetStore().GetByKey(o.Namespace + "/" + o.Name); err == nil && ok {
			if w, ok := cluster.WorkloadOf(obj); ok {
				j.workload = &w
			}
		}
	}
	objs, err := m.budgets.GetIndexer().ByIndex(cache.NamespaceIndex, o.Namespace)
	if err != nil {
		return j
	}
	var all []string
	for _, obj := range objs {
		if b, ok := obj.(*policyv1.PodDisruptionBudget); ok {
			all = append(all, budgetMark(b.Name, string(b.UID), b.Generation))
		}
	}
	j.budgets = marks(all)
	return j
}

func budgetMark(name, uid string, generation int64) string {
	return fmt.Sprintf("%s %s %d", name, uid, generation)
}

func marks(all []string) string {
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// differs says what is another than it was when it was judged; "" for nothing.
func (j judged) differs(now judged) string {
	var out []string
	say := func(differs bool, format string, a ...any) {
		if differs {
			out = append(out, fmt.Sprintf(format, a...))
		}
	}
	switch was, is := j.workload, now.workload; {
	case was == nil:
	case is == nil || is.UID != was.UID:
		out = append(out, "it was deleted or made anew")
	default:
		say(is.Replicas != was.Replicas, "%s, not %d", plural(int(is.Replicas), "replica"), was.Replicas)
		say(is.Strategy != was.Strategy, "strategy %s, not %s", is.Strategy, was.Strategy)
		say(is.MaxSurge != was.MaxSurge || is.MaxUnavailable != was.MaxUnavailable, "maxSurge %d and maxUnavailable %d, not %d and %d",
			is.MaxSurge, is.MaxUnavailable, was.MaxSurge, was.MaxUnavailable)
		say(is.Paused != was.Paused, "paused: %t", is.Paused)
		say(is.Partition != was.Partition || is.Start != was.Start, "partition %d from ordinal %d, not %d from %d", is.Partition, is.Start, was.Partition, was.Start)
	}
	say(j.budgets != now.budgets, "other PodDisruptionBudgets in its namespace")
	return strings.Join(out, ", ")
}

// outdated says in which way an owner is not what was judged any more; "" where it is.
func (c *campaign) outdated(w *work) string {
	if !w.item.Works() {
		return ""
	}
	return w.judged.differs(c.mirror.judged(w.item.Owner))
}

// leave ends a work for this round; the next one judges it anew from a fresh list. What
// others wait for takes with it all that has not begun, or those would overtake it.
func (c *campaign) leave(w *work, why string) error {
	w.active, w.done = false, true
	if w.item.Group != survey.Rest {
		for _, o := range c.todo {
			o.done = o.done || !o.active
		}
	}
	if c.outdatedBy[w.name] == why {
		return nil
	}
	c.outdatedBy[w.name] = why
	return c.record(state.RecordNote, fmt.Sprintf("%s is not as it was judged (%s): looked at anew before anything is done to it", w.name, why))
}
