package state_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/eksbg/eksbg/internal/state"
)

// hold starts a second process that holds the journal; the returned function lets it end.
func hold(t *testing.T, path string) (said string, pid int, end func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), holdEnv+"="+path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	ended := false
	end = func() {
		if !ended {
			ended = true
			_ = in.Close()
			_, _ = io.Copy(io.Discard, out)
			_ = cmd.Wait()
		}
	}
	t.Cleanup(end)
	return strings.TrimSpace(said), cmd.Process.Pid, end
}

func TestTwoProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.journal")
	if who, held := state.Holder(path); held {
		t.Errorf("held by %v before it is there", who)
	}
	j := create(t, path)
	if who, held := state.Holder(path); !held || who != ops() {
		t.Errorf("holder %v, %v; want %v", who, held, ops())
	}
	said, _, end := hold(t, path)
	if !strings.Contains(said, "in use by") || !strings.Contains(said, "ops on bastion, pid 4711") {
		t.Errorf("the second process got %q", said)
	}
	end()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, held := state.Holder(path); held {
		t.Error("held after Close")
	}

	said, pid, end := hold(t, path)
	if said != "<nil>" {
		t.Fatalf("the second process got %q", said)
	}
	_, _, oerr := state.Open(path, newClock())
	_, cerr := state.Create(context.Background(), path, pair(), ops(), newClock())
	for _, err := range []error{oerr, cerr} {
		var locked *state.ErrLocked
		if !errors.As(err, &locked) || locked.Holder != (state.Who{User: "other", Host: "laptop", PID: pid}) {
			t.Errorf("got %v", err)
		}
	}
	// status reads all the same.
	if records, rec, err := state.Read(path); err != nil || len(records) != 2 || rec.TornLine != 0 {
		t.Errorf("read %d records, %+v, %v", len(records), rec, err)
	}
	end()
	j, _, err := state.Open(path, newClock())
	if err != nil {
		t.Fatalf("after the other process is gone: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

// TestLookingAtTheLockKeepsNobodyOut: a status command at any moment must not make an
// apply that starts then believe that somebody else holds the lock.
func TestLookingAtTheLockKeepsNobodyOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.journal")
	if err := create(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				state.Holder(path)
			}
		}
	}()
	for range 50 {
		j, _, err := state.Open(path, newClock())
		if err != nil {
			t.Error(err)
			break
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	<-stopped
}

func TestWhoIsNamed(t *testing.T) {
	for want, w := range map[string]state.Who{
		"another process":                 {},
		"pid 7":                           {PID: 7},
		"somebody on bastion":             {Host: "bastion"},
		"ops on bastion, pid 7":           {User: "ops", Host: "bastion", PID: 7},
		"arn:aws:sts::1:x":                {ARN: "arn:aws:sts::1:x"},
		"arn:aws:sts::1:x (ops, pid 7)":   {ARN: "arn:aws:sts::1:x", User: "ops", PID: 7},
		"arn:aws:sts::1:x (ops on there)": {ARN: "arn:aws:sts::1:x", User: "ops", Host: "there"},
	} {
		if have := w.String(); have != want {
			t.Errorf("have %q, want %q", have, want)
		}
	}
}
