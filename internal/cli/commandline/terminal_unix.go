//go:build unix

package commandline

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminalSize is the number of columns and lines of a terminal; 0 for another file.
func terminalSize(file *os.File) (width, height int) {
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}

// singleKeys has a terminal hand over each key at once, and show none, until end is called. Ctrl-C stays an interrupt.
// Ctrl-Z is a key like others: the shell of a stopped program would be left with the program's screen, and a program
// that goes on has the shell's mode of the terminal, in which a read waits for the end of a line.
func singleKeys(terminal *os.File) (end func(), err error) {
	before, err := unix.IoctlGetTermios(int(terminal.Fd()), getTermios)
	if err != nil {
		return nil, err
	}
	keys := *before
	keys.Lflag &^= unix.ICANON | unix.ECHO
	keys.Cc[unix.VMIN], keys.Cc[unix.VTIME] = 0, 1 // a read ends after a tenth of a second
	keys.Cc[unix.VSUSP] = noKey
	if err := unix.IoctlSetTermios(int(terminal.Fd()), setTermios, &keys); err != nil {
		return nil, err
	}
	return func() { _ = unix.IoctlSetTermios(int(terminal.Fd()), setTermios, before) }, nil
}
