package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/eksbg/eksbg/e2e/cluster"
	"github.com/eksbg/eksbg/internal/sandbox"
)

func TestHot(t *testing.T) {
	sc, err := sandbox.Load("hot")
	if err != nil {
		t.Fatal(err)
	}
	t0 := time.Now()
	dir := t.TempDir()
	box, err := sandbox.Start(t.Context(), sandbox.Options{Scenario: sc, Dir: dir, Speed: 300, Kubernetes: cluster.Maker(filepath.Join(dir, "planes"))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { box.Close() })
	t.Log("up in", time.Since(t0))
	bin := filepath.Join(dir, "eksbg")
	if out, err := exec.Command("go", "build", "-C", "..", "-o", bin, "./cmd/eksbg").CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "apply", box.PlanFile(), "--yes")
	cmd.Env = append(os.Environ(), box.Env()...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	var x *exec.ExitError
	if errors.As(err, &x) {
		t.Errorf("exit %d", x.ExitCode())
	}
	t.Log(out.String())
	t.Log("done in", time.Since(t0))
}
