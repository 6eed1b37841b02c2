// Bench measures eksbg against real control planes: what reading a cluster takes, beside
// the least that any client needs and beside kubectl, and what a restart of all pods
// takes, beside a shell loop around kubectl. It prints the figures as Markdown, or puts
// them into a page between two marks.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

// options are what is measured.
type options struct {
	sizes []size
	// batches is in how many a restart takes the Deployments, stop how long a pod takes
	// to end.
	batches int
	stop    time.Duration
	repeat  int
	restart bool
	// page gets the figures, results keeps them from one run to the next; with render
	// nothing is measured.
	page, results string
	render        bool
}

// size is a number of pods, and how long Fargate takes to start one.
type size struct {
	pods    int
	startup time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	// Clients whose watches end with the clusters have nothing to say.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	all, err := load(o.results)
	if err != nil {
		return err
	}
	if !o.render {
		if all, err = measureAll(ctx, all, o); err != nil {
			return err
		}
	}
	text := report(all, machine())
	if o.page == "" {
		_, err := io.WriteString(os.Stdout, text)
		return err
	}
	return insert(o.page, text)
}

// measureAll measures each size in a pair of clusters of its own.
func measureAll(ctx context.Context, all []*result, o options) (_ []*result, err error) {
	dir, err := os.MkdirTemp("", "eksbg-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	t, err := build(ctx, dir)
	if err != nil {
		return nil, err
	}
	for _, sz := range o.sizes {
		r, err := measure(ctx, t, sz, o)
		if err != nil {
			return nil, fmt.Errorf("with %d pods: %w", sz.pods, err)
		}
		all = with(all, r)
		if err := save(o.results, all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	sizes := f.String("pods", "200,1000,5000", "how many pods, one size after the other")
	f.IntVar(&o.batches, "batches", 10, "a restart takes the Deployments in so many batches")
	startups := f.String("startup", "10s,10s,30s", "how long Fargate takes to start a pod, for each of the sizes")
	f.DurationVar(&o.stop, "stop", 2*time.Second, "how long a pod takes to end")
	f.IntVar(&o.repeat, "repeat", 5, "how often each read is measured; the median counts")
	f.BoolVar(&o.restart, "restart", true, "measure restarts too")
	f.StringVar(&o.results, "results", "", "keep the figures in this `file`, those of other sizes too, from run to run")
	f.BoolVar(&o.render, "render", false, "measure nothing, write down what -results has")
	f.StringVar(&o.page, "page", "", "put the figures into this Markdown `file`")
	if err := f.Parse(args); err != nil {
		return options{}, err
	}
	times := strings.Split(*startups, ",")
	for i, s := range strings.Split(*sizes, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < replicas || n%replicas != 0 {
			return options{}, fmt.Errorf("-pods %s: a number of pods is a multiple of %d", s, replicas)
		}
		d, err := time.ParseDuration(times[min(i, len(times)-1)])
		if err != nil {
			return options{}, fmt.Errorf("-startup %s: %w", *startups, err)
		}
		o.sizes = append(o.sizes, size{n, d})
	}
	if o.batches < 1 || o.repeat < 1 {
		return options{}, errors.New("-batches and -repeat are at least 1")
	}
	return o, nil
}

// say tells who waits what is going on.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}
