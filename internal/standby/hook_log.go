package standby

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// The part of a hook's output that its log keeps, in bytes: the beginning, and at least
// that much of the end (at most twice as much).
const (
	hookLogHead = 1 << 20
	hookLogTail = 1 << 20
)

// hookLog is the file that the output of a hook is kept in. It never grows over a bound:
// what does not fit is left out between its head and its tail, in place, so that what is
// there survives the process.
type hookLog struct {
	f          *os.File
	head, tail int64
	// begin is where this attempt begins, size where the next line goes.
	begin, size int64
	// cutAt is where the line stands that says what is left out, once the head is full;
	// cutLen is its length.
	cutAt, cutLen       int64
	cutLines, cutAmount int64
	// err is the first failure; nothing is written after it.
	err error
}

// openHookLog opens the log for one more attempt. What earlier ones left is kept, up to
// its own bound. The file can be read by its owner only.
func openHookLog(path string, head, tail int64) (*hookLog, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	l := &hookLog{f: f, head: head, tail: tail, cutAt: -1}
	if err := l.resume(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return l, nil
}

func (l *hookLog) resume() error {
	info, err := l.f.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Perm() != 0o600 {
		if err := l.f.Chmod(0o600); err != nil {
			return err
		}
	}
	l.size = info.Size()
	if l.size > l.head+2*l.tail {
		l.cutAt = 0
		l.cut()
		l.cutAt, l.cutLen, l.cutLines, l.cutAmount = -1, 0, 0, 0
	}
	l.begin = l.size
	return l.err
}

// write adds a line.
func (l *hookLog) write(line string) {
	if l.err != nil {
		return
	}
	n, err := l.f.WriteAt(append([]byte(line), '\n'), l.size)
	l.size += int64(n)
	if err != nil {
		l.err = err
		return
	}
	switch {
	case l.cutAt < 0 && l.size-l.begin >= l.head:
		l.cutAt = l.size
	case l.cutAt >= 0 && l.size-l.cutAt-l.cutLen > 2*l.tail:
		l.cut()
	}
}

// cut leaves out everything from cutAt on but the tail.
func (l *hookLog) cut() {
	from := l.cutAt + l.cutLen
	old := make([]byte, l.size-from)
	if _, err := l.f.ReadAt(old, from); err != nil {
		l.err = err
		return
	}
	keep := old[max(int64(len(old))-l.tail, 0):]
	if at := bytes.IndexByte(keep, '\n'); at >= 0 && at+1 < len(keep) {
		keep = keep[at+1:]
	}
	gone := old[:len(old)-len(keep)]
	l.cutLines += int64(bytes.Count(gone, []byte("\n")))
	l.cutAmount += int64(len(gone))
	mark := fmt.Sprintf("== %d lines (%d bytes) are left out here ==\n", l.cutLines, l.cutAmount)
	l.cutLen = int64(len(mark))
	l.size = l.cutAt + l.cutLen + int64(len(keep))
	if _, err := l.f.WriteAt(append([]byte(mark), keep...), l.cutAt); err != nil {
		l.err = err
		return
	}
	l.err = l.f.Truncate(l.size)
}

// close brings the log to the disk and gives what went wrong with it, if anything did.
func (l *hookLog) close() error {
	var sync error
	if l.err == nil {
		sync = l.f.Sync()
	}
	return errors.Join(l.err, sync, l.f.Close())
}
