package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// configure writes the configuration of scripts/debian-setup.sh into a directory, as its start does, and returns the
// script's output and the file's content.
func configure(t *testing.T, dir string, env ...string) (said, config string) {
	t.Helper()
	cmd := exec.Command(filepath.Join("..", "..", "scripts", "debian-setup.sh"), "configure")
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "DIR=" + dir}, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	data, err := os.ReadFile(filepath.Join(dir, "msghandler.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(out), string(data)
}

func TestDebianSetupKeepsEditedConfiguration(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	if said, config := configure(t, dir); said != "" || !strings.Contains(config, "127.0.0.1:9090") {
		t.Fatalf("at first it says %q and writes\n%s", said, config)
	}
	// An unedited configuration follows the ports.
	said, written := configure(t, dir, "GRPC_PORT=19090")
	if said != "" || !strings.Contains(written, "127.0.0.1:19090") {
		t.Fatalf("with another port it says %q and writes\n%s", said, written)
	}
	edited := written + "submit: {trust: true}\n"
	if err := os.WriteFile(filepath.Join(dir, "msghandler.yaml"), []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		said, kept := configure(t, dir, "GRPC_PORT=29090")
		if kept != edited || !strings.Contains(said, "was edited and stays as it is") {
			t.Fatalf("of an edited one it says %q and leaves\n%s", said, kept)
		}
	}
	suggested, err := os.ReadFile(filepath.Join(dir, "msghandler.yaml.new"))
	if err != nil || !strings.Contains(string(suggested), "127.0.0.1:29090") {
		t.Errorf("beside it: %v\n%s", err, suggested)
	}
}

// A directory of an earlier version of the script has no note of the written configuration.
func TestDebianSetupKeepsUnknownConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const mine = "submit: {trust: true}\n"
	if err := os.WriteFile(filepath.Join(dir, "msghandler.yaml"), []byte(mine), 0o600); err != nil {
		t.Fatal(err)
	}
	if said, kept := configure(t, dir); kept != mine || !strings.Contains(said, "stays as it is") {
		t.Errorf("it says %q and leaves\n%s", said, kept)
	}
}
