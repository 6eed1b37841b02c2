package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/eksbg/eksbg/internal/run"
	"github.com/eksbg/eksbg/internal/state"
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
	ok, err := ask(ctx, o.streams, fmt.Sprintf("\nPhase %s waits for an approval (%s).\nNext: %s, %s. Approve? Only 'yes' goes on: ",
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
	// leaves at once.
	ok, err := ask(context.Background(), a.o.streams, "\nThe traffic is on its way. Put it back to where it was before the run? 'yes' puts back, anything else holds: ")
	if err != nil {
		return a.file.Cutover.OnStop != "hold"
	}
	return ok
}

// ask puts a question and gives true for a plain yes. Anything else is a no, the end of
// the input and a terminal that is gone included; a cancelled context is its cause.
func ask(ctx context.Context, s streams, question string) (bool, error) {
	fmt.Fprint(s.err, question)
	answer := make(chan string, 1)
	go func() { // ends with the answer, the end of the input, or the process
		line, _ := bufio.NewReader(s.in).ReadString('\n')
		answer <- line
	}()
	select {
	case line := <-answer:
		return strings.TrimSpace(line) == "yes", nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}
