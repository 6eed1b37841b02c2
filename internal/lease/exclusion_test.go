package lease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/eksbg/eksbg/internal/lease"
)

// contender is one process of the model: it wants the lock, has it, or is done.
type contender struct {
	m      *machine
	cancel context.CancelFunc
	result chan *lease.Lock
	lock   *lease.Lock
	// wire is until when a change that was sent may be on the wire.
	wire time.Time
}

func (c *contender) start(ctx context.Context) {
	if c.cancel != nil {
		return
	}
	ctx, c.cancel = context.WithCancel(ctx)
	c.result = make(chan *lease.Lock, 1)
	go func() {
		l, _ := lease.Take(ctx, c.m.opt) // refused is a fine end
		c.result <- l
	}()
}

// poll takes up what came of start.
func (c *contender) poll() {
	if c.result == nil {
		return
	}
	select {
	case c.lock = <-c.result:
		c.result = nil
		if c.lock == nil {
			c.cancel()
			c.cancel = nil
		}
	default:
	}
}

// end stops the process; what its lines let through is given back.
func (c *contender) end() {
	if c.cancel == nil {
		return
	}
	c.cancel()
	if c.result != nil {
		c.lock, c.result = <-c.result, nil
	}
	if c.lock != nil {
		_ = c.lock.Release(context.Background()) // a line may be cut
	}
	c.lock, c.cancel, c.wire = nil, nil, time.Time{} // a process that ends has no change on the wire
}

// may tells whether a change would begin at this very moment.
func (c *contender) may(over context.Context) bool {
	return c.lock != nil && c.lock.Guard(over, nil) == nil
}

// send sends a change, where that may be, which is on the wire for as long as it may.
func (c *contender) send(over context.Context) {
	if c.lock == nil {
		return
	}
	if d, err := c.lock.Allow(over); err == nil {
		c.wire = time.Now().Add(d)
	}
}

// move is one thing that happens in the model.
type move struct {
	what    string
	process int
	line    int
	seconds int
}

var moves = rapid.Custom(func(t *rapid.T) move {
	return move{
		what:    rapid.SampledFrom([]string{"start", "start", "end", "cut", "lose", "mend", "wait", "wait"}).Draw(t, "what"),
		process: rapid.IntRange(0, 2).Draw(t, "process"),
		line:    rapid.IntRange(0, 1).Draw(t, "line"),
		seconds: rapid.IntRange(1, 70).Draw(t, "seconds"),
	}
})

// play lets the moves happen and gives the most processes that could change something
// at one moment, and for how many moments anybody could.
func play(script []move) (most, anybody int) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	servers := []*server{{}, {}}
	var all []*contender
	for _, name := range []string{"ops", "dev", "ci"} {
		all = append(all, &contender{m: newMachine(name, servers...)})
	}
	for _, m := range script {
		c := all[m.process]
		switch m.what {
		case "start":
			c.start(context.Background())
		case "end":
			c.end()
		case "cut":
			c.m.lines[m.line].cut(errAway)
		case "lose":
			c.m.lines[m.line].loseAnswers(errAway)
		case "mend":
			c.m.lines[m.line].cut(nil)
		case "wait":
			time.Sleep(time.Duration(m.seconds) * time.Second)
		}
		synctest.Wait()
		now := 0
		for _, c := range all {
			c.poll()
			c.send(over)
			if c.may(over) || time.Now().Before(c.wire) {
				now++
			}
		}
		most, anybody = max(most, now), anybody+min(now, 1)
	}
	for _, c := range all {
		c.end()
	}
	return most, anybody
}

// Whatever is cut, lost, stopped, waited for and started again: at no moment may two
// processes begin a change, or have one on the wire.
func TestAtMostOneMayChange(t *testing.T) {
	held := 0
	rapid.Check(t, func(rt *rapid.T) {
		script := rapid.SliceOfN(moves, 5, 60).Draw(rt, "script")
		most := 0
		synctest.Test(t, func(*testing.T) {
			m, n := play(script)
			most, held = m, held+n
		})
		if most > 1 {
			rt.Fatalf("%d processes may change the pair at one moment", most)
		}
	})
	if held == 0 {
		t.Error("nobody ever had the lock, so this test shows nothing")
	}
}
