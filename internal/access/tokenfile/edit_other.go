//go:build !unix || solaris || illumos || aix

package tokenfile

import (
	"io/fs"
	"os"
)

// These systems have no lock, owner or directory of the kind that edit_unix.go uses: only a single command may change a
// file at a time.

func lock(*os.File) error { return nil }

func keepOwner(*os.File, fs.FileInfo) error { return nil }

func syncDirectory(string) error { return nil }
