package e2e_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"
)

// eksbg is the program under test, built from the module around this one.
var eksbg string

func TestMain(m *testing.M) {
	// Watches that end with a killed API server are what these tests are about.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "eksbg-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	eksbg = filepath.Join(dir, "eksbg")
	if out, err := exec.Command("go", "build", "-C", "..", "-trimpath", "-o", eksbg, "./cmd/eksbg").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build eksbg: %v\n%s", err, out)
		return 1
	}
	code := m.Run()
	if code == 0 {
		// klog's flusher and the SDK's idle connections are not ours.
		if err := goleak.Find(goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}
