package plan

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/eksbg/eksbg/internal/cluster"
	"github.com/eksbg/eksbg/internal/fargate"
	"github.com/eksbg/eksbg/internal/preflight"
	"github.com/eksbg/eksbg/internal/restart"
	"github.com/eksbg/eksbg/internal/state"
)

// lister lists clusters and counts how often it was asked for which.
type lister struct {
	lists map[state.Side]int
	// meanwhile happens while a list is read; err is what it ends with.
	meanwhile func()
	err       error
	// pods is how many a cluster has; 0 is one.
	pods int
}

func newLooks(clk *clocktesting.FakeClock) (*Looks, *lister) {
	l := &lister{lists: map[state.Side]int{}}
	read := map[state.Side]preflight.Inventory{}
	for _, side := range state.Sides {
		read[side] = func(context.Context) (*cluster.Inventory, error) {
			l.lists[side]++
			if l.meanwhile != nil {
				l.meanwhile()
			}
			if l.err != nil {
				return nil, l.err
			}
			return &cluster.Inventory{Name: string(side), Pods: slices.Repeat([]cluster.Pod{{MilliCPU: 250}}, max(1, l.pods))}, nil
		}
	}
	return NewLooks(clk, read), l
}

// What was read is handed on for half a minute, as long as nothing is changed.
func TestWhatWasReadIsHandedOn(t *testing.T) {
	for name, tt := range map[string]struct {
		then func(*Looks, *lister, *clocktesting.FakeClock)
		// lists is how often green has been listed in the end.
		lists int
	}{
		"at once":                       {func(*Looks, *lister, *clocktesting.FakeClock) {}, 1},
		"nearly half a minute later":    {func(_ *Looks, _ *lister, clk *clocktesting.FakeClock) { clk.Step(handedOn - 1) }, 1},
		"half a minute later":           {func(_ *Looks, _ *lister, clk *clocktesting.FakeClock) { clk.Step(handedOn) }, 2},
		"the clock was set back":        {func(_ *Looks, _ *lister, clk *clocktesting.FakeClock) { clk.Step(-time.Second) }, 2},
		"after a change":                {func(l *Looks, _ *lister, _ *clocktesting.FakeClock) { l.Changed() }, 2},
		"the other side was read since": {func(l *Looks, _ *lister, _ *clocktesting.FakeClock) { _, _ = l.Anew(state.Blue)(t.Context()) }, 1},
		"a later list failed": {func(l *Looks, li *lister, _ *clocktesting.FakeClock) {
			li.err = errors.New("away")
			_, _ = l.Anew(state.Green)(t.Context())
			li.err = nil
		}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			clk := clocktesting.NewFakeClock(time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC))
			l, li := newLooks(clk)
			first, err := l.Glance(state.Green)(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			tt.then(l, li, clk)
			again, err := l.Glance(state.Green)(t.Context())
			if err != nil || li.lists[state.Green] != tt.lists || (again == first) != (tt.lists == 1) {
				t.Errorf("listed %d times, want %d (%v)", li.lists[state.Green], tt.lists, err)
			}
		})
	}
}

// A list that was under way when something was changed may not show it.
func TestAListFromTheTimeOfAChangeIsNotHandedOn(t *testing.T) {
	l, li := newLooks(clocktesting.NewFakeClock(time.Unix(1e9, 0)))
	li.meanwhile = l.Changed
	if _, err := l.Anew(state.Green)(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l.Recent(state.Green)() != nil {
		t.Error("handed on")
	}
}

func TestWhoeverWaitsLooksAnew(t *testing.T) {
	l, li := newLooks(clocktesting.NewFakeClock(time.Unix(1e9, 0)))
	first := l.First(state.Green)
	for _, want := range []int{1, 2, 3} {
		if _, err := first(t.Context()); err != nil || li.lists[state.Green] != want {
			t.Errorf("listed %d times, want %d", li.lists[state.Green], want)
		}
	}
	if _, err := l.First(state.Green)(t.Context()); err != nil || li.lists[state.Green] != 3 {
		t.Errorf("the next one listed again: %d", li.lists[state.Green])
	}
}

// What a side uses of the quota is not listed a second time, however long ago it was.
func TestWhatIsUsedIsCountedOnce(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	l, li := newLooks(clk)
	for range 3 {
		got, err := l.used(t.Context(), state.Blue)
		if err != nil || got.milliCPU != 250 || li.lists[state.Blue] != 1 {
			t.Errorf("%+v after %d lists, %v", got, li.lists[state.Blue], err)
		}
		l.Changed()
		clk.Step(time.Hour)
	}
}

// records takes every record and is guarded.
type records struct {
	state.Recorder
	guards int
	err    error
}

func (r *records) Intent(string, string, any, any) (int64, error) { return 7, r.err }
func (r *records) Outcome(int64, state.Result, string, any) error { return r.err }
func (r *records) Record(state.Record) error                      { return r.err }
func (r *records) Guard(string) error                             { r.guards++; return r.err }
func (r *records) Unguarded() state.Recorder                      { return &records{} }
func (r *records) Waiting(string)                                 {}

// writes is a step that does one thing with its recorder.
type writes struct{ do func(state.Recorder) }

func (writes) Spec() state.StepSpec                               { return state.StepSpec{} }
func (writes) Observe(context.Context) (state.Observation, error) { return state.Observation{}, nil }
func (w writes) Act(_ context.Context, rec state.Recorder) error  { w.do(rec); return nil }

// No look outlives a change of a step, whether it is written down or only sent again, and
// none that was begun before the change had ended.
func TestChangesEndTheHandingOn(t *testing.T) {
	for name, tt := range map[string]struct {
		do    func(state.Recorder)
		stays bool
	}{
		"an intent":                {func(r state.Recorder) { _, _ = r.Intent("k8s:patch", "x", nil, nil) }, false},
		"an outcome":               {func(r state.Recorder) { _ = r.Outcome(7, state.Accepted, "", nil) }, false},
		"sent again":               {func(r state.Recorder) { _ = state.Guard(r, "x") }, false},
		"an intent past the guard": {func(r state.Recorder) { _, _ = state.Unguarded(r).Intent("k8s:patch", "x", nil, nil) }, false},
		"a note":                   {func(r state.Recorder) { _ = r.Record(state.Record{}) }, true},
		"a wait":                   {func(r state.Recorder) { r.Waiting("x") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := newLooks(clocktesting.NewFakeClock(time.Unix(1e9, 0)))
			if _, err := l.Anew(state.Green)(t.Context()); err != nil {
				t.Fatal(err)
			}
			rec := &records{}
			if err := (&changing{writes{tt.do}, l}).Act(t.Context(), rec); err != nil {
				t.Fatal(err)
			}
			if stays := l.Recent(state.Green)() != nil; stays != tt.stays {
				t.Errorf("handed on: %t", stays)
			}
			if name == "sent again" && rec.guards != 1 {
				t.Error("the guard was not asked")
			}
		})
	}
}

// While the quota is short what a side uses is listed again, every ten minutes at most;
// what cannot be listed is as it was.
func TestWhatIsUsedIsCountedAnewNowAndThen(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	l, li := newLooks(clk)
	count := func(when string, want, lists int) {
		t.Helper()
		got, err := l.counted(t.Context(), state.Blue)
		if err != nil || got.milliCPU != want || li.lists[state.Blue] != lists {
			t.Errorf("%s: %+v after %d lists (%v), want %d after %d", when, got, li.lists[state.Blue], err, want, lists)
		}
	}
	count("first", 250, 1)
	li.pods = 3
	clk.Step(countedAnew - 1)
	count("nearly ten minutes later", 250, 1)
	clk.Step(1)
	count("ten minutes later", 750, 2)
	count("right after", 750, 2)
	li.err = errors.New("away")
	clk.Step(countedAnew)
	count("away", 750, 3)
	count("still away", 750, 3)
	if l.Recent(state.Blue)() != nil {
		t.Error("what was only counted is kept")
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	clk.Step(countedAnew)
	if _, err := l.counted(ctx, state.Blue); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
}

// What the restarted side uses it says itself; the other one is counted again only while
// the quota is short.
func TestWhatTheRoomIsReadWith(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	l, li := newLooks(clk)
	var used int
	b := &Builder{Sources: Sources{Looks: l, Room: func(_ context.Context, side state.Side, n int) (fargate.Room, error) {
		if side != state.Green {
			t.Errorf("asked for %s", side)
		}
		used = n
		return fargate.Room{}, nil
	}}}
	for _, tt := range []struct {
		use         restart.Use
		want, lists int
	}{
		{restart.Use{MilliCPU: 1000}, 1250, 1},
		{restart.Use{MilliCPU: 3000}, 3250, 1},
		{restart.Use{MilliCPU: 3000, Short: true}, 4000, 2},
		{restart.Use{MilliCPU: 2000}, 3000, 2},
	} {
		if _, err := b.roomOf(t.Context(), state.Green, tt.use); err != nil || used != tt.want || li.lists[state.Blue] != tt.lists || li.lists[state.Green] != 0 {
			t.Errorf("%+v: %d used, lists %v (%v)", tt.use, used, li.lists, err)
		}
		li.pods = 4
		clk.Step(countedAnew)
	}
}
