package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
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
func report(all []*result, machine string) string {
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
	b.WriteString("\n### Restarting\n\n| pods | a pod starts, ends in | Deployments, at a time | | wall | against the critical path | CPU | peak memory | requests a Deployment |\n|--:|--:|--:|---|--:|--:|--:|--:|--:|\n")
	for _, r := range all {
		if r.Critical == 0 {
			continue
		}
		head := fmt.Sprintf("| %d | %s, %s | %d, %d |", r.Pods, r.Startup, r.Stop, r.Deployments, r.Parallel)
		fmt.Fprintf(&b, "%s critical path | %.0f s | 1 | | | |\n", head, r.Critical)
		for _, row := range r.restarts() {
			fmt.Fprintf(&b, "%s %s | %.0f s | %.2f | %.1f s | %.0f MB | %.1f |\n", head, row.name,
				row.cost.Wall, row.cost.Wall/r.Critical, row.cost.CPU, row.cost.RSS/1e6, float64(row.cost.Requests.Total())/float64(r.Deployments))
		}
	}
	b.WriteString("\nRequests of the restarts, to both clusters:\n\n")
	for _, r := range all {
		for _, row := range r.restarts() {
			fmt.Fprintf(&b, "- %d pods, %s: %s\n", r.Pods, row.name, row.cost.Requests)
		}
	}
	b.WriteString("\nLoad average of the machine over the minute before each size was begun:")
	for _, r := range all {
		fmt.Fprintf(&b, " %d pods %.1f;", r.Pods, r.Load)
	}
	return strings.TrimSuffix(b.String(), ";") + ".\n"
}

// loadAverage is that of the last minute (proc_loadavg(5)); 0 where nobody says.
func loadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	n, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return n
}

// named is a cost with whose it is.
type named struct {
	name string
	cost Cost
}

// restarts are those that were measured.
func (r *result) restarts() []named {
	if r.Critical == 0 {
		return nil
	}
	return []named{{"`eksbg restart`", r.Restart}, {"shell loop", r.Loop}}
}

// with is all results with r among them, in the place of the one of its size.
func with(all []*result, r *result) []*result {
	all = slices.DeleteFunc(all, func(had *result) bool { return had.Pods == r.Pods })
	all = append(all, r)
	slices.SortFunc(all, func(a, b *result) int { return a.Pods - b.Pods })
	return all
}

// load reads the results of earlier runs; none where there is no such file.
func load(path string) ([]*result, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []*result
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return all, nil
}

func save(path string, all []*result) error {
	if path == "" {
		return nil
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o600)
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
