package e2e_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/eksbg/eksbg/e2e/cluster"
	"github.com/eksbg/eksbg/internal/sandbox/kube"
)

// startTime bounds what has to come up, the first build of the control plane included.
const startTime = 25 * time.Minute

// keepLogs names the folder that the logs of clusters of failed tests are left in.
const keepLogs = "EKSBG_E2E_LOGS"

// logOf is a log of a test that stays when keepLogs says where.
func logOf(t *testing.T, name string) io.Writer {
	t.Helper()
	to := os.Getenv(keepLogs)
	if to == "" {
		return io.Discard
	}
	dir := filepath.Join(to, t.Name())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// stateFolder is where clusters keep their state and logs; the logs outlive a test that
// fails.
func stateFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() {
		to := os.Getenv(keepLogs)
		if !t.Failed() || to == "" {
			return
		}
		logs, _ := filepath.Glob(filepath.Join(dir, "*", "*.log"))
		for _, path := range logs {
			at := filepath.Join(to, t.Name(), filepath.Base(filepath.Dir(path)))
			text, err := os.ReadFile(path)
			if err = errors.Join(err, os.MkdirAll(at, 0o755), os.WriteFile(filepath.Join(at, filepath.Base(path)), text, 0o644)); err != nil {
				t.Logf("keep the log %s: %v", path, err)
			}
		}
	})
	return dir
}

// alone serves one cluster without a sandbox, for who has the token "admin".
func alone(t *testing.T, o kube.Options) (*cluster.Cluster, *rest.Config) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	o.Authenticate = func(bearer string) (string, []string, error) {
		if bearer != "admin" {
			return "", nil, errors.New("unknown token")
		}
		return "admin", []string{"system:masters"}, nil
	}
	c, err := cluster.New(ctx, filepath.Join(stateFolder(t), o.Name), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.Start(context.WithoutCancel(ctx)); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- c.Serve(l, nil) }()
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), <-served); err != nil {
			t.Error(err)
		}
	})
	cfg := &rest.Config{Host: "https://" + l.Addr().String(), BearerToken: "admin"}
	cfg.CAData = c.CA()
	return c, cfg
}
