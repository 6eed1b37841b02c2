package upgrade_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/google/go-cmp/cmp"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/state"
	"github.com/eksbg/eksbg/internal/upgrade"
)

var bg = context.Background()

func (w *world) status1(t *testing.T) state.Status {
	t.Helper()
	o, err := w.step().Observe(bg)
	if err != nil {
		t.Fatal(err)
	}
	return o.Status
}

// wantStory compares the journal in short.
func (w *world) wantStory(t *testing.T, want ...string) {
	t.Helper()
	if d := cmp.Diff(want, w.j.story()); d != "" {
		t.Errorf("journal (-want +got):\n%s", d)
	}
	if len(w.unguarded) > 0 {
		t.Errorf("changing calls without a journaled 36-character token: %v", w.unguarded)
	}
}

func TestHop(t *testing.T) {
	w := newWorld()
	if got := w.status1(t); got != state.Ready {
		t.Fatalf("before: %s", got)
	}
	if err := w.step().Act(bg, w.j); err != nil {
		t.Fatal(err)
	}
	if got := w.status1(t); got != state.Done {
		t.Errorf("after: %s", got)
	}
	w.wantStory(t, "intent 1", "accepted u-0000001", "succeeded u-0000001")
	if w.shown(w.slow) != "1.32" {
		t.Error("came back before the API server answers the new minor")
	}
	// One text a poll, as people read them.
	if !slices.Contains(w.j.waits, "30s of 8-12m, InProgress") {
		t.Errorf("waits %q", w.j.waits)
	}
	if last := w.j.waits[len(w.j.waits)-1]; !strings.Contains(last, "API server still answers 1.31") {
		t.Errorf("last wait %q", last)
	}
}

func TestObserve(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world)
		want   state.Status
		reason string
	}{
		"to do":                   {func(*world) {}, state.Ready, "ACTIVE at 1.31"},
		"under way":               {func(w *world) { w.status = ekstypes.ClusterStatusUpdating }, state.Ready, "UPDATING"},
		"done":                    {func(w *world) { w.version = "1.32" }, state.Done, "v1.32"},
		"done and gone on":        {func(w *world) { w.version = "1.33" }, state.Done, "v1.33"},
		"there but still turning": {func(w *world) { w.version, w.status = "1.32", ekstypes.ClusterStatusUpdating }, state.Ready, "UPDATING at 1.32"},
		"rolled back":             {func(w *world) { w.version = "1.30" }, state.Blocked, "below the 1.31"},
		"failed":                  {func(w *world) { w.status = ekstypes.ClusterStatusFailed }, state.Blocked, "FAILED"},
		"not a version":           {func(w *world) { w.version = "next" }, state.Blocked, "not comparable"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			tc.change(w)
			o, err := w.step().Observe(bg)
			if err != nil || o.Status != tc.want || !strings.Contains(o.Reason, tc.reason) {
				t.Errorf("got %+v, %v", o, err)
			}
			if o.Status == state.Blocked {
				var stop *state.Stop
				if err := w.step().Act(bg, w.j); !errors.As(err, &stop) || stop.Code != state.ExitBlocked || len(w.j.records) > 0 {
					t.Errorf("Act of a blocked step: %v", err)
				}
			}
		})
	}
	t.Run("API server behind", func(t *testing.T) {
		w := newWorld()
		w.start("VersionUpdate", "1.32", 0, "Successful")
		w.clk.Step(w.stale)
		if o, err := w.step().Observe(bg); err != nil || o.Status != state.Ready || !strings.Contains(o.Reason, "still answers 1.31") {
			t.Errorf("got %+v, %v", o, err)
		}
	})
}

// TestResumeAnywhere ends the process at every call and every write, before and
// after its effect, and starts it again. Each time one update is accepted in all.
func TestResumeAnywhere(t *testing.T) {
	undisturbed := newWorld()
	var points []string
	note := func(what string) error { points = append(points, what); return nil }
	undisturbed.crash, undisturbed.j.crash = note, note
	if err := undisturbed.step().Act(bg, undisturbed.j); err != nil {
		t.Fatal(err)
	}
	if len(points) < 30 {
		t.Fatalf("only %d points", len(points))
	}
	for at := range points {
		t.Run(fmt.Sprintf("%d %s", at, points[at]), func(t *testing.T) {
			w := newWorld()
			n := 0
			crash := func(string) error {
				if n++; n == at+1 {
					return errCrash
				}
				return nil
			}
			w.crash, w.j.crash = crash, crash
			if err := w.step().Act(bg, w.j); !errors.Is(err, errCrash) {
				t.Fatalf("got %v", err)
			}
			if err := w.step().Act(bg, w.j); err != nil {
				t.Fatal(err)
			}
			if len(w.updates) != 1 || w.status1(t) != state.Done || len(w.unguarded) > 0 {
				t.Errorf("%d updates, unguarded %v", len(w.updates), w.unguarded)
			}
			story := w.j.story()
			if c := strings.Count(strings.Join(story, " "), "intent"); c != 1 {
				t.Errorf("one attempt, %d intents: %v", c, story)
			}
			if last := story[len(story)-1]; !strings.HasPrefix(last, "succeeded") && last != "found" {
				t.Errorf("the attempt is not closed: %v", story)
			}
		})
	}
}

func TestResumeOfAnOpenIntent(t *testing.T) {
	open := func(w *world) {
		w.crash = func(what string) error {
			if what == "call UpdateClusterVersion" {
				return errCrash
			}
			return nil
		}
		_ = w.step().Act(bg, w.j)
		w.crash = nil
	}
	t.Run("nothing began: the same token again", func(t *testing.T) {
		w := newWorld()
		open(w)
		if err := w.step().Act(bg, w.j); err != nil {
			t.Fatal(err)
		}
		w.wantStory(t, "intent 1", "accepted u-0000001", "succeeded u-0000001")
	})
	t.Run("an update like it is adopted", func(t *testing.T) {
		w := newWorld()
		open(w)
		w.start("LoggingUpdate", "", 0, "Successful")
		w.start("VersionUpdate", "1.32", 9*time.Minute, "Successful")
		if err := w.step().Act(bg, w.j); err != nil {
			t.Fatal(err)
		}
		w.wantStory(t, "intent 1", "found u-0000002", "succeeded u-0000002")
		if n := w.count("UpdateClusterVersion"); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
	t.Run("an older one, or one of another kind, is not", func(t *testing.T) {
		w := newWorld()
		w.start("VersionUpdate", "1.32", time.Minute, "Failed")
		w.start("LoggingUpdate", "", time.Minute, "Successful")
		w.start("VersionRollback", "1.32", time.Minute, "Failed")
		w.clk.Step(10 * time.Minute)
		open(w)
		w.start("VersionUpdate", "1.33", 0, "Failed")
		w.start("VersionRollback", "1.32", 0, "Failed")
		if err := w.step().Act(bg, w.j); err != nil {
			t.Fatal(err)
		}
		w.wantStory(t, "intent 1", "accepted u-0000006", "succeeded u-0000006")
	})
	t.Run("clocks that differ by minutes do not hide it", func(t *testing.T) {
		w := newWorld()
		u := w.start("VersionUpdate", "1.32", 9*time.Minute, "Successful")
		u.created = start.Add(-4 * time.Minute)
		_, _ = w.j.Intent("eks:UpdateClusterVersion", "cluster shop-green", map[string]any{"token": "11111111-2222-4333-8444-555555555555", "from": "1.31", "to": "1.32", "attempt": 1}, nil)
		w.j.records[0].Step = spec().ID
		if err := w.step().Act(bg, w.j); err != nil {
			t.Fatal(err)
		}
		w.wantStory(t, "intent 1", "found u-0000001", "succeeded u-0000001")
		if n := w.count("UpdateClusterVersion"); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
	t.Run("done meanwhile", func(t *testing.T) {
		w := newWorld()
		open(w)
		w.version = "1.32"
		if err := w.step().Act(bg, w.j); err != nil {
			t.Fatal(err)
		}
		w.wantStory(t, "intent 1", "found")
	})
	t.Run("an intent without a token is not guessed at", func(t *testing.T) {
		w := newWorld()
		_, _ = w.j.Intent("eks:UpdateClusterVersion", "cluster shop-green", map[string]any{}, nil)
		w.j.records[0].Step = spec().ID
		if err := w.step().Act(bg, w.j); err == nil || !strings.Contains(err.Error(), "journal record 1") || w.count("UpdateClusterVersion") > 0 {
			t.Errorf("got %v", err)
		}
	})
}

func TestFailedUpdateIsShownWhole(t *testing.T) {
	for _, ends := range []ekstypes.UpdateStatus{"Failed", "Cancelled"} {
		w := newWorld()
		w.ends, w.errors = ends, []ekstypes.ErrorDetail{
			{ErrorCode: "IpNotAvailable", ErrorMessage: p("no free\x1b[31m address"), ResourceIds: []string{"subnet-0a", "subnet-0b"}},
			{ErrorCode: "SomethingNew", ErrorMessage: p("unheard of")},
		}
		err := w.step().Act(bg, w.j)
		var stop *state.Stop
		if err == nil || errors.As(err, &stop) {
			t.Fatalf("a plain failure is wanted, got %v", err)
		}
		for _, part := range []string{"u-0000001", string(ends), "IpNotAvailable: no free", "subnet-0a, subnet-0b", "SomethingNew: unheard of", "5 addresses"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q is not in %v", part, err)
			}
		}
		if strings.Contains(err.Error(), "\x1b") {
			t.Error("control characters get through")
		}
		w.wantStory(t, "intent 1", "accepted u-0000001", "failed u-0000001")

		// The next apply makes a new attempt with a new token.
		w.ends, w.errors = "Successful", nil
		if err := w.step().Act(bg, w.j); err != nil {
			t.Fatal(err)
		}
		w.wantStory(t, "intent 1", "accepted u-0000001", "failed u-0000001", "intent 2", "accepted u-0000002", "succeeded u-0000002")
		if len(w.tokens) != 2 {
			t.Errorf("%d tokens for two attempts", len(w.tokens))
		}
	}
}

func TestUnknownStatusIsNotAnEnd(t *testing.T) {
	w := newWorld()
	w.j.onWait = func(string) { w.updates[0].running = "Pondering" }
	if err := w.step().Act(bg, w.j); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(w.j.waits, func(s string) bool { return strings.Contains(s, "Pondering") }) {
		t.Errorf("waits %q", w.j.waits)
	}
}

const recycle = "Kubelet version of Fargate pods must be updated to match cluster version 1.31 before updating cluster version; Please recycle all offending pod replicas"

func TestForceIsNeverSent(t *testing.T) {
	w := newWorld()
	if err := w.step().Act(bg, w.j); err != nil {
		t.Fatal(err)
	}
	in, ok := w.inputs[0].(*eks.UpdateClusterVersionInput)
	if !ok || in.Force || in.RollbackConfig != nil || *in.Name != "shop-green" || *in.Version != "1.32" || cluster.CompareMinor(*in.Version, "1.31") != 1 {
		t.Errorf("sent %+v", w.inputs[0])
	}
}

func TestInterruptEndsTheWaitAtOnce(t *testing.T) {
	w := newWorld()
	ctx, cancel := context.WithCancelCause(bg)
	why := errors.New("Ctrl-C")
	w.j.onWait = func(string) { cancel(why) }
	err := w.step(func(d *upgrade.Deps) { d.Clock = w.clk.FakeClock }).Act(ctx, w.j)
	if !errors.Is(err, why) {
		t.Fatalf("got %v", err)
	}
	w.wantStory(t, "intent 1", "accepted u-0000001")
}

func TestNothingIsSentWithoutAJournal(t *testing.T) {
	w := newWorld()
	w.j.crash = func(what string) error {
		if strings.HasPrefix(what, "write") {
			return errors.New("disk full")
		}
		return nil
	}
	if err := w.step().Act(bg, w.j); err == nil || w.count("UpdateClusterVersion") != 0 {
		t.Fatalf("got %v after %d requests", err, w.count("UpdateClusterVersion"))
	}
}

func TestPollingHasJitter(t *testing.T) {
	for random, want := range map[float64]time.Duration{0: 24 * time.Second, 0.5: 30 * time.Second, 1: 36 * time.Second} {
		w := newWorld()
		var at []time.Time
		w.j.onWait = func(string) { at = append(at, w.clk.Now()) }
		if err := w.step(func(d *upgrade.Deps) { d.Random = func() float64 { return random } }).Act(bg, w.j); err != nil {
			t.Fatal(err)
		}
		if got := at[1].Sub(at[0]); got != want {
			t.Errorf("random %v: %s between polls, want %s", random, got, want)
		}
	}
}

func insight(name, status, minor string) ekstypes.InsightSummary {
	return ekstypes.InsightSummary{Id: p(strings.ReplaceAll(name, " ", "_")), Name: &name, KubernetesVersion: &minor,
		InsightStatus: &ekstypes.InsightStatus{Status: ekstypes.InsightStatusValue(status), Reason: p("because")}}
}
