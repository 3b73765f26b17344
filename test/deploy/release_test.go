package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The tools of a release are a module of their own, with tests beside them: a service that builds from the released
// modules, the versions of the go.mod files, the changelog, and the unit of the packages. make test-release and
// make test-packages run the tests that need minutes.
func TestReleaseTools(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("go", "test", "-count=1", "./modules", "./changelog", "./unit")
	cmd.Dir = filepath.Join(root, "internal", "release")
	cmd.Env = append(os.Environ(), "GOWORK=off") // the module is not in go.work
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestPackageScriptsAreShell(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob(filepath.Join(root, "deploy", "packages", "*", "*"))
	if err != nil || len(scripts) != 7 {
		t.Fatalf("the scripts are %q (%v)", scripts, err)
	}
	for _, script := range scripts {
		if out, err := exec.Command("sh", "-n", script).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}
