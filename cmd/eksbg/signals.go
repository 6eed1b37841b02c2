package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/eksbg/eksbg/internal/state"
)

// The causes with which the context of a run ends.
var (
	errInterrupted = errors.New("interrupted")
	errTimeout     = errors.New("--timeout is over")
)

const finishing = "Interrupted: finishing the call in flight. Once more leaves at once."

// withSignals gives a context that the first SIGINT or SIGTERM cancels: the call in
// flight ends, is recorded, and the process leaves with 130. The second one leaves at
// once. SIGHUP and a closed pipe never end a run: it goes on without its terminal
// (semantics 20). say is what the first signal is answered with.
func withSignals(ctx context.Context, s streams, say string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		select {
		case <-ch:
		case <-done:
			return
		}
		cancel(errInterrupted)
		go fmt.Fprintln(s.err, "\n"+say) // ends with the write, which a stopped terminal holds, or the process
		select {
		case <-ch:
			os.Exit(int(state.ExitInterrupted))
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		close(done)
		cancel(nil)
	}
}
