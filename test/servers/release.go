package servers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// ReleaseVariable names the environment variable that chooses the release of the servers: oldest (the default),
// trixie or newest.
const ReleaseVariable = "TEST_SERVERS"

// DirectoryVariable names the environment variable with the directory of the newer releases; its default is
// .cache/servers of the checkout. scripts/install-newer-servers.sh unpacks them there.
const DirectoryVariable = "TEST_SERVERS_DIR"

// oldest is the system's installed release.
const oldest = "oldest"

// release is one set of server programs for tests. The zero value is the system's own set.
type release struct {
	name string
	// usr is the directory that the programs of this release see as /usr; empty means the system's own.
	usr string
	// valkey says that Valkey takes the place of Redis.
	valkey bool
}

// Release is the name of the release that tests run on: oldest, trixie or newest.
func Release() string {
	r, err := currentRelease()
	if err != nil {
		return os.Getenv(ReleaseVariable)
	}
	return r.name
}

// ReleaseDirectory is where a newer release is unpacked, with a list of its packages in the file "versions". The
// oldest has none: the test ends.
func ReleaseDirectory(t testing.TB) string {
	t.Helper()
	r, err := currentRelease()
	if err != nil || r.usr == "" {
		t.Fatalf("release %q is not unpacked anywhere: %v", r.name, err)
	}
	return filepath.Dir(r.usr)
}

// currentRelease is the release that ReleaseVariable names.
var currentRelease = sync.OnceValues(func() (release, error) {
	return findRelease(os.Getenv(ReleaseVariable))
})

func findRelease(name string) (release, error) {
	r := release{name: name, valkey: name == "newest"}
	switch name {
	case "", oldest:
		return release{name: oldest}, nil
	case "newest", "trixie":
	default:
		return r, fmt.Errorf("%s=%q, want oldest, trixie or newest", ReleaseVariable, name)
	}
	base, err := releasesDirectory()
	if err != nil {
		return r, err
	}
	r.usr = filepath.Join(base, name, "usr")
	if _, err := os.Stat(r.usr); err != nil {
		return r, fmt.Errorf("%w: scripts/install-newer-servers.sh %s installs the servers of %s=%s",
			err, name, ReleaseVariable, name)
	}
	if os.Geteuid() != 0 {
		return r, fmt.Errorf("%s=%s: only root can start these servers, as they have a /usr of their own", ReleaseVariable,
			name)
	}
	return r, nil
}

func chosenRelease(t testing.TB) release {
	t.Helper()
	r, err := currentRelease()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// releaseOf ends the test where this machine does not have the release.
func releaseOf(t testing.TB, name string) release {
	t.Helper()
	r, err := findRelease(name)
	if err != nil {
		Missing(t, err.Error())
	}
	return r
}

func releasesDirectory() (string, error) {
	if dir := os.Getenv(DirectoryVariable); dir != "" {
		return filepath.Abs(dir)
	}
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) { // built with -trimpath
		return "", fmt.Errorf("%s is not set, and the checkout is unknown", DirectoryVariable)
	}
	return filepath.Join(filepath.Dir(file), "..", "..", ".cache", "servers"), nil
}

// enter mounts the directory $1 over /usr, in a mount namespace that ends with the program, and becomes the program.
// All other directories stay the same, so that every path means the same to the server as to the test.
//
// The system's other locales are missing there: Redis would refuse to start with a missing locale.
const enter = `mount --bind "$1" /usr && shift && LC_ALL=C.UTF-8 exec "$@"`

// command returns the path and arguments that run a program of this release. The started process becomes the program
// and keeps its process id.
func (r release) command(path string, args []string) (string, []string) {
	if r.usr == "" {
		return path, args
	}
	within := []string{"--mount", "--propagation", "private", "--", "sh", "-ec", enter, "sh", r.usr, path}
	return "unshare", append(within, args...)
}

// lookPath finds a program of this release. The path is the path in the program's own view.
func (r release) lookPath(name string) (string, error) {
	if r.usr == "" {
		return exec.LookPath(name)
	}
	for _, dir := range []string{"bin", "sbin"} {
		if _, err := os.Stat(filepath.Join(r.usr, dir, name)); err == nil {
			return filepath.Join("/usr", dir, name), nil
		}
	}
	return "", fmt.Errorf("%w: %s in %s", exec.ErrNotFound, name, r.usr)
}

// exists says whether this release has the file, which is named as its programs see it.
func (r release) exists(path string) bool {
	if r.usr != "" {
		below, err := filepath.Rel("/usr", path)
		if err != nil {
			return false
		}
		path = filepath.Join(r.usr, below)
	}
	_, err := os.Stat(path)
	return err == nil
}
