// Package standby looks after the cluster that does not serve the traffic. For now
// that is one thing: holding its capacity against the serving cluster's before any
// traffic moves.
package standby

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/state"
)

// The defaults of CapacityDeps.
const (
	DefaultPatience = 5 * time.Minute
	DefaultPolling  = 10 * time.Second
)

// CapacityDeps is what the capacity step works with.
type CapacityDeps struct {
	// Origin and Destination read the two clusters as the run has fixed them.
	Origin, Destination func(context.Context) (*cluster.Inventory, error)
	Clock               clock.Clock
	// Patience bounds the wait for pods that are starting; 0 is DefaultPatience.
	Patience time.Duration
	// Polling is the pause between two looks while waiting; 0 is DefaultPolling.
	Polling time.Duration
}

// Capacity is the step that lets no traffic move to a cluster that is smaller than
// the one that serves it (semantics 21, capacity: check). It changes nothing.
type Capacity struct {
	spec state.StepSpec
	CapacityDeps
}

// NewCapacity makes the step.
func NewCapacity(spec state.StepSpec, d CapacityDeps) *Capacity {
	if d.Patience <= 0 {
		d.Patience = DefaultPatience
	}
	if d.Polling <= 0 {
		d.Polling = DefaultPolling
	}
	return &Capacity{spec: spec, CapacityDeps: d}
}

// Spec is the step as data.
func (c *Capacity) Spec() state.StepSpec { return c.spec }

// Observe reads both clusters. It is Done when every workload of the origin has at
// least as many ready pods on the destination; Ready when it has not yet, but enough
// are wanted there so that waiting may help; Blocked with the list otherwise.
func (c *Capacity) Observe(ctx context.Context) (state.Observation, error) {
	origin, destination, err := c.read(ctx)
	if err != nil {
		return state.Observation{}, err
	}
	gaps, compared := Compare(origin, destination)
	switch {
	case len(gaps) == 0:
		return state.Observation{Status: state.Done, Reason: fmt.Sprintf("%s on %s, each with at least as many ready pods as on %s",
			plural(compared, "workload"), destination.Name, origin.Name)}, nil
	case !hopeless(gaps):
		return state.Observation{Status: state.Ready, Reason: list(gaps, destination, origin, "; ")}, nil
	}
	stop := c.blocked(gaps, origin, destination, "; ")
	return state.Observation{Status: state.Blocked, Reason: stop.Why, Cure: stop.Cure}, nil
}

// Act waits until the pods that are starting on the destination are ready, for as
// long as Patience. There is nothing that it would change.
func (c *Capacity) Act(ctx context.Context, rec state.Recorder) error {
	begin := c.Clock.Now()
	for {
		origin, destination, err := c.read(ctx)
		if err != nil {
			return err
		}
		gaps, _ := Compare(origin, destination)
		if len(gaps) == 0 {
			return nil
		}
		if hopeless(gaps) || c.Clock.Since(begin) >= c.Patience {
			return c.blocked(gaps, origin, destination, "\n  ")
		}
		rec.Waiting(list(gaps, destination, origin, "; "))
		if err := c.pause(ctx); err != nil {
			return err
		}
	}
}

func (c *Capacity) pause(ctx context.Context) error {
	timer := c.Clock.NewTimer(c.Polling)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return fmt.Errorf("wait for the pods of the destination: %w", context.Cause(ctx))
	case <-timer.C():
		return nil
	}
}

func (c *Capacity) read(ctx context.Context) (origin, destination *cluster.Inventory, err error) {
	if origin, err = c.Origin(ctx); err != nil {
		return nil, nil, fmt.Errorf("read the pods of the cluster that serves: %w", err)
	}
	if destination, err = c.Destination(ctx); err != nil {
		return nil, nil, fmt.Errorf("read the pods of the cluster that is to serve: %w", err)
	}
	return origin, destination, nil
}

func (c *Capacity) blocked(gaps []Gap, origin, destination *cluster.Inventory, sep string) *state.Stop {
	return &state.Stop{Code: state.ExitBlocked, Why: list(gaps, destination, origin, sep),
		Cure: fmt.Sprintf("deploy what is missing on %s, or raise its replicas or its HPA minimum to what %s runs, and wait until the pods are ready;\n"+
			"then run the same command again", destination.Name, origin.Name)}
}

// Gap is one workload that the destination runs with fewer ready pods than the origin.
type Gap struct {
	// Workload is namespace/Kind/name.
	Workload string
	// Has and Wants are the ready pods on the destination and on the origin.
	Has, Wants int
	// Replicas is how many pods the destination's workload asks for.
	Replicas int
	// Missing is true where the destination has no such workload.
	Missing bool
}

// Hopeless tells whether waiting cannot close the gap: too few pods are asked for.
func (g Gap) Hopeless() bool { return g.Missing || g.Replicas < g.Wants }

// text says it: "shop/Deployment/cart: 3 ready, shop-blue has 5".
func (g Gap) text(origin string) string {
	if g.Missing {
		return fmt.Sprintf("%s: not there, %s has %d ready", g.Workload, origin, g.Wants)
	}
	s := fmt.Sprintf("%s: %d ready", g.Workload, g.Has)
	if g.Replicas != g.Has {
		s += fmt.Sprintf(" of %d", g.Replicas)
	}
	return fmt.Sprintf("%s, %s has %d", s, origin, g.Wants)
}

// Compare holds the ready pods of the destination's Deployments and StatefulSets, by
// namespace, kind and name, against the origin's, in every namespace. It returns
// the workloads that come short, by name, and how many were compared. A workload
// without a ready pod on the origin asks for nothing.
func Compare(origin, destination *cluster.Inventory) (gaps []Gap, compared int) {
	there := map[string]cluster.Workload{}
	for _, w := range destination.Workloads {
		if counted(w) {
			there[w.String()] = w
		}
	}
	hasReady, wantsReady := readyPods(destination), readyPods(origin)
	for _, w := range origin.Workloads {
		wants := wantsReady[w.UID]
		if !counted(w) || wants == 0 {
			continue
		}
		compared++
		d, ok := there[w.String()]
		if has := hasReady[d.UID]; !ok || has < wants {
			gaps = append(gaps, Gap{Workload: w.String(), Has: has, Wants: wants, Replicas: int(d.Replicas), Missing: !ok})
		}
	}
	slices.SortFunc(gaps, func(a, b Gap) int { return cmp.Compare(a.Workload, b.Workload) })
	return gaps, compared
}

// counted tells whether the workload is of a kind that people scale.
func counted(w cluster.Workload) bool { return w.Kind == "Deployment" || w.Kind == "StatefulSet" }

// readyPods counts the pods that are ready to serve, by the UID of their top owner.
func readyPods(inv *cluster.Inventory) map[string]int {
	out := map[string]int{}
	for _, p := range inv.Pods {
		if p.Ready && !p.Terminating && !p.Finished && p.Owner.UID != "" {
			out[p.Owner.UID]++
		}
	}
	return out
}

func hopeless(gaps []Gap) bool { return slices.ContainsFunc(gaps, Gap.Hopeless) }

func list(gaps []Gap, destination, origin *cluster.Inventory, sep string) string {
	head := fmt.Sprintf("%s on %s have fewer ready pods than on %s:", plural(len(gaps), "workload"), destination.Name, origin.Name)
	if len(gaps) == 1 {
		head = fmt.Sprintf("1 workload on %s has fewer ready pods than on %s:", destination.Name, origin.Name)
	}
	lines := make([]string, 0, len(gaps))
	for _, g := range gaps {
		lines = append(lines, state.Clean(g.text(origin.Name)))
	}
	if sep == "; " {
		return head + " " + strings.Join(lines, sep)
	}
	return head + sep + strings.Join(lines, sep)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
