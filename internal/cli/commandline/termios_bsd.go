//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package commandline

import "golang.org/x/sys/unix"

const (
	getTermios, setTermios = unix.TIOCGETA, unix.TIOCSETA
	// noKey is no key of a terminal: _POSIX_VDISABLE.
	noKey = 0xff
)
