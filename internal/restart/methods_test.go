package restart

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

func (b *bench) set(name string) *appsv1.ReplicaSet {
	obj, err := b.client.Tracker().Get(replicaSetsGVR, "shop", name)
	must(err)
	return obj.(*appsv1.ReplicaSet)
}

func (b *bench) cron(name string) *batchv1.CronJob {
	obj, err := b.client.Tracker().Get(cronJobsGVR, "shop", name)
	must(err)
	return obj.(*batchv1.CronJob)
}

func TestSurgeKeepsAPodReady(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.bareSet("shop", "one", 1, oldKubelet)
		least := 1
		b.after = func(string, string) error { least = min(least, len(b.podsReady())); return nil }
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if rs := b.set("one"); *rs.Spec.Replicas != 1 || len(rs.Annotations) != 0 || least < 1 {
			t.Errorf("%d replicas, %v, %d ready at least", *rs.Spec.Replicas, rs.Annotations, least)
		}
		if n := prefixed(b.calls, "patch") + prefixed(b.calls, "get"); n > 4 {
			t.Errorf("%d requests for one workload: %v", n, b.calls)
		}
	})
}

// Somebody who scales the set in the middle keeps what they asked for.
func TestSurgeLosesNobodysReplicas(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.bareSet("shop", "one", 1, oldKubelet)
		b.pod["shop/ReplicaSet/one"] = func(*corev1.Pod) bool { return false }
		end := b.held(t.Context())
		rs := b.set("one").DeepCopy()
		if *rs.Spec.Replicas != 2 {
			t.Fatalf("%d replicas", *rs.Spec.Replicas)
		}
		*rs.Spec.Replicas = 5
		rs.Generation++
		rs.ResourceVersion = fmt.Sprint(b.next())
		b.put(replicaSetsGVR, rs)
		b.sim.mu.Lock()
		b.pod["shop/ReplicaSet/one"] = nil
		b.sim.mu.Unlock()
		for _, p := range b.podsOfAll() {
			if p.Status.Phase == corev1.PodPending {
				up := p.DeepCopy()
				ready(up)
				b.put(podsGVR, up)
			}
		}
		b.scale("shop/ReplicaSet/one", rs)
		if err := <-end; err != nil {
			t.Fatal(err)
		}
		if rs := b.set("one"); *rs.Spec.Replicas != 5 || len(rs.Annotations) != 0 {
			t.Errorf("%d replicas, %v", *rs.Spec.Replicas, rs.Annotations)
		}
	})
}

// However a restart ends, what was changed only for its time is put back.
func TestPutBackOnStopAndInterrupt(t *testing.T) {
	for name, how := range map[string]func(*bench, context.CancelFunc){
		"interrupt": func(_ *bench, cancel context.CancelFunc) { cancel() },
		"a crash loop": func(b *bench, _ context.CancelFunc) {
			for _, p := range b.podsOfAll() {
				if p.Status.Phase == corev1.PodPending {
					bad := p.DeepCopy()
					waiting("CrashLoopBackOff", "back-off", 9)(bad)
					b.put(podsGVR, bad)
				}
			}
		},
		"time out": func(b *bench, _ context.CancelFunc) { b.clock.Sleep(2 * time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.bareSet("shop", "one", 1, oldKubelet)
				b.cronJob("shop", "nightly", false)
				b.cronJob("shop", "held", true)
				b.deps.CronJobs = "suspend"
				b.pod["shop/ReplicaSet/one"] = func(*corev1.Pod) bool { return false }
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				end := b.held(ctx)
				if !suspended(b.cron("nightly")) || *b.set("one").Spec.Replicas != 2 {
					t.Fatal("not begun")
				}
				if obs := b.observe(); obs.Status != state.Ready {
					t.Errorf("%+v", obs)
				}
				how(b, cancel)
				if err := <-end; err == nil {
					t.Fatal("ended well")
				}
				if rs := b.set("one"); *rs.Spec.Replicas != 1 || len(rs.Annotations) != 0 {
					t.Errorf("%d replicas, %v", *rs.Spec.Replicas, rs.Annotations)
				}
				if cj := b.cron("nightly"); suspended(cj) || len(cj.Annotations) != 0 || !suspended(b.cron("held")) {
					t.Errorf("nightly suspended %v, held %v", suspended(cj), suspended(b.cron("held")))
				}
			})
		})
	}
}

func TestWhatCannotBePutBackIsSaid(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "cart", 1, oldKubelet)
		b.cronJob("shop", "nightly", false)
		b.deps.CronJobs = "suspend"
		denied := apierrors.NewForbidden(cronJobsGVR.GroupResource(), "nightly", errors.New("no"))
		b.before = func(owner, _ string) error {
			if strings.Contains(owner, "cronjobs") && suspended(b.cron("nightly")) {
				return denied
			}
			return nil
		}
		stop := stopOf(t, b.drive(t.Context()))
		if stop.Code != state.ExitResumable || !strings.Contains(stop.Why, "not put back") ||
			!strings.Contains(stop.Cure, `kubectl patch cronjob -n shop nightly -p '{"spec":{"suspend":false}}'`) {
			t.Errorf("%+v", stop)
		}
		if obs := b.observe(); obs.Status != state.Ready || obs.Reason != "1 change to be put back" {
			t.Errorf("%+v", obs)
		}
		b.before = nil
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if obs := b.observe(); obs.Status != state.Done || suspended(b.cron("nightly")) {
			t.Errorf("%+v", obs)
		}
	})
}

func TestSuspensionOfSomebodyElseStays(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "cart", 1, oldKubelet)
		b.cronJob("shop", "nightly", false)
		b.deps.CronJobs = "suspend"
		b.gate[cart] = make(chan struct{})
		end := b.held(t.Context())
		cj := b.cron("nightly").DeepCopy()
		cj.Annotations, cj.ResourceVersion = nil, fmt.Sprint(b.next()) // applied anew by somebody who wants it suspended
		b.put(cronJobsGVR, cj)
		close(b.gate[cart])
		if err := <-end; err != nil {
			t.Fatal(err)
		}
		if !suspended(b.cron("nightly")) {
			t.Error("somebody else's suspension was taken away")
		}
	})
}

func TestRestartAt(t *testing.T) {
	for name, tt := range map[string]struct {
		kubelets []string
		stamps   int
		exit     state.Exit
	}{
		"once":                  {nil, 1, 0},
		"born on the old again": {[]string{oldKubelet, newKubelet}, 2, 0},
		"for ever":              {[]string{oldKubelet, oldKubelet, oldKubelet, oldKubelet}, 3, state.ExitBlocked},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.rollout("shop", "api", 3, oldKubelet)
				b.kubelet["shop/Rollout/api"] = tt.kubelets
				err := b.drive(t.Context())
				if tt.exit == 0 && err != nil {
					t.Fatal(err)
				}
				if tt.exit != 0 && stopOf(t, err).Code != tt.exit {
					t.Error(err)
				}
				if got := b.restarts("shop/Rollout/api"); len(got) != tt.stamps {
					t.Errorf("stamps %v", got)
				}
			})
		})
	}
}

func TestRecreateIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.barePod("shop", "tool", oldKubelet)
		b.deps.Allow = []planfile.Allow{{Owner: "shop/Pod/tool", Action: planfile.ActionRecreate, Reason: "agreed"}}
		b.before = func(owner, verb string) error {
			if verb == "create" {
				return apierrors.NewForbidden(podsGVR.GroupResource(), "tool", errors.New("exceeded quota"))
			}
			return nil
		}
		stop := stopOf(t, b.drive(t.Context()))
		if stop.Code != state.ExitBlocked || !strings.Contains(stop.Why, "exceeded quota") || !strings.Contains(stop.Cure, remakeByHand("shop", "tool")) {
			t.Errorf("%+v", stop)
		}
		if got := b.journal.results("shop/tool"); !slices.Equal(got, []state.Result{state.Accepted, state.Rejected}) {
			t.Errorf("evicted and made again: %v", got)
		}
		for _, r := range b.journal.Records("") {
			if strings.Contains(string(raw(r)), "secret") {
				t.Errorf("the journal holds the pod's secrets: %s", raw(r))
			}
		}
		b.before = nil
		if obs := b.observe(); obs.Status != state.Ready {
			t.Fatalf("%+v", obs)
		}
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if wrong := b.tool(t.Context()); wrong != "" {
			t.Error(wrong)
		}
	})
}

// A bare pod that somebody deletes before its turn stays deleted.
func TestRecreateLeavesTheDeletedAlone(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deps.MaxParallel = 1
		b.deployment("shop", "cart", 1, oldKubelet)
		b.barePod("shop", "tool", oldKubelet)
		b.deps.Allow = []planfile.Allow{{Owner: "shop/Pod/tool", Action: planfile.ActionRecreate, Reason: "agreed"}}
		b.gate[cart] = make(chan struct{})
		end := b.held(t.Context())
		must(b.client.Tracker().Delete(podsGVR, "shop", "tool"))
		close(b.gate[cart])
		if err := <-end; err != nil {
			t.Fatal(err)
		}
		if _, err := b.getPod("shop", "tool"); err == nil {
			t.Error("it was made again")
		}
	})
}

// answering is a DNS server behind Dial that answers with a code.
func answering(code func() int, with ...dns.RR) func(context.Context, string, string, int) (net.Conn, error) {
	return func(_ context.Context, _, pod string, port int) (net.Conn, error) {
		if port != 53 {
			return nil, fmt.Errorf("port %d", port)
		}
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			c := &dns.Conn{Conn: there}
			for {
				q, err := c.ReadMsg()
				if err != nil {
					return
				}
				a := new(dns.Msg)
				a.SetRcode(q, code())
				if a.Rcode == dns.RcodeSuccess {
					a.Answer = with
				}
				if c.WriteMsg(a) != nil {
					return
				}
			}
		}()
		return here, nil
	}
}

func TestCoreDNSHasToResolve(t *testing.T) {
	const name = "kubernetes.default.svc.cluster.local"
	a := &dns.A{Hdr: dns.RR_Header{Name: name + ".", Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.IPv4(172, 20, 0, 1)}
	always := func(code int) func() int { return func() int { return code } }
	asked := 0
	for what, tt := range map[string]struct {
		dial func(context.Context, string, string, int) (net.Conn, error)
		code state.Exit
		says string
		cure string
	}{
		"it does":   {answering(always(dns.RcodeSuccess), a), 0, "", ""},
		"SERVFAIL":  {answering(always(dns.RcodeServerFailure)), state.ExitBlocked, "does not resolve " + name + ": SERVFAIL", "kubectl logs -n kube-system"},
		"NXDOMAIN":  {answering(always(dns.RcodeNameError)), state.ExitBlocked, "does not resolve " + name + ": NXDOMAIN", "restart.resolve: off"},
		"no answer": {answering(always(dns.RcodeSuccess)), state.ExitBlocked, "NOERROR without an address", "restart.resolve: off"},
		"at first not": {answering(func() int {
			if asked++; asked < 3 {
				return dns.RcodeServerFailure
			}
			return dns.RcodeSuccess
		}, a), 0, "", ""},
		"forbidden": {func(context.Context, string, string, int) (net.Conn, error) {
			return nil, apierrors.NewForbidden(podsGVR.GroupResource(), "coredns", errors.New("pods/portforward"))
		}, state.ExitBlocked, "cannot be asked", "create pods/portforward in namespace kube-system"},
		"unreachable": {func(context.Context, string, string, int) (net.Conn, error) {
			return nil, errors.New("connection refused")
		},
			state.ExitResumable, "connection refused", "run the same command again"},
	} {
		for replicas := 1; replicas <= 2; replicas++ {
			t.Run(fmt.Sprint(what, replicas), func(t *testing.T) {
				asked = 0
				bubble(t, func(t *testing.T, b *bench) {
					b.deployment("kube-system", "coredns", replicas, oldKubelet)
					b.deployment("shop", "cart", 1, oldKubelet)
					b.deps.Resolve, b.deps.Dial = name, tt.dial
					err := b.drive(t.Context())
					if tt.code == 0 {
						if err != nil {
							t.Fatal(err)
						}
						return
					}
					stop := stopOf(t, err)
					if stop.Code != tt.code || !strings.Contains(stop.Why, tt.says) || !strings.Contains(stop.Cure, tt.cure) {
						t.Errorf("%+v", stop)
					}
					if n := len(b.taken("kube-system/Deployment/coredns")); n > 1 || len(b.restarts(cart)) > 0 {
						t.Errorf("%d CoreDNS pods taken, cart %v", n, b.restarts(cart))
					}
				})
			})
		}
	}
}
