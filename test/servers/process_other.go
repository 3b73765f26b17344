//go:build !linux

package servers

import "syscall"

// childAttributes: a group of its own. Only Linux kills a child with its parent; elsewhere t.Cleanup and Main do.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
