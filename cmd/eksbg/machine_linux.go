package main

import (
	"os"
	"strconv"
	"strings"
)

// machine tells this running system, and the namespace in it that process ids are
// numbered in, from every other one: containers of one host have the host's boot id and
// may have its name.
func machine() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + " " + ns
}

// isZombie tells whether a process has ended and only waits for its parent to notice;
// see proc_pid_stat(5).
func isZombie(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, after, ok := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	return ok && (strings.HasPrefix(after, "Z") || strings.HasPrefix(after, "X"))
}
