package survey

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eksbg/eksbg/internal/fargate"
)

// item is one of the rest that rolls and takes and adds pods.
func item(name string, takes, extra int, change ...func(*Item)) Item {
	it := Item{Owner: deploy("shop", name), Method: Rollout, Group: Rest, Takes: takes, Extra: extra,
		Replicas: 8, Profile: "fp-a", MilliCPU: 500}
	for _, c := range change {
		c(&it)
	}
	return it
}

func leaving(it *Item)                       { it.Leaving = true }
func group(g Group) func(*Item)              { return func(it *Item) { it.Group = g } }
func method(m Method) func(*Item)            { return func(it *Item) { it.Method = m } }
func profile(p string) func(*Item)           { return func(it *Item) { it.Profile = p } }
func under(budgets ...string) func(*Item)    { return func(it *Item) { it.Budgets = budgets } }
func breaking(budgets ...string) func(*Item) { return func(it *Item) { it.Breaks = budgets } }

// limits are unbounded but for what is changed.
func limits(parallel int, change ...func(*Limits)) Limits {
	l := Unbounded(parallel)
	for _, c := range change {
		c(&l)
	}
	return l
}

// room gives fp-a the subnets a and shared, fp-b shared alone.
func room(a, shared int) func(*Limits) {
	return func(l *Limits) {
		l.Room.Subnets = map[string][]string{"fp-a": {"a", "shared"}, "fp-b": {"shared"}}
		l.Room.Free = map[string]int{"a": a, "shared": shared}
		l.Room.Addresses = map[string]int{"fp-a": a + shared, "fp-b": shared, "fp-x": fargate.Unknown}
	}
}

func cpu(milli int) func(*Limits) { return func(l *Limits) { l.Room.MilliCPU = milli } }
func launches(n, burst int) func(*Limits) {
	return func(l *Limits) { l.Launches, l.Room.Burst, l.Room.PerSecond = n, burst, burst }
}
func allowing(n int) func(*Limits) {
	return func(l *Limits) { l.Budgets = map[string]int{"shop/b": n} }
}

func TestNext(t *testing.T) {
	dns, hook := item("dns", 1, 1, group(CoreDNS)), item("hook", 0, 1, group(WebhookBackends))
	plain := item("plain", 0, 1)
	tests := map[string]struct {
		active, todo []Item
		l            Limits
		begin        []int
		waits        map[int]string
	}{
		"nothing to do":                   {nil, nil, limits(4), nil, nil},
		"parallelism":                     {[]Item{plain}, []Item{plain, plain, plain}, limits(3), []int{0, 1}, map[int]string{2: "3 under way, maxParallel 3"}},
		"parallelism unsaid":              {nil, []Item{plain, plain}, limits(0), []int{0}, map[int]string{1: "1 under way, maxParallel 1"}},
		"what does not work is no matter": {nil, []Item{item("w", 0, 0, method(Wait), group(CoreDNS)), item("n", 0, 0, method(None)), plain}, limits(4), []int{2}, nil},

		"CoreDNS alone": {nil, []Item{dns, hook, plain}, limits(4), []int{0}, map[int]string{1: "waits for CoreDNS", 2: "waits for CoreDNS"}},
		"CoreDNS active": {[]Item{dns}, []Item{hook, plain}, limits(4), nil,
			map[int]string{0: "waits for CoreDNS", 1: "waits for CoreDNS"}},
		"CoreDNS late": {[]Item{plain}, []Item{plain, dns}, limits(4), nil,
			map[int]string{0: "waits for CoreDNS", 1: "goes alone: 1 other under way"}},
		"webhooks one at a time": {nil, []Item{hook, hook, plain}, limits(4), []int{0},
			map[int]string{1: "one owner behind fail-closed webhooks at a time", 2: "waits for what stands behind fail-closed webhooks"}},
		"webhook active": {[]Item{hook}, []Item{plain}, limits(4), nil, map[int]string{0: "waits for what stands behind fail-closed webhooks"}},
		"a webhook that cannot begin lets the other": {nil, []Item{item("h", 2, 0, group(WebhookBackends), under("shop/b")), hook}, limits(4, allowing(1)), []int{1},
			map[int]string{0: "takes 2 pods at a time: PodDisruptionBudget shop/b allows 1 now, 0 promised to what is under way"}},

		"budget shared": {nil, []Item{item("x", 1, 0, under("shop/b")), item("y", 1, 0, under("shop/b")), item("z", 1, 0, under("shop/b"))}, limits(4, allowing(2)), []int{0, 1},
			map[int]string{2: "takes 1 pod at a time: PodDisruptionBudget shop/b allows 2 now, 2 promised to what is under way"}},
		"budget active": {[]Item{item("x", 1, 0, under("shop/b"))}, []Item{item("y", 1, 0, under("shop/b")), item("z", 0, 1, under("shop/b")), plain}, limits(4, allowing(1)), []int{1, 2},
			map[int]string{0: "takes 1 pod at a time: PodDisruptionBudget shop/b allows 1 now, 1 promised to what is under way"}},
		"budget of nobody": {nil, []Item{item("x", 3, 0, under("shop/other"))}, limits(4, allowing(0)), []int{0}, nil},
		"rollout over its budget": {nil, []Item{item("x", 2, 0, under("shop/b")), plain}, limits(4, allowing(1)), []int{1},
			map[int]string{0: "takes 2 pods at a time: PodDisruptionBudget shop/b allows 1 now, 0 promised to what is under way"}},
		"rollout over its budget, alone": {nil, []Item{item("x", 2, 0, under("shop/b"))}, limits(4, allowing(1)), nil,
			map[int]string{0: "takes 2 pods at a time: PodDisruptionBudget shop/b allows 1 now, 0 promised to what is under way"}},
		"eviction over its budget waits": {nil, []Item{item("x", 1, 0, method(Evict), under("shop/b")), plain}, limits(4, allowing(0)), []int{1},
			map[int]string{0: "takes 1 pod at a time: PodDisruptionBudget shop/b allows 0 now, 0 promised to what is under way"}},
		"eviction over its budget, alone": {nil, []Item{item("x", 2, 0, under("shop/b")), item("y", 1, 0, method(InOrder), under("shop/b")), item("z", 1, 0, method(Evict), under("shop/b"))},
			limits(4, allowing(0)), []int{1}, map[int]string{
				0: "takes 2 pods at a time: PodDisruptionBudget shop/b allows 0 now, 0 promised to what is under way",
				2: "takes 1 pod at a time: PodDisruptionBudget shop/b allows 0 now, 0 promised to what is under way"}},
		"eviction over its budget, beside what only terminates": {[]Item{item("l", 1, 2, leaving, under("shop/b"))}, []Item{item("z", 1, 1, method(Evict), under("shop/b"))},
			limits(1, allowing(0)), []int{0}, nil},
		"eviction over its budget, beside what only terminates, without an address": {[]Item{item("l", 1, 2, leaving)}, []Item{item("z", 1, 1, method(Evict), under("shop/b"))},
			limits(1, allowing(0), room(2, 0)), nil, map[int]string{0: "takes 1 pod at a time: PodDisruptionBudget shop/b allows 0 now, 0 promised to what is under way"}},
		"rollout over its budget, beside what only terminates": {[]Item{item("l", 1, 2, leaving)}, []Item{item("x", 1, 0, under("shop/b"))}, limits(1, allowing(0)), nil,
			map[int]string{0: "takes 1 pod at a time: PodDisruptionBudget shop/b allows 0 now, 0 promised to what is under way"}},
		"eviction over its budget, beside what rolls": {[]Item{item("l", 1, 2, leaving), plain}, []Item{item("z", 1, 1, method(Evict), under("shop/b"))}, limits(2, allowing(0)), nil,
			map[int]string{0: "takes 1 pod at a time: PodDisruptionBudget shop/b allows 0 now, 0 promised to what is under way"}},
		"one has come back": {[]Item{plain, plain, plain}, []Item{plain}, limits(2), nil, map[int]string{0: "3 under way, maxParallel 2"}},

		"by consent": {nil, []Item{item("x", 2, 0, under("shop/b"), breaking("shop/b")), item("y", 1, 0, under("shop/b"))}, limits(4, allowing(1)), []int{0},
			map[int]string{1: "takes 1 pod at a time: PodDisruptionBudget shop/b allows 1 now, 2 promised to what is under way"}},
		"by consent, not beside others": {[]Item{item("y", 1, 0, under("shop/b"))}, []Item{item("x", 2, 0, under("shop/b"), breaking("shop/b"))}, limits(4, allowing(1)), nil,
			map[int]string{0: "takes 2 pods at a time: PodDisruptionBudget shop/b allows 1 now, 1 promised to what is under way"}},

		"addresses": {[]Item{item("x", 0, 2)}, []Item{item("y", 0, 2), item("z", 0, 1), item("s", 1, 0)}, limits(9, room(2, 1)), []int{1, 2},
			map[int]string{0: "needs 2 free addresses beside what runs: the subnets of Fargate profile fp-a have 3 free, 2 promised to what is under way"}},
		"addresses of a shared subnet": {nil, []Item{item("x", 0, 2), item("y", 0, 1, profile("fp-b")), item("z", 0, 1, profile("fp-b")), item("u", 0, 9, profile("fp-x")), item("e", 0, 9, profile(""))},
			limits(9, room(2, 1)), []int{0, 1, 3, 4},
			map[int]string{2: "needs 1 free address beside what runs: the subnets of Fargate profile fp-b have 1 free, 3 promised to what is under way"}},
		"vCPU": {[]Item{item("x", 0, 1)}, []Item{item("y", 0, 3), item("z", 1, 1), item("s", 1, 0)}, limits(9, cpu(1500)), []int{1, 2},
			map[int]string{0: "needs 1.5 vCPU beside what runs: the Fargate quota (L-3032A538) leaves 1.5, 0.5 promised to what is under way"}},
		"vCPU unsaid counts as the least": {nil, []Item{item("x", 0, 1, func(it *Item) { it.MilliCPU = 0 })}, limits(9, cpu(249)), nil,
			map[int]string{0: "needs 0.25 vCPU beside what runs: the Fargate quota (L-3032A538) leaves 0.249, 0 promised to what is under way"}},
		"launches": {[]Item{item("x", 0, 9)}, []Item{item("y", 1, 2), item("z", 0, 2), item("s", 1, 0), item("e", 5, 5, profile(""))}, limits(9, launches(3, 20)), []int{0, 2, 3},
			map[int]string{1: "launches 2 pods at once: Fargate's launch rate has 1 left for now"}},
		"more launches than the bucket holds": {nil, []Item{item("x", 30, 30), plain}, limits(9, launches(20, 20)), []int{0},
			map[int]string{1: "launches 1 pod at once: Fargate's launch rate has 0 left for now"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			begin, waits := Next(tt.active, tt.todo, tt.l)
			if diff := cmp.Diff(tt.begin, begin); diff != "" {
				t.Error(diff)
			}
			if tt.waits == nil {
				tt.waits = map[int]string{}
			}
			if diff := cmp.Diff(tt.waits, waits); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestBlocked(t *testing.T) {
	todo := []Item{
		item("rollout", 2, 0, under("shop/b")),
		item("evicted", 2, 0, method(Evict), under("shop/b")),
		item("consent", 2, 0, under("shop/b"), breaking("shop/b")),
		item("wide", 0, 4),
		item("big", 0, 3, func(it *Item) { it.MilliCPU = 4000 }),
		item("skipped", 9, 9, method(None)),
		item("hook", 1, 1, group(WebhookBackends)),
		item("fits", 0, 3),
	}
	got := Blocked(todo, limits(1, allowing(1), room(2, 1), cpu(10000), launches(0, 20)))
	if diff := cmp.Diff(map[int]string{
		0: "takes 2 pods at a time: PodDisruptionBudget shop/b allows 1 now, 0 promised to what is under way",
		3: "needs 4 free addresses beside what runs: the subnets of Fargate profile fp-a have 3 free, 0 promised to what is under way",
		4: "needs 12 vCPU beside what runs: the Fargate quota (L-3032A538) leaves 10, 0 promised to what is under way",
	}, got); diff != "" {
		t.Error(diff)
	}
}

func TestLaunches(t *testing.T) {
	for want, it := range map[int]Item{0: item("ec2", 3, 3, profile("")), 5: item("recreate", 5, 0), 4: item("surge", 2, 4), 1: item("least", 0, 0)} {
		if got := it.Launches(); got != want {
			t.Errorf("%s launches %d, want %d", it.Owner.Name, got, want)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	var todo []Item
	for i := range 1000 {
		todo = append(todo, item(fmt.Sprint("w", i), 1, 2, under("shop/b")))
	}
	l := limits(100, room(50, 50), cpu(1e6), allowing(40), launches(1000, 20))
	for b.Loop() {
		Next(todo[:20], todo[20:], l)
	}
}
