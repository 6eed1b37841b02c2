//go:build !unix

package standby

import (
	"errors"
	"os"
	"syscall"
)

// errNoUnix is why no hook is run here: there are no process groups to end it by.
var errNoUnix = errors.New("hooks are run on Unix systems only; run eksbg on one")

func ownGroup() *syscall.SysProcAttr { return nil }

func signalGroup(int, syscall.Signal) error { return errNoUnix }

func groupRuns(int) bool { return false }

func inherited(*os.File) (*os.File, error) { return nil, errNoUnix }

func lockHook(string, int) (*os.File, bool, error) { return nil, false, errNoUnix }
