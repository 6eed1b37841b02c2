package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
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
	line, err := answer(ctx, a.o.streams, fmt.Sprintf("\nThe traffic is on its way. Put it back to where it was before the run? 'yes' puts back,\nanything else holds; without an answer within %s: %s. ",
		text.Short(unattended), a.file.Cutover.OnStop))
	if err != nil {
		return a.file.Cutover.OnStop != "hold"
	}
	return line == "yes"
}

// unattended is how long a question may stay without an answer while nobody watches the
// traffic.
const unattended = time.Minute

// ask puts a question and gives true for a plain yes. Anything else is a no, the end of
// the input and a terminal that is gone included; a cancelled context is its cause.
func ask(ctx context.Context, s streams, question string) (bool, error) {
	line, err := answer(ctx, s, question)
	if errors.Is(err, errNoAnswer) {
		return false, nil
	}
	return line == "yes", err
}

// errNoAnswer is the end of the input in place of a line.
var errNoAnswer = errors.New("nobody answers")

// answer puts a question and gives the line that is answered, without its blanks.
func answer(ctx context.Context, s streams, question string) (string, error) {
	fmt.Fprint(s.err, question)
	type read struct {
		line string
		err  error
	}
	answered := make(chan read, 1)
	go func() { // ends with the answer, the end of the input, or the process
		line, err := bufio.NewReader(s.in).ReadString('\n')
		answered <- read{strings.TrimSpace(line), err}
	}()
	select {
	case r := <-answered:
		if r.err != nil && r.line == "" {
			return "", errNoAnswer
		}
		return r.line, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
