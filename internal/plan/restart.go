package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/fargate"
	"github.com/eksbg/eksbg/internal/restart"
	"github.com/eksbg/eksbg/internal/restart/survey"
	"github.com/eksbg/eksbg/internal/state"
)

// RoomCheck is the name of the finding that Fargate's room could not be read.
const RoomCheck = "capacity/fargate"

// options are what a survey of a side goes by.
func (b *builder) options(side state.Side, minor string) survey.Options {
	r := b.file.Restart
	return survey.Options{Minor: minor, Now: b.world.At, Order: r.Order, Skips: r.Skip, Allow: r.Allow, Live: b.serves(side)}
}

// survey lists what a restart of a side would have to deal with once its control
// plane is at minor.
func (b *builder) survey(side state.Side, minor string) []survey.Item {
	inv := *b.world.Inventories[side]
	inv.Version = minor
	return survey.Survey(&inv, b.options(side, minor))
}

// restart adds the restart of every pod below minor to. What lags only after a hop
// is not lagging yet, so the numbers are those of all unfinished pods then.
func (b *builder) restart(side state.Side, to, id, cause string) {
	items := b.survey(side, to)
	pods := 0
	for _, it := range items {
		pods += len(it.Pods)
	}
	phase := state.PhaseRestart
	if b.serves(side) {
		phase = state.PhaseRestartLive
	}
	b.jobs(side, phase)
	lo, hi := restartTime(items, b.file.Restart.MaxParallel)
	b.add(state.StepSpec{
		ID: id, Phase: phase, Kind: state.KindRestart, Side: side, Approval: phase == state.PhaseRestartLive,
		Title: fmt.Sprintf("restart %s of %s", count(pods, "pod"), count(len(items), "owner")), Changes: restartChanges(items, b.file.Restart.MaxParallel),
		Expect: expect(lo, hi), To: to, Cause: cause,
	})
}

// restartChanges names what a restart does in a few words.
func restartChanges(items []survey.Item, parallel int) string {
	rollouts, others := 0, 0
	for _, it := range items {
		switch {
		case !it.Works():
		case it.Method == survey.Rollout:
			rollouts++
		default:
			others++
		}
	}
	if others == 0 {
		return fmt.Sprintf("%s, %d at once", count(rollouts, "rollout"), parallel)
	}
	return fmt.Sprintf("%d rolled, %d otherwise", rollouts, others)
}

// count says how many there are of something.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// restartTime is the critical path that the parallelism allows: CoreDNS first, then
// the rest side by side. What goes one pod after the other takes a pod's time for each.
func restartTime(items []survey.Item, parallel int) (lo, hi time.Duration) {
	first, rest, longest := 0, 0, 0
	for _, it := range items {
		n := rounds(it)
		if it.Group == survey.CoreDNS {
			first += n
			continue
		}
		rest += n
		longest = max(longest, n)
	}
	parallel = max(1, parallel)
	n := time.Duration(first + max(longest, (rest+parallel-1)/parallel))
	return n * rolloutMin, n * rolloutMax
}

// rounds is how many pods of an item start one after the other.
func rounds(it survey.Item) int {
	switch {
	case !it.Works():
		return 0
	case it.Method == survey.Evict, it.Method == survey.InOrder, it.Owner.Kind == "StatefulSet":
		return len(it.Pods)
	}
	return 1
}

// jobs adds the step that deletes finished Jobs, where the plan file asks for that.
func (b *builder) jobs(side state.Side, phase state.Phase) {
	if b.file.Restart.FinishedJobs != "delete" {
		return
	}
	n := 1
	for _, s := range b.plan.Steps {
		if s.Kind == state.KindJobs && s.Side == side {
			n++
		}
	}
	title := "delete finished Jobs and pods"
	if ls := b.finished(side).Deletable(); len(ls) > 0 {
		title = "delete " + ls.Count()
	}
	b.add(state.StepSpec{
		ID: fmt.Sprintf("%s/jobs/%d", side, n), Phase: phase, Kind: state.KindJobs, Side: side, Approval: phase == state.PhaseRestartLive,
		Title: title, Changes: "k8s:delete jobs, pods", Expect: expect(jobsMin, jobsMax),
	})
}

func (b *builder) finished(side state.Side) restart.Leftovers {
	return restart.Finished(b.world.Inventories[side], b.file.Restart.FinishedAge.D(), b.world.At)
}

func (b *builder) find(f state.Finding) { b.plan.Findings = append(b.plan.Findings, f) }

// restartFindings say what of a restart is stuck, is an outage, is waited for, or has no
// room.
func (b *builder) restartFindings(s state.StepSpec) {
	items := b.survey(s.Side, s.To)
	var running []string
	for _, it := range items {
		about := state.Finding{Check: "restart/" + it.Owner.String(), Severity: state.SeverityWarn, Side: s.Side, Step: s.ID}
		switch {
		case it.Skipped:
			about.Text, about.Waived = fmt.Sprintf("%s stays on its kubelet: %s", it.Owner, it.Reason), it.Reason
			b.find(about)
		case it.Stuck():
			about.Text = fmt.Sprintf("%s cannot be restarted: %s. The run will stop %s", it.Owner, it.Reason, b.stops())
			about.Cure = stuckCure(it)
			b.find(about)
		case it.Waits() && (it.Owner.Kind == "Job" || it.Owner.Kind == "CronJob"):
			running = append(running, it.Owner.String())
		case it.Works():
			b.costs(about, it)
		}
	}
	if len(running) > 0 {
		b.find(state.Finding{Check: "restart/jobs", Severity: state.SeverityInfo, Side: s.Side, Step: s.ID,
			Text: fmt.Sprintf("waited for, at most %s, since they still run: %s", short(b.file.Restart.JobTimeout.D()), few(running, 5))})
	}
	b.room(s, items)
}

// stops says where a run stops that cannot restart everything.
func (b *builder) stops() string {
	if b.plan.Operation != "" {
		return "when the rest is restarted"
	}
	return "before the cutover"
}

func stuckCure(it survey.Item) string {
	skip := fmt.Sprintf("list owner %s under restart.skip with a reason and an end", it.Owner)
	switch {
	case it.Cure == "":
		return "restart it by hand, or " + skip
	case strings.Contains(it.Cure, "restart.skip"):
		return it.Cure
	}
	return it.Cure + "; or " + skip
}

// costs are the findings about a restart that goes, but at a price.
func (b *builder) costs(about state.Finding, it survey.Item) {
	if it.Outage != "" {
		about.Text = fmt.Sprintf("%s is away for a moment: %s", it.Owner, it.Outage)
		b.find(about)
	}
	if len(it.Breaks) > 0 {
		about.Text = fmt.Sprintf("the restart of %s breaks PodDisruptionBudget %s, as restart.allow consents", it.Owner, strings.Join(it.Breaks, ", "))
		b.find(about)
	}
}

// room says what of Fargate's room could not be read, which blocks unless it is waived
// by name, and what has too little of it even alone.
func (b *builder) room(s state.StepSpec, items []survey.Item) {
	room, ok := b.world.Rooms[s.Side]
	if !ok {
		return
	}
	if f, ok := RoomFinding(room, s.Side); ok {
		f.Step = s.ID
		b.plan.Findings = append(b.plan.Findings, Waive(b.file, []state.Finding{f}, b.world.At)...)
	}
	l := survey.Unbounded(b.file.Restart.MaxParallel)
	l.Room = room
	blocked := survey.Blocked(items, l)
	for _, i := range slices.Sorted(maps.Keys(blocked)) {
		why := blocked[i]
		b.find(state.Finding{Check: "restart/" + items[i].Owner.String(), Severity: state.SeverityWarn, Side: s.Side, Step: s.ID,
			Text: fmt.Sprintf("%s has no room to restart now: %s", items[i].Owner, why),
			Cure: "free addresses (finished Jobs hold some) or raise the quota before the run comes to it"})
	}
}

// RoomFinding is the finding for what of Fargate's room could not be read; false where
// all of it was.
func RoomFinding(room fargate.Room, side state.Side) (state.Finding, bool) {
	if len(room.Missing) == 0 {
		return state.Finding{}, false
	}
	return state.Finding{Check: RoomCheck, Severity: state.SeverityUnknown, Side: side,
		Text: "what Fargate has room for is not known, and does not bound the restart: " + strings.Join(room.Missing, "; "),
		Cure: "let eksbg read it (docs/permissions.md), or accept it by name: waive {check: " + RoomCheck + ", reason: ..., until: ...}"}, true
}

// UsesFargate tells whether a cluster has pods whose restart needs room on Fargate.
func UsesFargate(inv *cluster.Inventory) bool {
	for _, n := range inv.Nodes {
		if n.Compute == cluster.ComputeFargate {
			return true
		}
	}
	return false
}

// finishedFindings report finished Jobs and pods on both sides, always: those that hold
// addresses where the plan restarts something are a warning unless the plan deletes them.
func (b *builder) finishedFindings() {
	for _, side := range state.Sides {
		inv := b.world.Inventories[side]
		if inv == nil {
			continue
		}
		ls := b.finished(side)
		if len(ls) == 0 {
			continue
		}
		f := state.Finding{Check: "jobs/finished", Severity: state.SeverityInfo, Side: side, Text: ls.String()}
		deletes := b.has(state.KindJobs, side)
		del := ls.Deletable()
		if kept := ls.Kept(); len(kept) > 0 && len(del) > 0 {
			f.Text += fmt.Sprintf("; %d of them may be deleted, with %d of the addresses", len(del), del.Addresses())
		} else if len(kept) > 0 {
			f.Text += "; none may be deleted: " + kept[0].Keep
		}
		if del.Addresses() > 0 && !deletes && b.has(state.KindRestart, side) {
			f.Severity = state.SeverityWarn
		}
		f.Cure = b.finishedCure(side, ls, deletes)
		b.find(f)
	}
}

func (b *builder) has(kind state.Kind, side state.Side) bool {
	for _, s := range b.plan.Steps {
		if s.Kind == kind && s.Side == side {
			return true
		}
	}
	return false
}

// finishedCure is how finished Jobs are got rid of, and kept from coming again.
func (b *builder) finishedCure(side state.Side, ls restart.Leftovers, deletes bool) string {
	var lines []string
	if len(ls.Deletable()) > 0 && !deletes {
		if b.file.Restart.FinishedJobs != "delete" {
			lines = append(lines, "set restart.finishedJobs: delete, or")
		}
		lines = append(lines, fmt.Sprintf("eksbg jobs clean %s --cluster %s", b.plan.File, side))
	}
	remedies := ls.Remedies(b.world.Inventories[side], b.file.Restart.FinishedAge.D())
	for i, r := range remedies {
		if i == 0 {
			lines = append(lines, fmt.Sprintf("so that no more stay, on cluster %s:", b.world.Inventories[side].Name))
		}
		if i == maxRemedies {
			lines = append(lines, fmt.Sprintf("and %d more; eksbg jobs clean prints all", len(remedies)-i))
			break
		}
		lines = append(lines, r.String())
	}
	return strings.Join(lines, "\n")
}

const maxRemedies = 3

// few joins the first few of a list and says how many more there are.
func few(all []string, most int) string {
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}
