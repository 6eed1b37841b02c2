package main

import (
	"context"
	"fmt"
	"time"

	"github.com/eksbg/eksbg/internal/run"
	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/ui/text"
)

// control answers the decisions of a run from the flags and, on a terminal, by
// asking.
type control struct {
	applied *applied
}

// Approve says who approved: whoever gave --approve for the phase, or typed yes.
func (c *control) Approve(ctx context.Context, a run.Ask) (*state.Who, error) {
	o := c.applied.o
	who := me(c.applied.session.arn(ctx))
	for _, p := range o.approve {
		if state.Phase(p) == a.Phase {
			return &who, nil
		}
	}
	if !o.interactive {
		return nil, nil
	}
	c.applied.log.flush()
	ok, err := ask(ctx, o.streams, fmt.Sprintf("Phase %s waits for an approval (%s).\nNext: %s, %s.\nApprove? Only 'yes' goes on:",
		a.Phase, a.Why, a.Step.Title, a.Step.Changes))
	if err != nil || !ok {
		return nil, err
	}
	return &who, nil
}

// back decides what an interrupt between the first shift and the last gate does:
// asks on a terminal, otherwise what the plan file says (semantics 20).
func (a *applied) back() bool {
	if a.lock != nil && a.lock.Lost() != nil {
		return false // the traffic is the other holder's to move
	}
	if !a.o.interactive {
		return a.file.Cutover.OnStop != "hold"
	}
	// The interrupt that asks has cancelled the run's context already; the second one
	// leaves at once. A terminal that is gone, or that nobody sits at, is none.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	timer := a.o.clock.NewTimer(unattended)
	defer timer.Stop()
	go func() {
		select {
		case <-timer.C():
			cancel()
		case <-ctx.Done():
		}
	}()
	a.log.flush()
	line, err := answer(ctx, a.o.streams, fmt.Sprintf("The traffic is on its way. Put it back to where it was before the run?\n'yes' puts back, anything else holds; without an answer within %s: %s.",
		text.Short(unattended), a.file.Cutover.OnStop))
	if err != nil {
		return a.file.Cutover.OnStop != "hold"
	}
	return line == "yes"
}

// unattended is how long a question may stay without an answer while nobody watches the
// traffic.
const unattended = time.Minute
