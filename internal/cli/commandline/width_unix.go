//go:build unix

package commandline

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminalWidth is the number of columns of a terminal; 0 for another file.
func terminalWidth(file *os.File) int {
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
