package upgrade_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/eksbg/eksbg/internal/state"
)

// An attempt that was killed before its call is not the failed one of a moment ago.
func TestFailedUpdateOfAnAttemptBeforeIsNotAdopted(t *testing.T) {
	for name, tc := range map[string]struct {
		world func() *world
		act   func(*world) error
		call  string
	}{
		"control plane": {newWorld, func(w *world) error { return w.step().Act(bg, w.j) }, "UpdateClusterVersion"},
		"add-on":        {newAddonWorld, func(w *world) error { return w.raise().Act(bg, w.j) }, "UpdateAddon"},
	} {
		t.Run(name, func(t *testing.T) {
			w := tc.world()
			w.takes, w.ends = time.Minute, "Failed"
			// Two that fail, so that all of the former are left out and not the last alone.
			for range 2 {
				if err := tc.act(w); err == nil || !strings.Contains(err.Error(), "ended Failed") {
					t.Fatalf("got %v", err)
				}
			}
			w.crash = func(what string) error {
				if what == "call "+tc.call {
					return errCrash
				}
				return nil
			}
			if err := tc.act(w); !errors.Is(err, errCrash) {
				t.Fatalf("got %v", err)
			}
			w.crash, w.ends = nil, "Successful"
			if err := tc.act(w); err != nil {
				t.Fatal(err)
			}
			w.wantStory(t, "intent 1", "accepted u-0000001", "failed u-0000001", "intent 2", "accepted u-0000002", "failed u-0000002",
				"intent 3", "accepted u-0000003", "succeeded u-0000003")
		})
	}
}

func TestVersionThatNeverShows(t *testing.T) {
	const never = 1000 * time.Hour
	for name, tc := range map[string]struct {
		change func(*world)
		want   []string
	}{
		"EKS stays at the old version":   {func(w *world) { w.stale, w.takes = never, 0 }, []string{"at 1.31", "API server answers 1.31"}},
		"the API server does not answer": {func(w *world) { w.stale, w.takes, w.fail["/version"] = never, 0, errors.New("no\x1b[31m route") }, []string{"at 1.31", "with an error", "no[31m route"}},
		"the API server stays at it":     {func(w *world) { w.slow = never }, []string{"ACTIVE at 1.32", "API server answers 1.31"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			tc.change(w)
			err := w.step().Act(bg, w.j)
			var stop *state.Stop
			if !errors.As(err, &stop) || stop.Code != state.ExitResumable || !strings.Contains(stop.Cure, "run the same command again") {
				t.Fatalf("got %v", err)
			}
			for _, part := range append(tc.want, "cluster shop-green does not show 1.32", "15m") {
				if !strings.Contains(stop.Why, part) {
					t.Errorf("%q is not in %q", part, stop.Why)
				}
			}
			// The attempt stays open and is taken up again, with no other update.
			w.wantStory(t, "intent 1", "accepted u-0000001")
			w.stale, w.slow = 0, 0
			delete(w.fail, "/version")
			if err := w.step().Act(bg, w.j); err != nil {
				t.Fatal(err)
			}
			w.wantStory(t, "intent 1", "accepted u-0000001", "succeeded u-0000001")
		})
	}
}

// locked is a journal of a process that may have lost the lock.
type locked struct {
	*journal
	err error
}

func (l locked) Guard(string) error { return l.err }

// An open attempt that nothing has come of is sent again under the lock alone.
func TestAnOpenAttemptIsNotSentAgainWithoutTheLock(t *testing.T) {
	lost := &state.Withheld{Change: "any", Err: errors.New("the lock was lost")}
	for name, tc := range map[string]struct {
		world func() *world
		act   func(*world, state.Recorder) error
		call  string
	}{
		"control plane": {newWorld, func(w *world, rec state.Recorder) error { return w.step().Act(bg, rec) }, "UpdateClusterVersion"},
		"add-on":        {newAddonWorld, func(w *world, rec state.Recorder) error { return w.raise().Act(bg, rec) }, "UpdateAddon"},
	} {
		t.Run(name, func(t *testing.T) {
			w := tc.world()
			w.crash = func(what string) error {
				if what == "call "+tc.call {
					return errCrash
				}
				return nil
			}
			if err := tc.act(w, w.j); !errors.Is(err, errCrash) {
				t.Fatalf("got %v", err)
			}
			w.crash = nil
			if err := tc.act(w, locked{w.j, lost}); !errors.Is(err, lost) {
				t.Errorf("got %v", err)
			}
			w.wantStory(t, "intent 1")
			if err := tc.act(w, locked{w.j, nil}); err != nil {
				t.Fatal(err)
			}
			w.wantStory(t, "intent 1", "accepted u-0000001", "succeeded u-0000001")
		})
	}
}
