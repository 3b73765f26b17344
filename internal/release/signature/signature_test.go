// Package signature tests scripts/signature.sh, by which the workflow build signs a release, with a key instead of the
// workflow's identity. It needs .cache/bin/cosign, which takes minutes to build: make test-release.
package signature

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// noServices keeps cosign from Sigstore's servers.
const noServices = `{"mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json"}`

func TestSignatureHoldsEveryByte(t *testing.T) {
	keys := t.TempDir()
	write(t, filepath.Join(keys, "config.json"), noServices)
	for _, name := range []string{"ours", "another"} {
		run(t, keys, "generate-key-pair", "--output-key-prefix", name)
	}
	byKey := []string{"--key", filepath.Join(keys, "ours.pub"), "--insecure-ignore-tlog"}
	changes := map[string]func(t *testing.T, dir string){
		"a byte of a file": func(t *testing.T, dir string) { write(t, filepath.Join(dir, "msghandler.deb"), "B") },
		"a file and its checksum": func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "msghandler.deb"), "B")
			writeSums(t, dir)
		},
		"a file is missing": func(t *testing.T, dir string) { _ = os.Remove(filepath.Join(dir, "msghandler.deb")) },
		"an unsigned file":  func(t *testing.T, dir string) { write(t, filepath.Join(dir, "install.sh"), "C") },
		"the key of another": func(t *testing.T, dir string) {
			signBy(t, dir, keys, "another")
		},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "msghandler.tar.gz"), "A")
			write(t, filepath.Join(dir, "msghandler.deb"), "A")
			writeSums(t, dir)
			signBy(t, dir, keys, "ours")
			if out, err := script("verify", dir, byKey...); err != nil {
				t.Fatalf("the release as it was signed: %v\n%s", err, out)
			}
			change(t, dir)
			if out, err := script("verify", dir, byKey...); err == nil {
				t.Errorf("the changed release is accepted:\n%s", out)
			}
		})
	}
}

// signBy signs as the workflow does, with a key.
func signBy(t *testing.T, dir, keys, name string) {
	t.Helper()
	out, err := script("sign", dir, "--yes", "--key", filepath.Join(keys, name+".key"),
		"--signing-config", filepath.Join(keys, "config.json"))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// script runs scripts/signature.sh.
func script(how, dir string, flags ...string) (string, error) {
	cmd := exec.Command("../../../scripts/signature.sh", append([]string{how, dir}, flags...)...)
	cmd.Env = append(os.Environ(), "COSIGN_PASSWORD=")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run runs cosign in a directory.
func run(t *testing.T, dir string, args ...string) {
	t.Helper()
	cosign, err := filepath.Abs("../../../.cache/bin/cosign")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(cosign, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "COSIGN_PASSWORD=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cosign %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// writeSums writes SHA256SUMS of the released files.
func writeSums(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "msghandler.*"))
	if err != nil {
		t.Fatal(err)
	}
	var sums strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), filepath.Base(file))
	}
	write(t, filepath.Join(dir, "SHA256SUMS"), sums.String())
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
