package commandline_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/test/must"
)

func TestProgramBesideWinsOverPath(t *testing.T) {
	const name = "msghandler-of-find-test"
	path := t.TempDir()
	t.Setenv("PATH", path)
	if _, err := commandline.FindProgram(name); err == nil || !strings.Contains(err.Error(), "install "+name+" there") {
		t.Errorf("without the program: %v", err)
	}
	executable, err := os.Executable()
	must.Succeed(t, err)
	beside := filepath.Join(filepath.Dir(executable), name)
	t.Cleanup(func() { _ = os.Remove(beside) })
	find := func(want string) {
		t.Helper()
		if found, err := commandline.FindProgram(name); err != nil || found != want {
			t.Errorf("found %s, %v; want %s", found, err, want)
		}
	}
	for _, file := range []string{filepath.Join(path, name), beside} {
		must.Succeed(t, os.WriteFile(file, nil, 0o700))
		find(file)
	}
	must.Succeed(t, os.Chmod(beside, 0o600))
	find(filepath.Join(path, name))
}
