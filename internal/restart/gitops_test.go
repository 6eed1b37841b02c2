package restart

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

// A rollout that surges is no outage, and goes although budgets overlap; the evictions
// that follow when it is taken back need what every eviction needs.
func TestEvictedInsteadIsJudgedAsAnEviction(t *testing.T) {
	const outage = "restart.allow {owner: shop/Deployment/cart, action: outage"
	for name, tt := range map[string]struct {
		replicas  int
		prepare   func(b *bench)
		why, cure string
		mend      func(b *bench)
	}{
		"the only pod, and the cluster has the traffic": {1, func(b *bench) { b.deps.Live = true },
			"its only pod goes before the new one is ready, and the cluster has the traffic", outage, (*bench).consentToOutage},
		"the only pod behind a webhook": {1, (*bench).webhookOnCart, "its only pod goes before the new one is ready, and webhook guard/w fails closed meanwhile", outage, (*bench).consentToOutage},
		"two budgets": {2, func(b *bench) {
			b.budget("shop", "a", 1, 2, 1, 2)
			b.budget("shop", "b", 1, 2, 1, 2)
		}, "PodDisruptionBudgets shop/a, shop/b all select pod shop/cart-", "leave one PodDisruptionBudget", func(b *bench) {
			must(b.client.Tracker().Delete(budgetsGVR, "shop", "b"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.deployment("shop", "cart", tt.replicas, oldKubelet)
				b.deployment("ops", "late", 1, oldKubelet)
				b.deps.MaxParallel = 1
				b.deps.Allow = []planfile.Allow{{Owner: cart, Action: planfile.ActionEvict, Reason: "agreed"}}
				tt.prepare(b)
				b.after = b.reverting(start.Add(time.Minute))
				for range 2 { // the second time it is known from the journal alone
					stop := stopOf(t, b.drive(t.Context()))
					for _, want := range []string{cart, "the restart is reverted: argocd-controller", tt.why, tt.cure} {
						if stop.Code != state.ExitBlocked || !strings.Contains(stop.Why, want) {
							t.Errorf("%q is not in %+v", want, stop)
						}
					}
					if obs := b.observe(); obs.Status != state.Blocked || !strings.Contains(obs.Reason, tt.why) {
						t.Errorf("observed %+v", obs)
					}
				}
				if len(b.taken(cart)) != 0 || len(b.restarts(cart)) != 1 || len(b.restarts("ops/Deployment/late")) != 1 {
					t.Errorf("took %v, restarts %v", b.taken(cart), b.stamps)
				}
				tt.mend(b)
				if err := b.drive(t.Context()); err != nil || len(b.taken(cart)) != tt.replicas || len(b.restarts(cart)) != 1 {
					t.Errorf("%v, took %v, restarts %v", err, b.taken(cart), b.restarts(cart))
				}
			})
		})
	}
}

func (b *bench) consentToOutage() {
	b.deps.Allow = append(slices.Clone(b.deps.Allow), planfile.Allow{Owner: cart, Action: planfile.ActionOutage, Reason: "agreed"})
}

// What is admitted anew begins at once where nothing is in its way, also where it is found
// taken back by the process that resumes.
func TestEvictedInsteadWithConsent(t *testing.T) {
	for name, interrupted := range map[string]bool{"in one go": false, "resumed": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.deployment("shop", "cart", 1, oldKubelet)
				b.deps.Live = true
				b.deps.Allow = []planfile.Allow{{Owner: cart, Action: planfile.ActionEvict, Reason: "agreed"}}
				b.consentToOutage()
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				revert := b.reverting(start.Add(time.Minute))
				b.after = func(owner, stamp string) error {
					if interrupted {
						cancel()
					}
					return revert(owner, stamp)
				}
				err := b.drive(ctx)
				if interrupted {
					ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
					defer cancel()
					err = b.drive(ctx)
				}
				if err != nil || len(b.taken(cart)) != 1 || len(b.restarts(cart)) != 1 {
					t.Errorf("%v, took %v, restarts %v", err, b.taken(cart), b.restarts(cart))
				}
			})
		})
	}
}

// webhookOnCart has a fail-closed webhook served by shop/cart.
func (b *bench) webhookOnCart() {
	read := b.deps.Inventory
	b.deps.Inventory = func(ctx context.Context) (*cluster.Inventory, error) {
		inv, err := read(ctx)
		for _, w := range inv.Workloads {
			if w.Owner.String() == cart {
				inv.Webhooks = append(inv.Webhooks, cluster.Webhook{Configuration: "guard", Name: "w", Owners: []cluster.Owner{w.Owner}})
			}
		}
		return inv, err
	}
}

// What is evicted instead begins when there is room for an eviction: the rollout took no
// pod away, and the budget is promised to another owner.
func TestEvictedInsteadIsAdmittedAnew(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "cart", 2, oldKubelet)
		b.bareSet("shop", "web", 2, oldKubelet)
		b.budget("shop", "one", 1, 4, 3, 4)
		b.deps.Allow = []planfile.Allow{{Owner: cart, Action: planfile.ActionEvict, Reason: "agreed"}}
		gate := make(chan struct{})
		b.gate[set] = gate
		b.after = b.reverting(start.Add(time.Minute))
		end := b.held(t.Context())
		b.status("cart", func(s *appsv1.DeploymentStatus) { s.AvailableReplicas = 2 }) // it is looked at once more
		synctest.Wait()
		if len(b.restarts(cart)) != 1 || len(b.taken(set)) != 1 || len(b.taken(cart)) != 0 {
			t.Errorf("restarts %v, took %v and %v", b.stamps, b.taken(set), b.taken(cart))
		}
		close(gate)
		if err := <-end; err != nil {
			t.Fatal(err)
		}
		if len(b.taken(set)) != 2 || len(b.taken(cart)) != 2 {
			t.Errorf("took %v and %v", b.taken(set), b.taken(cart))
		}
	})
}

func TestCulprit(t *testing.T) {
	entry := func(manager, sub, fields string, minute int) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: sub, FieldsV1: metav1.NewFieldsV1(fields),
			Time: new(metav1.NewTime(start.Add(time.Duration(minute) * time.Minute)))}
	}
	const notes, template, replicas = `{"f:spec":{"f:template":{"f:metadata":{"f:annotations":{"f:x":{}}}}}}`, `{"f:spec":{"f:template":{"f:spec":{}}}}`, `{"f:spec":{"f:replicas":{}}}`
	for name, tt := range map[string]struct {
		all  []metav1.ManagedFieldsEntry
		want string
	}{
		"nothing is said":                                      {nil, ""},
		"only ourselves and the controllers":                   {[]metav1.ManagedFieldsEntry{entry(fieldManager, "", notes, 9), entry("kube-controller-manager", "status", notes, 9)}, ""},
		"the newest of the template, whoever owns annotations": {[]metav1.ManagedFieldsEntry{entry("flux", "", notes, 1), entry("helm", "", template, 5), entry("hpa", "", replicas, 9)}, "helm"},
		"what was there before anybody applied is nobody":      {[]metav1.ManagedFieldsEntry{entry("before-first-apply", "", notes, 9), entry("helm", "", template, 5)}, "helm"},
		"the newest of the template":                           {[]metav1.ManagedFieldsEntry{entry("helm", "", template, 1), entry("argocd-controller", "", template, 5)}, "argocd-controller"},
		"any of the spec, if nothing else":                     {[]metav1.ManagedFieldsEntry{entry("hpa", "", replicas, 1), entry("labels", "", `{"f:metadata":{}}`, 9)}, "hpa"},
		"fields that are no JSON":                              {[]metav1.ManagedFieldsEntry{entry("odd", "", `{"f:spec"`, 1)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if m := culprit(tt.all); m != nil {
				got = m.Manager
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// FuzzOwns feeds sets of fields as an API server might state them.
func FuzzOwns(f *testing.F) {
	for _, s := range []string{"", "{}", `{"f:spec":{"f:template":{}}}`, `{"f:spec":null}`, `[1]`, `{"f:spec":{"f:template":{"f:metadata":{"f:annotations":{"f:a":{}}}}}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, fields []byte) {
		deep := owns(fields, []string{"f:spec", "f:template", "f:metadata"})
		if deep && !owns(fields, []string{"f:spec", "f:template"}) {
			t.Error("owns what is below and not what is above")
		}
		if deep && !json.Valid(fields) {
			t.Error("no JSON")
		}
	})
}

// FuzzLedger feeds the details of a damaged or newer journal.
func FuzzLedger(f *testing.F) {
	f.Add([]byte(`{"do":"evict","owner":"shop/ReplicaSet/web","object":"web-1","uid":"u","want":2}`), []byte(`{"generation":3}`))
	f.Add([]byte(`{"owner":"shop/Deployment/cart","attempt":1,"stamp":"2026-11-30T10:00:00Z"}`), []byte(`null`))
	f.Add([]byte(`{"do":"surge","owner":"x","from":-1}`), []byte(`[]`))
	f.Fuzz(func(t *testing.T, detail, outcome []byte) {
		l := readLedger(nil, nil)
		l.begun(1, detail)
		l.came(1, "accepted", outcome)
		l.came(2, "found", outcome)
		for owner := range l.unfinished() {
			if owner == "" {
				t.Error("an owner without a name")
			}
			itemNamed(owner, "")
		}
		for _, e := range l.owed() {
			if e.byHand() == "" {
				t.Error("no command")
			}
		}
	})
}
