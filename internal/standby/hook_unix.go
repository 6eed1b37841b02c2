//go:build unix

package standby

import (
	"errors"
	"os"
	"syscall"
)

// ownGroup makes the process the first of a group of its own, so that a Ctrl-C of the
// terminal reaches it through eksbg alone.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// signalGroup sends a signal to all processes of a group; a group that is gone is no
// error. Stopped ones are woken up, or they would not see it.
func signalGroup(group int, sig syscall.Signal) error {
	err := syscall.Kill(-group, sig)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	if err == nil && sig != syscall.SIGKILL {
		_ = syscall.Kill(-group, syscall.SIGCONT) // as the signal before it
	}
	return err
}

// groupRuns tells whether any process of the group still runs.
func groupRuns(group int) bool {
	return !errors.Is(syscall.Kill(-group, 0), syscall.ESRCH) && !onlyZombies(group)
}

// inherited gives the reading end of a pipe once more, for a child to hold open. The
// file itself must not be given away: that would make its reads uninterruptible.
func inherited(r *os.File) (*os.File, error) {
	raw, err := r.SyscallConn()
	if err != nil {
		return nil, err
	}
	var dup int
	var dupErr error
	err = raw.Control(func(fd uintptr) {
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
		if dup, dupErr = syscall.Dup(int(fd)); dupErr == nil {
			syscall.CloseOnExec(dup)
			growPipe(fd)
		}
	})
	if err = errors.Join(err, dupErr); err != nil {
		return nil, err
	}
	// The descriptor does not block, so os.File leaves it like that when it is passed on.
	return os.NewFile(uintptr(dup), r.Name()), nil
}

// lockHook locks the file at path, which every process holds that a hook starts: as long
// as one of them is there, held is true and the file nil. Closing the file lets go. create
// is os.O_CREATE where a missing file is to be made.
func lockHook(path string, create int) (f *os.File, held bool, err error) {
	f, err = os.OpenFile(path, os.O_RDWR|create, 0o600)
	if err != nil {
		return nil, false, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, false, nil
	}
	held = errors.Is(err, syscall.EWOULDBLOCK)
	if held {
		err = nil
	}
	return nil, held, errors.Join(err, f.Close())
}
