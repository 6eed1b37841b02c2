package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// result is what was measured at one size.
type result struct {
	Pods, Deployments, Parallel int
	// Startup and Stop are how long a pod takes to start and to end, Seed how long all
	// took to come up.
	Startup, Stop, Seed time.Duration
	// Load is the machine's load average over a minute before anything was begun.
	Load float64
	// Reads are floor, lag, wide and json, each the run of median wall time.
	Reads map[string]Cost
	// Alone is one Deployment restarted with nothing else going on, Critical what all
	// of them need at least with so many at a time.
	Alone, Critical float64
	Loop, Restart   Cost
}

// The reads, in the order of the table.
var reads = []string{"floor", "lag", "wide", "json"}

func measure(ctx context.Context, t *tools, sz size, o options) (_ *result, err error) {
	pods := sz.pods
	r := &result{Pods: pods, Deployments: pods / replicas, Startup: sz.startup, Stop: o.stop, Load: loadAverage()}
	r.Parallel = max(r.Deployments/o.batches, 1)
	dir := filepath.Join(t.dir, fmt.Sprint(pods))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	say("%d pods: starting two control planes", pods)
	w, err := start(ctx, dir, r)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	say("%d pods: making them", pods)
	began := time.Now()
	if err := seed(ctx, w.admin, pods); err != nil {
		return nil, err
	}
	r.Seed = time.Since(began)
	// kubectl finds out once what the API server serves, and keeps that on the disk.
	if _, err := t.run(ctx, w.box.Env(), "kubectl", "--context", "green", "api-resources"); err != nil {
		return nil, err
	}
	if o.restart {
		if err := r.shellLoop(ctx, t, w); err != nil {
			return nil, err
		}
	}
	w.age(present)
	say("%d pods: reading", pods)
	if r.Reads, err = readAll(ctx, t, w, o.repeat); err != nil {
		return nil, err
	}
	if !o.restart {
		return r, nil
	}
	say("%d pods: eksbg restart, %d Deployments at a time", pods, r.Parallel)
	r.Restart, err = counted(w, func() (Cost, error) {
		return t.run(ctx, w.box.Env(), t.eksbg, "restart", w.box.PlanFile(), "--cluster", "green", "--yes", "--approve", "restart")
	})
	if err != nil {
		return nil, err
	}
	// The proof: with something left that lags this is exit code 2.
	_, err = t.run(ctx, w.box.Env(), t.eksbg, "lag", w.box.PlanFile(), "--cluster", "green", "--detailed-exitcode")
	return r, err
}

// counted adds what a program asked for. Fargate and the controllers are busy beside
// it, so the front that only programs go through counts.
func counted(w *world, run func() (Cost, error)) (Cost, error) {
	before := w.passed.all()
	c, err := run()
	c.Requests = w.passed.all().less(before)
	return c, err
}

// readAll measures the reads in turns, so that what else the machine does meets all.
func readAll(ctx context.Context, t *tools, w *world, repeat int) (map[string]Cost, error) {
	kubectl := []string{"kubectl", "--context", "green", "get", "nodes,pods", "-A", "-o"}
	commands := map[string][]string{
		"floor": {t.floor, w.box.Kubeconfig(), "green"}, "lag": {t.eksbg, "lag", w.box.PlanFile(), "--cluster", "green"},
		"wide": append(slices.Clone(kubectl), "wide"), "json": append(slices.Clone(kubectl), "json"),
	}
	costs := map[string][]Cost{}
	for range repeat {
		for _, name := range reads {
			before, err := served(ctx, w.admin)
			if err != nil {
				return nil, err
			}
			c, err := t.run(ctx, w.box.Env(), commands[name][0], commands[name][1:]...)
			if err != nil {
				return nil, err
			}
			after, err := served(ctx, w.admin)
			if err != nil {
				return nil, err
			}
			c.Requests = after.less(before)
			costs[name] = append(costs[name], c)
		}
	}
	out := map[string]Cost{}
	for name, all := range costs {
		slices.SortFunc(all, func(a, b Cost) int { return int((a.Wall - b.Wall) * 1e6) })
		out[name] = all[len(all)/2]
		say("%s: %.2f s, %.2f s of CPU, %.0f MB", name, out[name].Wall, out[name].CPU, out[name].RSS/1e6)
	}
	return out, nil
}

// script restarts every Deployment, so many at a time, and waits for each.
const script = `set -euo pipefail
kubectl --context green get deployments -A -o jsonpath='{range .items[*]}{.metadata.namespace} {.metadata.name}{"\n"}{end}' |
	xargs -P "$1" -L 1 sh -c 'kubectl --context green -n "$0" rollout restart deployment/"$1" && kubectl --context green -n "$0" rollout status deployment/"$1"'
`

// shellLoop measures one Deployment alone, and then the loop.
func (r *result) shellLoop(ctx context.Context, t *tools, w *world) error {
	var alone []float64
	for i := range 3 {
		d, err := restartAlone(ctx, w.admin, namespace(i), deployment(i).Name)
		if err != nil {
			return err
		}
		alone = append(alone, d.Seconds())
	}
	slices.Sort(alone)
	r.Alone = alone[1]
	r.Critical = r.Alone * float64((r.Deployments+r.Parallel-1)/r.Parallel)
	say("%d pods: one Deployment alone takes %.1f s, all at least %.0f s; the shell loop, %d at a time", r.Pods, r.Alone, r.Critical, r.Parallel)
	var err error
	r.Loop, err = counted(w, func() (Cost, error) {
		return t.run(ctx, w.box.Env(), "bash", "-c", script, "loop", fmt.Sprint(r.Parallel))
	})
	if err != nil {
		return err
	}
	say("%d pods: the shell loop took %.0f s", r.Pods, r.Loop.Wall)
	return ready(ctx, w.admin)
}

// restartAlone restarts one Deployment and tells how long it is until all its pods are
// new and none of the old is left.
func restartAlone(ctx context.Context, k kubernetes.Interface, ns, name string) (time.Duration, error) {
	began := time.Now()
	stamp := began.UTC().Format(time.RFC3339)
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`, stamp)
	if _, err := k.AppsV1().Deployments(ns).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return 0, fmt.Errorf("restart %s/%s: %w", ns, name, err)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		pods, err := k.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + name})
		if err != nil {
			return 0, fmt.Errorf("look at the pods of %s/%s: %w", ns, name, err)
		}
		fresh := 0
		for i := range pods.Items {
			if p := &pods.Items[i]; p.Annotations["kubectl.kubernetes.io/restartedAt"] == stamp && isReady(p) {
				fresh++
			}
		}
		if fresh == replicas && len(pods.Items) == replicas {
			return time.Since(began), nil
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-tick.C:
		}
	}
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
