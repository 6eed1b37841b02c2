package restart

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/state"
)

// handOn gives the step the newest list for as long as nothing is changed, and counts the
// lists.
func (b *bench) handOn(seen *cluster.Inventory) (lists *int) {
	lists = new(int)
	read := b.deps.Inventory
	b.deps.Inventory = func(ctx context.Context) (*cluster.Inventory, error) {
		*lists++
		inv, err := read(ctx)
		seen = inv
		return inv, err
	}
	b.journal.onIntent = func(int) { seen = nil }
	b.deps.Recent = func() *cluster.Inventory { return seen }
	return lists
}

// A restart lists the cluster once where somebody has just done so: to see that it is done.
func TestAStepBeginsWithWhatWasSeen(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "cart", 2, oldKubelet)
		seen, err := b.deps.Inventory(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lists, step := b.handOn(seen), b.step()
		step.Deps = b.deps
		for i, want := range []struct {
			status state.Status
			lists  int
		}{{state.Ready, 0}, {state.Done, 1}} {
			obs, err := step.Observe(t.Context())
			if err != nil || obs.Status != want.status || *lists != want.lists {
				t.Fatalf("%s after %d lists, want %s after %d (%v)", obs.Status, *lists, want.status, want.lists, err)
			}
			if i == 0 {
				b.expectWatches()
				if err := step.Act(t.Context(), b.journal); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n := len(b.restarts(cart)); n != 1 {
			t.Errorf("%d restarts", n)
		}
	})
}

// What somebody else has seen is no proof that nothing is left (semantics 11): neither
// where the step looks nor where it acts.
func TestTheEndIsSeenInAListOfItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.deployment("shop", "cart", 1, oldKubelet)
		seen, err := b.deps.Inventory(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fine := *seen
		fine.Nodes = slices.Clone(seen.Nodes)
		for i := range fine.Nodes {
			fine.Nodes[i].Kubelet, fine.Nodes[i].Minor = newKubelet, "1.33"
		}
		lists := b.handOn(&fine)
		obs, err := b.step().Observe(t.Context())
		if err != nil || obs.Status != state.Ready || *lists != 1 {
			t.Errorf("%s after %d lists, %v", obs.Status, *lists, err)
		}
		lists = b.handOn(&fine)
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(b.restarts(cart)); n != 1 || *lists != 2 {
			t.Errorf("%d restarts, %d lists", n, *lists)
		}
	})
}

// An interrupt is an interrupt, also when the API server is gone and something is left to
// be put back: that is tried, said, and named with the command that does it.
func TestAnInterruptWithSomethingToPutBack(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		code state.Exit
	}{
		"put back":       {nil, 0},
		"not to be read": {apierrors.NewInternalError(errors.New("etcd is away")), state.ExitInterrupted},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *bench) {
				b.deployment("shop", "cart", 1, oldKubelet)
				b.cronJob("shop", "nightly", false)
				b.deps.CronJobs = "suspend"
				b.gate[cart] = make(chan struct{})
				ctx, cancel := context.WithCancelCause(t.Context())
				end := b.held(ctx)
				b.client.PrependReactor("get", "cronjobs", func(clienttesting.Action) (bool, runtime.Object, error) {
					return tt.err != nil, nil, tt.err
				})
				cancel(errors.New("interrupted"))
				err := <-end
				close(b.gate[cart])
				note, _ := state.LastOf(b.journal.Records(""), state.RecordNote)
				if !strings.Contains(note.Text, "putting back 1 change") {
					t.Errorf("nothing is said of it: %q", note.Text)
				}
				if tt.err == nil {
					if !errors.Is(err, context.Canceled) || suspended(b.cron("nightly")) {
						t.Errorf("%v", err)
					}
					return
				}
				stop := stopOf(t, err)
				if stop.Code != tt.code || !strings.Contains(stop.Why, "interrupted") || !strings.Contains(stop.Why, "etcd is away") ||
					!strings.Contains(stop.Cure, "kubectl patch cronjob -n shop nightly") {
					t.Errorf("%d %s; %s", stop.Code, stop.Why, stop.Cure)
				}
			})
		})
	}
}
