//go:build unix && !solaris && !illumos && !aix

package tokenfile

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// lock waits for the lock of a file, which ends with the file's descriptor.
func lock(file *os.File) error {
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// keepOwner gives a new file the owner and the group of another file.
func keepOwner(file *os.File, other fs.FileInfo) error {
	made, err := file.Stat()
	if err != nil {
		return err
	}
	is, _ := made.Sys().(*syscall.Stat_t)
	want, _ := other.Sys().(*syscall.Stat_t)
	if is == nil || want == nil || is.Uid == want.Uid && is.Gid == want.Gid {
		return nil
	}
	return file.Chown(int(want.Uid), int(want.Gid))
}

// syncDirectory makes a change of a directory outlive a power failure.
func syncDirectory(path string) error {
	dir, err := os.Open(path) //nolint:gosec // the path is the operator's own
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
