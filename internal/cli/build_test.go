package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/servers/natsserver"
)

// buildDir holds the program that buildOnce builds.
var buildDir string

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

// runAll runs all tests, and removes the built program after them.
func runAll(m *testing.M) int {
	if natsserver.Child() {
		return 0
	}
	dir, err := os.MkdirTemp("", "msghandler-cli-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	buildDir = dir
	return servers.Stopping(m).Run()
}

// buildOnce builds msghandler for all tests of this package.
var buildOnce = sync.OnceValues(func() (string, error) {
	path := filepath.Join(buildDir, "msghandler")
	if out, err := exec.Command("go", "build", "-o", path, "../../cmd/msghandler").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

func build(t *testing.T) string {
	t.Helper()
	path, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
