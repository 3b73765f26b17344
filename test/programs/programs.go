// Package programs builds the programs, and starts, kills and awaits their processes, for tests that run them as users
// do.
package programs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/msghandler/msghandler/test/servers"
)

// Variable names a directory that has all programs: make test builds them once for all packages.
const Variable = "TEST_PROGRAMS"

// wanted are the programs that the tests of this package use.
var wanted []string

// directory has the programs; the first call builds them.
var directory = sync.OnceValue(func() string {
	if built := os.Getenv(Variable); built != "" {
		return built
	}
	dir, err := os.MkdirTemp("", "msghandler-programs-")
	if err == nil {
		err = build(dir, wanted)
	}
	if err != nil {
		panic(err) // no test of the package can go on
	}
	own = dir
	return dir
})

// own is the directory that this process has built.
var own string

// Main runs the tests of a package with programs of cmd/, which the first test that needs them builds; "..." stands for
// all of them. Its result is for os.Exit.
func Main(m *testing.M, names ...string) int {
	wanted = names
	defer func() { _ = os.RemoveAll(own) }()
	return servers.Stopping(m).Run()
}

func build(dir string, names []string) error {
	args := []string{"build", "-ldflags=-s -w", "-o", dir + string(filepath.Separator)}
	for _, name := range names {
		args = append(args, "github.com/msghandler/msghandler/cmd/"+name)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return nil
}

// Path is where a program is.
func Path(name string) string { return filepath.Join(directory(), name) }

// Directory holds all programs.
func Directory() string { return directory() }

// Run runs a program to its end in an environment of its own, and returns its output and its exit status.
func Run(t testing.TB, name string, env []string, args ...string) (output string, status int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), Path(name), args...)
	cmd.Env = environment(t, env)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// environment is what a program of a user finds, and a home of its own unless env names one.
func environment(t testing.TB, env []string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, env...)
}

// Settings are the environment of a coordinator on these servers, with short times: the waits for the loops and for
// leases of dead coordinators are short. Further settings replace them.
func Settings(grpc, http, redis, amqp string, further ...string) []string {
	return append([]string{
		"MSGHANDLER_GRPC_ADDR=" + grpc, "MSGHANDLER_HTTP_ADDR=" + http,
		"MSGHANDLER_REDIS_URL=" + redis, "MSGHANDLER_AMQP_URL=" + amqp,
		"MSGHANDLER_CALLBACKS_ALLOW=127.0.0.1:*",
		"MSGHANDLER_CONFIRM_AFTER=1s", "MSGHANDLER_CONFIRM_TIMEOUT=1s", "MSGHANDLER_CONFIRM_LEASE=6s",
		"MSGHANDLER_SEND_CONFIRM_TIMEOUT=3s", "MSGHANDLER_SEND_LEASE=8s",
	}, further...)
}
