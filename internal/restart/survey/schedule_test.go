package survey

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/eksbg/eksbg/internal/fargate"
)

// campaign plays a restart: controllers take pods as fast as their item lets them,
// evictions go when the budget allows, items end in any order.
type campaign struct {
	items []Item
	state []string // "", active, leaving, done, refused
	// taken are the pods of an item that are away now.
	taken []int
	// spare is what each budget lets go when all pods are there.
	spare    map[string]int
	room     fargate.Room
	parallel int
	tokens   int
}

func drawCampaign(t *rapid.T) *campaign {
	c := &campaign{parallel: rapid.IntRange(0, 5).Draw(t, "parallel"), spare: map[string]int{}, tokens: fargate.Unknown}
	for _, b := range []string{"shop/a", "shop/b"} {
		c.spare[b] = rapid.IntRange(0, 4).Draw(t, b)
	}
	c.room = fargate.Room{MilliCPU: rapid.SampledFrom([]int{fargate.Unknown, 0, 900, 4000, 100000}).Draw(t, "milliCPU"),
		Burst: fargate.Unknown, PerSecond: fargate.Unknown, Free: map[string]int{}, Addresses: map[string]int{"unread": fargate.Unknown},
		Subnets: map[string][]string{"a": {"s1"}, "b": {"s1", "s2"}, "c": {"s2", "s3"}}}
	for _, s := range []string{"s1", "s2", "s3"} {
		c.room.Free[s] = rapid.IntRange(0, 4).Draw(t, s)
	}
	for p, subnets := range c.room.Subnets {
		for _, s := range subnets {
			c.room.Addresses[p] += c.room.Free[s]
		}
	}
	if rapid.Bool().Draw(t, "rate") {
		c.room.Burst = rapid.IntRange(1, 4).Draw(t, "burst")
		c.tokens = c.room.Burst
	}
	for i := range rapid.IntRange(1, 12).Draw(t, "items") {
		c.items = append(c.items, c.drawItem(t, i))
	}
	c.state, c.taken = make([]string, len(c.items)), make([]int, len(c.items))
	return c
}

func (c *campaign) drawItem(t *rapid.T, i int) Item {
	it := Item{Owner: deploy("shop", fmt.Sprint("w", i)), Replicas: 8,
		Method:  rapid.SampledFrom([]Method{Rollout, Rollout, Rollout, Evict, InOrder, RestartAt, Surge, Recreate, Wait, None}).Draw(t, "method"),
		Group:   rapid.SampledFrom([]Group{Rest, Rest, Rest, Rest, WebhookBackends, CoreDNS}).Draw(t, "group"),
		Profile: rapid.SampledFrom([]string{"a", "b", "c", "unread", ""}).Draw(t, "profile"), MilliCPU: rapid.SampledFrom([]int32{0, 250, 1000}).Draw(t, "cpu"),
		Budgets: rapid.SampledFrom([][]string{nil, {"shop/a"}, {"shop/a"}, {"shop/b"}, {"shop/a", "shop/b"}}).Draw(t, "under")}
	it.Takes, it.Extra = rapid.IntRange(0, 3).Draw(t, "takes"), rapid.IntRange(0, 3).Draw(t, "extra")
	if evicts(it.Method) {
		it.Takes = 1
	}
	if it.Method == Rollout && rapid.Bool().Draw(t, "consent") {
		for _, b := range it.Budgets {
			if c.spare[b] < it.Takes {
				it.Breaks = append(it.Breaks, b)
			}
		}
	}
	return it
}

func (c *campaign) in(states ...string) (items []Item, at []int) {
	for i, s := range c.state {
		if slices.Contains(states, s) {
			items, at = append(items, c.items[i]), append(at, i)
		}
	}
	return items, at
}

// away are the pods that are gone under a budget.
func (c *campaign) away(budget string) int {
	n := 0
	for i, it := range c.items {
		if slices.Contains(it.Budgets, budget) {
			n += c.taken[i]
		}
	}
	return n
}

// limits are as an engine has them: budgets of now, room of the start or of now.
func (c *campaign) limits(t *rapid.T) Limits {
	l := Limits{MaxParallel: c.parallel, Room: c.room, Launches: c.tokens, Budgets: map[string]int{}}
	for b, spare := range c.spare {
		l.Budgets[b] = max(spare-c.away(b), 0)
	}
	if l.Room.MilliCPU != fargate.Unknown && rapid.Bool().Draw(t, "read again") {
		l.Room.MilliCPU = max(l.Room.MilliCPU-c.cpu(), 0)
	}
	return l
}

func (c *campaign) cpu() int {
	n := 0
	for i, it := range c.items {
		if (c.state[i] == "active" || c.state[i] == "leaving") && it.Profile != "" {
			n += milliCPU(it)
		}
	}
	return n
}

// begin asks Next and holds its answer against what it promises.
func (c *campaign) begin(t *rapid.T) (began int, waits map[int]string) {
	active, _ := c.in("active", "leaving")
	todo, at := c.in("")
	begin, waits := Next(active, todo, c.limits(t))
	gate := first(active, todo)
	for i, it := range todo {
		_, waiting := waits[i]
		if starts := slices.Contains(begin, i); it.Works() != (starts || waiting) || starts && waiting {
			t.Fatalf("%s: begins %v, waits %v", row(it), starts, waiting)
		}
	}
	if !slices.IsSorted(begin) || len(slices.Compact(slices.Clone(begin))) != len(begin) {
		t.Fatalf("begin %v", begin)
	}
	for _, i := range begin {
		it := todo[i]
		if it.Group > gate {
			t.Fatalf("%s begins before group %d is through", row(it), gate)
		}
		c.state[at[i]] = "active"
		if c.tokens == fargate.Unknown {
			continue
		}
		if c.tokens -= min(it.Launches(), c.room.Burst); c.tokens < 0 {
			t.Fatalf("%s begins without launch tokens", row(it))
		}
	}
	c.holds(t)
	return len(begin), waits
}

// holds checks what may never be exceeded.
func (c *campaign) holds(t *rapid.T) {
	groups, extra := map[Group]int{}, map[string]int{}
	promised, consented := map[string]int{}, map[string]int{}
	there, _ := c.in("active", "leaving")
	for _, it := range there {
		extra[it.Profile] += it.Extra
	}
	active, _ := c.in("active")
	for _, it := range active {
		groups[it.Group]++
		for _, b := range it.Budgets {
			switch {
			case slices.Contains(it.Breaks, b):
				consented[b]++
			case !evicts(it.Method):
				promised[b] += it.Takes
			}
		}
	}
	switch {
	case len(active) > max(c.parallel, 1):
		t.Fatalf("%d active, %d allowed", len(active), c.parallel)
	case groups[CoreDNS] > 0 && len(active) > 1:
		t.Fatalf("CoreDNS is not alone: %q", rows(active))
	case groups[WebhookBackends] > 1:
		t.Fatalf("webhook backends at the same time: %q", rows(active))
	case c.room.MilliCPU != fargate.Unknown && c.cpu() > c.room.MilliCPU:
		t.Fatalf("%d of %d milliCPU", c.cpu(), c.room.MilliCPU)
	}
	for b, spare := range c.spare {
		if promised[b] > spare || consented[b] > 1 || consented[b] == 1 && promised[b] > 0 {
			t.Fatalf("budget %s of %d: %d promised, %d by consent: %q", b, spare, promised[b], consented[b], rows(active))
		}
		if consented[b] == 0 && c.away(b) > spare {
			t.Fatalf("budget %s of %d: %d away", b, spare, c.away(b))
		}
	}
	if !hall(c.room, extra) {
		t.Fatalf("%v do not fit into %v", extra, c.room.Free)
	}
}

// play lets one active item go on: take a pod, give it back, have only pods left that
// terminate, or end.
func (c *campaign) play(t *rapid.T) {
	_, active := c.in("active", "leaving")
	i := rapid.SampledFrom(active).Draw(t, "item")
	it := c.items[i]
	allowed := true
	for _, b := range it.Budgets {
		allowed = allowed && c.away(b) < c.spare[b]
	}
	switch what := rapid.SampledFrom([]string{"take", "take", "give", "leave", "end"}).Draw(t, "what"); {
	case c.state[i] == "leaving" && what != "end":
	case what == "leave" && it.Method == Rollout && it.Group == Rest:
		c.state[i], c.taken[i] = "leaving", 0
		c.items[i].Leaving, c.items[i].Extra = true, rapid.IntRange(0, it.Extra).Draw(t, "terminating")
	case evicts(it.Method) && !allowed && c.taken[i] == 0:
		if len(active) == 1 {
			c.state[i] = "refused"
		}
	case what == "take" && c.taken[i] < it.Takes:
		c.taken[i]++
	case what == "give" && c.taken[i] > 0:
		c.taken[i]--
	case what == "end":
		c.state[i], c.taken[i] = "done", 0
	}
	if c.tokens != fargate.Unknown {
		c.tokens = min(c.tokens+rapid.IntRange(0, 2).Draw(t, "refill"), c.room.Burst)
	}
	c.holds(t)
}

// TestRandomCampaigns: nothing is ever exceeded, and everything is done in the end or
// says why not.
func TestRandomCampaigns(t *testing.T) {
	check(t, func(t *rapid.T) {
		c := drawCampaign(t)
		for range 2000 {
			began, waits := c.begin(t)
			todo, _ := c.in("")
			active, _ := c.in("active", "leaving")
			switch {
			case len(active) > 0:
				c.play(t)
			case began > 0:
				t.Fatal("began nothing that is active")
			case c.tokens != fargate.Unknown && c.tokens < c.room.Burst:
				c.tokens = c.room.Burst
			default:
				c.over(t, todo, waits)
				return
			}
		}
		t.Fatalf("never ends: %v", c.state)
	})
}

// over checks that what is left is left for a reason.
func (c *campaign) over(t *rapid.T, todo []Item, waits map[int]string) {
	blocked := Blocked(todo, c.limits(t))
	gate := first(nil, todo)
	for i, it := range todo {
		if it.Works() && (waits[i] == "" || it.Group == gate && blocked[i] == "") {
			t.Fatalf("%s is left without a reason (%q, %q)", row(it), waits[i], blocked[i])
		}
	}
}

// hall is Hall's condition: no set of profiles wants more addresses than its subnets have.
func hall(room fargate.Room, pods map[string]int) bool {
	var profiles []string
	for p := range room.Subnets {
		profiles = append(profiles, p)
	}
	for set := range 1 << len(profiles) {
		want, have, seen := 0, 0, map[string]bool{}
		for i, p := range profiles {
			if set>>i&1 == 0 {
				continue
			}
			want += pods[p]
			for _, s := range room.Subnets[p] {
				if !seen[s] {
					seen[s], have = true, have+room.Free[s]
				}
			}
		}
		if want > have {
			return false
		}
	}
	return true
}

func TestPlacesIsHallsCondition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		room, pods := fargate.Room{Addresses: map[string]int{}, Subnets: map[string][]string{}, Free: map[string]int{}}, map[string]int{}
		all := []string{"s1", "s2", "s3", "s4"}
		for _, s := range all {
			room.Free[s] = rapid.IntRange(0, 4).Draw(t, s)
		}
		for _, p := range []string{"a", "b", "c", "d"} {
			room.Subnets[p] = rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, 4, rapid.ID[string]).Draw(t, p)
			pods[p] = rapid.IntRange(0, 5).Draw(t, "pods")
			for _, s := range room.Subnets[p] {
				room.Addresses[p] += room.Free[s]
			}
		}
		if got, want := places(room, pods), hall(room, pods); got != want {
			t.Fatalf("places(%v, %v) = %v, want %v", room, pods, got, want)
		}
	})
}

func TestPlacesWhereSubnetsAreNotSaid(t *testing.T) {
	room := fargate.Room{Addresses: map[string]int{"a": 2, "b": fargate.Unknown}}
	for n, want := range map[int]bool{0: true, 2: true, 3: false} {
		if got := places(room, map[string]int{"a": n, "b": 99, "c": 99}); got != want {
			t.Errorf("%d pods in 2 addresses: %v", n, got)
		}
	}
}
