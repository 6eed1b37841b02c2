package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/eksbg/eksbg/internal/sandbox"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// testSpeed makes the hot upgrade, more than an hour, take a few seconds.
const testSpeed = 1500

// deadline bounds one run of the binary in these tests; it is only met when something hangs.
const deadline = 3 * time.Minute

var binaryOnce = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "eksbg-bin-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "eksbg-under-test")
	out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the binary: %w\n%s", err, out)
	}
	return path, nil
})

// binary is the real eksbg, built once.
func binary(t *testing.T) string {
	t.Helper()
	path, err := binaryOnce()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func startSandbox(t *testing.T, scenario string, speed float64, change ...func(*sandbox.Scenario)) *sandbox.Sandbox {
	t.Helper()
	sc, err := sandbox.Load(scenario)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(sc)
	}
	box, err := sandbox.Start(t.Context(), sandbox.Options{Scenario: sc, Dir: t.TempDir(), Speed: speed})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Errorf("close the sandbox: %v", err)
		}
	})
	return box
}

// process is one eksbg at work.
type process struct {
	cmd *exec.Cmd
	out bytes.Buffer
	end chan error
}

func begin(t *testing.T, box *sandbox.Sandbox, args ...string) *process {
	t.Helper()
	p := &process{end: make(chan error, 1)}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), deadline)
	p.cmd = exec.CommandContext(ctx, binary(t), args...)
	p.cmd.Env = append(os.Environ(), box.Env()...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	go func() {
		p.end <- p.cmd.Wait()
		cancel()
	}()
	return p
}

// exit waits for the process and gives its exit code; -1 when a signal ended it.
func (p *process) exit() int {
	<-p.end
	return p.cmd.ProcessState.ExitCode()
}

// reaches waits until the process has come to a point of its run.
func (p *process) reaches(t *testing.T, point <-chan struct{}) {
	t.Helper()
	select {
	case <-point:
	case err := <-p.end:
		t.Fatalf("the run ended before it came there: %v\n%s", err, p.out.String())
	}
}

func apply(t *testing.T, box *sandbox.Sandbox) *process {
	t.Helper()
	return begin(t, box, "apply", box.PlanFile(), "--yes")
}

func mustApply(t *testing.T, box *sandbox.Sandbox) {
	t.Helper()
	if p := apply(t, box); p.exit() != 0 {
		t.Fatalf("apply: exit %d\n%s", p.cmd.ProcessState.ExitCode(), p.out.String())
	}
}

func requests(t *testing.T, box *sandbox.Sandbox) []wire.Entry {
	t.Helper()
	f, err := os.Open(box.RequestsPath())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []wire.Entry
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var e wire.Entry
		if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
			t.Fatalf("%s: %v", sc.Text(), err)
		}
		out = append(out, e)
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func world(t *testing.T, box *sandbox.Sandbox) string {
	t.Helper()
	b, err := json.MarshalIndent(box.World(), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// moment is one changing call of a run: the nth of that name on that object.
type moment struct {
	call, object string
	nth          int
}

func (m moment) String() string { return fmt.Sprintf("%s %s %d", m.call, m.object, m.nth) }

// changing lists the accepted changing calls of a run, in order.
func changing(entries []wire.Entry) []moment {
	seen := map[string]int{}
	var out []moment
	for _, e := range entries {
		if !e.Changing || !e.Accepted {
			continue
		}
		object := e.Object
		if strings.Contains(e.Call, " pods") {
			object = "" // pods have other names in the next run: the nth call it is
		}
		key := e.Call + " " + object
		seen[key]++
		out = append(out, moment{e.Call, object, seen[key]})
	}
	return out
}

// onceEach fails when a hop was accepted more than once, or when an accepted change
// of weights repeats the ones that were in place.
func onceEach(t *testing.T, entries []wire.Entry) {
	t.Helper()
	hops := map[string]int{}
	inPlace := map[string]string{}
	for _, e := range entries {
		if !e.Changing || !e.Accepted {
			continue
		}
		switch e.Call {
		case "eks:UpdateClusterVersion":
			hops[fmt.Sprint(e.Object, " ", e.Detail["version"])]++
		case "route53:ChangeResourceRecordSets", "elbv2:ModifyListener", "elbv2:ModifyRule":
			now := weightsOf(t, e)
			if inPlace[e.Call+" "+e.Object] == now {
				t.Errorf("%s %s: an accepted change repeats %s", e.Call, e.Object, now)
			}
			inPlace[e.Call+" "+e.Object] = now
		}
	}
	for hop, n := range hops {
		if n != 1 {
			t.Errorf("UpdateClusterVersion of %s was accepted %d times", hop, n)
		}
	}
}

// weightsOf is what a change of weights leaves behind, as the sandbox noted it. A
// change of record sets that creates what it deletes repeats as well.
func weightsOf(t *testing.T, e wire.Entry) string {
	t.Helper()
	if actions, ok := e.Detail["actions"]; ok {
		return fmt.Sprint(actions)
	}
	changes, ok := e.Detail["changes"].([]any)
	if !ok {
		t.Fatalf("%s notes no weights: %v", e.Call, e.Detail)
	}
	var before, after []string
	for _, c := range changes {
		action, set, _ := strings.Cut(fmt.Sprint(c), " ")
		switch action {
		case "DELETE":
			before = append(before, set)
		case "CREATE":
			after = append(after, set)
		}
	}
	if strings.Join(before, " ") == strings.Join(after, " ") {
		t.Errorf("%s changes nothing: %v", e.Call, changes)
	}
	return strings.Join(after, " ")
}

// killAt runs apply until the moment is held, before the sandbox has accepted the
// call or after, kills it, and goes on with the same command.
func killAt(t *testing.T, m moment, hold string) *sandbox.Sandbox {
	t.Helper()
	box := startSandbox(t, "hot", testSpeed)
	held := holdAt(t, box, wire.Fault{Call: m.call, Object: m.object, Nth: m.nth, Hold: hold})
	p := apply(t, box)
	p.reaches(t, held)
	kill(t, p)
	mustApply(t, box)
	return box
}

func kill(t *testing.T, p *process) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.exit()
}

// The list of changing calls comes from what the sandbox served, so that a new call
// cannot be left out.
func TestKilledAtEveryChangingCallItResumesToTheSameWorld(t *testing.T) {
	if testing.Short() {
		t.Skip("a minute or more of whole runs")
	}
	undisturbed := startSandbox(t, "hot", testSpeed)
	mustApply(t, undisturbed)
	want := world(t, undisturbed)
	entries := requests(t, undisturbed)
	onceEach(t, entries)
	moments := changing(entries)
	if len(moments) < 15 {
		t.Fatalf("only %d changing calls: %v", len(moments), moments)
	}
	t.Logf("%d changing calls, %d requests", len(moments), len(entries))

	for _, m := range moments {
		for _, hold := range []string{"before", "after"} {
			t.Run(strings.ReplaceAll(m.String()+" "+hold, "/", "_"), func(t *testing.T) {
				t.Parallel()
				box := killAt(t, m, hold)
				if diff := cmp.Diff(want, world(t, box)); diff != "" {
					t.Errorf("the world differs from an undisturbed run's (-want +got):\n%s", diff)
				}
				onceEach(t, requests(t, box))
			})
		}
	}
	for i := range 20 {
		t.Run(fmt.Sprintf("random moment %d", i), func(t *testing.T) {
			t.Parallel()
			after := rand.New(rand.NewPCG(20261130, uint64(i))).IntN(len(entries))
			box := killAfter(t, after)
			if diff := cmp.Diff(want, world(t, box)); diff != "" {
				t.Errorf("killed after %d requests, the world differs (-want +got):\n%s", after, diff)
			}
			onceEach(t, requests(t, box))
		})
	}
}

// killAfter kills apply when the sandbox has served n requests to it.
func killAfter(t *testing.T, n int) *sandbox.Sandbox {
	t.Helper()
	box := startSandbox(t, "hot", testSpeed)
	now := make(chan struct{})
	served := 0
	box.Log().Watch(func(wire.Entry) { // called under the log's lock
		served++
		if served == n+1 {
			close(now)
		}
	})
	p := apply(t, box)
	select {
	case <-now:
		kill(t, p)
	case err := <-p.end: // it was over sooner than the undisturbed one
		if err != nil {
			t.Fatalf("apply: %v\n%s", err, p.out.String())
		}
		return box
	}
	mustApply(t, box)
	return box
}
