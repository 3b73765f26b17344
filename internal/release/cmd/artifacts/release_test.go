package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/msghandler/msghandler/internal/release/modules"
)

// These tests build releases, which takes minutes: make test-release runs them. They need root for a chroot.

var (
	ready = flag.String("release", "", "a directory that make release has written, instead of a build")
	only  = flag.String("platforms", "", "build for these platforms only, such as linux_amd64,linux_arm64")
)

// version is what the tests release: a clone gets it, so the checkout does not change.
const version = "v0.1.0-test.1"

// built is a release of this checkout's commit.
var built = sync.OnceValues(func() (string, error) {
	if *ready != "" {
		return *ready, nil
	}
	dir, err := os.MkdirTemp(root, "first-")
	if err != nil {
		return "", err
	}
	here, err := modules.In(".")
	if err != nil {
		return "", err
	}
	out := filepath.Join(dir, "out")
	return out, buildIn(here.Dir(), filepath.Join(dir, "clone"), out)
})

// root is where the tests work, and is removed in the end.
var root string

func TestMain(m *testing.M) {
	flag.Parse()
	var err error
	if root, err = os.MkdirTemp("", "msghandler-test-release-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	_ = os.RemoveAll(root)
	os.Exit(status)
}

// buildIn clones a repository and releases the clone as its maintainer does.
func buildIn(repository, clone, out string) error {
	const commit = `set -e
git clone --quiet "$1" "$2"
cd "$2"
if ! grep -q "^## \[${3#v}\]" CHANGELOG.md; then
  make --no-print-directory version VERSION="$3"
  git -c user.name=test -c user.email=test@example.com commit --quiet --all -m "release: $3"
fi
scripts/release.sh "$3" "$4" "$5"`
	cmd := exec.Command("bash", "-c", commit, "bash", repository, clone, version, out, platforms())
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, text)
	}
	return nil
}

// platforms are those that the tests build for.
func platforms() string { return cmp.Or(*only, "linux_amd64,linux_arm64,darwin_amd64,darwin_arm64") }

// The same commit gives the same bytes: in another directory, with an empty build cache, another umask and another
// time zone.
func TestTwoBuildsAreEqual(t *testing.T) {
	first := released(t)
	dir := t.TempDir()
	t.Setenv("GOCACHE", filepath.Join(dir, "cache"))
	t.Setenv("TZ", "Pacific/Auckland")
	old := syscall.Umask(0o077)
	second := filepath.Join(dir, "a", "longer", "path")
	if err := os.MkdirAll(filepath.Dir(second), 0o700); err != nil {
		t.Fatal(err)
	}
	err := buildIn(filepath.Join(filepath.Dir(first), "clone"), filepath.Join(dir, "clone"), second)
	syscall.Umask(old)
	if err != nil {
		t.Fatal(err)
	}
	one, two := sums(t, first), sums(t, second)
	for name, sum := range one {
		if two[name] != sum {
			t.Errorf("%s differs: %s and %s", name, sum, two[name])
		}
	}
	if len(one) != len(two) {
		t.Errorf("one release has %d files, the other %d", len(one), len(two))
	}
}

func TestChecksumsNameEveryFile(t *testing.T) {
	dir := released(t)
	list, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	found := sums(t, dir)
	delete(found, "SHA256SUMS")
	for line := range strings.Lines(string(list)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if found[name] != sum {
			t.Errorf("SHA256SUMS says %s of %s, and it is %s", sum, name, found[name])
		}
		delete(found, name)
	}
	if len(found) > 0 {
		t.Errorf("SHA256SUMS lacks %v", found)
	}
}

// Each archive is complete, and its programs tell version and commit.
func TestArchivesAreComplete(t *testing.T) {
	dir := released(t)
	archives, err := filepath.Glob(filepath.Join(dir, "*.tar.gz"))
	if err != nil || len(archives) != strings.Count(platforms(), "_") {
		t.Fatalf("the archives are %q (%v)", archives, err)
	}
	for _, archive := range archives {
		top := strings.TrimSuffix(filepath.Base(archive), ".tar.gz")
		unpacked := t.TempDir()
		if out, err := exec.Command("tar", "-xzf", archive, "-C", unpacked).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		want := []string{
			"msghandler", "msghandler-bench", "msghandler-dev", "LICENSE", "README.md", "CHANGELOG.md",
			"config.example.yaml", "prometheus/alerts.yaml", "grafana/msghandler.json", "man/msghandler.1",
			"completions/msghandler.bash", "completions/_msghandler", "completions/msghandler.fish",
		}
		if strings.Contains(top, "linux") {
			want = append(want, "systemd/msghandler.service")
		}
		for _, name := range want {
			if info, err := os.Stat(filepath.Join(unpacked, top, name)); err != nil || info.Size() == 0 {
				t.Errorf("%s lacks %s: %v", top, name, err)
			}
		}
		if !strings.HasSuffix(top, "linux_amd64") {
			continue
		}
		for _, name := range names {
			said, err := exec.Command(filepath.Join(unpacked, top, name), "--version").Output()
			if err != nil || !strings.HasPrefix(string(said), name+" "+releasedVersion(dir)+" (commit ") {
				t.Errorf("%s --version says %q (%v)", name, said, err)
			}
		}
	}
}

// A bill of materials names our modules at their version, and the libraries with their checksums.
func TestBillsOfMaterialsNameModules(t *testing.T) {
	dir := released(t)
	bills, err := filepath.Glob(filepath.Join(dir, "*.cdx.json"))
	if err != nil || len(bills) != strings.Count(platforms(), "_")*len(names) {
		t.Fatalf("the bills are %q (%v)", bills, err)
	}
	for _, name := range bills {
		var bill struct {
			BOMFormat string
			Metadata  struct {
				Component struct{ Name, Version string }
			}
			Components []struct {
				Name, Version string
				Hashes        []struct{ Alg, Content string }
			}
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &bill); err != nil {
			t.Fatal(err)
		}
		main := bill.Metadata.Component
		if bill.BOMFormat != "CycloneDX" || main.Name != modules.Root || main.Version != releasedVersion(dir) {
			t.Errorf("%s is a %s of %+v", filepath.Base(name), bill.BOMFormat, main)
		}
		ours, others := 0, 0
		for _, c := range bill.Components {
			if strings.HasPrefix(c.Name, modules.Root) && c.Version == releasedVersion(dir) && len(c.Hashes) > 0 {
				ours++
			} else if len(c.Hashes) > 0 {
				others++
			}
		}
		if ours < 2 || others < 10 {
			t.Errorf("%s names %d modules of ours and %d of others", filepath.Base(name), ours, others)
		}
	}
}

// The image is a valid layout for two architectures. Unpacked, it runs as its user.
func TestImageRunsAsItsUser(t *testing.T) {
	dir := released(t)
	archive := filepath.Join(dir, "msghandler_"+strings.TrimPrefix(releasedVersion(dir), "v")+"_image.tar")
	unpacked := t.TempDir()
	if out, err := exec.Command("tar", "-xf", archive, "-C", unpacked).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	outer, err := layout.ImageIndexFromPath(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(outer); err != nil {
		t.Fatal(err)
	}
	manifest, err := outer.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("the layout has %+v (%v)", manifest, err)
	}
	index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	images, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var architectures []string
	for _, described := range images.Manifests {
		image, err := index.Image(described.Digest)
		if err != nil {
			t.Fatal(err)
		}
		architectures = append(architectures, described.Platform.String())
		settings, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if settings.Architecture != described.Platform.Architecture || settings.Config.User != "65532:65532" {
			t.Errorf("the image of %s is for %s and runs as %q", described.Platform, settings.Architecture, settings.Config.User)
		}
		if described.Platform.Architecture == "amd64" {
			runImage(t, image, settings)
		}
	}
	if len(architectures) != strings.Count(platforms(), "linux_") || !slices.Contains(architectures, "linux/amd64") {
		t.Errorf("the image is for %q", architectures)
	}
}

// runImage unpacks an image and runs its entry point in it, as the user of its configuration.
func runImage(t *testing.T, image v1.Image, settings *v1.ConfigFile) {
	t.Helper()
	files := t.TempDir()
	if err := os.Chmod(files, 0o755); err != nil {
		t.Fatal(err)
	}
	untar := exec.Command("tar", "-x", "-C", files)
	untar.Stdin = mutate.Extract(image)
	if out, err := untar.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	authorities, err := os.ReadFile(filepath.Join(files, "etc/ssl/certs/ca-certificates.crt"))
	if n := bytes.Count(authorities, []byte("BEGIN")); n < 80 {
		t.Errorf("the image has %d authorities (%v)", n, err)
	}
	run := func(args ...string) string {
		cmd := exec.Command(settings.Config.Entrypoint[0], args...)
		cmd.Dir = "/"
		cmd.Env = []string{}
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: files, Credential: &syscall.Credential{Uid: nonRoot, Gid: nonRoot}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	if said := run("--version"); !strings.Contains(said, settings.Config.Labels["org.opencontainers.image.version"]) {
		t.Errorf("the image says %q", said)
	}
	run(append(settings.Config.Cmd, "--help")...)
}

// The packages hold what they should, with these rights.
func TestDebHoldsItsFiles(t *testing.T) {
	dir := released(t)
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) != strings.Count(platforms(), "linux_") {
		t.Fatalf("the packages are %q (%v)", debs, err)
	}
	for _, deb := range debs {
		data, err := exec.Command("dpkg-deb", "--fsys-tarfile", deb).Output()
		if err != nil {
			t.Fatal(err)
		}
		modes := map[string]int64{}
		for archive := tar.NewReader(bytes.NewReader(data)); ; {
			header, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			modes[path.Clean("/"+header.Name)] = header.Mode & 0o777
		}
		for name, mode := range map[string]int64{
			"/usr/bin/msghandler": 0o755, "/etc/msghandler": 0o750, "/etc/msghandler/msghandler.yaml": 0o640,
			"/usr/lib/systemd/system/msghandler.service": 0o644, "/usr/share/man/man1/msghandler.1.gz": 0o644,
			"/usr/share/doc/msghandler/copyright": 0o644, "/usr/share/zsh/vendor-completions/_msghandler": 0o644,
		} {
			if modes[name] != mode {
				t.Errorf("%s has %s with mode %o, want %o", filepath.Base(deb), name, modes[name], mode)
			}
		}
	}
}

func TestManualPageIsOfTheVersion(t *testing.T) {
	dir := released(t)
	deb, _ := filepath.Glob(filepath.Join(dir, "*_amd64.deb"))
	if len(deb) != 1 {
		t.Fatalf("the packages are %q", deb)
	}
	unpacked := t.TempDir()
	if out, err := exec.Command("dpkg-deb", "--extract", deb[0], unpacked).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := os.Open(filepath.Join(unpacked, "usr/share/man/man1/msghandler.1.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(zipped)
	title := "msghandler " + strings.ReplaceAll(releasedVersion(dir), "-", `\-`) // as roff writes a dash
	if err != nil || !bytes.Contains(page, []byte(title)) {
		t.Errorf("the manual page begins %q (%v)", page[:min(len(page), 80)], err)
	}
}

func released(t *testing.T) string {
	t.Helper()
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// releasedVersion is the version of a release, by the name of an archive.
func releasedVersion(dir string) string {
	found, _ := filepath.Glob(filepath.Join(dir, "msghandler_*_linux_amd64.tar.gz"))
	if len(found) == 0 {
		return "of no archive"
	}
	return "v" + strings.TrimSuffix(strings.TrimPrefix(filepath.Base(found[0]), "msghandler_"), "_linux_amd64.tar.gz")
}

// sums are the SHA-256 of the files of a directory.
func sums(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		found[entry.Name()] = fmt.Sprintf("%x", sha256.Sum256(data))
	}
	return found
}
