//go:build unix && !(darwin || dragonfly || freebsd || netbsd || openbsd)

package commandline

import "golang.org/x/sys/unix"

const (
	getTermios, setTermios = unix.TCGETS, unix.TCSETS
	// noKey is no key of a terminal: _POSIX_VDISABLE.
	noKey = 0
)
