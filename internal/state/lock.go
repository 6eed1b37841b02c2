package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// The lock is on a file of its own beside the journal that is never renamed or
// removed: a lock on the journal itself would follow it into the archive, and whoever
// waited for it would then write there.
func lockPath(journal string) string { return journal + ".lock" }

// lockJournal takes the exclusive flock of a journal without waiting. The directory
// is made, 0700, where it is missing.
func lockJournal(path string) (*flock.Flock, error) {
	dir := filepath.Dir(path)
	_, err := os.Stat(dir)
	fresh := os.IsNotExist(err)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, unwritable(path, err)
	}
	if fresh {
		if err := syncDir(filepath.Dir(dir)); err != nil {
			return nil, unwritable(path, err)
		}
	}
	lock := flock.New(lockPath(path), flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o600))
	// Holder takes a shared lock for a moment; only what stays locked is held.
	patient, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	ok, err := lock.TryLockContext(patient, lockPatience/10)
	switch {
	case err != nil && !errors.Is(err, context.DeadlineExceeded):
		return nil, unwritable(path, err)
	case !ok:
		return nil, &ErrLocked{Path: path, Holder: holder(path)}
	}
	// Until Who is known the number of the process has to do; and nobody before it.
	if err := sign(path, Who{PID: os.Getpid()}); err != nil {
		_ = lock.Unlock() // the first error is the one to tell
		return nil, unwritable(path, err)
	}
	return lock, nil
}

// lockPatience is how long a lock is tried before it counts as held.
const lockPatience = 200 * time.Millisecond

// unwritable wraps what the file system said about the folder of the journal.
func unwritable(path string, err error) error {
	return fmt.Errorf("journal %s cannot be written: %w; make its folder writable, or name another place with --state", path, err)
}

// holder reads who wrote itself into the lock file. It is a hint for people: the
// holder may not have got that far.
func holder(path string) Who {
	var w Who
	if b, err := os.ReadFile(lockPath(path)); err == nil {
		_ = json.Unmarshal(b, &w)
	}
	w.ARN, w.User, w.Host = Clean(w.ARN), Clean(w.User), Clean(w.Host)
	return w
}

// sign writes the holder into the lock file. The file is opened anew, which leaves a
// flock alone; it is not replaced, since the lock is on its inode.
func sign(path string, w Who) error {
	b, err := json.Marshal(w)
	if err != nil {
		return err
	}
	return os.WriteFile(lockPath(path), append(b, '\n'), 0o600)
}

// syncDir makes new and renamed names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

// exists tells whether there is something at path, a dangling link included.
func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	switch {
	case err == nil:
		return true, nil
	case os.IsNotExist(err):
		return false, nil
	}
	return false, err
}

// checkRunID keeps run ids out of other folders: they become part of a file name.
func checkRunID(id string) error {
	if id == "" || len(id) > 100 || id[0] == '.' || !fs.ValidPath(id) || filepath.Base(id) != id || Clean(id) != id {
		return fmt.Errorf("run id %q cannot be part of a file name", id)
	}
	return nil
}
