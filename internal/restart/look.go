package restart

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/restart/survey"
	"github.com/eksbg/eksbg/internal/state"
)

// look is a fresh inventory, sorted by what is to be done.
type look struct {
	inv   *cluster.Inventory
	minor string
	// items are all owners of lagging pods.
	items []survey.Item
	// work are to be restarted, leaving are waited for, stuck block, skipped do not.
	work, leaving, stuck, skipped []survey.Item
	// hanging are owners of which nothing is to be restarted that are not done all the same:
	// restarted, by this step or since by somebody else, and not whole again yet, a pod
	// that was taken is not back, or pods are on no kubelet at all; Pods are those.
	hanging []survey.Item
	// owed is how many changes for the time of the restart have to be put back.
	owed int
	// orphans are marks in the cluster that no journal tells of; they count as owed.
	orphans []orphan
}

// looking is what a look is made with.
type looking struct {
	*look
	ledger     *ledger
	workloads  map[string]*cluster.Workload
	unfinished map[string]*entry
	busy       map[string]bool
	// nowhere are the unfinished pods on no kubelet, by owner.
	nowhere map[string][]cluster.Pod
}

// look sorts an inventory by what the journal holds; reverted are the owners whose
// restart somebody has taken back while this process looked on.
func (r *Restart) look(inv *cluster.Inventory, led *ledger, reverted map[string]string) *look {
	l := &looking{look: &look{inv: inv, minor: cmp.Or(r.spec.To, inv.Version), owed: len(led.owed())}, ledger: led,
		workloads: byOwner(inv), unfinished: led.unfinished(), busy: map[string]bool{}, nowhere: map[string][]cluster.Pod{}}
	options := r.options(l.minor)
	l.items = survey.Survey(inv, options)
	for _, it := range l.items {
		r.sort(l, it, reverted)
	}
	done := state.StepDone(r.History.Records(r.spec.ID), r.spec.ID)
	if !done {
		r.hang(l)
	}
	l.orphans = orphans(inv, led)
	l.owed += len(l.orphans)
	r.lost(l)
	if !done {
		r.unplaced(l)
	}
	l.hanging = survey.UnderWay(inv, options, l.hanging)
	return l.look
}

// options are what a survey of the cluster goes by.
func (r *Restart) options(minor string) survey.Options {
	return survey.Options{Minor: minor, Now: r.Clock.Now(), Order: r.Order, Skips: r.Skips, Allow: r.Allow, Live: r.Live}
}

// sort puts one item where it belongs. A surge or a recreation that has begun goes on,
// whatever the survey would do about the owner as it stands now, except that a bare pod is
// not evicted any more once the plan file has taken its consent back; of what goes one by
// one only the pod that was taken is waited for, where the survey would take no other.
func (r *Restart) sort(l *looking, it survey.Item, reverted map[string]string) {
	name := it.Owner.String()
	l.busy[name] = true
	e, a := l.unfinished[name], l.ledger.last[name]
	if it.Method == survey.Rollout && r.allows(name, planfile.ActionEvict) && a.Reverted != "" {
		it = r.options(l.minor).Evicting(it, revertedText(a.Reverted))
	}
	switch {
	case e != nil && it.Owner.Kind == "Pod" && (l.ledger.between(name) || r.consents(name)):
		it.Method, it.Skipped = survey.Recreate, false // it is made again whatever the plan file says by now
	case e != nil && it.Owner.Kind == "Pod":
		l.hanging = append(l.hanging, survey.Item{Owner: it.Owner, Method: survey.Recreate, Reason: it.Reason})
		if it.Waits() {
			return
		}
	case e == nil || it.Skipped:
	case e.Do == doSurge:
		it.Method = survey.Surge
	case e.Do == doEvict && it.Method != survey.Evict && it.Method != survey.InOrder:
		l.hanging = append(l.hanging, survey.Item{Owner: it.Owner, Method: survey.None, Reason: it.Reason})
		if !it.Stuck() {
			return // judged anew once the pod that was taken is back
		}
	}
	if it.Method == survey.Rollout {
		who := reverted[name]
		w := l.workloads[name]
		switch {
		case who != "":
			it.Method, it.Reason = survey.None, revertedText(who)
			again := ""
			if a.Number < maxAttempts {
				again = ", and the same command restarts it anew"
			}
			it.Cure = "keep the annotation out of what is applied" + again + "; or have its pods evicted one by one: restart.allow {owner: " + name + ", action: evict, reason: …}"
		case !a.Open && a.Number >= maxAttempts && whole(w):
			it.Method, it.Reason = survey.None, exhausted(a, w.RestartedAt)
		}
	}
	switch {
	case it.Skipped:
		l.skipped = append(l.skipped, it)
	case it.Works():
		l.work = append(l.work, it)
	case it.Waits():
		l.leaving = append(l.leaving, it)
	default:
		l.stuck = append(l.stuck, it)
	}
}

// lost adds what the journal knows to be under way and the inventory does not show: a
// restart that nobody has seen the end of, a pod taken away that is not back yet. Of a
// Deployment or StatefulSet whose restart has landed the object itself tells (see hang).
func (r *Restart) lost(l *looking) {
	for _, name := range slices.Sorted(maps.Keys(l.ledger.last)) {
		a := l.ledger.last[name]
		it := itemNamed(name, a.UID)
		if l.busy[name] || r.skipped(name) || !a.Open && (a.Settled || rollable(it.Owner)) {
			continue
		}
		l.busy[name] = true
		if it.Owner.Kind == "Rollout" {
			it.Method = survey.RestartAt
		}
		l.hanging = append(l.hanging, it)
	}
	for _, name := range slices.Sorted(maps.Keys(l.unfinished)) {
		e := l.unfinished[name]
		it := idle(e.owner())
		if l.busy[name] || r.skipped(name) && it.Owner.Kind != "Pod" {
			continue
		}
		l.busy[name] = true
		if w := l.workloads[name]; w != nil {
			it.Owner = w.Owner
		} else if i := slices.IndexFunc(l.inv.Pods, func(p cluster.Pod) bool { return p.Owner.String() == name }); i >= 0 {
			it.Owner = l.inv.Pods[i].Owner
		}
		switch {
		case e.Do == doSurge:
			it.Method = survey.Surge
		case it.Owner.Kind == "Pod":
			it.Method = survey.Recreate
		}
		l.hanging = append(l.hanging, it)
	}
}

// unplaced adds the owners with pods that are neither lagging nor current because they are
// on no kubelet: the end condition is about all pods (semantics 11).
func (r *Restart) unplaced(l *looking) {
	at := map[string]int{}
	for i, it := range l.hanging {
		at[it.Owner.String()] = i
	}
	for _, name := range slices.Sorted(maps.Keys(l.nowhere)) {
		pods := l.nowhere[name]
		if i, ok := at[name]; ok {
			l.hanging[i].Pods = pods
			continue
		}
		if l.busy[name] || r.skipped(name) {
			continue
		}
		l.busy[name] = true
		it := idle(pods[0].Owner)
		it.Pods, it.Reason = pods, plural(len(pods), "pod")+" on no kubelet"
		if it.Owner.Kind == "Pod" || runsOnce(it.Owner) {
			it.Method = survey.Wait // nobody makes another one of these
		}
		l.hanging = append(l.hanging, it)
	}
}

func (r *Restart) skipped(owner string) bool {
	_, ok := planfile.Restart{Skip: r.Skips}.Skipped(owner, r.Clock.Now())
	return ok
}

// hang finds the workloads without a lagging pod that are not done. Once the step
// was done a pod that starts, because an autoscaler asks for it, is not its business.
func (r *Restart) hang(l *looking) {
	place := places(l.inv, l.minor)
	for _, p := range l.inv.Pods {
		if !p.Finished && place(p.Node) == nowhere {
			l.nowhere[p.Owner.String()] = append(l.nowhere[p.Owner.String()], p)
		}
	}
	var out []survey.Item
	for name, w := range l.workloads {
		if !rollable(w.Owner) || l.busy[name] || w.Replicas == 0 || l.unfinished[name] != nil || r.skipped(name) || whole(w) {
			continue
		}
		ours := l.ledger.last[name].Number > 0
		if ours || touched(l.ledger.stamps[1], w.RestartedAt) && pinned(w.Kind, w.Paused, w.Strategy, 0, nil) == "" {
			l.busy[name] = true
			out = append(out, idle(w.Owner))
		}
	}
	slices.SortFunc(out, func(a, b survey.Item) int { return cmp.Compare(a.Owner.String(), b.Owner.String()) })
	l.hanging = append(l.hanging, out...)
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
func (l *look) busy() bool { return len(l.work)+len(l.leaving)+len(l.hanging) > 0 }

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
	if n := len(l.work); n > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s below %s", plural(podCount(l.work), "pod"), plural(n, "owner"), l.minor))
	}
	if n := len(l.leaving); n > 0 {
		parts = append(parts, plural(podCount(l.leaving), "pod")+" still leaving")
	}
	var broken, floating []survey.Item
	for _, it := range l.hanging {
		if len(it.Pods) > 0 {
			floating = append(floating, it)
		} else {
			broken = append(broken, it)
		}
	}
	if n := len(broken); n > 0 {
		parts = append(parts, fmt.Sprintf("%s not whole: %s", plural(n, "workload"), names(broken, 3)))
	}
	if len(floating) > 0 {
		parts = append(parts, fmt.Sprintf("%s on no kubelet: %s", plural(podCount(floating), "pod"), names(floating, 3)))
	}
	if l.owed > 0 {
		parts = append(parts, plural(l.owed, "change")+" to be put back")
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

// blocked lists every owner that nothing restarts; the list is complete.
func (l *look) blocked() *state.Stop {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s below %s that no restart moves:", plural(podCount(l.stuck), "pod"), plural(len(l.stuck), "owner"), l.minor)
	for _, it := range l.stuck {
		b.WriteString("\n  " + state.Clean(it.String()))
		if it.Cure != "" {
			b.WriteString("; " + state.Clean(it.Cure))
		}
	}
	return &state.Stop{Code: state.ExitBlocked, Why: b.String(),
		Cure: "do for each what its line says, or name it under restart.skip in the plan file with a reason and an end;\nthen run the same command again"}
}

// view is the cluster as the journal records it.
func (l *look) view() state.ClusterView {
	v := state.ClusterView{Name: l.inv.Name, ARN: l.inv.ARN, CreatedAt: l.inv.CreatedAt, Version: l.inv.Version,
		Status: l.inv.Status, Lagging: podCount(l.items), Owners: len(l.items)}
	v.PodsReady, v.Pods = l.inv.PodCount()
	return v
}

func podCount(items []survey.Item) (n int) {
	for _, it := range items {
		n += len(it.Pods)
	}
	return n
}

// names lists the owners, the first few of them.
func names(items []survey.Item, most int) string {
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

// has tells whether the owner is on any list of what is not done.
func (l *look) has(owner string) bool {
	for _, items := range [][]survey.Item{l.work, l.hanging, l.leaving, l.stuck} {
		if slices.ContainsFunc(items, func(it survey.Item) bool { return it.Owner.String() == owner }) {
			return true
		}
	}
	return false
}

// shows tells whether the owner's unfinished pods are these, as far as one tells them apart
// who waits for them.
func (l *look) shows(owner string, pods []podView) bool {
	type seen struct {
		uid                string
		terminating, ready bool
	}
	left := map[seen]bool{}
	for _, p := range pods {
		left[seen{p.UID, p.Terminating, p.Ready}] = true
	}
	for _, p := range l.inv.Pods {
		if p.Finished || p.Owner.String() != owner {
			continue
		}
		s := seen{p.UID, p.Terminating, p.Ready}
		if !left[s] {
			return false
		}
		delete(left, s)
	}
	return len(left) == 0
}
