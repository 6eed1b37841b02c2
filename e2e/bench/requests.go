package main

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/client-go/kubernetes"

	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

// Counts are numbers of requests, by verb and resource.
type Counts map[string]int

// Total is the number of all.
func (c Counts) Total() int {
	n := 0
	for _, v := range c {
		n += v
	}
	return n
}

// less gives what was counted since an earlier time.
func (c Counts) less(before Counts) Counts {
	out := Counts{}
	for k, v := range c {
		if d := v - before[k]; d > 0 {
			out[k] = d
		}
	}
	return out
}

// String lists them, the most frequent first.
func (c Counts) String() string {
	keys := slices.SortedFunc(maps.Keys(c), func(a, b string) int {
		if c[a] != c[b] {
			return c[b] - c[a]
		}
		return strings.Compare(a, b)
	})
	var parts []string
	for _, k := range keys {
		parts = append(parts, fmt.Sprintf("%d %s", c[k], k))
	}
	return strings.Join(parts, ", ")
}

// served reads what an API server counts itself as having served.
func served(ctx context.Context, k kubernetes.Interface) (Counts, error) {
	text, err := k.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	return parseMetrics(string(text))
}

// parseMetrics reads apiserver_request_total, without what is asked all the time: its
// metrics, its health, leases; and without watches, which are counted when they end:
// those of the controllers at any time, and what is measured with it opens none.
func parseMetrics(text string) (Counts, error) {
	out := Counts{}
	sc := bufio.NewScanner(strings.NewReader(text))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		rest, ok := strings.CutPrefix(sc.Text(), "apiserver_request_total{")
		if !ok {
			continue
		}
		labels, value, ok := strings.Cut(rest, "} ")
		n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if !ok || err != nil {
			return nil, fmt.Errorf("the API server's metrics have a line that cannot be read: %s", sc.Text())
		}
		verb, resource := label(labels, "verb"), label(labels, "resource")
		if resource == "" || resource == "leases" || verb == "WATCH" {
			continue
		}
		if sub := label(labels, "subresource"); sub != "" {
			resource += "/" + sub
		}
		out[strings.ToLower(verb)+" "+resource] += int(n)
	}
	return out, sc.Err()
}

// label finds a label's value; none of those that are read holds a quote.
func label(labels, name string) string {
	for _, l := range strings.Split(labels, ",") {
		if v, ok := strings.CutPrefix(l, name+`="`); ok {
			return strings.TrimSuffix(v, `"`)
		}
	}
	return ""
}

// passed counts what goes through the front of the clusters, by who asks: Fargate and
// the controllers go to the API server directly, so that this is what the programs ask.
type passed struct {
	mu     sync.Mutex
	counts map[string]Counts
}

func watchPassed(log *wire.Log) *passed {
	p := &passed{counts: map[string]Counts{}}
	log.Watch(func(e wire.Entry) {
		call, ok := strings.CutPrefix(e.Call, "k8s:")
		if !ok {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.counts[e.Caller] == nil {
			p.counts[e.Caller] = Counts{}
		}
		p.counts[e.Caller][call]++
	})
	return p
}

// all are the counts of every caller together.
func (p *passed) all() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := Counts{}
	for _, counts := range p.counts {
		for k, v := range counts {
			out[k] += v
		}
	}
	return out
}
