package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Cost is what one run of a program took.
type Cost struct {
	// Wall and CPU are in seconds, the CPU of its children in it; RSS is the peak of its
	// resident memory in bytes, of the largest process where there are several.
	Wall float64 `json:"wall"`
	CPU  float64 `json:"cpu"`
	RSS  float64 `json:"rss"`
	// Requests are what it asked the API server for, by verb and resource.
	Requests Counts `json:"requests"`
}

// tools are the programs that are run.
type tools struct {
	dir                    string
	eksbg, floor, measurer string
}

// build makes the programs from the checkout that this module is part of.
func build(ctx context.Context, dir string) (*tools, error) {
	t := &tools{dir: dir, eksbg: filepath.Join(dir, "eksbg"), floor: filepath.Join(dir, "floor"), measurer: filepath.Join(dir, "measure")}
	for path, pkg := range map[string][]string{t.eksbg: {"-C", "..", "./cmd/eksbg"}, t.floor: {"./bench/floor"}, t.measurer: {"./bench/measure"}} {
		args := []string{"build"}
		if pkg[0] == "-C" {
			args, pkg = append(args, "-C", pkg[1]), pkg[2:]
		}
		args = append(args, "-trimpath", "-ldflags=-s -w", "-o", path)
		out, err := exec.CommandContext(ctx, "go", append(args, pkg...)...).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("build %s: %w\n%s", filepath.Base(path), err, out)
		}
		if err := forget(path); err != nil {
			return nil, fmt.Errorf("take %s out of the page cache: %w", filepath.Base(path), err)
		}
	}
	return t, nil
}

// forget takes a file that was just written out of the page cache, so that it is read
// when it is run, as programs are that were installed some time ago. Of one that is
// there in the large pieces in which it was written the kernel maps far more into the
// process, and counts it as memory of it: of eksbg all of 80 MB instead of 44.
func forget(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := f.Sync(); err != nil {
		return err
	}
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// patience is how long a program that was told to stop gets.
const patience = 30 * time.Second

// run runs a command and measures it. It must end with exit code 0.
func (t *tools) run(ctx context.Context, env []string, name string, args ...string) (Cost, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return Cost{}, err
	}
	defer func() { _ = read.Close() }()
	cmd := exec.CommandContext(ctx, t.measurer, append([]string{name}, args...)...)
	cmd.Env = append(append(os.Environ(), env...), "HOME="+t.dir)
	cmd.ExtraFiles = []*os.File{write}
	cmd.WaitDelay = patience
	// What it started ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.Discard, &errs
	err = cmd.Run()
	_ = write.Close()
	if err != nil {
		return Cost{}, fmt.Errorf("%s %v: %w\n%s", filepath.Base(name), args, err, tail(errs.Bytes()))
	}
	var c Cost
	if err := json.NewDecoder(read).Decode(&c); err != nil {
		return Cost{}, fmt.Errorf("measure %s: %w", filepath.Base(name), err)
	}
	return c, nil
}

// tail is the end of what a program said.
func tail(b []byte) []byte {
	const most = 4 << 10
	if len(b) > most {
		return b[len(b)-most:]
	}
	return b
}
