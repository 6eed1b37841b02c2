package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	clientset "k8s.io/client-go/kubernetes"

	"github.com/eksbg/eksbg/e2e/cluster"
	"github.com/eksbg/eksbg/internal/sandbox"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

const (
	// speed makes the hot upgrade, more than an hour, take well under a minute. Pods and
	// control planes here have times of their own on top.
	speed = 400
	// deadline bounds one run of eksbg; it is only met when something hangs.
	deadline = 5 * time.Minute
)

// world serves a scenario: in front of real control planes, or in memory alone.
func world(t *testing.T, scenario string, real bool, change ...func(*sandbox.Scenario)) *sandbox.Sandbox {
	t.Helper()
	sc, err := sandbox.Load(scenario)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(sc)
	}
	o := sandbox.Options{Scenario: sc, Dir: t.TempDir(), Speed: speed}
	if real {
		o.Kubernetes = cluster.Maker(stateFolder(t))
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	box, err := sandbox.Start(ctx, o)
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

// realCluster is a side's cluster, whose parts can be killed.
func realCluster(t *testing.T, box *sandbox.Sandbox, side string) *cluster.Cluster {
	t.Helper()
	c, ok := box.Kubernetes(side).(*cluster.Cluster)
	if !ok {
		t.Fatalf("%s is a %T", side, box.Kubernetes(side))
	}
	return c
}

// direct is a client of a real API server that neither log nor faults stand before.
func direct(t *testing.T, c *cluster.Cluster) *clientset.Clientset {
	t.Helper()
	k, err := clientset.NewForConfig(c.Plane().Config())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// process is one eksbg at work.
type process struct {
	cmd *exec.Cmd
	// out is all that it says, data what of it is on stdout.
	out, data bytes.Buffer
	end       chan struct{}
}

func begin(t *testing.T, box *sandbox.Sandbox, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), deadline)
	p := &process{cmd: exec.CommandContext(ctx, eksbg, args...), end: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), box.Env()...)
	said := &oneByOne{w: io.MultiWriter(&p.out, logOf(t, "eksbg.log"))}
	p.cmd.Stdout, p.cmd.Stderr = io.MultiWriter(&p.data, said), said
	if err := p.cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	go func() {
		defer cancel()
		defer close(p.end)
		_ = p.cmd.Wait() // its exit code says it
	}()
	return p
}

// oneByOne lets the writers of stdout and stderr share a log.
type oneByOne struct {
	mu sync.Mutex
	w  io.Writer
}

func (o *oneByOne) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Write(p)
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
		return
	case <-p.end:
	}
	select {
	case <-point: // before it ended
	default:
		t.Fatalf("the run ended before it came there:\n%s", p.out.String())
	}
}

// kill is kill -9.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.end
}

// apply runs eksbg apply to its end and holds its exit code.
func apply(t *testing.T, box *sandbox.Sandbox, want int, args ...string) string {
	t.Helper()
	p := begin(t, box, append([]string{"apply", box.PlanFile(), "--yes"}, args...)...)
	if got := p.exit(); got != want {
		t.Fatalf("apply %v: exit %d, want %d\n%s", args, got, want, p.out.String())
	}
	return p.out.String()
}

// nth gives a channel that closes when a call was accepted for the nth time.
func nth(box *sandbox.Sandbox, call string, n int) <-chan struct{} {
	point := make(chan struct{})
	box.Log().Watch(func(e wire.Entry) {
		if e.Call != call || !e.Accepted {
			return
		}
		if n--; n == 0 {
			close(point)
		}
	})
	return point
}

// requests are all that the sandbox has served.
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

// eventually waits until ok says nothing more, and fails with what it says after patience.
func eventually(t *testing.T, patience time.Duration, ok func() string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	end := time.Now().Add(patience)
	for {
		why := ok()
		if why == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %s still: %s", patience, why)
		}
		<-tick.C
	}
}
