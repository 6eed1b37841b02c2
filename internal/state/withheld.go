package state

import (
	"errors"
	"fmt"
)

// Withheld says that a change must not be made now, because the lock that allows it
// cannot be shown to be held. Nothing is wrong with the journal, and nothing has been
// written or sent.
type Withheld struct {
	// Change names the call and the object.
	Change string
	Err    error
}

// Error names the change and why it was not made.
func (w *Withheld) Error() string { return fmt.Sprintf("%s is withheld: %v", w.Change, w.Err) }

// Unwrap gives why.
func (w *Withheld) Unwrap() error { return w.Err }

// Unguarded gives the recorder for changes that need no lock: putting back what the
// run has changed (semantics 14). Recorders that guard their intents have a method
// Unguarded; every other one is returned as it is.
func Unguarded(rec Recorder) Recorder {
	if g, ok := rec.(interface{ Unguarded() Recorder }); ok {
		return g.Unguarded()
	}
	return rec
}

// Guard tells whether a change whose intent is in the journal already may be sent again
// now: nil, or *Withheld. Recorders that guard their intents have a method Guard; every
// other one allows all.
func Guard(rec Recorder, change string) error {
	if g, ok := rec.(interface{ Guard(change string) error }); ok {
		return g.Guard(change)
	}
	return nil
}

// LockLost tells whether the error, or one that it wraps, says that somebody else has
// the lock now. Such errors have a method LockLost. Who sees one changes nothing more
// that the other holder may have to do with.
func LockLost(err error) bool {
	var lost interface{ LockLost() }
	return errors.As(err, &lost)
}
