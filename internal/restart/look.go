package restart

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/state"
)

// look is a fresh inventory, sorted by what is to be done.
type look struct {
	inv   *cluster.Inventory
	minor string
	// items are all owners of lagging pods.
	items []Item
	// roll are to be restarted, leaving are waited for, stuck block, skipped do not.
	roll, leaving, stuck, skipped []Item
	// hanging are workloads without a lagging pod that are not done all the same:
	// restarted, by this step or since by somebody else, and not whole again yet, all
	// of their pods on no node, or restarted with nobody knowing what came of it.
	hanging []Item
}

// look sorts an inventory; last holds the newest attempt per owner, first is the stamp
// that the hop uses for the first attempts.
func (r *Restart) look(inv *cluster.Inventory, last map[string]attempt, first string) *look {
	l := &look{inv: inv, minor: r.spec.To}
	if l.minor == "" {
		l.minor = inv.Version
	}
	workloads := byOwner(inv)
	l.items = survey(inv, l.minor, r.Skips, r.Clock.Now(), r.Order)
	busy := map[string]bool{}
	for _, it := range l.items {
		name := it.Owner.String()
		if a := last[name]; it.Method == Rollout && !a.Open && a.Number >= maxAttempts && whole(workloads[name]) {
			it.Method, it.Reason = None, exhausted(a, workloads[name].RestartedAt)
		}
		busy[name] = true
		switch {
		case it.Skipped:
			l.skipped = append(l.skipped, it)
		case it.Method == Rollout:
			l.roll = append(l.roll, it)
		case it.Leaving:
			l.leaving = append(l.leaving, it)
		default:
			l.stuck = append(l.stuck, it)
		}
	}
	if !state.StepDone(r.History.Records(r.spec.ID), r.spec.ID) {
		l.hanging = r.hanging(l, workloads, busy, last, first)
	}
	for _, name := range slices.Sorted(maps.Keys(last)) {
		if _, skip := skipped(r.Skips, name, r.Clock.Now()); last[name].Open && !busy[name] && !skip {
			l.hanging = append(l.hanging, Item{Owner: ownerNamed(name, last[name].UID), Method: None})
		}
	}
	return l
}

// ownerNamed is the owner of a restart that the journal names as namespace/Kind/name.
func ownerNamed(name, uid string) cluster.Owner {
	ns, rest, _ := strings.Cut(name, "/")
	kind, name, _ := strings.Cut(rest, "/")
	return cluster.Owner{APIVersion: "apps/v1", Namespace: ns, Kind: kind, Name: name, UID: uid}
}

// hanging finds the workloads without a lagging pod that are not done. Once the step
// was done a pod that starts, because an autoscaler asks for it, is not its business.
func (r *Restart) hanging(l *look, workloads map[string]*cluster.Workload, busy map[string]bool, last map[string]attempt, first string) []Item {
	place := places(l.inv, l.minor)
	pods := map[string][]cluster.Pod{}
	for _, p := range l.inv.Pods {
		if !p.Finished && rollable(p.Owner) {
			pods[p.Owner.String()] = append(pods[p.Owner.String()], p)
		}
	}
	var out []Item
	for name, w := range workloads {
		if _, skip := skipped(r.Skips, name, r.Clock.Now()); skip || busy[name] || w.Replicas == 0 {
			continue
		}
		placed := 0
		for _, p := range pods[name] {
			if place(p.Node) == current {
				placed++
			}
		}
		all := len(pods[name])
		ours := last[name].Number > 0
		foreign := !ours && rollable(w.Owner) && touched(first, w.RestartedAt) && !whole(w) &&
			pinned(w.Owner.Kind, w.Paused, w.Strategy, 0, nil) == ""
		if ours && (placed < all || !whole(w)) || !ours && all > 0 && placed == 0 || foreign {
			busy[name] = true
			out = append(out, Item{Owner: w.Owner, Method: None})
		}
	}
	rank := ranks(r.Order)
	slices.SortFunc(out, func(a, b Item) int { return compareOwners(rank, a.Owner, b.Owner) })
	return out
}

// whole tells whether the workload's controller has seen its newest template and
// every replica is made from it and ready.
func whole(w *cluster.Workload) bool {
	updated := w.Replicas
	if w.Owner.Kind == "StatefulSet" {
		updated = max(0, w.Replicas-w.Partition)
	}
	return w.Observed >= w.Generation && w.Current == w.Replicas && w.Ready == w.Replicas && w.Updated >= updated
}

// busy tells whether there is something to do or to wait for.
func (l *look) busy() bool { return len(l.roll)+len(l.leaving)+len(l.hanging) > 0 }

// behind says that a restart cannot help because the control plane is not there yet.
func (l *look) behind() *state.Stop {
	if cluster.CompareMinor(l.inv.Version, l.minor) >= 0 {
		return nil
	}
	return &state.Stop{Code: state.ExitBlocked,
		Why:  fmt.Sprintf("the control plane of %s is at %s: new pods would not get kubelet %s", l.inv.Name, l.inv.Version, l.minor),
		Cure: "upgrade the control plane first; running the same command again plans that"}
}

// todo says what is left, in one line.
func (l *look) todo() string {
	var parts []string
	if n := len(l.roll); n > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s below %s", plural(podCount(l.roll), "pod"), plural(n, "owner"), l.minor))
	}
	if n := len(l.leaving); n > 0 {
		parts = append(parts, plural(podCount(l.leaving), "pod")+" still leaving")
	}
	if n := len(l.hanging); n > 0 {
		parts = append(parts, fmt.Sprintf("%s not whole: %s", plural(n, "workload"), names(l.hanging, 3)))
	}
	return strings.Join(parts, ", ")
}

// done says how the cluster stands when nothing is left.
func (l *look) done() string {
	_, unfinished := l.inv.PodCount()
	s := fmt.Sprintf("%s, none below %s", plural(unfinished, "pod"), l.minor)
	if n := len(l.skipped); n > 0 {
		s = fmt.Sprintf("%s, %d below %s that the plan file skips: %s", plural(unfinished, "pod"), podCount(l.skipped), l.minor, names(l.skipped, n))
	}
	return s
}

// blocked lists every owner that nothing restarts (issue 2, item 7: the list is complete).
func (l *look) blocked() *state.Stop {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s below %s that no rollout restart moves:", plural(podCount(l.stuck), "pod"), plural(len(l.stuck), "owner"), l.minor)
	for _, it := range l.stuck {
		b.WriteString("\n  " + state.Clean(it.String()))
	}
	return &state.Stop{Code: state.ExitBlocked, Why: b.String(),
		Cure: "delete or restart these by hand, or name them under restart.skip in the plan file with a reason and an end;\nthen run the same command again"}
}

// view is the cluster as the journal records it.
func (l *look) view() state.ClusterView {
	v := state.ClusterView{Name: l.inv.Name, ARN: l.inv.ARN, CreatedAt: l.inv.CreatedAt, Version: l.inv.Version,
		Status: l.inv.Status, Lagging: podCount(l.items), Owners: len(l.items)}
	v.PodsReady, v.Pods = l.inv.PodCount()
	return v
}

func podCount(items []Item) (n int) {
	for _, it := range items {
		n += len(it.Pods)
	}
	return n
}

// names lists the owners, the first few of them.
func names(items []Item, most int) string {
	var out []string
	for _, it := range items {
		out = append(out, it.Owner.String())
	}
	return state.Clean(first(out, most))
}

// first joins the first few of a list and says how many more there are.
func first(all []string, most int) string {
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s, +%d", strings.Join(all[:most], ", "), len(all)-most)
}
