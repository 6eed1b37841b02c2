package fargate

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestAccountCountsWhatRuns(t *testing.T) {
	a := NewAccount(Quota{VCPU: 1})
	roused := 0
	a.join(func() { roused++ })
	for range 4 {
		if !a.take(250) {
			t.Fatalf("with %g of 1 vCPU in use there is no room for a quarter", a.VCPU())
		}
	}
	if a.take(250) || a.VCPU() != 1 || roused != 0 {
		t.Errorf("a fifth quarter is let in, %g vCPU run, %d were told", a.VCPU(), roused)
	}
	a.give(250)
	if roused != 1 || !a.take(250) {
		t.Errorf("what was given back is not there again; %d were told", roused)
	}
	var none *Account
	none.give(250)
	if !none.take(1 << 40) {
		t.Error("without an account there is a limit")
	}
}

// A bucket of 3 that fills by 2 a second: three start at once, the next ones half a
// second after each other, and a pause fills it again, never above 3.
func TestLaunchesComeFromABucket(t *testing.T) {
	a := NewAccount(Quota{Burst: 3, PerSecond: 2})
	now := time.Unix(1000, 0)
	for i, want := range []time.Duration{0, 0, 0, 500 * time.Millisecond, time.Second} {
		if got := a.launch(now); got != want {
			t.Errorf("launch %d waits %v, want %v", i, got, want)
		}
	}
	now = now.Add(time.Minute)
	for i, want := range []time.Duration{0, 0, 0, 500 * time.Millisecond} {
		if got := a.launch(now); got != want {
			t.Errorf("launch %d after a minute waits %v, want %v", i, got, want)
		}
	}
	if got := NewAccount(Quota{VCPU: 1}).launch(now); got != 0 {
		t.Errorf("without a rate a launch waits %v", got)
	}
}

// Whatever comes when, no window of time has more launches than the bucket and what
// flowed into it meanwhile.
func TestLaunchesNeverExceedTheRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := Quota{Burst: float64(rapid.IntRange(1, 8).Draw(t, "burst")), PerSecond: float64(rapid.IntRange(1, 8).Draw(t, "rate"))}
		a := NewAccount(q)
		now := time.Unix(1000, 0)
		var starts []time.Time
		for range rapid.IntRange(1, 60).Draw(t, "launches") {
			now = now.Add(time.Duration(rapid.IntRange(0, 900).Draw(t, "pause")) * time.Millisecond)
			starts = append(starts, now.Add(a.launch(now)))
		}
		for i := range starts {
			for j := i; j < len(starts); j++ {
				if starts[j].Before(starts[i]) {
					t.Fatalf("launch %d is before launch %d", j, i)
				}
				most := q.Burst + starts[j].Sub(starts[i]).Seconds()*q.PerSecond
				if n := float64(j - i + 1); n > most+1e-6 {
					t.Fatalf("%g launches within %v, the bucket allows %g", n, starts[j].Sub(starts[i]), most)
				}
			}
		}
	})
}
