package state

import (
	"github.com/gofrs/flock"
)

// Holder says who holds the lock of the journal at path, without waiting and
// without keeping it from anybody for more than a moment; held is false when nobody does.
func Holder(path string) (who Who, held bool) {
	there, err := exists(lockPath(path))
	if err != nil || !there {
		return Who{}, false
	}
	lock := flock.New(lockPath(path))
	free, err := lock.TryRLock()
	if err != nil {
		return Who{}, false
	}
	if free {
		_ = lock.Unlock() // a shared lock on a file of which nothing was written
		return Who{}, false
	}
	return holder(path), true
}
