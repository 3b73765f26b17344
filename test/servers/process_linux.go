package servers

import "syscall"

// childAttributes: a group of its own, so that a Ctrl-C at the terminal does not stop the child under a test, and the
// kernel's promise to kill the child when this process is gone.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
