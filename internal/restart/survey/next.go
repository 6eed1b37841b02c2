package survey

import (
	"fmt"
	"slices"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/fargate"
)

// Limits bound what is under way at the same time. Room and Budgets may have been read
// while items were active: what those use then counts twice, which delays and breaks
// nothing.
type Limits struct {
	// MaxParallel is how many items may be active; less than 1 is 1.
	MaxParallel int
	// Room is what Fargate has left; Unknown parts of it bound nothing.
	Room fargate.Room
	// Budgets are how many pods each PodDisruptionBudget (namespace/name) lets go now. One
	// that is not named bounds nothing.
	Budgets map[string]int
	// Launches are the tokens that are left for launching pods (Room.Burst and
	// Room.PerSecond fill them); fargate.Unknown bounds nothing.
	Launches int
}

// Unbounded are limits that only the parallelism bounds.
func Unbounded(maxParallel int) Limits {
	return Limits{MaxParallel: maxParallel, Launches: fargate.Unknown,
		Room: fargate.Room{MilliCPU: fargate.Unknown, Burst: fargate.Unknown, PerSecond: fargate.Unknown}}
}

// Allowances are the budgets of an inventory as Limits take them. A budget whose
// controller has not seen the newest spec lets nothing go, as the Eviction API has it.
func Allowances(inv *cluster.Inventory) map[string]int {
	out := make(map[string]int, len(inv.Budgets))
	for _, b := range inv.Budgets {
		out[b.String()] = 0
		if b.Current {
			out[b.String()] = max(int(b.Allowed), 0)
		}
	}
	return out
}

// Launches is how many pods the item may ask Fargate for at one moment.
func (i Item) Launches() int {
	if i.Profile == "" || !i.Works() {
		return 0
	}
	return max(i.Takes, i.Extra, 1)
}

// Next tells which items of todo (their places, rising) begin beside the active ones, and
// for each of the others that Works why it waits. Items that do not Work are ignored.
//
// CoreDNS begins when nothing else is active and nothing begins beside it; then go the
// webhook backends, one at a time; the rest waits for both. In between the order of todo
// is a preference: what cannot begin holds nobody up.
//
// With what begins, the active items together, without those that are Leaving, do not
// exceed MaxParallel; the Takes of those under one budget do not exceed what it allows,
// except alone and with the plan file's consent (Breaks) or where the Eviction API guards
// the budget (a refused eviction is retried, and names the pod; a pod that is not ready may
// go although nothing is allowed); their Extra pods find an address in the subnets of their
// Fargate profiles and fit into the vCPU quota; and what begins has launch tokens.
//
// An item that was Leaving and is not any more counts in full again. More may be active
// then than the limits say; nothing begins that they bound until it fits again.
//
// Where nothing begins and nothing is active, either launch tokens are short, which time
// cures, or Blocked says why nothing ever will under these limits.
func Next(active, todo []Item, l Limits) (begin []int, waits map[int]string) {
	t := newTally(active, l)
	gate := first(active, todo)
	waits = map[int]string{}
	for i, it := range todo {
		if !it.Works() {
			continue
		}
		if why := t.refuses(it, gate); why != "" {
			waits[i] = why
			continue
		}
		t.add(it)
		begin = append(begin, i)
	}
	if t.active > 0 {
		return begin, waits
	}
	t.lenient = true
	for i, it := range todo {
		if it.Works() && t.refuses(it, gate) == "" {
			delete(waits, i)
			return []int{i}, waits
		}
	}
	return nil, waits
}

// Blocked tells for each place in todo whose item Works but could not begin with nothing
// else active and every launch token there, why: the numbers that are short. A budget's
// allowance and Fargate's room are of a moment: read them again before giving up.
func Blocked(todo []Item, l Limits) map[int]string {
	l.Launches = fargate.Unknown
	out := map[int]string{}
	for i, it := range todo {
		if !it.Works() {
			continue
		}
		t := newTally(nil, l)
		t.lenient = true
		if why := t.refuses(it, it.Group); why != "" {
			out[i] = why
		}
	}
	return out
}

// first is the group that has to be through before a later one begins. What is active
// counts whether or not its item Works: it may be the rest of a restart.
func first(active, todo []Item) Group {
	gate := Rest
	for _, it := range active {
		if !it.Leaving {
			gate = min(gate, it.Group)
		}
	}
	for _, it := range todo {
		if it.Works() {
			gate = min(gate, it.Group)
		}
	}
	return gate
}

// tally is what the active items use.
type tally struct {
	l      Limits
	groups map[Group]int
	// active counts the items that are not Leaving.
	active int
	// takes are the pods that may go under each budget, extra the pods beyond their
	// owner's number by Fargate profile.
	takes, extra map[string]int
	milliCPU     int
	// launches are the tokens that are left.
	launches int
	// lenient leaves budgets to the Eviction API where a method goes through it.
	lenient bool
}

func newTally(active []Item, l Limits) *tally {
	t := &tally{l: l, groups: map[Group]int{}, takes: map[string]int{}, extra: map[string]int{}}
	for _, it := range active {
		t.add(it)
	}
	t.launches = l.Launches
	return t
}

func (t *tally) add(it Item) {
	if it.Profile != "" {
		t.extra[it.Profile] += it.Extra
		t.milliCPU += milliCPU(it)
	}
	if it.Leaving {
		return
	}
	t.active++
	t.groups[it.Group]++
	for _, b := range it.Budgets {
		t.takes[b] += it.Takes
	}
	if t.launches != fargate.Unknown {
		t.launches = max(t.launches-t.tokens(it), 0)
	}
}

// refuses says why the item may not begin now, or "".
func (t *tally) refuses(it Item, gate Group) string {
	switch {
	case gate == CoreDNS && it.Group > gate:
		return "waits for CoreDNS"
	case gate == WebhookBackends && it.Group > gate:
		return "waits for what stands behind fail-closed webhooks"
	case it.Group == CoreDNS && t.active > 0:
		return "goes alone: " + count(t.active, "other") + " under way"
	case it.Group == WebhookBackends && t.groups[WebhookBackends] > 0:
		return "one owner behind fail-closed webhooks at a time"
	case t.active >= max(t.l.MaxParallel, 1):
		return fmt.Sprintf("%d under way, maxParallel %d", t.active, max(t.l.MaxParallel, 1))
	}
	if why := t.overBudget(it); why != "" {
		return why
	}
	return t.overRoom(it)
}

// overBudget says which budget would not allow the item beside the active ones.
func (t *tally) overBudget(it Item) string {
	if it.Takes == 0 || t.lenient && evicts(it.Method) {
		return ""
	}
	for _, b := range it.Budgets {
		allowed, known := t.l.Budgets[b]
		promised := t.takes[b]
		if !known || promised+it.Takes <= allowed || promised == 0 && slices.Contains(it.Breaks, b) {
			continue
		}
		return fmt.Sprintf("takes %s at a time: PodDisruptionBudget %s allows %d now, %d promised to what is under way",
			count(it.Takes, "pod"), b, allowed, promised)
	}
	return ""
}

// overRoom says what Fargate has not enough of for the item beside the active ones.
func (t *tally) overRoom(it Item) string {
	if it.Profile == "" {
		return ""
	}
	if it.Extra > 0 {
		t.extra[it.Profile] += it.Extra
		fits := places(t.l.Room, t.extra)
		t.extra[it.Profile] -= it.Extra
		if !fits {
			return fmt.Sprintf("needs %s beside what runs: the subnets of Fargate profile %s have %d free, %d promised to what is under way",
				addresses(it.Extra), it.Profile, free(t.l.Room, it.Profile), shared(t.l.Room, it.Profile, t.extra))
		}
	}
	if t.overQuota(it) {
		have := t.l.Room.MilliCPU
		return fmt.Sprintf("needs %s vCPU beside what runs: the Fargate quota (L-3032A538) leaves %s, %s promised to what is under way",
			cores(milliCPU(it)), cores(have), cores(t.milliCPU))
	}
	if need := t.tokens(it); t.launches != fargate.Unknown && need > t.launches {
		return fmt.Sprintf("launches %s at once: Fargate's launch rate has %d left for now", count(need, "pod"), t.launches)
	}
	return ""
}

// overQuota tells whether the vCPU quota leaves too little for the item.
func (t *tally) overQuota(it Item) bool {
	have := t.l.Room.MilliCPU
	return it.Profile != "" && have != fargate.Unknown && milliCPU(it) > 0 && t.milliCPU+milliCPU(it) > have
}

// ShortOfVCPU tells whether the vCPU quota leaves too little for one item of todo beside
// the active ones.
func ShortOfVCPU(active, todo []Item, room fargate.Room) bool {
	t := newTally(active, Limits{Room: room, Launches: fargate.Unknown})
	return slices.ContainsFunc(todo, func(it Item) bool { return it.Works() && t.overQuota(it) })
}

// tokens are the launch tokens of the item; a full bucket is enough for any, and
// Fargate keeps what is above it waiting.
func (t *tally) tokens(it Item) int {
	if t.l.Room.Burst > 0 {
		return min(it.Launches(), t.l.Room.Burst)
	}
	return it.Launches()
}

// leastMilliCPU is the smallest pod that Fargate provisions, for those that do not say
// (EKS User Guide, Fargate pod configuration: 0.25 vCPU).
const leastMilliCPU = 250

// milliCPU is what the item's Extra pods add to the account's use.
func milliCPU(it Item) int {
	if it.MilliCPU <= 0 {
		return it.Extra * leastMilliCPU
	}
	return it.Extra * int(it.MilliCPU)
}

// cores writes thousandths of a vCPU as people do: 0.25, 4.
func cores(milli int) string { return fmt.Sprintf("%g", float64(milli)/1000) }

func addresses(n int) string {
	if n == 1 {
		return "1 free address"
	}
	return fmt.Sprintf("%d free addresses", n)
}
