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
	// extra is what an item has beyond its number when it begins. left is what it still had
	// of that when its pods only terminated, for one that has come back from there: a new
	// pod of it is unready, and it takes no more.
	extra []int
	left  map[int]int
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
	c.state, c.taken, c.left = make([]string, len(c.items)), make([]int, len(c.items)), map[int]int{}
	for _, it := range c.items {
		c.extra = append(c.extra, it.Extra)
	}
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

// away are the pods that the restart has taken under a budget, sick those beside them that
// have turned unready by themselves.
func (c *campaign) away(budget string) (away, sick int) {
	for i, it := range c.items {
		if !slices.Contains(it.Budgets, budget) {
			continue
		}
		away += c.taken[i]
		if _, back := c.left[i]; back {
			sick++
		}
	}
	return away, sick
}

// allowed is what a budget lets go now.
func (c *campaign) allowed(budget string) int {
	away, sick := c.away(budget)
	return max(c.spare[budget]-away-sick, 0)
}

// limits are as an engine has them: budgets of now, room of the start or of now.
func (c *campaign) limits(t *rapid.T) Limits {
	l := Limits{MaxParallel: c.parallel, Room: c.room, Launches: c.tokens, Budgets: map[string]int{}}
	for b := range c.spare {
		l.Budgets[b] = c.allowed(b)
	}
	if l.Room.MilliCPU != fargate.Unknown && rapid.Bool().Draw(t, "read again") {
		l.Room.MilliCPU = max(l.Room.MilliCPU-c.use(true).milliCPU, 0)
	}
	return l
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
	var begun []Item
	for _, i := range begin {
		it := todo[i]
		if it.Group > gate {
			t.Fatalf("%s begins before group %d is through", row(it), gate)
		}
		c.state[at[i]] = "active"
		begun = append(begun, it)
		if c.tokens == fargate.Unknown {
			continue
		}
		if c.tokens -= min(it.Launches(), c.room.Burst); c.tokens < 0 {
			t.Fatalf("%s begins without launch tokens", row(it))
		}
	}
	c.fits(t, begun)
	c.holds(t)
	return len(begin), waits
}

// use is what is under way.
type use struct {
	active                       []Item
	groups                       map[Group]int
	promised, consented, pending map[string]int
	milliCPU                     int
}

// use counts what is under way. What has come back from where its pods only terminated
// counts in full, or else as what it was there.
func (c *campaign) use(full bool) use {
	u := use{groups: map[Group]int{}, promised: map[string]int{}, consented: map[string]int{}, pending: map[string]int{}}
	for i, it := range c.items {
		left, back := c.left[i]
		counts := c.state[i] == "active" && (full || !back)
		if back && !full {
			it.Extra = left
		}
		if c.state[i] == "active" || c.state[i] == "leaving" {
			u.pending[it.Profile] += it.Extra
			if it.Profile != "" {
				u.milliCPU += milliCPU(it)
			}
		}
		if !counts {
			continue
		}
		u.active = append(u.active, it)
		u.groups[it.Group]++
		for _, b := range it.Budgets {
			switch {
			case slices.Contains(it.Breaks, b):
				u.consented[b]++
			case !evicts(it.Method):
				u.promised[b] += it.Takes
			}
		}
	}
	return u
}

// exceeds says what more is under way than the parallelism and the order let be.
func (c *campaign) exceeds(u use) string {
	switch {
	case len(u.active) > max(c.parallel, 1):
		return fmt.Sprintf("%d active, %d allowed", len(u.active), c.parallel)
	case u.groups[CoreDNS] > 0 && len(u.active) > 1:
		return fmt.Sprintf("CoreDNS is not alone: %q", rows(u.active))
	case u.groups[WebhookBackends] > 1:
		return fmt.Sprintf("webhook backends at the same time: %q", rows(u.active))
	}
	return ""
}

// overspends says what more is promised under a budget than it has.
func (c *campaign) overspends(u use, b string) string {
	if u.promised[b] > c.spare[b] || u.consented[b] > 1 || u.consented[b] == 1 && u.promised[b] > 0 {
		return fmt.Sprintf("budget %s of %d: %d promised, %d by consent: %q", b, c.spare[b], u.promised[b], u.consented[b], rows(u.active))
	}
	return ""
}

// crowds says what has no room.
func (c *campaign) crowds(u use) string {
	switch {
	case c.room.MilliCPU != fargate.Unknown && u.milliCPU > c.room.MilliCPU:
		return fmt.Sprintf("%d of %d milliCPU", u.milliCPU, c.room.MilliCPU)
	case !hall(c.room, u.pending):
		return fmt.Sprintf("%v do not fit into %v", u.pending, c.room.Free)
	}
	return ""
}

// fits checks that what begins finds room for itself beside all that is under way, what
// has come back included.
func (c *campaign) fits(t *rapid.T, begun []Item) {
	u := c.use(true)
	for _, it := range begun {
		why := c.exceeds(u)
		for _, b := range it.Budgets {
			if it.Takes > 0 {
				why += c.overspends(u, b)
			}
		}
		if it.Profile != "" && it.Extra > 0 {
			why += c.crowds(u)
		}
		if why != "" {
			t.Fatalf("%s begins, and %s", row(it), why)
		}
	}
}

// holds checks what may never be exceeded, whatever comes back.
func (c *campaign) holds(t *rapid.T) {
	u := c.use(false)
	why := c.exceeds(u) + c.crowds(u)
	for b, spare := range c.spare {
		why += c.overspends(u, b)
		if away, _ := c.away(b); u.consented[b] == 0 && away > spare {
			t.Fatalf("budget %s of %d: %d away", b, spare, away)
		}
	}
	if why != "" {
		t.Fatal(why)
	}
}

// play lets one active item go on: take a pod, give it back, have only pods left that
// terminate, come back from there, or end.
func (c *campaign) play(t *rapid.T) {
	_, active := c.in("active", "leaving")
	i := rapid.SampledFrom(active).Draw(t, "item")
	it := c.items[i]
	allowed := true
	for _, b := range it.Budgets {
		allowed = allowed && c.allowed(b) > 0
	}
	_, back := c.left[i]
	switch what := rapid.SampledFrom([]string{"take", "take", "give", "leave", "back", "end"}).Draw(t, "what"); {
	case c.state[i] == "leaving" && what == "back":
		c.state[i], c.left[i] = "active", it.Extra
		c.items[i].Leaving, c.items[i].Extra = false, c.extra[i]
	case c.state[i] == "leaving" && what != "end":
	case what == "leave" && it.Method == Rollout && it.Group == Rest:
		most := c.extra[i]
		if back {
			most = c.left[i]
		}
		c.state[i], c.taken[i] = "leaving", 0
		c.items[i].Leaving, c.items[i].Extra = true, rapid.IntRange(0, most).Draw(t, "terminating")
		delete(c.left, i)
	case evicts(it.Method) && !allowed && c.taken[i] == 0:
		if len(active) == 1 {
			c.state[i] = "refused"
		}
	case what == "take" && c.taken[i] < it.Takes && !back:
		c.taken[i]++
	case what == "give" && c.taken[i] > 0:
		c.taken[i]--
	case what == "end":
		c.state[i], c.taken[i] = "done", 0
		delete(c.left, i)
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
