//go:build !linux

package aws

import "syscall"

// DropUnsent does nothing where the kernel has no such option, or another one.
func DropUnsent(_, _ string, _ syscall.RawConn) error { return nil }
