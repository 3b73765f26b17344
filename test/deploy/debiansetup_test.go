package deploy

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/access/tokenfile"
	"github.com/msghandler/msghandler/internal/ground/files"
	"github.com/msghandler/msghandler/proto/certs"
	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers"
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
		t.Fatalf("at first the script says %q and writes\n%s", said, config)
	}
	// An unedited configuration follows the ports.
	said, written := configure(t, dir, "GRPC_PORT=19090")
	if said != "" || !strings.Contains(written, "127.0.0.1:19090") {
		t.Fatalf("with another port the script says %q and writes\n%s", said, written)
	}
	edited := written + "submit: {trust: true}\n"
	if err := os.WriteFile(filepath.Join(dir, "msghandler.yaml"), []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		said, kept := configure(t, dir, "GRPC_PORT=29090")
		if kept != edited || !strings.Contains(said, "was edited and stays as it is") {
			t.Fatalf("of an edited file the script says %q and leaves\n%s", said, kept)
		}
	}
	suggested, err := os.ReadFile(filepath.Join(dir, "msghandler.yaml.new"))
	if err != nil || !strings.Contains(string(suggested), "127.0.0.1:29090") {
		t.Errorf("beside the file: %v\n%s", err, suggested)
	}
}

// A configuration that the script did not write stays as it is.
func TestDebianSetupKeepsUnknownConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const mine = "submit: {trust: true}\n"
	if err := os.WriteFile(filepath.Join(dir, "msghandler.yaml"), []byte(mine), 0o600); err != nil {
		t.Fatal(err)
	}
	if said, kept := configure(t, dir); kept != mine || !strings.Contains(said, "stays as it is") {
		t.Errorf("the script says %q and leaves\n%s", said, kept)
	}
}

// The script makes certificates and tokens that a coordinator and the demos can use, for their owner only, and makes
// them once.
func TestDebianSetupMakesCredentials(t *testing.T) {
	t.Parallel()
	bin, dir := programs.Directory(), filepath.Join(t.TempDir(), "new")
	var before string
	for range 2 {
		cmd := exec.Command(filepath.Join(root, "scripts", "debian-setup.sh"), "credentials")
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "DIR=" + dir, "BIN=" + bin}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var all strings.Builder
		for _, name := range []string{
			"tls/coordinator.pem", "tls/coordinator.key", "tls/ca.pem", "tokens", "admin.token", "orders.token",
			"coordinator.token",
		} {
			content, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil || len(content) == 0 {
				t.Fatalf("%s has %d bytes: %v", name, len(content), err)
			}
			all.Write(content)
			if may := files.Exposed(filepath.Join(dir, name)); may != "" {
				t.Errorf("everyone may %s %s", may, name)
			}
		}
		if before != "" && all.String() != before {
			t.Error("the second call makes other credentials")
		}
		before = all.String()
	}
	source, err := certs.Open(certs.Files{
		Cert: filepath.Join(dir, "tls/coordinator.pem"), Key: filepath.Join(dir, "tls/coordinator.key"),
		CA: filepath.Join(dir, "tls/ca.pem"),
	}, slog.New(slog.DiscardHandler))
	if err != nil || len(source.Chain()) == 0 {
		t.Errorf("the certificate cannot be used: %v", err)
	}
	tokens, err := tokenfile.Open(filepath.Join(dir, "tokens"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]access.Identity{
		"admin": {Role: access.Admin}, "orders": {Producers: []string{"orders"}},
	} {
		token, err := os.ReadFile(filepath.Join(dir, name+".token"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := tokens.Authenticate(t.Context(), strings.TrimSpace(string(token)))
		if err != nil || got.Role != want.Role || !slices.Equal(got.Producers, want.Producers) {
			t.Errorf("%s is %+v, %v", name, got, err)
		}
	}
}

// A newcomer starts all, runs the command that the script names, and finds nothing to do. A note is about Redis 7.0 of
// Debian, which does not tell that its hole is closed.
func TestDoctorFindsNothingAfterDebianSetup(t *testing.T) {
	t.Parallel()
	dir, bin := filepath.Join(t.TempDir(), "local"), programs.Directory()
	env := []string{"PATH=" + os.Getenv("PATH"), "DIR=" + dir, "BIN=" + bin}
	names := []string{
		"REDIS_PORT", "AMQP_PORT", "MANAGEMENT_PORT", "EPMD_PORT", "DIST_PORT", "GRPC_PORT", "HTTP_PORT", "CALLBACK_PORT",
		"ORDERS_PORT",
	}
	for i, address := range servers.Addresses(t, len(names)) {
		env = append(env, names[i]+"="+address[strings.LastIndex(address, ":")+1:])
	}
	script := func(command string) string {
		cmd := exec.Command(filepath.Join(root, "scripts", "debian-setup.sh"), command)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
		return string(out)
	}
	defer script("stop")
	_, line, _ := strings.Cut(script("start"), "bin/msghandler doctor ")
	line, _, found := strings.Cut(line, "\n")
	if !found {
		t.Fatal("the script names no doctor")
	}
	doctor := exec.Command(filepath.Join(bin, "msghandler"), append([]string{"doctor"}, strings.Fields(line)...)...)
	said, err := doctor.CombinedOutput()
	if err != nil || strings.Contains(string(said), "WARNING") || strings.Count(string(said), "OK ") != 6 {
		t.Errorf("%v:\n%s", err, said)
	}
}
