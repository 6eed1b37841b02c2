// Measure runs a command and writes what it took to file descriptor 3. It is a program
// of its own because a child's peak memory begins with that of the process which
// started it (setmax_mm_hiwater_rss in fs/exec.c of Linux), and the benchmark, with two
// clusters in it, is large.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

func main() {
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	began := time.Now()
	err := cmd.Run()
	wall := time.Since(began)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(127)
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	// Seconds, and bytes: Linux counts ru_maxrss in units of 1024 (getrusage(2)).
	err = json.NewEncoder(os.NewFile(3, "result")).Encode(map[string]float64{
		"wall": wall.Seconds(), "cpu": (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), "rss": float64(usage.Maxrss) * 1024,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(127)
	}
	os.Exit(cmd.ProcessState.ExitCode())
}
