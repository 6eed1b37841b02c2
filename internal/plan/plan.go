// Package plan turns a plan file and what was observed of the pair into the ordered
// list of steps, and builds each step from its spec. The variants live here.
package plan

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/fargate"
	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/upgrade"
)

// World is the pair as observed at one moment.
type World struct {
	At          time.Time
	Inventories map[state.Side]*cluster.Inventory
	Traffic     []state.Share
	Offered     []upgrade.Offer
	// Raises holds, for each minor that the destination goes through, the add-ons
	// that have to be raised around that hop.
	Raises map[string][]upgrade.AddonRaise
	// Findings are what the checks saw, waivers applied.
	Findings []state.Finding
	// CredentialsExpire is when the first of the credentials in use ends.
	CredentialsExpire time.Time
	// Rooms are what Fargate has left on the sides that a restart is planned on.
	Rooms map[state.Side]fargate.Room
}

// Roles are the sides' parts in a run.
type Roles struct {
	Origin, Destination state.Side
	// Hops are the minors that the destination goes through; empty when it is there.
	Hops []string
	// Served is true when the active cluster is at the target version already, so
	// that there is nothing to cut over.
	Served bool
}

// Decide works out who is active and what has to happen to whom. Targets below a
// present version, or not offered by EKS, are errors that name the cure.
func Decide(f *planfile.File, w *World, active state.Side) (Roles, error) {
	origin, err := Active(w.Traffic, active)
	if err != nil {
		return Roles{}, err
	}
	r := Roles{Origin: origin, Destination: origin.Other()}
	now := w.Inventories[origin]
	if cluster.CompareMinor(now.Version, f.Version) > 0 {
		return r, fmt.Errorf("version %q in the plan file is below what %s (%s), the active cluster, runs already: %s; "+
			"set version to %q or higher", f.Version, origin, now.Name, now.Version, now.Version)
	}
	if now.Version == f.Version {
		if low := share(w.Traffic, origin); low < 100 {
			return r, &state.Stop{Code: state.ExitBlocked,
				Why: fmt.Sprintf("%s is at %s already and gets %d %% of the traffic on a target; named active, there would be nothing to move it with\n%s\nnothing has been changed",
					origin, f.Version, low, weights(w.Traffic)),
				Cure: fmt.Sprintf("to bring all of it to %s, name the side that it comes from: --active %s", origin, origin.Other())}
		}
		r.Served = true
		return r, nil
	}
	standby := w.Inventories[r.Destination]
	if cluster.CompareMinor(standby.Version, f.Version) > 0 {
		return r, fmt.Errorf("version %q in the plan file is below what %s (%s), the standby, runs already: %s; "+
			"set version to %q to move the traffic there", f.Version, r.Destination, standby.Name, standby.Version, standby.Version)
	}
	if standby.Version != f.Version {
		r.Hops, err = upgrade.Hops(standby.Version, f.Version, w.Offered)
		if err != nil {
			return r, fmt.Errorf("plan the way of %s (%s): %w", r.Destination, standby.Name, err)
		}
	}
	return r, nil
}

// share is a side's smallest share over the traffic targets.
func share(traffic []state.Share, side state.Side) int {
	low := 100
	for _, s := range traffic {
		low = min(low, max(0, s.Percent(side)))
	}
	return low
}

// Identity is what a plan carries beside what it saw.
type Identity struct {
	Run, Lineage, Tool string
	File, FileSum      string
	// Active is the side named with --active, if one was.
	Active state.Side
}

// Make orders the steps. It is pure: the same file, world and roles give the same
// plan.
func Make(f *planfile.File, w *World, r Roles, id Identity) *state.Plan {
	b := newBuilder(f, w, r, id)
	if r.Served {
		b.live()
	} else {
		b.hot()
	}
	return b.end()
}

func newBuilder(f *planfile.File, w *World, r Roles, id Identity) *builder {
	p := &state.Plan{
		Format: state.FormatVersion, Tool: id.Tool, Run: id.Run, Lineage: id.Lineage, CreatedAt: w.At,
		Name: f.Name, Region: f.Region, Variant: state.Variant(f.Variant), Target: f.Version,
		File: id.File, FileSum: id.FileSum,
		Origin: r.Origin, Destination: r.Destination, Active: id.Active, Entrances: Entrances(f),
		Traffic: w.Traffic, Clusters: map[state.Side]state.ClusterView{},
		CredentialsExpire: w.CredentialsExpire,
	}
	for side, inv := range w.Inventories {
		p.Clusters[side] = View(inv)
	}
	return &builder{file: f, world: w, roles: r, plan: p}
}

func (b *builder) end() *state.Plan {
	b.findings()
	b.approvals()
	b.access()
	b.plan.Fingerprint = b.plan.Sum()
	return b.plan
}

// Entrances are the traffic targets of a plan file as a run keeps them.
func Entrances(f *planfile.File) json.RawMessage {
	b, err := json.Marshal(f.Traffic)
	if err != nil {
		panic(fmt.Sprintf("marshal traffic targets: %v", err)) // structs of strings
	}
	return b
}

// View condenses an inventory to what plans and records hold of a cluster.
func View(inv *cluster.Inventory) state.ClusterView {
	v := state.ClusterView{Name: inv.Name, ARN: inv.ARN, CreatedAt: inv.CreatedAt, Version: inv.Version, Status: inv.Status}
	v.PodsReady, v.Pods = inv.PodCount()
	owners := map[string]bool{}
	for _, pod := range inv.Lagging() {
		v.Lagging++
		owners[pod.Owner.String()] = true
	}
	v.Owners = len(owners)
	return v
}
