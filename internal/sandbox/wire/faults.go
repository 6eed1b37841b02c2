package wire

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// Where a fault strikes: before the service sees the call, or after it has done it.
const (
	Before = "before"
	After  = "after"
)

// Faults is the list of disturbances of one sandbox. It is shared by all its
// services and may be added to while they serve.
type Faults struct {
	now func() time.Time

	mu     sync.Mutex
	list   []*fault
	onHold func(Call)
	gone   chan struct{}
	closed bool
}

// fault is a Fault with what it has counted.
type fault struct {
	Fault
	start      time.Time
	seen, hits int
	// met counts matching calls up to Onset.
	met int
}

// NewFaults holds the faults of a scenario; their From and For count from now.
// now is the clock of the sandbox, time.Now when nil.
func NewFaults(now func() time.Time, list ...Fault) (*Faults, error) {
	if now == nil {
		now = time.Now
	}
	f := &Faults{now: now, gone: make(chan struct{})}
	for _, one := range list {
		if err := f.Add(one); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Add puts one more fault at the end of the list; it counts calls from here on.
func (f *Faults) Add(one Fault) error {
	if err := one.check(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, &fault{Fault: one, start: f.now()})
	return nil
}

// Clear drops every fault, so that calls are answered undisturbed again. Calls
// that are held stay held.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = nil
}

// OnHold has fn called, on the goroutine of the request, each time a call begins to
// be held: the moment at which a test kills the client.
func (f *Faults) OnHold(fn func(Call)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onHold = fn
}

// Close lets go of every call that is held or delayed: their connections are cut.
// Servers can only shut down after it.
func (f *Faults) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.closed = true
		close(f.gone)
	}
}

func (f Fault) check() error {
	for name, v := range map[string]string{"reset": f.Reset, "hold": f.Hold} {
		if v != "" && v != Before && v != After {
			return fmt.Errorf("fault of %s: %s is %q; it can be %q or %q", f.Call, name, v, Before, After)
		}
	}
	switch {
	case f.Call == "":
		return fmt.Errorf("a fault names no call; write call: eks:UpdateClusterVersion, or call: '*'")
	case f.Nth < 0, f.Every < 0, f.Onset < 0, f.Times < -1, f.Delay < 0, f.From < 0, f.For < 0:
		return fmt.Errorf("fault of %s: a count or duration is negative (only times may be -1, for all)", f.Call)
	case f.Error == "" && f.Status == 0 && f.Delay == 0 && f.Reset == "" && f.Hold == "":
		return fmt.Errorf("fault of %s does nothing; give it error, status, delay, reset or hold", f.Call)
	}
	return nil
}

// strike counts the call in every fault and returns what hits it: all delays added
// up, and the first fault that does more than delay.
func (f *Faults) strike(c Call) (Fault, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var hit Fault
	var found, decided bool
	now := f.now()
	for _, one := range f.list {
		if !one.hit(c, now) {
			continue
		}
		delay := hit.Delay + one.Delay
		if !decided && !one.onlyDelays() {
			hit, decided = one.Fault, true
		}
		if !found && !decided {
			hit = one.Fault
		}
		hit.Delay, found = delay, true
	}
	return hit, found
}

func (f Fault) onlyDelays() bool {
	return f.Error == "" && f.Status == 0 && f.Reset == "" && f.Hold == ""
}

func (f *fault) hit(c Call, now time.Time) bool {
	if !matches(f.Call, c.Name) || f.Object != "" && !matches(f.Object, c.Object) {
		return false
	}
	if f.met < f.Onset {
		if f.met++; f.met < f.Onset {
			return false
		}
		f.start = now
	}
	since := now.Sub(f.start)
	if since < f.From || f.For > 0 && since >= f.From+f.For {
		return false
	}
	f.seen++
	if f.Every > 0 {
		if f.seen%f.Every != 0 || f.Times > 0 && f.hits >= f.Times {
			return false
		}
		f.hits++
		return true
	}
	times := f.Times
	if times == 0 {
		times = 1
		if f.For > 0 && f.Nth == 0 {
			times = -1
		}
	}
	if f.seen < max(f.Nth, 1) || times > 0 && f.hits >= times {
		return false
	}
	f.hits++
	return true
}

// matches reports whether name fits the pattern, in which * stands for any text.
func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	rest, ok := strings.CutPrefix(name, parts[0])
	if !ok {
		return false
	}
	last := parts[len(parts)-1]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(rest, part)
		if i < 0 {
			return false
		}
		rest = rest[i+len(part):]
	}
	return strings.HasSuffix(rest, last)
}

// Describe says in a few words what a fault does, as the log shows it.
func (f Fault) Describe() string {
	var does []string
	if f.Delay > 0 {
		does = append(does, "delay "+f.Delay.String())
	}
	switch {
	case f.Error != "":
		does = append(does, "error "+f.Error)
	case f.Status != 0:
		does = append(does, fmt.Sprintf("status %d", f.Status))
	}
	if f.Reset != "" {
		does = append(does, "reset "+f.Reset)
	}
	if f.Hold != "" {
		does = append(does, "hold "+f.Hold)
	}
	return strings.Join(does, ", ")
}
