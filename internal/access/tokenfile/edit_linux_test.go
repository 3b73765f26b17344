package tokenfile_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/msghandler/msghandler/internal/access/tokenfile"
	"github.com/msghandler/msghandler/test/must"
)

// Root adds a token to the file of the coordinator's user, who must be able to read the file afterwards.
func TestEditKeepsOwner(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	write(t, path, "")
	owner := os.Getuid()
	if owner == 0 {
		owner = 65534
		must.Succeed(t, os.Chown(path, owner, owner))
	}
	must.Succeed(t, tokenfile.Add(path, token("a")))
	info, err := os.Stat(path)
	must.Succeed(t, err)
	if is, _ := info.Sys().(*syscall.Stat_t); int(is.Uid) != owner {
		t.Errorf("the file belongs to %d instead of %d", is.Uid, owner)
	}
}
