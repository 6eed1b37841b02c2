package plan

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/cutover"
	"github.com/eksbg/eksbg/internal/fargate"
	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/preflight"
	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/upgrade"
)

// Sources are where a plan reads the pair.
type Sources struct {
	EKS map[state.Side]upgrade.API
	// Inventories list each side's cluster afresh.
	Inventories map[state.Side]preflight.Inventory
	// Looks hands on what was read through it lately; nil where nothing was.
	Looks *Looks
	// Described give what EKS says of each side's cluster (ARN, status, updates) without
	// listing anything; nil where whole inventories are read instead.
	Described map[state.Side]preflight.Inventory
	Traffic   []cutover.Traffic
	Clock     clock.WithTicker
	// CredentialsExpire tells when the first of the credentials in use ends; the zero
	// time when they do not.
	CredentialsExpire func(context.Context) (time.Time, error)
	// Room reads what Fargate has left for a side's cluster, used being what the pods of
	// the pair take of the vCPU quota in thousandths; nil where nobody asks.
	Room func(ctx context.Context, side state.Side, used int) (fargate.Room, error)
}

// Observe reads the pair once: both clusters at the same time, the traffic, the
// versions that EKS offers, and what the checks find. It changes nothing; upgrade
// insights are read as they are and refreshed only by a run. active overrides what
// the weights say about who serves.
func Observe(ctx context.Context, f *planfile.File, src Sources, active state.Side) (*World, Roles, error) {
	w, err := observe(ctx, src)
	if err != nil {
		return nil, Roles{}, err
	}
	if w.Offered, err = upgrade.Offered(ctx, src.EKS[state.Blue]); err != nil {
		return nil, Roles{}, err
	}
	roles, err := Decide(f, w, active)
	if err != nil {
		return w, roles, err
	}
	if roles.Served {
		err := w.readRoom(ctx, src, roles.Origin)
		return w, roles, err
	}
	if err := w.readDestination(ctx, f, src, roles); err != nil {
		return nil, Roles{}, err
	}
	w.Findings = Waive(f, w.Findings, w.At)
	return w, roles, nil
}

// observe reads what every plan goes by: the traffic, both clusters at the same time,
// and when the credentials end.
func observe(ctx context.Context, src Sources) (*World, error) {
	w := &World{At: src.Clock.Now().UTC(), Inventories: map[state.Side]*cluster.Inventory{}, Raises: map[string][]upgrade.AddonRaise{}}
	if err := w.readTraffic(ctx, src.Traffic); err != nil {
		return nil, err
	}
	if err := w.readClusters(ctx, src); err != nil {
		return nil, err
	}
	blue, green := w.Inventories[state.Blue], w.Inventories[state.Green]
	if blue.ARN == green.ARN {
		return nil, fmt.Errorf("clusters.blue and clusters.green are the same cluster, %s; a pair needs two", blue.ARN)
	}
	var err error
	if w.CredentialsExpire, err = src.CredentialsExpire(ctx); err != nil {
		return nil, fmt.Errorf("read when the credentials end: %w", err)
	}
	return w, nil
}

// readRoom reads what Fargate has left for a side whose pods are, or will be, restarted.
func (w *World) readRoom(ctx context.Context, src Sources, side state.Side) error {
	inv := w.Inventories[side]
	if src.Room == nil || !UsesFargate(inv) {
		return nil
	}
	used := 0
	for _, other := range state.Sides {
		used += MilliCPU(w.Inventories[other])
	}
	room, err := src.Room(ctx, side, used)
	if err != nil {
		return err
	}
	w.Rooms = map[state.Side]fargate.Room{side: room}
	return nil
}

// MilliCPU is what the pods of a cluster take of the vCPU quota of Fargate, finished ones
// that still hold their node included.
func MilliCPU(inv *cluster.Inventory) int {
	n := 0
	for _, p := range inv.Pods {
		n += int(p.MilliCPU)
	}
	return n
}

func (w *World) readTraffic(ctx context.Context, traffic []cutover.Traffic) error {
	for _, t := range traffic {
		s, err := t.Read(ctx)
		if err != nil {
			return fmt.Errorf("read the traffic: %w", err)
		}
		w.Traffic = append(w.Traffic, s)
	}
	return nil
}

func (w *World) readClusters(ctx context.Context, src Sources) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, side := range state.Sides {
		wg.Go(func() {
			inv, err := src.Inventories[side](ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("read the %s cluster: %w", side, err))
				return
			}
			w.Inventories[side] = inv
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// readDestination reads what only matters where the destination is to be changed.
func (w *World) readDestination(ctx context.Context, f *planfile.File, src Sources, r Roles) error {
	d := r.Destination
	inv := w.Inventories[d]
	for _, side := range state.Sides {
		w.Findings = append(w.Findings, preflight.Status(side, w.Inventories[side])...)
	}
	found, err := cutover.Check(ctx, src.Traffic, f.Cutover.Stages...)
	if err != nil {
		return err
	}
	w.Findings = append(w.Findings, found...)
	if err := w.readRoom(ctx, src, d); err != nil {
		return err
	}
	if len(r.Hops) == 0 {
		return nil
	}
	found, err = upgrade.Insights(ctx, src.EKS[d], inv.Name, r.Hops[0], upgrade.InsightOptions{Clock: src.Clock, Side: d})
	if err != nil {
		return err
	}
	w.Findings = append(w.Findings, found...)
	raises, err := upgrade.Addons(ctx, src.EKS[d], inv.Name, inv.Version, f.Version, f.Upgrade.Addons)
	if err != nil {
		return err
	}
	for _, raise := range raises {
		w.Raises[raise.Hop] = append(w.Raises[raise.Hop], raise)
	}
	return nil
}

// Waive marks the findings that the plan file accepts by name, until their day.
func Waive(f *planfile.File, found []state.Finding, now time.Time) []state.Finding {
	for i, fd := range found {
		if w, ok := f.Waiver(fd.Check, now); ok {
			found[i].Waived = w.Reason
		}
	}
	return found
}

// Differences says in a few words what changed between a saved plan and one made
// now.
func Differences(saved, now *state.Plan) []string {
	var out []string
	differ := func(what, a, b string) {
		if a != b {
			out = append(out, fmt.Sprintf("%s was %s, is %s", what, a, b))
		}
	}
	differ("the plan file", short12(saved.FileSum), short12(now.FileSum))
	differ("the target version", saved.Target, now.Target)
	differ("the active side", string(saved.Origin), string(now.Origin))
	for _, side := range state.Sides {
		a, b := saved.Clusters[side], now.Clusters[side]
		differ(string(side)+"'s cluster", a.ARN, b.ARN)
		differ(string(side)+"'s version", a.Version, b.Version)
		differ(string(side)+"'s lagging owners", fmt.Sprint(a.Owners), fmt.Sprint(b.Owners))
	}
	differ("the traffic", strings.ReplaceAll(weights(saved.Traffic), "\n", ", "), strings.ReplaceAll(weights(now.Traffic), "\n", ", "))
	differ("the number of steps", fmt.Sprint(len(saved.Steps)), fmt.Sprint(len(now.Steps)))
	differ("the number of findings", fmt.Sprint(len(saved.Findings)), fmt.Sprint(len(now.Findings)))
	if len(out) == 0 {
		out = append(out, "its fingerprint differs")
	}
	return out
}

func short12(s string) string {
	if len(s) > 12 {
		return s[:12]
	}
	return s
}
