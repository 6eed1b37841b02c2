package aws

import (
	"fmt"
	"syscall"
	"time"
)

const (
	// unsentTime is how long data that the other side does not acknowledge is tried on by
	// the kernel. A change that was given up must not leave the machine once the network
	// is back: by then somebody else may hold the lock.
	unsentTime = 18 * time.Second
	// tcpUserTimeout is TCP_USER_TIMEOUT, tcp(7), which package syscall lacks.
	tcpUserTimeout = 0x12
)

// DropUnsent is the Control of a net.Dialer: it has the kernel end a connection whose data
// is not acknowledged in time.
func DropUnsent(_, _ string, c syscall.RawConn) error {
	var set error
	if err := c.Control(func(fd uintptr) {
		set = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(unsentTime.Milliseconds()))
	}); err != nil {
		return fmt.Errorf("set up a connection: %w", err)
	}
	_ = set // an old kernel without it sends as it always did
	return nil
}
