package restart

import (
	"testing"
	"time"
)

// Every method goes on by what it has just done or by what a watch shows. None waits
// for the time after which a workload counts as stale.
func TestNoMethodWaitsForItsTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, b *bench) {
		b.everyMethod()
		begun := b.clock.Now()
		if err := b.drive(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := b.clock.Since(begun); took >= b.deps.Timeout/2 {
			t.Errorf("took %s, with a timeout of %s", took.Round(time.Second), b.deps.Timeout)
		}
	})
}
