package main

import "syscall"

// machine tells this running system from every other one: each boot of a Mac has an id.
func machine() string {
	id, err := syscall.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}

func isZombie(int) bool { return false }
