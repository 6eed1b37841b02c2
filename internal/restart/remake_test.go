package restart

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eksbg/eksbg/internal/planfile"
	"github.com/eksbg/eksbg/internal/state"
)

const tool = "shop/Pod/tool"

// betweenTwoLives makes a bare pod, and holds a step at the moment at which it is evicted
// and has not gone yet. Closing the gate lets it go.
func (b *bench) betweenTwoLives(ctx context.Context) (end <-chan error, gate chan struct{}) {
	b.barePod("shop", "tool", oldKubelet)
	b.deps.Allow = []planfile.Allow{{Owner: tool, Action: planfile.ActionRecreate, Reason: "agreed"}}
	gate = make(chan struct{})
	b.gate[tool] = gate
	end = b.held(ctx)
	if p, err := b.getPod("shop", "tool"); err != nil || p.DeletionTimestamp == nil {
		b.Fatalf("not evicted: %v", err)
	}
	return end, gate
}

// wholeAgain resumes, and looks whether the bare pod stands and nothing is left of its two lives.
func (b *bench) wholeAgain() {
	b.Helper()
	if err := b.drive(b.Context()); err != nil {
		b.Fatal(err)
	}
	if wrong := b.tool(b.Context()); wrong != "" || b.observe().Status != state.Done || len(b.taken(tool)) != 1 {
		b.Errorf("%s, taken %v, %+v", wrong, b.taken(tool), b.observe())
	}
}

// However a restart ends, a bare pod that it has evicted is made again first.
func TestStoppedBetweenTwoLives(t *testing.T) {
	for name, how := range map[string]func(*bench, context.CancelFunc){
		"an interrupt": func(_ *bench, cancel context.CancelFunc) { cancel() },
		"another owner's crash loop": func(b *bench, _ context.CancelFunc) {
			for _, p := range b.podsOfAll() {
				if p.Name != "tool" && podCondition(&p, corev1.PodReady) == nil {
					bad := p.DeepCopy()
					waiting("CrashLoopBackOff", "back-off", 9)(bad)
					b.put(podsGVR, bad)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.deployment("shop", "cart", 1, oldKubelet)
				b.pod[cart] = func(*corev1.Pod) bool { return false }
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				end, gate := b.betweenTwoLives(ctx)
				how(b, cancel)
				b.clock.Sleep(40 * time.Second)
				fails := 2
				b.before = func(owner, verb string) error {
					if fails--; verb == "create" && fails >= 0 {
						return apierrors.NewServiceUnavailable("etcd has no leader")
					}
					return nil
				}
				close(gate)
				err := <-end
				if stop := (*state.Stop)(nil); name == "an interrupt" && !errors.Is(err, context.Canceled) || name != "an interrupt" && !errors.As(err, &stop) {
					t.Errorf("ended with %v", err)
				}
				if strings.Contains(err.Error(), "tool") {
					t.Errorf("says that it is away: %v", err)
				}
				p, err := b.getPod("shop", "tool")
				if err != nil || p.DeletionTimestamp != nil || len(b.journal.open()) != 0 {
					t.Fatalf("it is away: %v, open %v", err, b.journal.open())
				}
				b.before, b.deps.Skips = nil, []planfile.Skip{{Owner: cart, Reason: "later", Until: planfile.Date{Time: start}}}
				b.wholeAgain()
			})
		})
	}
}

// A pod that does not go in time, or that may not be made again, is named with the command
// that makes it.
func TestNotMadeAgainBeforeTheEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		goes bool
		says string
		err  error
	}{
		"it does not go":       {false, "it has not gone yet", nil},
		"it is refused":        {true, "exceeded quota", apierrors.NewForbidden(podsGVR.GroupResource(), "tool", errors.New("exceeded quota"))},
		"nobody takes it":      {true, "no leader", apierrors.NewServiceUnavailable("etcd has no leader")},
		"the connection fails": {true, "reset by peer", errReset},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				end, gate := b.betweenTwoLives(ctx)
				cancel()
				b.before = func(_, verb string) error {
					if verb == "create" {
						return tt.err
					}
					return nil
				}
				if tt.goes {
					close(gate)
				}
				begin := b.clock.Now()
				err := <-end
				stop := stopOf(t, err)
				if stop.Code != state.ExitInterrupted || !errors.Is(err, context.Canceled) || !strings.Contains(stop.Why, tool) || !strings.Contains(stop.Why, tt.says) ||
					!strings.Contains(stop.Cure, remakeByHand("shop", "tool")) {
					t.Errorf("%+v", stop)
				}
				if took := b.clock.Since(begin); took > remakeTime {
					t.Errorf("took %s", took)
				}
				b.before = nil
				if !tt.goes {
					close(gate)
				}
				b.wholeAgain()
			})
		})
	}
}

// An eviction whose answer was lost may land only after the interrupt.
func TestEvictionThatLandsAfterTheInterrupt(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.barePod("shop", "tool", oldKubelet)
		b.deps.Allow = []planfile.Allow{{Owner: tool, Action: planfile.ActionRecreate, Reason: "agreed"}}
		b.refuse = func(_, pod string) error {
			b.sim.wg.Go(func() {
				b.clock.Sleep(tick / 2)
				if p, err := b.getPod("shop", pod); err == nil {
					b.takePod(tool, p)
				}
			})
			return errReset
		}
		if err := b.drive(t.Context()); !errors.Is(err, errReset) {
			t.Fatal(err)
		}
		if p, err := b.getPod("shop", "tool"); err != nil || p.DeletionTimestamp != nil {
			t.Errorf("it is away: %v", err)
		}
		b.refuse = nil
		b.wholeAgain()
	})
}

// Whoever has lost the lock makes nothing again: the pod is named, with the command.
func TestNothingIsMadeAgainWithoutTheLock(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		end, gate := b.betweenTwoLives(ctx)
		cancel(lockTaken{})
		close(gate)
		if err := <-end; !state.LockLost(err) {
			t.Errorf("%v", err)
		}
		synctest.Wait()
		if _, err := b.getPod("shop", "tool"); !apierrors.IsNotFound(err) {
			t.Errorf("made again under somebody else's lock: %v", err)
		}
		warning, _ := state.LastOf(b.journal.Records(""), state.RecordWarning)
		if !strings.Contains(warning.Text, remakeByHand("shop", "tool")) {
			t.Errorf("%+v", warning)
		}
	})
}

// withheld is a recorder that begins no change, as one without a renewed lock.
type withheld struct{ *memory }

func (w withheld) Intent(call, object string, _, _ any) (int64, error) {
	return 0, w.Guard(call + " on " + object)
}

func (withheld) Guard(change string) error {
	return &state.Withheld{Change: change, Err: errors.New("the lock cannot be renewed")}
}

func (w withheld) Unguarded() state.Recorder { return w.memory }

// Making the pod again puts something back, which needs no lock.
func TestMadeAgainWhileNothingMayBegin(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "cart", 1, oldKubelet)
		b.pod[cart] = func(*corev1.Pod) bool { return false }
		end, gate := b.betweenTwoLives(t.Context())
		b.journal.mu.Lock()
		b.journal.dead = true // this process is gone
		b.journal.mu.Unlock()
		close(gate)
		b.clock.Sleep(time.Hour)
		if err := <-end; err == nil {
			t.Fatal("not killed")
		}
		b.journal.dead = false
		b.expectWatches()
		err := b.step().Act(t.Context(), withheld{b.journal})
		if w := (*state.Withheld)(nil); !errors.As(err, &w) {
			t.Errorf("ended with %v", err)
		}
		if p, err := b.getPod("shop", "tool"); err != nil || p.DeletionTimestamp != nil {
			t.Errorf("it is away: %v", err)
		}
	})
}

// A plan file that changes between two processes: before the eviction the pod is spared,
// after it the pod is made again whatever the plan file says by now.
func TestConsentOfABarePodTakenBack(t *testing.T) {
	for name, change := range map[string]func(*bench){
		"no longer allowed": func(b *bench) { b.deps.Allow = nil },
		"skipped": func(b *bench) {
			b.deps.Skips = []planfile.Skip{{Owner: tool, Reason: "later", Until: planfile.Date{Time: start}}}
		},
	} {
		spared, again := 0, 0
		for at := 1; at <= 8; at++ {
			for _, after := range []bool{false, true} {
				bubble(t, func(t *testing.T, b *bench) {
					b.barePod("shop", "tool", oldKubelet)
					before, err := b.getPod("shop", "tool")
					must(err)
					b.deps.Allow = []planfile.Allow{{Owner: tool, Action: planfile.ActionRecreate, Reason: "agreed"}}
					b.journal.killAt, b.journal.killAfter = at, after
					if err := b.drive(t.Context()); err == nil {
						t.Fatalf("%s: not killed at write %d", name, at)
					}
					b.journal.dead = false
					synctest.Wait()
					taken := len(b.taken(tool))
					change(b)
					err = b.drive(t.Context())
					if n := len(b.taken(tool)); n != taken || len(b.journal.open()) != 0 {
						t.Errorf("%s, killed at %d, %v: took %d after %d, open %v", name, at, after, n, taken, b.journal.open())
					}
					if taken > 0 {
						again++
						if wrong := b.tool(t.Context()); err != nil || wrong != "" {
							t.Errorf("%s, killed at %d, %v: %v, %s", name, at, after, err, wrong)
						}
						return
					}
					spared++
					if name == "skipped" && err != nil || name != "skipped" && !strings.Contains(stopOf(t, err).Why, tool+": 1 pod, bare pod") {
						t.Errorf("%s, killed at %d, %v: %v", name, at, after, err)
					}
					now, err := b.getPod("shop", "tool")
					if wrong := b.tool(t.Context()); err != nil || now.UID != before.UID || wrong != "" {
						t.Errorf("%s, killed at %d, %v: %v, %s", name, at, after, err, wrong)
					}
				})
			}
		}
		if spared < 4 || again < 4 {
			t.Errorf("%s: spared %d, made again %d", name, spared, again)
		}
	}
}

// A PodTemplate of somebody else that has the name is not deleted.
func TestSparedPodWithAForeignPodTemplate(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.barePod("shop", "tool", oldKubelet)
		p, err := b.getPod("shop", "tool")
		must(err)
		_, err = b.journal.Intent("k8s:create podtemplates", "shop/eksbg-tool", deed{Do: doStash, Owner: tool, Object: "eksbg-tool", UID: string(p.UID)}, nil)
		must(err)
		b.put(podTemplatesGVR, &corev1.PodTemplate{ObjectMeta: b.meta("shop", "eksbg-tool", nil)})
		if stop := stopOf(t, b.drive(t.Context())); stop.Code != state.ExitBlocked {
			t.Errorf("%+v", stop)
		}
		if _, err := b.client.Tracker().Get(podTemplatesGVR, "shop", "eksbg-tool"); err != nil || len(b.journal.open()) != 0 {
			t.Errorf("%v, open %v", err, b.journal.open())
		}
	})
}
