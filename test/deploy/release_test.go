package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The tools of a release are a module of their own, with tests beside them: a service that builds from the released
// modules, and the versions of the go.mod files.
func TestModulesAreImportable(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("go", "test", "-count=1", "./modules")
	cmd.Dir = filepath.Join(root, "internal", "release")
	cmd.Env = append(os.Environ(), "GOWORK=off") // the module is not in go.work
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
