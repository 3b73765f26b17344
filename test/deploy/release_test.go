package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The tools of a release are a module of their own, with tests beside them: a service that builds from the released
// modules, the versions of the go.mod files, and the changelog. make test-release and make test-packages run the tests
// that need minutes.
func TestReleaseTools(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("go", "test", "-count=1", "./modules", "./changelog")
	cmd.Dir = filepath.Join(root, "internal", "release")
	cmd.Env = append(os.Environ(), "GOWORK=off") // the module is not in go.work
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The unit of the packages is the unit for an installation by hand, with the account and the program of the package.
func TestUnitOfPackages(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(filepath.Join(root, "scripts", "packaged-unit.sh")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	unit := string(out)
	for _, line := range []string{
		"User=msghandler", "Group=msghandler", "Restart=always", "WantedBy=multi-user.target", "ProtectSystem=strict",
		"ExecStart=/usr/bin/msghandler serve --config /etc/msghandler/msghandler.yaml",
		"LoadCredential=redis-url:/etc/msghandler/secrets/redis-url",
	} {
		if !strings.Contains(unit, "\n"+line+"\n") {
			t.Errorf("the unit lacks %s", line)
		}
	}
	for _, word := range []string{"DynamicUser", "/usr/local", "groupadd", "install -m"} {
		if strings.Contains(unit, word) {
			t.Errorf("the unit has %s, which is for an installation by hand", word)
		}
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
