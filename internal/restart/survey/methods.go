package survey

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/planfile"
)

// way is one manner of getting new kubelets under an owner's pods.
type way struct {
	method       Method
	takes, extra int
	reason       string
	outage       string
	// consented is true where the plan file's permission for the way covers its outage.
	consented bool
}

// judge decides what is done about the owner.
func (s *subject) judge() {
	switch o := s.it.Owner; {
	case len(s.hosts) == 0:
		s.wait("terminating: goes by itself", "")
	case s.static || kindOf(o) == "Node.":
		s.none("static pod on "+s.elsewhere(), s.raise())
	default:
		judge := custom
		if known, ok := kinds[kindOf(o)]; ok {
			judge = known
		}
		ways := judge(s)
		if s.it.Method != Wait && o.Kind != "DaemonSet" && s.allElsewhere() {
			s.none("on "+s.elsewhere(), s.raise())
		}
		if s.it.Method == "" {
			s.choose(ways)
		}
		if s.it.Works() && !onFargate(s.host()) {
			s.it.Reason = sentence(s.it.Reason, "a restart leaves what is on "+s.elsewhere()+" as it is")
			s.it.Cure = s.raise()
		}
	}
}

// kinds has the judge of each kind that Kubernetes and the field's usual controllers
// bring; every other is custom. A judge either settles the item (wait, none) or gives
// the ways, the best first.
var kinds = map[string]func(*subject) []way{
	"Deployment.apps":        deployment,
	"StatefulSet.apps":       statefulSet,
	"ReplicaSet.apps":        replicaSet,
	"ReplicationController.": replicaSet,
	"DaemonSet.apps":         daemonSet,
	"Job.batch":              job,
	"CronJob.batch":          job,
	"Pod.":                   barePod,
	"Rollout.argoproj.io":    argoRollout,
}

// kindOf is kind.group; the group of the core is empty.
func kindOf(o cluster.Owner) string {
	group, _ := groupVersion(o.APIVersion)
	return o.Kind + "." + group
}

func groupVersion(apiVersion string) (group, version string) {
	if g, v, ok := strings.Cut(apiVersion, "/"); ok {
		return g, v
	}
	return "", apiVersion
}

// gone settles owners that are not there, or that want no pods.
func (s *subject) gone() bool {
	switch {
	case s.w == nil:
		s.none(s.it.Owner.Kind+" is not there: its pods have lost their owner",
			"the garbage collector should delete them; look again in a minute, or delete them")
	case s.w.Replicas == 0:
		s.wait("scaled to 0: goes by itself", "")
	default:
		return false
	}
	return true
}

func deployment(s *subject) []way {
	if s.gone() {
		return nil
	}
	n := int(s.w.Replicas)
	if s.w.Paused {
		return s.ifAllowed("paused Deployment", "resume it", s.evict(""))
	}
	surge, away := int(s.w.MaxSurge), min(int(s.w.MaxUnavailable), n)
	if surge == 0 && away == 0 {
		// So does the controller (ResolveFenceposts): nothing would move otherwise.
		away = 1
	}
	// The controller holds n + surge pods that do not terminate. When surge + away new ones
	// are ready it deletes as many old ones and makes the next at once, while those that
	// terminate keep their address; there are n of them in all.
	rollout := s.rollout(away, min(2*surge+away, n))
	if s.w.Strategy == cluster.StrategyRecreate {
		rollout = s.rollout(n, 0)
	}
	switch {
	case n == 1:
		return []way{rollout}
	case isCoreDNS(s.it.Owner):
		return []way{s.evict("one by one: its template is the add-on's"), rollout}
	case rollout.takes >= n && s.w.Strategy == cluster.StrategyRecreate:
		return []way{s.evict("one by one: strategy Recreate would take all at once"), rollout}
	case rollout.takes >= n:
		return []way{s.evict("one by one: maxUnavailable would take all at once"), rollout}
	}
	return []way{rollout, s.evict("")}
}

// statefulSet: a replacement has the name of the pod it replaces, so it only starts when
// that is gone and nothing stands beside it. podManagementPolicy does not count: it is
// for scaling (kubernetes/website, StatefulSet basics).
func statefulSet(s *subject) []way {
	if s.gone() {
		return nil
	}
	n := int(s.w.Replicas)
	if s.w.Strategy == cluster.StrategyOnDelete {
		why := "OnDelete: one by one from the highest ordinal"
		if s.w.Updated < s.w.Replicas {
			why += "; the pods also take the template's pending change"
		}
		return []way{s.inOrder(why)}
	}
	if s.partitioned() {
		return s.ifAllowed(fmt.Sprintf("partition %d keeps ordinals below %d", s.w.Partition, s.w.Start+s.w.Partition),
			"set its partition to 0", s.inOrder(""))
	}
	rollout := s.rollout(min(max(int(s.w.MaxUnavailable), 1), n), 0)
	switch {
	case n == 1:
		return []way{rollout}
	case rollout.takes >= n:
		return []way{s.inOrder("one by one: maxUnavailable would take all at once"), rollout}
	case rollout.takes > 1:
		return []way{rollout, s.inOrder("")}
	}
	return []way{rollout}
}

// partitioned tells whether a lagging pod is one that the partition keeps: ordinals
// below start + partition (isCurrentRevisionNeeded in
// kubernetes/pkg/controller/statefulset/stateful_set_utils.go). A name without an
// ordinal could be one of them.
func (s *subject) partitioned() bool {
	return s.w.Partition > 0 && slices.ContainsFunc(s.it.Pods, func(p cluster.Pod) bool {
		n, ok := Ordinal(p.Name)
		return !p.Terminating && (!ok || n < int(s.w.Start)+int(s.w.Partition))
	})
}

// Ordinal reads the ordinal at the end of the name of a StatefulSet's pod: 3 of db-3.
// False where there is none.
func Ordinal(pod string) (int, bool) {
	at := strings.LastIndexByte(pod, '-')
	digits := pod[at+1:]
	if at < 1 || digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil {
		return 0, false
	}
	return int(n), true
}

// replicaSet: a ReplicaSet or ReplicationController that nobody controls.
func replicaSet(s *subject) []way {
	if s.gone() {
		return nil
	}
	if s.w.Replicas == 1 {
		return []way{{method: Surge, extra: 1, reason: "one more replica until the old pod is replaced"}}
	}
	return []way{s.evict("one by one: no rollout restart reaches a " + s.it.Owner.Kind)}
}

// argoRollout: the controller evicts pods older than spec.restartAt, so budgets hold; how
// many at once is the Rollout's own maxUnavailable, at least one
// (argo-rollouts/docs/features/restart.md).
func argoRollout(s *subject) []way {
	if len(s.it.Webhooks) > 0 {
		return []way{s.evict("one by one: its maxUnavailable could take all at once")}
	}
	w := s.evict("")
	w.method = RestartAt
	return []way{w}
}

func daemonSet(s *subject) []way {
	s.none("DaemonSet on "+s.elsewhere(), s.raise())
	return nil
}

func job(s *subject) []way {
	reason := "Job still running"
	if s.it.Owner.Kind == "CronJob" {
		reason = "Job of a CronJob still running"
	}
	s.wait(reason, "wait for its end, delete it, or leave it: "+skip(s.it.Owner))
	return nil
}

func barePod(s *subject) []way {
	reason, ok := s.allowed(planfile.ActionRecreate)
	if !ok {
		cure := "delete it"
		if s.once {
			cure = "wait for its end, delete it"
		}
		s.none("bare pod: nothing would make it again",
			cure+", or have it made anew from its own spec: "+allow(s.it.Owner, planfile.ActionRecreate))
		return nil
	}
	return []way{{method: Recreate, takes: 1, reason: "made anew from its own spec, allowed: " + reason,
		outage: "gone until it is made again", consented: true}}
}

// custom is every owner kind that is not in kinds.
func custom(s *subject) []way {
	kind := kindOf(s.it.Owner)
	group, _ := groupVersion(s.it.Owner.APIVersion)
	switch {
	case s.once:
		// An eviction would throw its work away, and few controllers begin it again.
		s.wait(s.it.Owner.Kind+" still running", "wait for its end, delete it, or leave it: "+skip(s.it.Owner))
	case !strings.Contains(group, "."):
		// Only Kubernetes itself has groups without a domain: a kind of a newer version.
		s.none("owner kind "+strings.TrimSuffix(kind, ".")+" is unknown",
			"replace its pods by hand, or leave it: "+skip(s.it.Owner))
	default:
		return []way{s.evict("one by one: the controller of " + kind + " has to make them again")}
	}
	return nil
}

// rollout is a change of the pod template that takes and adds that many pods at once.
func (s *subject) rollout(takes, extra int) way {
	w := way{method: Rollout, takes: takes, extra: extra}
	switch n := int(s.it.Replicas); {
	case takes < n:
	case n == 1:
		w.outage = "its only pod goes before the new one is ready"
	default:
		w.outage = fmt.Sprintf("all %d pods go before a new one is ready", n)
	}
	return w
}

// evict takes one pod at a time. The controller makes the new one at once, while the
// old one terminates and keeps its address.
func (s *subject) evict(reason string) way {
	w := way{method: Evict, takes: 1, extra: 1, reason: reason}
	if s.it.Replicas <= 1 {
		w.outage = "its only pod goes before the new one is ready"
	}
	return w
}

// inOrder is evict for a StatefulSet, where nothing stands beside the pod that goes.
func (s *subject) inOrder(reason string) way {
	w := s.evict(reason)
	w.method, w.extra = InOrder, 0
	return w
}
