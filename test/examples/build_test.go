// Package examples builds the examples outside of the tree, and kills their processes under load.
package examples

import (
	"archive/zip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/test/servers"
)

// binaries is the directory of the programs: the coordinator, and all examples.
var binaries string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "msghandler-examples-")
	if err == nil {
		defer os.RemoveAll(dir)
		binaries = filepath.Join(dir, "bin")
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return servers.Stopping(m).Run()
}

const ours = "github.com/msghandler/msghandler"

// build builds the examples as a user does who has copied them: outside of the tree, from the released modules. The
// modules are the zip files of the checkout's GOPROXY. They stand in by replace lines, because the go command reads a
// version only once, and libraries of others then come from the cache of this machine.
func build(dir string) error {
	proxy, modules := filepath.Join(dir, "proxy"), filepath.Join(dir, "modules")
	if err := goOutside("../../internal/release", "run", "./cmd/modules", "proxy", proxy); err != nil {
		return err
	}
	zips, err := find(proxy, "*", "@v", "*.zip")
	if err != nil {
		return err
	}
	for _, name := range zips {
		if err := unpack(modules, name); err != nil {
			return err
		}
	}
	unpacked, err := find(modules, "*@*")
	if err != nil {
		return err
	}
	edit := []string{"mod", "edit"}
	copied := ""
	for _, module := range unpacked {
		path, _, _ := strings.Cut(strings.TrimPrefix(module, modules+"/"), "@")
		edit = append(edit, "-replace="+path+"="+module)
		if path == ours+"/examples" {
			copied = module
		}
	}
	if copied == "" {
		return fmt.Errorf("the proxy has no examples among %q", unpacked)
	}
	if err := goOutside(copied, edit...); err != nil {
		return err
	}
	if err := goOutside(copied, "build", "-ldflags=-s -w", "-o", binaries+"/", "./..."); err != nil {
		return err
	}
	return goIn("../..", nil, "build", "-ldflags=-s -w", "-o", binaries+"/", "./cmd/msghandler", "./cmd/msghandler-dev")
}

// find finds files of our modules, which are in three directories.
func find(dir string, pattern ...string) (found []string, err error) {
	for _, room := range []string{"", "internal", "broker"} {
		some, err := filepath.Glob(filepath.Join(append([]string{dir, ours, room}, pattern...)...))
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	return found, nil
}

// unpack writes the files of a module's zip file, whose names begin with the module's path and version.
func unpack(dir, name string) error {
	r, err := zip.OpenReader(name)
	if err != nil {
		return err
	}
	defer r.Close()
	return os.CopyFS(dir, r)
}

// goOutside runs the go command for a module that is not in the workspace.
func goOutside(dir string, args ...string) error { return goIn(dir, []string{"GOWORK=off"}, args...) }

func goIn(dir string, env []string, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s in %s: %w\n%s", strings.Join(args, " "), dir, err, out)
	}
	return nil
}
