package restart

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/fargate"
	"github.com/eksbg/eksbg/internal/restart/survey"
	"github.com/eksbg/eksbg/internal/state"
)

const (
	// roomEvery is the shortest time from the end of one read of Fargate's room to the next
	// while something waits for it. A read that tells nothing at all doubles it each time, up
	// to roomSeldom.
	roomEvery  = 30 * time.Second
	roomSeldom = 10 * time.Minute
	// roomFirst is how long the first read may take: nothing begins before it has ended.
	roomFirst = 90 * time.Second
)

// reading is what one read of Fargate's room gave.
type reading struct {
	room fargate.Room
	err  error
}

// readRoom has Fargate's room read where that is due, and takes what was read. It waits
// for nothing: the read goes on beside the wave, which it wakes. known is false until the
// first read has ended; from then on the room is as last read.
func (c *campaign) readRoom(ctx context.Context, active, todo []survey.Item) (known bool, err error) {
	f, now := &c.fargate, c.Clock.Now()
	switch {
	case c.Room == nil:
		f.room, f.known = survey.Unbounded(c.MaxParallel).Room, true
		return true, nil
	case c.roomCame():
		if err := c.takeRoom(ctx, *f.came); err != nil {
			return false, err
		}
	case f.result == nil && !now.Before(f.next):
		c.beginReading(ctx, Use{MilliCPU: c.milliCPU(), Short: f.known && survey.ShortOfVCPU(active, todo, f.room)})
	case !f.known && !now.Before(f.begun.Add(roomFirst)):
		err := fmt.Errorf("no answer within %s", roomFirst)
		return true, c.useRoom(reading{err: err})
	}
	return f.known, nil
}

// beginReading begins a read; it ends with the campaign at the latest.
func (c *campaign) beginReading(ctx context.Context, use Use) {
	f, result := &c.fargate, make(chan reading, 1)
	ctx, f.cancel = context.WithCancel(ctx)
	f.result, f.begun = result, c.Clock.Now()
	go func() {
		room, err := c.Room(ctx, use)
		result <- reading{room, err}
	}()
}

// milliCPU is what the cluster's pods take of the vCPU quota, as the watches show it. What
// works under way have beyond their owners' numbers is left out: admission counts it.
func (c *campaign) milliCPU() int {
	n := c.mirror.milliCPU()
	for _, w := range c.todo {
		if it := c.share(w); c.takesPart(w) && it.Profile != "" && w.view.Found {
			n -= min(max(len(w.view.Pods)-int(w.view.Desired), 0), it.Extra) * int(it.MilliCPU)
		}
	}
	return max(n, 0)
}

// roomCame tells whether a read has ended that nobody has taken yet.
func (c *campaign) roomCame() bool {
	f := &c.fargate
	if f.came != nil {
		return true
	}
	select {
	case got := <-f.result:
		f.came = &got
		return true
	default:
		return false
	}
}

// takeRoom takes what a read gave and says when the next one is due.
func (c *campaign) takeRoom(ctx context.Context, got reading) error {
	f := &c.fargate
	f.cancel()
	f.result, f.came = nil, nil
	switch {
	case ctx.Err() != nil:
		return interrupted(ctx)
	case aws.IsExpired(got.err):
		return fmt.Errorf("read what Fargate has room for: %w", got.err)
	case got.err == nil && tells(got.room):
		f.pause = roomEvery
	default:
		f.pause = min(max(2*f.pause, roomEvery), roomSeldom)
	}
	f.next = c.Clock.Now().Add(f.pause)
	return c.useRoom(got)
}

// tells is whether a room says anything.
func tells(room fargate.Room) bool {
	for _, n := range room.Free {
		if n != fargate.Unknown {
			return true
		}
	}
	return len(room.Missing) == 0 || room.MilliCPU != fargate.Unknown || room.Burst != fargate.Unknown
}

// useRoom has the wave go by what was read. What could not be read bounds as it was last
// read, or nothing; that is recorded once.
func (c *campaign) useRoom(got reading) error {
	f, room := &c.fargate, got.room
	if got.err != nil {
		room = survey.Unbounded(c.MaxParallel).Room
		room.Missing = []string{got.err.Error()}
	}
	text := "Fargate's limits could not all be read and do not bound this restart: "
	if f.known && len(room.Missing) > 0 {
		text = "Fargate's limits could not all be read this time; where they were read before, that goes on to bound this restart: "
		room = withLast(room, f.room)
	}
	if !f.known {
		f.tokens, f.filled = float64(room.Burst), c.Clock.Now()
	}
	f.room, f.known = room, true
	if len(room.Missing) == 0 || f.warned {
		return nil
	}
	f.warned = true
	text += state.Clean(strings.Join(room.Missing, "; "))
	if err := c.rec.Record(state.Record{Kind: state.RecordWarning, Text: text}); err != nil {
		return fmt.Errorf("record what could not be read: %w", err)
	}
	return nil
}

// stopReading ends a read that is under way, and gives what waits until it has ended.
func (c *campaign) stopReading() (wait func()) {
	f := &c.fargate
	if f.result == nil || f.came != nil {
		return func() {}
	}
	f.cancel()
	return func() { <-f.result }
}
