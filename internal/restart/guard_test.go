package restart

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/eksbg/eksbg/internal/state"
)

// Guard is what state.Guard asks: what withholds new changes withholds old ones.
func (m *memory) Guard(string) error { return m.refuse }

var errNoLock = &state.Withheld{Change: "any", Err: errors.New("the lock is not held")}

// sent lists the changes that the API servers were asked for, but for what puts back.
func (b *bench) sent() []string {
	puttingBack := map[string]bool{"replicasets": true, "replicationcontrollers": true, "cronjobs": true, "pods": true}
	var out []string
	for _, a := range b.client.Actions() {
		switch a.GetVerb() {
		case "get", "list", "watch":
			continue
		case "patch":
			if puttingBack[a.GetResource().Resource] && a.GetSubresource() == "" {
				continue
			}
		}
		out = append(out, fmt.Sprintf("%s %s/%s in %s", a.GetVerb(), a.GetResource().Resource, a.GetSubresource(), a.GetNamespace()))
	}
	return out
}

// Killed at every write, the next process has not got the lock: nothing of what the
// first one had begun is sent again.
func TestOpenIntentsAreNotSentAgainWithoutTheLock(t *testing.T) {
	open := 0
	for at := 1; ; at++ {
		over, wrong := false, ""
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.everyMethod()
			rollouts := 0
			b.deps.Dynamic.(interface {
				PrependReactor(string, string, clienttesting.ReactionFunc)
			}).PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
				rollouts++
				return false, nil, nil
			})
			b.journal.killAt, b.journal.killAfter = at, true
			if over = b.drive(t.Context()) == nil; over {
				return
			}
			b.journal.dead, b.journal.refuse = false, errNoLock
			open += len(b.journal.open())
			synctest.Wait()
			b.client.ClearActions()
			rollouts = 0
			_ = b.drive(t.Context()) // done, or withheld
			if sent := b.sent(); len(sent) > 0 || rollouts > 0 {
				wrong = fmt.Sprintf("sent %q and %d patches of Rollouts", sent, rollouts)
			}
		})
		if over {
			break
		}
		if wrong != "" {
			t.Errorf("killed at write %d: %s", at, wrong)
		}
	}
	if open < 10 {
		t.Errorf("only %d intents were open, so this shows nothing", open)
	}
}

// The lock is lost while a budget forbids an eviction: it is not tried on.
func TestARefusedEvictionIsNotTriedOnWithoutTheLock(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.bareSet("shop", "web", 3, oldKubelet)
		b.budget("shop", "most", 1, 3, 2, 3)
		tries := 0
		b.refuse = func(string, string) error {
			if tries++; tries == 3 {
				b.journal.refuse = errNoLock
			}
			return disruption("most", "needs 2 healthy pods and has 2 currently")
		}
		err := b.drive(t.Context())
		var withheld *state.Withheld
		if !errors.As(err, &withheld) || tries != 3 {
			t.Errorf("%v after %d tries", err, tries)
		}
		if n := len(b.journal.open()); n != 1 {
			t.Errorf("%d intents are open", n)
		}
	})
}
