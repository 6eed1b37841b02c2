package survey

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/planfile"
)

var (
	cart    = deploy("shop", "cart")
	db      = stateful("data", "db")
	coredns = deploy("kube-system", "coredns")
	alone   = own("apps/v1", "shop", "ReplicaSet", "alone")
	argo    = own("argoproj.io/v1alpha1", "shop", "Rollout", "api")
	kruise  = own("apps.kruise.io/v1beta1", "data", "StatefulSet", "kv")
	debug   = own("v1", "shop", "Pod", "debug")
)

func recreate(w *cluster.Workload) { w.Strategy, w.MaxSurge = cluster.StrategyRecreate, 0 }
func bounds(surge, unavailable int32) func(*cluster.Workload) {
	return func(w *cluster.Workload) { w.MaxSurge, w.MaxUnavailable = surge, unavailable }
}

// TestChoice has what budgets, webhooks, traffic and consents make of the usual method.
func TestChoice(t *testing.T) {
	live, outage := Options{Live: true}, func(o Options, owner cluster.Owner, actions ...string) Options {
		for _, a := range append(actions, planfile.ActionOutage) {
			o.Allow = append(o.Allow, permit(owner, a))
		}
		return o
	}
	const never = "PodDisruptionBudget shop/cart never allows "
	tests := map[string]struct {
		world world
		o     Options
		want  string
	}{
		"surge and unavailable": {newWorld().workload(cart, 8, bounds(2, 2)), live, "2 rollout -2+6 shop/Deployment/cart: 8 pods"},
		"unavailable of all": {newWorld().workload(cart, 3, bounds(1, 3)), live,
			"2 evict -1+1 shop/Deployment/cart: 3 pods, one by one: maxUnavailable would take all at once"},
		"Recreate of several": {newWorld().workload(cart, 3, recreate), live,
			"2 evict -1+1 shop/Deployment/cart: 3 pods, one by one: strategy Recreate would take all at once"},
		"Recreate of one": {newWorld().workload(cart, 1, recreate), Options{}, "2 rollout -1+0 shop/Deployment/cart: 1 pod (outage)"},
		"Recreate of one, live": {newWorld().workload(cart, 1, recreate), live,
			"2 none -0+0 shop/Deployment/cart: 1 pod, its only pod goes before the new one is ready, and the cluster has the traffic (stuck)"},
		"Recreate of one, live, consent": {newWorld().workload(cart, 1, recreate), outage(live, cart),
			"2 rollout -1+0 shop/Deployment/cart: 1 pod, outage allowed: agreed on (outage)"},
		"one that surges, live":               {newWorld().workload(cart, 1, nil), live, "2 rollout -0+1 shop/Deployment/cart: 1 pod"},
		"one that surges and may be away too": {newWorld().workload(cart, 1, bounds(1, 1)), Options{}, "2 rollout -1+1 shop/Deployment/cart: 1 pod (outage)"},
		"another's consent": {newWorld().workload(cart, 1, recreate), outage(live, db),
			"2 none -0+0 shop/Deployment/cart: 1 pod, its only pod goes before the new one is ready, and the cluster has the traffic (stuck)"},
		"StatefulSet of one": {newWorld().workload(db, 1, nil), Options{}, "2 rollout -1+0 data/StatefulSet/db: 1 pod (outage)"},
		"StatefulSet, two at once": {newWorld().workload(db, 5, bounds(0, 2)), live,
			"2 rollout -2+0 data/StatefulSet/db: 5 pods"},
		"StatefulSet, all at once": {newWorld().workload(db, 2, bounds(0, 2)), live,
			"2 in-order -1+0 data/StatefulSet/db: 2 pods, one by one: maxUnavailable would take all at once"},
		"OnDelete with a pending change": {newWorld().workload(db, 2, func(w *cluster.Workload) { w.Strategy, w.Updated = cluster.StrategyOnDelete, 0 }), live,
			"2 in-order -1+0 data/StatefulSet/db: 2 pods, OnDelete: one by one from the highest ordinal; the pods also take the template's pending change"},
		"paused, one replica, live, evict": {newWorld().workload(cart, 1, func(w *cluster.Workload) { w.Paused = true }),
			Options{Live: true, Allow: []planfile.Allow{permit(cart, planfile.ActionEvict)}},
			"2 none -0+0 shop/Deployment/cart: 1 pod, its only pod goes before the new one is ready, and the cluster has the traffic (stuck)"},
		"paused, one replica, live, both": {newWorld().workload(cart, 1, func(w *cluster.Workload) { w.Paused = true }), outage(live, cart, planfile.ActionEvict),
			"2 evict -1+1 shop/Deployment/cart: 1 pod, paused Deployment; evict allowed: agreed on; outage allowed: agreed on (outage)"},

		"budget allows the rollout": {newWorld().workload(cart, 8, bounds(2, 2)).budget("cart", 2, cart), live, "2 rollout -2+6 shop/Deployment/cart: 8 pods"},
		"budget allows one": {newWorld().workload(cart, 8, bounds(2, 2)).budget("cart", 1, cart), live,
			"2 evict -1+1 shop/Deployment/cart: 8 pods, " + never + "2 pods to go at once: 1 allowed now, 8 healthy, 7 desired of 8 expected"},
		"the tightest budget speaks": {newWorld().workload(cart, 8, bounds(3, 3)).budget("a", 2, cart).budget("b", 0, cart), live,
			"2 none -0+0 shop/Deployment/cart: 8 pods, PodDisruptionBudget shop/b never allows 3 pods to go at once: 0 allowed now, 8 healthy, 8 desired of 8 expected (stuck)"},
		"budget allows one of a StatefulSet": {newWorld().workload(db, 5, bounds(0, 2)).budget("db", 1, db), live,
			"2 in-order -1+0 data/StatefulSet/db: 5 pods, PodDisruptionBudget data/db never allows 2 pods to go at once: 1 allowed now, 5 healthy, 4 desired of 5 expected"},
		"budget allows none": {newWorld().workload(cart, 8, bounds(2, 2)).budget("cart", 0, cart), live,
			"2 none -0+0 shop/Deployment/cart: 8 pods, " + never + "2 pods to go at once: 0 allowed now, 8 healthy, 8 desired of 8 expected (stuck)"},
		"budget allows none, surge": {newWorld().workload(cart, 8, nil).budget("cart", 0, cart), live, "2 rollout -0+2 shop/Deployment/cart: 8 pods"},
		"budget allows none, consent": {newWorld().workload(cart, 8, bounds(2, 2)).budget("cart", 0, cart), outage(live, cart),
			"2 rollout -2+6 shop/Deployment/cart: 8 pods, " + never + "2 pods to go at once: 0 allowed now, 8 healthy, 8 desired of 8 expected; outage allowed: agreed on"},
		"budget wants more than there are": {newWorld().workload(db, 2, nil).budget("db", -3, db), live,
			"2 none -0+0 data/StatefulSet/db: 2 pods, PodDisruptionBudget data/db never allows 1 pod to go at once: 0 allowed now, 2 healthy, 5 desired of 2 expected (stuck)"},
		"OnDelete, budget allows none, consent helps nothing": {newWorld().workload(db, 2, func(w *cluster.Workload) { w.Strategy = cluster.StrategyOnDelete }).budget("db", 0, db), outage(live, db),
			"2 none -0+0 data/StatefulSet/db: 2 pods, PodDisruptionBudget data/db never allows 1 pod to go at once: 0 allowed now, 2 healthy, 2 desired of 2 expected (stuck)"},
		"surge of one takes nothing from a budget": {newWorld().workload(alone, 1, nil).budget("a", 0, alone), live,
			"2 surge -0+1 shop/ReplicaSet/alone: 1 pod, one more replica until the old pod is replaced"},
		"two budgets, rollout": {newWorld().workload(cart, 8, bounds(2, 2)).budget("cart", 2, cart).budget("b", 3, cart), live, "2 rollout -2+6 shop/Deployment/cart: 8 pods"},
		"two budgets, restartAt": {newWorld().pods(argo, 2, "old").budget("cart", 2, argo).budget("b", 3, argo), live,
			"2 none -0+0 shop/Rollout/api: 2 pods, eviction always fails: PodDisruptionBudgets shop/b, shop/cart all select pod shop/api-0 (stuck)"},

		"CoreDNS of two": {newWorld().workload(coredns, 2, bounds(1, 1)).budget("coredns", 1, coredns), live,
			"0 evict -1+1 kube-system/Deployment/coredns: 2 pods, one by one: its template is the add-on's"},
		"CoreDNS of two, no eviction": {newWorld().workload(coredns, 2, nil).budget("coredns", 0, coredns), live,
			"0 rollout -0+2 kube-system/Deployment/coredns: 2 pods, PodDisruptionBudget kube-system/coredns never allows 1 pod to go at once: 0 allowed now, 2 healthy, 2 desired of 2 expected"},

		"webhook, some at once": {newWorld().workload(cart, 8, bounds(2, 2)).webhook("w", cart), Options{}, "1 rollout -2+6 shop/Deployment/cart: 8 pods"},
		"webhook, all at once": {newWorld().workload(cart, 2, bounds(0, 2)).webhook("w", cart), Options{},
			"1 evict -1+1 shop/Deployment/cart: 2 pods, one by one: maxUnavailable would take all at once"},
		"webhook of one that surges": {newWorld().workload(cart, 1, nil).webhook("w", cart), live, "1 rollout -0+1 shop/Deployment/cart: 1 pod"},
		"webhook of one": {newWorld().workload(db, 1, nil).webhook("w", db), Options{},
			"1 none -0+0 data/StatefulSet/db: 1 pod, its only pod goes before the new one is ready, and webhook guard/w fails closed meanwhile (stuck)"},
		"webhook of one, consent": {newWorld().workload(db, 1, nil).webhook("w", db), outage(Options{}, db),
			"1 rollout -1+0 data/StatefulSet/db: 1 pod, outage allowed: agreed on (outage)"},
		"webhook behind an Argo Rollout": {newWorld().pods(argo, 3, "old").webhook("w", argo), live,
			"1 evict -1+1 shop/Rollout/api: 3 pods, one by one: its maxUnavailable could take all at once"},

		"bare pod, live, recreate": {newWorld().pods(debug, 1, "old"), Options{Live: true, Allow: []planfile.Allow{permit(debug, planfile.ActionRecreate)}},
			"2 recreate -1+0 shop/Pod/debug: 1 pod, made anew from its own spec, allowed: agreed on (outage)"},
		"some on EC2": {newWorld().workload(cart, 2, nil).pods(cart, 1, "metal").pods(cart, 1, "hybrid"), live,
			"2 rollout -0+2 shop/Deployment/cart: 4 pods, a restart leaves what is on hybrid node hybrid at 1.32 and 1 more as it is"},
		"all on EC2": {newWorld().workload(cart, 0, func(w *cluster.Workload) { w.Replicas = 1 }).pods(cart, 1, "metal"), live, "2 none -0+0 shop/Deployment/cart: 1 pod, on EC2 node metal at 1.31 (stuck)"},
		"DaemonSet": {newWorld().pods(own("apps/v1", "kube-system", "DaemonSet", "logs"), 1, "metal"), live,
			"2 none -0+0 kube-system/DaemonSet/logs: 1 pod, DaemonSet on EC2 node metal at 1.31 (stuck)"},
		"the only pod that does not terminate": {newWorld().pods(kruise, 1, "old").pods(kruise, 2, "old", terminating), Options{},
			"2 evict -1+1 data/StatefulSet/kv: 3 pods, one by one: the controller of StatefulSet.apps.kruise.io has to make them again (outage)"},
		"all on Auto": {newWorld().pods(debug, 1, "auto"), live, "2 none -0+0 shop/Pod/debug: 1 pod, on Auto Mode node auto at 1.32 (stuck)"},
		"Job on EC2":  {newWorld().pods(own("batch/v1", "shop", "Job", "seed"), 1, "metal", once), live, "2 wait -0+0 shop/Job/seed: 1 pod, Job still running"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			it := only(tt.world, tt.o)
			if diff := cmp.Diff(tt.want, row(it)); diff != "" {
				t.Error(diff)
			}
			if it.Stuck() && it.Cure == "" {
				t.Error("stuck without a cure")
			}
		})
	}
}

// TestOldStatusOfABudgetSettlesNothing: numbers of an older spec are no reason to say never.
func TestOldStatusOfABudgetSettlesNothing(t *testing.T) {
	w := newWorld().workload(db, 2, nil).budget("db", 0, db)
	w.Budgets[0].Current, w.Budgets[0].Allowed = false, 2
	if it := only(w, Options{}); it.Method != Rollout || len(it.Breaks) > 0 {
		t.Errorf("got %s", row(it))
	}
	if got := Allowances(w.Inventory); got["data/db"] != 0 {
		t.Errorf("allowances %v", got)
	}
}

func TestConsentNamesTheBudgetsItBreaks(t *testing.T) {
	w := newWorld().workload(cart, 8, bounds(2, 2)).budget("none", 0, cart).budget("plenty", 4, cart)
	it := only(w, Options{Allow: []planfile.Allow{permit(cart, planfile.ActionOutage)}})
	if diff := cmp.Diff([]string{"shop/none"}, it.Breaks); diff != "" {
		t.Error(diff)
	}
}

func TestEvictingInsteadOfARevertedRollout(t *testing.T) {
	const why = "argocd-controller took the stamp away at 10:02"
	evict := func(o cluster.Owner) Options {
		return Options{Live: true, Allow: []planfile.Allow{permit(o, planfile.ActionEvict)}}
	}
	two := newWorld().workload(cart, 2, nil)
	for name, tt := range map[string]struct {
		w    world
		o    Options
		want string
	}{
		"allowed":     {two, evict(cart), "2 evict -1+1 shop/Deployment/cart: 2 pods, " + why + "; evict allowed: agreed on"},
		"not allowed": {two, Options{}, "2 none -0+0 shop/Deployment/cart: 2 pods, " + why + " (stuck)"},
		"StatefulSet": {newWorld().workload(db, 2, nil), evict(db), "2 in-order -1+0 data/StatefulSet/db: 2 pods, " + why + "; evict allowed: agreed on"},
		"one, live": {newWorld().workload(cart, 1, nil), evict(cart),
			"2 none -0+0 shop/Deployment/cart: 1 pod, " + why + "; evicted instead, its only pod goes before the new one is ready, and the cluster has the traffic (stuck)"},
		"two budgets": {newWorld().workload(cart, 2, nil).budget("a", 1, cart).budget("b", 1, cart), evict(cart),
			"2 none -0+0 shop/Deployment/cart: 2 pods, " + why + "; evicted instead, eviction always fails: PodDisruptionBudgets shop/a, shop/b all select pod shop/cart-0 (stuck)"},
	} {
		t.Run(name, func(t *testing.T) {
			it := only(tt.w, tt.o)
			if it.Method != Rollout {
				t.Fatalf("not a rollout to begin with: %s", row(it))
			}
			it = tt.o.Evicting(it, why)
			if diff := cmp.Diff(tt.want, row(it)); diff != "" {
				t.Error(diff)
			}
			if it.Stuck() && it.Cure == "" {
				t.Error("stuck without a cure")
			}
		})
	}
}

// TestCuresAreEntriesOfThePlanFile: what a cure says can be typed as it is.
func TestCuresAreEntriesOfThePlanFile(t *testing.T) {
	paused := only(newWorld().workload(cart, 2, func(w *cluster.Workload) { w.Paused = true }), Options{})
	if want := "restart.allow {owner: shop/Deployment/cart, action: evict, reason: …}"; !strings.Contains(paused.Cure, want) {
		t.Errorf("cure %q lacks %q", paused.Cure, want)
	}
	job := only(newWorld().pods(own("batch/v1", "shop", "Job", "seed"), 1, "old", once), Options{})
	if want := "restart.skip {owner: shop/Job/seed, reason: …, until: …}"; !strings.Contains(job.Cure, want) {
		t.Errorf("cure %q lacks %q", job.Cure, want)
	}
}
