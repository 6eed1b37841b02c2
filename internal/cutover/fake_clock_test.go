package cutover

import (
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// steppingClock is a FakeClock that steps by itself whenever somebody waits for it, and
// runs what is due on the way.
type steppingClock struct {
	*clocktesting.FakeClock
	due []event
}

type event struct {
	at time.Time
	do func()
}

func newClock() *steppingClock {
	return &steppingClock{FakeClock: clocktesting.NewFakeClock(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))}
}

// after does something once the clock has come so far.
func (c *steppingClock) after(d time.Duration, do func()) {
	c.due = append(c.due, event{at: c.Now().Add(d), do: do})
}

// NewTimer gives a timer that has fired: its time has passed when it is returned.
func (c *steppingClock) NewTimer(d time.Duration) clock.Timer {
	t := c.FakeClock.NewTimer(d)
	end := c.Now().Add(d)
	for {
		at := -1
		for i, e := range c.due {
			if !e.at.After(end) && (at < 0 || e.at.Before(c.due[at].at)) {
				at = i
			}
		}
		if at < 0 {
			break
		}
		e := c.due[at]
		c.due = append(c.due[:at], c.due[at+1:]...)
		if e.at.After(c.Now()) {
			c.SetTime(e.at)
		}
		e.do()
	}
	c.SetTime(end)
	return t
}
