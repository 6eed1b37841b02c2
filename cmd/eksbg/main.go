// Command eksbg takes a service that runs on a pair of Amazon EKS clusters to a new
// Kubernetes version without an outage.
package main

import (
	"context"
	"io"
	"os"
	"runtime/debug"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// version is set by the linker.
var version = "dev"

// streams is what a command reads, writes and tells the time by.
type streams struct {
	in       io.Reader
	out, err io.Writer
	clock    clock.WithTicker
	// interactive is true when stdin and stderr are terminals.
	interactive bool
}

// gcPercent is by how much the heap grows before garbage is collected, where GOGC says
// nothing: half of Go's own. Decoding what the watches of a restart send makes much more
// garbage than is kept of it.
const gcPercent = 50

func main() { os.Exit(Main()) }

// Main runs the command line of this process and returns the exit code.
func Main() int {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	// client-go's own log would write between the lines of a run.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	s := streams{in: os.Stdin, out: os.Stdout, err: os.Stderr, clock: clock.RealClock{}}
	s.interactive = isTerminal(os.Stdin) && isTerminal(os.Stderr) && os.Getenv("CI") == ""
	root := newRoot(s)
	root.SetArgs(os.Args[1:])
	return report(s, root, os.Args[1:], root.ExecuteContext(context.Background()))
}
