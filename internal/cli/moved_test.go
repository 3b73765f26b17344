package cli_test

import (
	"bytes"
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

func TestMovedCommandsStartTheirPrograms(t *testing.T) {
	t.Parallel()
	original, dir, elsewhere := build(t), t.TempDir(), t.TempDir()
	program := filepath.Join(dir, "msghandler")
	if err := os.Link(original, program); err != nil {
		t.Fatal(err)
	}
	start := func(args ...string) ran {
		var out, errs bytes.Buffer
		cmd := exec.Command(program, args...)
		cmd.Env, cmd.Stdout, cmd.Stderr = []string{"PATH=" + elsewhere}, &out, &errs
		_ = cmd.Run() // the exit status says how the program ended
		return ran{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
	}
	for _, name := range []string{"demo", "bench"} {
		start(name).want(t, 1, "", "msghandler-"+name+" is neither beside "+program+" nor in PATH: install msghandler-"+name)
	}
	script := func(dir, name, text string) {
		text = "#!/bin/sh\n" + text
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	script(elsewhere, "msghandler-demo", `echo "in PATH: $@"; exit 3`)
	script(dir, "msghandler-bench", `echo "beside: $@"`)
	script(elsewhere, "msghandler-bench", `echo "in PATH: $@"`)
	start("demo", "--orders", "100", "--help").want(t, 3, "in PATH: --orders 100 --help\n", "")
	start("bench", "--rate=5", "--server", "a b").want(t, 0, "beside: --rate=5 --server a b\n", "")
	start("--config=/x.yaml", "bench").want(t, 0, "beside: --config=/x.yaml\n", "")
	if err := os.Chmod(filepath.Join(dir, "msghandler-bench"), 0o600); err != nil {
		t.Fatal(err)
	}
	start("bench").want(t, 0, "in PATH: \n", "")
}
