package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/eksbg/eksbg/e2e/kubernetes"
)

// The marks that the figures go between.
const (
	markBegin = "<!-- bench: begin -->\n"
	markEnd   = "<!-- bench: end -->\n"
)

// report writes the figures down.
func report(all []*result, o options, machine string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n### Reading\n\n", machine)
	b.WriteString("| pods | | wall | against the floor | CPU | peak memory | requests |\n|--:|---|--:|--:|--:|--:|---|\n")
	names := map[string]string{"floor": "floor", "lag": "`eksbg lag`", "wide": "`kubectl get … -o wide`", "json": "`kubectl get … -o json`"}
	for _, r := range all {
		for _, name := range reads {
			c := r.Reads[name]
			fmt.Fprintf(&b, "| %d | %s | %.2f s | %.2f | %.2f s | %.0f MB | %s |\n", r.Pods, names[name], c.Wall, c.Wall/r.Reads["floor"].Wall, c.CPU, c.RSS/1e6, c.Requests)
		}
	}
	if !o.restart {
		return b.String()
	}
	fmt.Fprintf(&b, "\n### Restarting\n\nA pod starts in %s and ends in %s.\n\n", o.startup, o.stop)
	b.WriteString("| pods | Deployments, at a time | | wall | against the critical path | CPU | peak memory | requests a Deployment | requests |\n|--:|--:|---|--:|--:|--:|--:|--:|---|\n")
	for _, r := range all {
		fmt.Fprintf(&b, "| %d | %d, %d | critical path | %.0f s | 1 | | | | |\n", r.Pods, r.Deployments, r.Parallel, r.Critical)
		for _, row := range []struct {
			name string
			c    Cost
		}{{"`eksbg restart`", r.Restart}, {"shell loop", r.Loop}} {
			fmt.Fprintf(&b, "| %d | %d, %d | %s | %.0f s | %.2f | %.1f s | %.0f MB | %.1f | %s |\n", r.Pods, r.Deployments, r.Parallel, row.name,
				row.c.Wall, row.c.Wall/r.Critical, row.c.CPU, row.c.RSS/1e6, float64(row.c.Requests.Total())/float64(r.Deployments), row.c.Requests)
		}
	}
	return b.String()
}

// machine says what was measured on, and when.
func machine() string {
	cpu := "an unknown CPU"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for _, line := range strings.Split(string(text), "\n") {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
				cpu = strings.TrimSpace(v)
				break
			}
		}
	}
	return fmt.Sprintf("Measured on %s: %d cores of %s, %s/%s, %s, Kubernetes %s, %s. Clusters, Fargate and the programs share the cores.",
		time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), cpu, runtime.GOOS, runtime.GOARCH, runtime.Version(), kubernetes.Version, kubectlVersion())
}

func kubectlVersion() string {
	out, err := exec.Command("kubectl", "version", "--client").Output()
	line, _, _ := strings.Cut(string(out), "\n")
	if _, v, ok := strings.Cut(line, ": "); ok && err == nil {
		return "kubectl " + v
	}
	return "an unknown kubectl"
}

// insert puts the figures between the marks of a page.
func insert(page, text string) error {
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, ok := bytes.Cut(old, []byte(markBegin))
	_, after, ok2 := bytes.Cut(rest, []byte(markEnd))
	if !ok || !ok2 {
		return fmt.Errorf("%s has not both %q and %q", page, strings.TrimSpace(markBegin), strings.TrimSpace(markEnd))
	}
	return os.WriteFile(page, bytes.Join([][]byte{before, []byte(markBegin + "\n" + text + "\n" + markEnd), after}, nil), 0o644)
}
