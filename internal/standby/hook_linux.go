package standby

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// growPipe makes a pipe hold as much as an unprivileged process may have it hold (1 MiB,
// fcntl(2), F_SETPIPE_SZ): what a hook can still write when eksbg was killed.
func growPipe(fd uintptr) {
	const setSize = 1031
	_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, fd, setSize, 1<<20) // a smaller one does as well
}

// processStart tells a process from every other one that had or will have its id since
// the system started: the time of its start in clock ticks (proc_pid_stat(5), field 22).
// "" means that there is none.
func processStart(pid int) string {
	stat := procStat(strconv.Itoa(pid))
	if len(stat) < 20 || stat[0] == "Z" || stat[0] == "X" {
		return ""
	}
	return stat[19]
}

// onlyZombies tells whether all that is left of a group has ended and waits for a parent
// that does not look, as it is where eksbg is process 1 of a container.
func onlyZombies(group int) bool {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || len(dirs) == 0 {
		return false
	}
	for _, dir := range dirs {
		stat := procStat(filepath.Base(dir))
		if len(stat) > 2 && stat[2] == strconv.Itoa(group) && stat[0] != "Z" && stat[0] != "X" {
			return false
		}
	}
	return true
}

// procStat are the fields of /proc/PID/stat from the state (the third) on.
func procStat(pid string) []string {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return nil
	}
	// The second field is the name in brackets, which may hold both.
	return strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
}
