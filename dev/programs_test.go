package dev_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/msghandler/msghandler/dev"
	"github.com/msghandler/msghandler/internal/cli"
	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/servers/natsserver"
)

// buildDir holds the programs that buildOnce builds.
var buildDir string

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

// runAll runs all tests, and removes the built programs after them.
func runAll(m *testing.M) int {
	if natsserver.Child() {
		return 0
	}
	dir, err := os.MkdirTemp("", "msghandler-dev-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	buildDir = dir
	return servers.Stopping(m).Run()
}

// buildOnce builds the programs for all tests of this package.
var buildOnce = sync.OnceValue(func() error {
	build := exec.Command("go", "build", "-o", buildDir, "../cmd/msghandler", "../cmd/msghandler-dev")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
})

// program returns the path of a built program.
func program(t *testing.T, name string) string {
	t.Helper()
	if err := buildOnce(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(buildDir, name)
}

// ran is a command's exit status and output.
type ran struct {
	status   int
	out, err string
}

// run runs msghandler-dev, and operate runs msghandler.
func run(args ...string) ran     { return runProgram(dev.Run, args) }
func operate(args ...string) ran { return runProgram(cli.Run, args) }

func runProgram(program func(context.Context, commandline.Process) int, args []string) ran {
	var out, errs bytes.Buffer
	process := commandline.Process{Args: args, In: strings.NewReader(""), Out: &out, Err: &errs}
	status := program(context.Background(), process)
	return ran{status, out.String(), errs.String()}
}

func (r ran) want(t *testing.T, status int, out, err string) {
	t.Helper()
	if r.status != status || !strings.Contains(r.out, out) || out == "" && r.out != "" || !strings.Contains(r.err, err) {
		t.Errorf("status %d instead of %d; want output %q and errors %q:\n%s%s", r.status, status, out, err, r.out, r.err)
	}
}
