package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Serve starts a sandbox, prints "ready" on a line of its own to stdout once all of
// it is served, and serves until ctx is done. That end is no error; a failure to
// start, or to write its files in the end, is one.
func Serve(ctx context.Context, stdout io.Writer, o Options) error {
	s, err := Start(ctx, o)
	if err != nil {
		return err
	}
	if o.Hints != nil {
		s.hint(o.Hints)
	}
	if _, err := fmt.Fprintln(stdout, "ready"); err != nil {
		return errors.Join(fmt.Errorf("say that the sandbox is ready: %w", err), s.Close())
	}
	<-ctx.Done()
	return s.Close()
}

// hint says in a few lines what is served and how to use it.
func (s *Sandbox) hint(w io.Writer) {
	var up []string
	context := ""
	for _, side := range s.scenario.Sides() {
		state := "not there yet"
		if v := s.Versions()[side]; v != "" {
			state, context = "at "+v, side
		}
		up = append(up, side+" is "+s.scenario.Side(side).Name+" "+state)
	}
	// What people read is of no account to the sandbox: a closed stderr is no failure.
	_, _ = fmt.Fprintf(w, `The sandbox %s is up: %s.
  use it     . %s
  then       eksbg plan %s
             kubectl --context %s get pods -A -o wide
  watch      tail -f %s
  stop it    Ctrl-C
`, s.scenario.Name, strings.Join(up, ", "), quote(s.EnvPath()), quote(s.PlanFile()), context, quote(s.RequestsPath()))
}
