package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/test/servers"
)

func TestSystemdUnitIsValid(t *testing.T) {
	t.Parallel()
	analyze := servers.Tool(t, "systemd-analyze")
	// The program need not be installed at its place.
	unit := strings.ReplaceAll(read(t, "deploy/systemd/msghandler.service"), "/usr/local/bin/msghandler", "/bin/true")
	file := filepath.Join(t.TempDir(), "msghandler.service")
	if err := os.WriteFile(file, []byte(unit), 0o600); err != nil {
		t.Fatal(err)
	}
	// Messages about other units of this machine are ignored.
	if out, err := exec.Command(analyze, "verify", "--recursive-errors=no", file).CombinedOutput(); err != nil ||
		len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
	// 0 is a unit without any permission, 100 a unit with all.
	out, err := exec.Command(analyze, "security", "--offline=yes", "--threshold=15", file).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	stop := regexp.MustCompile(`(?m)^TimeoutStopSec=(.*)$`).FindStringSubmatch(unit)
	if stop == nil {
		t.Fatal("it has no TimeoutStopSec")
	}
	if d, err := time.ParseDuration(stop[1]); err != nil || d <= config.Default().Shutdown.Grace {
		t.Errorf("systemd kills it after %s, %v, and a stop may take %s", stop[1], err, config.Default().Shutdown.Grace)
	}
}

func TestKubernetesConfigurationLoads(t *testing.T) {
	t.Parallel()
	file := filepath.Join(root, "deploy", "kubernetes", "msghandler.yaml")
	if _, err := config.Load(config.Sources{File: file}); err != nil {
		t.Error(err)
	}
}

// The manifests are rendered and read in a module of their own: kustomize and the types of Kubernetes are
// not dependencies of the main module.
func TestKubernetesManifestsAreValid(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("go", "test", "-count=1", "./...")
	cmd.Dir = "kubernetes"
	cmd.Env = append(os.Environ(), "GOWORK=off") // the module is not in go.work
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
