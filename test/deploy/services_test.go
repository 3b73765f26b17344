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
	if !regexp.MustCompile(`(?m)^MemoryMax=1G$`).MatchString(unit) || !strings.Contains(unit, "GOMEMLIMIT=900MiB") {
		t.Error("its memory has no limit, or Go does not know the limit")
	}
	if !regexp.MustCompile(`(?m)^RestrictAddressFamilies=.*\bAF_NETLINK\b`).MatchString(unit) {
		t.Error("the unit cannot ask for the addresses of this host, and refuses producers at the ports of its own listeners")
	}
	if stop == nil {
		t.Fatal("the unit has no TimeoutStopSec")
	}
	if d, err := time.ParseDuration(stop[1]); err != nil || d <= config.Default().Shutdown.Grace {
		t.Errorf("systemd kills after %s, %v, and a stop may take %s", stop[1], err, config.Default().Shutdown.Grace)
	}
}

func TestKubernetesConfigurationLoads(t *testing.T) {
	t.Parallel()
	// The files of the secrets, as kustomization.yaml says to make them.
	secrets := t.TempDir()
	for name, content := range map[string]string{
		"redis-url": "redis://:PASSWORD@redis:6379/0", "amqp-url": "amqp://USER:PASSWORD@rabbitmq:5672/",
	} {
		if err := os.WriteFile(filepath.Join(secrets, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text := strings.ReplaceAll(read(t, "deploy/kubernetes/msghandler.yaml"), "/run/msghandler/secrets", secrets)
	file := filepath.Join(secrets, "msghandler.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Sources{File: file})
	if err != nil {
		t.Fatal(err)
	}
	if c.GRPC.Certificates.Key == "" || c.HTTP.Certificates.Key == "" || c.Access.TokenFile == "" || c.Access.Anonymous {
		t.Errorf("the API or the console is open: %+v, %+v, %+v", c.GRPC, c.HTTP, c.Access)
	}
	if c.Callbacks.PublicOnly() || !c.Callbacks.TLS {
		t.Errorf("producers of the cluster cannot be called, or without TLS: %+v", c.Callbacks)
	}
}

// The manifests are rendered and read in a module of their own: kustomize, the types of Kubernetes and those of
// Grafana are not dependencies of the main module. Its package chart is for make chart, because helm takes long to
// compile.
func TestKubernetesManifestsAreValid(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("go", "test", "-count=1", "-vet=off", ".", "./dashboard")
	cmd.Dir = "kubernetes"
	cmd.Env = append(os.Environ(), "GOWORK=off") // the module is not in go.work
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
