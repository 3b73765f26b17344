package files

import (
	"io/fs"
	"os"
	"runtime"
)

// Exposed says what every user of this machine may do with a file, by its mode: "read", "write" or "read and write".
// The text is empty where the mode allows nothing, and where the file or the system has no mode to judge.
func Exposed(path string) string {
	info, err := os.Stat(path)
	if err != nil || runtime.GOOS == "windows" {
		return ""
	}
	return allowedToOthers(info.Mode())
}

func allowedToOthers(mode fs.FileMode) string {
	const read, write = 0o004, 0o002
	switch {
	case mode&read != 0 && mode&write != 0:
		return "read and write"
	case mode&read != 0:
		return "read"
	case mode&write != 0:
		return "write"
	}
	return ""
}
