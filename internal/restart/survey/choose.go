package survey

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/planfile"
)

func (s *subject) wait(reason, cure string) {
	s.it.Method, s.it.Reason, s.it.Cure = Wait, reason, cure
}

// none also takes back what an earlier choice has filled in.
func (s *subject) none(reason, cure string) {
	s.it.Method, s.it.Reason, s.it.Cure = None, reason, cure
	s.it.Takes, s.it.Extra, s.it.Outage, s.it.Breaks = 0, 0, "", nil
}

// choose takes the first way that nothing speaks against. Where there is none, the
// plan file's consent to an outage lets a rollout break budgets; without it the item
// is stuck with what speaks against the first way.
func (s *subject) choose(ways []way) {
	consent, outage := s.allowed(planfile.ActionOutage)
	var first objection
	for i, w := range ways {
		no := s.against(w, outage)
		if no.reason == "" {
			s.take(w, cmp.Or(w.reason, first.reason))
			if w.outage != "" && outage {
				s.it.Reason = sentence(s.it.Reason, "outage allowed: "+consent)
			}
			return
		}
		if i == 0 {
			first = no
		}
	}
	for _, w := range ways {
		if broken := s.never(w.takes); outage && w.method == Rollout && len(broken) > 0 {
			s.take(w, first.reason+"; outage allowed: "+consent)
			for _, b := range broken {
				s.it.Breaks = append(s.it.Breaks, b.String())
			}
			return
		}
	}
	s.none(first.reason, first.cure)
}

func (s *subject) take(w way, reason string) {
	s.it.Method, s.it.Reason = w.method, reason
	s.it.Takes, s.it.Extra, s.it.Outage = w.takes, w.extra, w.outage
}

// objection is what speaks against a way, and its cure.
type objection struct{ reason, cure string }

// against says what keeps a way from being gone.
func (s *subject) against(w way, outage bool) objection {
	o := s.it.Owner
	switch broken := s.never(w.takes); {
	case evicts(w.method) && s.it.Overlap != "":
		return objection{"eviction always fails: " + s.it.Overlap, "leave one PodDisruptionBudget over its pods"}
	case len(broken) > 0:
		cure := "lower what the budget asks for, or add a replica"
		if w.method == Rollout {
			cure += ", or consent: " + allow(o, planfile.ActionOutage)
		}
		return objection{neverAllows(broken[0], w.takes), cure}
	case w.outage == "" || outage:
		return objection{}
	case len(s.it.Webhooks) > 0:
		return objection{fmt.Sprintf("%s, and webhook %s fails closed meanwhile", w.outage, s.it.Webhooks[0]),
			"add a replica, or consent: " + allow(o, planfile.ActionOutage)}
	case s.o.Live && !w.consented:
		cure := "add a replica or room to surge"
		if evicts(w.method) {
			cure = "add a replica"
		}
		return objection{w.outage + ", and the cluster has the traffic", cure + ", or consent: " + allow(o, planfile.ActionOutage)}
	}
	return objection{}
}

// evicts tells whether a method goes through the Eviction API, ours or a controller's.
func evicts(m Method) bool { return m == Evict || m == InOrder || m == RestartAt }

// never are the budgets over the pods that cannot allow that many to go at once however
// healthy all are, the tightest first. A budget whose status is of an older spec says
// nothing about that.
func (s *subject) never(takes int) []cluster.Budget {
	var out []cluster.Budget
	for _, b := range s.budgets {
		if takes > 0 && b.Current && spare(b) < takes {
			out = append(out, b)
		}
	}
	slices.SortStableFunc(out, func(a, b cluster.Budget) int { return cmp.Compare(spare(a), spare(b)) })
	return out
}

// spare is how many pods the budget lets go when all are healthy.
func spare(b cluster.Budget) int { return int(b.Expected) - int(b.Desired) }

func neverAllows(b cluster.Budget, takes int) string {
	return fmt.Sprintf("PodDisruptionBudget %s never allows %s to go at once: %d allowed now, %d healthy, %d desired of %d expected",
		b, count(takes, "pod"), b.Allowed, b.Healthy, b.Desired, b.Expected)
}

// budget enters a budget over one of the pods.
func (s *subject) budget(b cluster.Budget) {
	if !slices.ContainsFunc(s.budgets, func(have cluster.Budget) bool { return have.String() == b.String() }) {
		s.budgets = append(s.budgets, b)
	}
}

// overlap enters that more than one budget selects a pod; of several such pods the
// first by name is told of. The Eviction API answers 500 then, whatever they allow
// (kubernetes/pkg/registry/core/pod/storage/eviction.go).
func (s *subject) overlap(inv *cluster.Inventory, p cluster.Pod) {
	if len(p.Budgets) < 2 {
		return
	}
	var names []string
	for _, b := range p.Budgets {
		if b >= 0 && b < len(inv.Budgets) {
			names = append(names, inv.Budgets[b].String())
		}
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) < 2 {
		return
	}
	said := fmt.Sprintf("PodDisruptionBudgets %s all select pod %s/%s", strings.Join(names, ", "), p.Namespace, p.Name)
	if s.it.Overlap == "" || said < s.it.Overlap {
		s.it.Overlap = said
	}
}

// allowed gives the plan file's reason for permitting an action on the owner.
func (s *subject) allowed(action string) (reason string, ok bool) {
	for _, a := range s.o.Allow {
		if a.Owner == s.it.Owner.String() && a.Action == action {
			return a.Reason, true
		}
	}
	return "", false
}

// ifAllowed is the way where the plan file allows evictions, and stuck otherwise.
func (s *subject) ifAllowed(why, cure string, w way) []way {
	reason, ok := s.allowed(planfile.ActionEvict)
	if !ok {
		s.none(why, cure+", or have its pods evicted one by one: "+allow(s.it.Owner, planfile.ActionEvict))
		return nil
	}
	w.reason = why + "; evict allowed: " + reason
	return []way{w}
}

// Evicting is the item with its pods evicted one by one instead of a rollout that does
// not last (a GitOps controller takes the stamp away; why says who), where the plan file
// allows that and nothing speaks against it that needs a consent of its own; otherwise it
// is stuck, with the reason and the cure. Budgets that never allow an eviction are left to
// the Eviction API.
func (o Options) Evicting(it Item, why string) Item {
	const keep = "have it keep the pod template's annotation " + cluster.RestartedAtAnnotation
	s := &subject{it: it, o: &o}
	s.it.Method, s.it.Reason, s.it.Cure, s.it.Breaks = "", "", "", nil
	w := s.evict("")
	if kindOf(it.Owner) == "StatefulSet.apps" {
		w = s.inOrder("")
	}
	ways := s.ifAllowed(why, keep, w)
	if s.it.Method != "" {
		return s.it
	}
	if s.choose(ways); s.it.Stuck() {
		s.it.Reason = why + "; evicted instead, " + s.it.Reason
		s.it.Cure += "; or " + keep + " and take the eviction out of restart.allow"
	}
	return s.it
}

// allow is the entry of the plan file that permits an action on the owner.
func allow(o cluster.Owner, action string) string {
	return fmt.Sprintf("restart.allow {owner: %s, action: %s, reason: …}", o, action)
}

// skip is the entry of the plan file that leaves the owner lagging.
func skip(o cluster.Owner) string {
	return fmt.Sprintf("restart.skip {owner: %s, reason: …, until: …}", o)
}

// sentence joins two reasons; the first may be empty.
func sentence(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

// count is a number of things.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
