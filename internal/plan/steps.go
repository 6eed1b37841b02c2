package plan

import (
	"fmt"
	"time"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/upgrade"
)

// Expectations. A control plane took about ten minutes in a public log of
// 1.30 to 1.31 (eksctl#7976); a Fargate pod takes one to two minutes to start.
const (
	hopMin, hopMax     = 8 * time.Minute, 12 * time.Minute
	addonTime          = 2 * time.Minute
	rolloutMin         = 90 * time.Second
	rolloutMax         = 4 * time.Minute
	preflightTime      = 20 * time.Second
	shiftTime          = time.Minute
	capacityMin, capMx = 5 * time.Second, 3 * time.Minute
	jobsMin, jobsMax   = 5 * time.Second, time.Minute
)

type builder struct {
	file  *planfile.File
	world *World
	roles Roles
	plan  *state.Plan
}

func (b *builder) add(s state.StepSpec) { b.plan.Steps = append(b.plan.Steps, s) }

func expect(lo, hi time.Duration) state.Expect {
	return state.Expect{Min: state.Duration(lo), Max: state.Duration(hi)}
}

// hot is the plan of a pair of which both clusters run: the standby goes up hop by
// hop, its lagging pods are restarted, and the traffic moves over in stages.
func (b *builder) hot() {
	b.preflight()
	d := b.roles.Destination
	inv := b.world.Inventories[d]
	version, kubelet := inv.Version, inv.OldestKubelet()
	for _, next := range b.roles.Hops {
		if kubelet != "" && upgrade.RestartBefore(next, kubelet) {
			b.restart(d, version, fmt.Sprintf("%s/restart/before-%s", d, next),
				fmt.Sprintf("kubelets at %s may not serve under %s", kubelet, next))
			kubelet = version
		}
		b.hop(d, version, next)
		version = next
	}
	if kubelet != "" && cluster.CompareMinor(kubelet, version) < 0 {
		b.restart(d, version, fmt.Sprintf("%s/restart/1", d), "")
	}
	b.capacity()
	b.traffic()
}

// live is what is left where the active cluster is at the target already: its own
// lag, as a step of its own that is always approved by name (semantics 22).
func (b *builder) live() {
	o := b.roles.Origin
	inv := b.world.Inventories[o]
	if b.left(o, inv.Version) == 0 {
		return
	}
	b.preflight()
	b.restart(o, inv.Version, fmt.Sprintf("%s/restart-live/1", o), "")
}

// left counts the owners on a side that lag behind minor and are not skipped.
func (b *builder) left(side state.Side, minor string) int {
	n := 0
	for _, it := range b.survey(side, minor) {
		if !it.Skipped {
			n++
		}
	}
	return n
}

// restartName is the middle of the id of a side's restart.
func (b *builder) restartName(side state.Side) string {
	if b.serves(side) {
		return "restart-live"
	}
	return "restart"
}

func (b *builder) preflight() {
	b.add(state.StepSpec{ID: "preflight", Phase: state.PhasePreflight, Kind: state.KindPreflight, Side: state.Both,
		Title: "preflight", Changes: "nothing", Expect: expect(preflightTime, preflightTime)})
}

func (b *builder) hop(side state.Side, from, to string) {
	raises := b.world.Raises[to]
	for _, a := range raises {
		if a.Before {
			b.addon(side, a, to)
		}
	}
	b.add(state.StepSpec{
		ID: fmt.Sprintf("%s/control-plane/%s", side, to), Phase: state.PhaseUpgrade, Kind: state.KindControlPlane, Side: side,
		Title: fmt.Sprintf("control plane %s -> %s", from, to), Changes: "eks:UpdateClusterVersion",
		Expect: expect(hopMin, hopMax), From: from, To: to,
	})
	for _, a := range raises {
		if !a.Before {
			b.addon(side, a, to)
		}
	}
}

func (b *builder) addon(side state.Side, a upgrade.AddonRaise, minor string) {
	b.add(state.StepSpec{
		ID: fmt.Sprintf("%s/addon/%s/%s", side, a.Name, minor), Phase: state.PhaseUpgrade, Kind: state.KindAddon, Side: side,
		Title: fmt.Sprintf("add-on %s to %s", a.Name, shortAddon(a.To)), Changes: "eks:UpdateAddon",
		Expect: expect(addonTime, addonTime), Addon: a.Name, From: a.From, To: a.To,
	})
}

// serves tells whether a side gets any traffic now: restarting its pods is always
// approved by name then, whatever part it has in the run (semantics 22).
func (b *builder) serves(side state.Side) bool { return gets(b.world.Traffic, side) }

func (b *builder) capacity() {
	d := b.roles.Destination
	b.add(state.StepSpec{
		ID: fmt.Sprintf("%s/capacity", d), Phase: state.PhaseCapacity, Kind: state.KindCapacity, Side: d,
		Title: fmt.Sprintf("capacity at least as %s's", b.roles.Origin), Changes: "nothing, blocks if short",
		Expect: expect(capacityMin, capMx),
	})
}

// traffic adds the stages. Where the traffic is split already, since the journal of
// an earlier run is lost, the present share is held and gated first (semantics 12), and
// only the stages above it follow.
func (b *builder) traffic() {
	from := b.present()
	if from > 0 {
		b.stage(from, from, fmt.Sprintf("traffic stays at %d %%, hold %s", from, short(b.file.Cutover.Hold.D())))
		b.plan.Findings = append(b.plan.Findings, state.Finding{Check: "traffic/way-back", Severity: state.SeverityWarn,
			Text: fmt.Sprintf("the traffic is split and the weights from before are not recorded: a gate that fails puts back to the weights of now, %d %% on %s", from, b.roles.Destination),
			Cure: "to have the whole way back, give " + string(b.roles.Origin) + " all the weight by hand first, or name the journal with --state"})
	}
	for _, to := range b.file.Cutover.Stages {
		if to > from {
			b.stage(from, to, fmt.Sprintf("traffic %d -> %d %%, hold %s", from, to, short(b.file.Cutover.Hold.D())))
			from = to
		}
	}
}

func (b *builder) stage(from, to int, title string) {
	t := b.file.Cutover.Hold.D() + shiftTime + probeTime(b.file.Cutover.Gates)
	b.add(state.StepSpec{
		ID: fmt.Sprintf("traffic/%d", to), Phase: state.PhaseCutover, Kind: state.KindTraffic, Side: state.Both,
		Title: title, Changes: services(b.file.Traffic), Expect: expect(t, t),
		FromPercent: from, Percent: to, Hold: state.Duration(b.file.Cutover.Hold),
	})
}

// present is the destination's smallest share over the traffic targets, below 100: a
// destination that has everything on every target is no destination.
func (b *builder) present() int {
	low := share(b.world.Traffic, b.roles.Destination)
	if low == 100 {
		return 0
	}
	return low
}

func probeTime(gates []planfile.Gate) time.Duration {
	var t time.Duration
	for _, g := range gates {
		if g.HTTP != nil {
			t += g.HTTP.Over.D()
		}
	}
	return t
}

func services(targets []planfile.Target) string {
	r53, elb := false, false
	for _, t := range targets {
		r53 = r53 || t.Route53 != nil
		elb = elb || t.ALB != nil
	}
	switch {
	case r53 && elb:
		return "route53, elbv2"
	case r53:
		return "route53"
	}
	return "elbv2"
}

// approvals marks the first step of each phase that the plan file wants approved.
func (b *builder) approvals() {
	for _, phase := range b.file.Approvals {
		for i := range b.plan.Steps {
			if string(b.plan.Steps[i].Phase) == phase {
				b.plan.Steps[i].Approval = true
				break
			}
		}
	}
}

// findings takes over what the checks saw, says which steps cure what (semantics
// 26), and adds what the plan itself has to say.
func (b *builder) findings() {
	for _, f := range b.world.Findings {
		if f.Waived == "" {
			f.CuredBy = curedBy(b.plan.Steps, f)
		}
		b.plan.Findings = append(b.plan.Findings, f)
	}
	for _, s := range b.plan.Steps {
		if s.Kind == state.KindRestart {
			b.restartFindings(s)
		}
		if s.Kind == state.KindControlPlane && b.serves(s.Side) {
			b.plan.Findings = append(b.plan.Findings, state.Finding{Check: "upgrade/live", Severity: state.SeverityWarn, Side: s.Side, Step: s.ID,
				Text: fmt.Sprintf("%s gets traffic while its control plane goes to %s", s.Side, s.To)})
		}
	}
	b.finishedFindings()
	b.expired()
}

// expired says which acceptances of the plan file are over, and which entries of its
// restart name nothing that is there, since they do nothing.
func (b *builder) expired() {
	for _, w := range b.file.ExpiredWaivers(b.world.At) {
		b.plan.Findings = append(b.plan.Findings, state.Finding{Check: "waive/" + w.Check, Severity: state.SeverityWarn,
			Text: fmt.Sprintf("the waiver of %s ended on %s", w.Check, w.Until.Format(time.DateOnly)), Cure: "take it out, or give it a new end and reason"})
	}
	b.plan.Findings = append(b.plan.Findings, ExpiredSkips(b.file.Restart, b.world.At)...)
	if b.plan.Operation != state.OperationJobs {
		b.plan.Findings = append(b.plan.Findings, Unmatched(b.file.Restart, b.world.At, b.world.Inventories[state.Blue], b.world.Inventories[state.Green])...)
	}
}

// shortAddon drops the build suffix that only EKS needs: v1.32.6-eksbuild.2.
func shortAddon(v string) string {
	for i := range v {
		if v[i] == '-' {
			return v[:i]
		}
	}
	return v
}

// short prints whole minutes and hours without their zero parts: 5m, not 5m0s.
func short(d time.Duration) string {
	s := d.String()
	if len(s) > 2 && s[len(s)-2:] == "0s" && s[len(s)-3] == 'm' {
		s = s[:len(s)-2]
	}
	if len(s) > 2 && s[len(s)-2:] == "0m" && s[len(s)-3] == 'h' {
		s = s[:len(s)-2]
	}
	return s
}
