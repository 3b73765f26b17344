package modules

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// A service outside of the tree gets the SDKs from the proxy, with no replace lines, and links.
func TestServiceBuildsFromTheProxy(t *testing.T) {
	t.Parallel()
	here := checkout(t)
	version, err := here.Version()
	if err != nil {
		t.Fatal(err)
	}
	proxy := t.TempDir()
	if err := here.WriteProxy(version, proxy); err != nil {
		t.Fatal(err)
	}
	service := t.TempDir()
	program, err := os.ReadFile(filepath.Join("testdata", "service", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(service, "main.go"), string(program))
	env := userOf(t, proxy)
	run(t, service, env, "go", "mod", "init", "example.com/orders")
	run(t, service, env, "go", "get", Root+"/producer@"+version, Root+"/consumer@latest")
	run(t, service, env, "go", "build", "-trimpath", "-o", "orders", ".")
	info, err := buildinfo.ReadFile(filepath.Join(service, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	linked := map[string]string{}
	for _, dep := range info.Deps {
		if dep.Replace == nil {
			linked[dep.Path] = dep.Version
		}
	}
	for _, room := range []string{"producer", "consumer", "proto", "internal/ground", "broker/rabbitmq"} {
		if linked[Root+"/"+room] != version {
			t.Errorf("the service links %s %q, want %s", room, linked[Root+"/"+room], version)
		}
	}
}

// userOf is the environment of a user with the proxy. The module cache is the test's own, because the go command
// never reads a version twice; libraries of others come from the cache of this machine, or from its proxy.
func userOf(t *testing.T, proxy string) []string {
	t.Helper()
	known := strings.Fields(run(t, ".", nil, "go", "env", "GOMODCACHE", "GOPROXY"))
	return []string{
		"GOWORK=off", "GOFLAGS=-mod=mod -modcacherw", "GOSUMDB=off", "GOMODCACHE=" + t.TempDir(),
		"GOPROXY=file://" + proxy + ",file://" + known[0] + "/cache/download," + known[1],
	}
}

func TestModulesOfTestsAreNotReleased(t *testing.T) {
	t.Parallel()
	tree := scratch(t, map[string]string{"go.work": "use .\nuse ./producer\nuse ./test/compare\n"})
	rooms, err := tree.Modules()
	if want := []string{".", "producer"}; err != nil || !slices.Equal(rooms, want) {
		t.Errorf("the released modules are %q, %v, want %q", rooms, err, want)
	}
}

func TestCheckNamesFileOfAnotherVersion(t *testing.T) {
	t.Parallel()
	tree := scratch(t, map[string]string{
		"go.mod":          "module " + Root + "\n\nrequire " + Root + "/producer v0.1.0\n",
		"go.work":         "use .\n\nreplace " + Root + "/producer v0.1.0 => ./producer\n",
		"producer/go.mod": "module " + Root + "/producer\n\nrequire " + Root + "/proto v0.0.9 // indirect\n",
		"proto/go.mod":    "module " + Root + "/proto\n\nrequire github.com/msghandler/msghandler-plugin v7.0.0\n",
	})
	err := tree.Check("v0.1.0")
	const want = "the go.mod files are not of v0.1.0: producer/go.mod names " + Root + "/proto v0.0.9 (1 lines in all). " +
		"To change them: make version VERSION=v0.1.0"
	if err == nil || err.Error() != want {
		t.Errorf("the check says %v, want %s", err, want)
	}
	if err := tree.Set("v0.2.0"); err != nil {
		t.Fatal(err)
	}
	if err := tree.Check("v0.2.0"); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{
		"go.work":         "use .\n\nreplace " + Root + "/producer v0.2.0 => ./producer\n",
		"producer/go.mod": "module " + Root + "/producer\n\nrequire " + Root + "/proto v0.2.0 // indirect\n",
		"proto/go.mod":    "module " + Root + "/proto\n\nrequire github.com/msghandler/msghandler-plugin v7.0.0\n",
	} {
		if text, _ := os.ReadFile(filepath.Join(tree.dir, name)); string(text) != want {
			t.Errorf("%s is %q, want %q", name, text, want)
		}
	}
}

// The zip files have the content that the go command makes of a tag, so go.sum is the same with both.
func TestZipsAreThoseOfATag(t *testing.T) {
	t.Parallel()
	tree := scratch(t, map[string]string{
		"LICENSE":         "as is\n",
		"go.mod":          "module " + Root + "\n\nrequire " + Root + "/producer v0.1.0\n",
		"go.work":         "go 1.26.0\n\nuse (\n\t.\n\t./producer\n)\n",
		"cmd/main.go":     "package main\n",
		"docs/a page.md":  "# A page\n",
		"producer/go.mod": "module " + Root + "/producer\n",
		"producer/a.go":   "package producer\n",
	})
	proxy := t.TempDir()
	if err := tree.WriteProxy("v0.1.0", proxy); err != nil {
		t.Fatal(err)
	}
	for room, path := range map[string]string{"": Root, "producer": Root + "/producer"} {
		tagged, err := os.Create(filepath.Join(t.TempDir(), "tagged.zip"))
		if err != nil {
			t.Fatal(err)
		}
		mod := module.Version{Path: path, Version: "v0.1.0"}
		if err := errors.Join(zip.CreateFromVCS(tagged, mod, tree.dir, "HEAD", room), tagged.Close()); err != nil {
			t.Fatal(err)
		}
		want, err := dirhash.HashZip(tagged.Name(), dirhash.Hash1)
		if err != nil {
			t.Fatal(err)
		}
		got, err := dirhash.HashZip(filepath.Join(proxy, filepath.FromSlash(path), "@v", "v0.1.0.zip"), dirhash.Hash1)
		if err != nil || got != want {
			t.Errorf("the zip of %s is %s (%v), and that of a tag is %s", path, got, err, want)
		}
	}
}

// Changes that are not committed are in the proxy, and what git ignores is not.
func TestProxyServesTheWorkingTree(t *testing.T) {
	t.Parallel()
	tree := scratch(t, map[string]string{
		".gitignore":      "*.out\n",
		"LICENSE":         "as is\n",
		"go.mod":          "module " + Root + "\n\nrequire " + Root + "/producer v0.1.0\n",
		"go.work":         "go 1.26.0\n\nuse (\n\t.\n\t./producer\n)\n",
		"producer/go.mod": "module " + Root + "/producer\n",
		"producer/old.go": "package producer\n",
		"producer/a.out":  "ignored\n",
	})
	write(t, filepath.Join(tree.dir, "producer", "new.go"), "package producer\n")
	if err := os.Remove(filepath.Join(tree.dir, "producer", "old.go")); err != nil {
		t.Fatal(err)
	}
	proxy := t.TempDir()
	if err := tree.WriteProxy("v0.1.0", proxy); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(proxy, filepath.FromSlash(Root), "producer", "@v")
	names := strings.Fields(run(t, at, nil, "unzip", "-Z1", "v0.1.0.zip"))
	slices.Sort(names)
	prefix := Root + "/producer@v0.1.0/"
	if want := []string{prefix + "LICENSE", prefix + "go.mod", prefix + "new.go"}; !slices.Equal(names, want) {
		t.Errorf("the proxy has %q, want %q", names, want)
	}
	if list, _ := os.ReadFile(filepath.Join(at, "list")); string(list) != "v0.1.0\n" {
		t.Errorf("the list is %q", list)
	}
	if status := run(t, tree.dir, nil, "git", "diff", "--cached", "--name-only"); status != "" {
		t.Errorf("the index has changed: %s", status)
	}
}

func TestVersionsThatNoTagCanHave(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"", "0.1.0", "v0.1", "v0.1.0+dirty", "v2.0.0", "v10.0.0", "latest"} {
		if valid(version) == nil {
			t.Errorf("%q is taken for a version", version)
		}
	}
	for _, version := range []string{"v0.1.0", "v1.20.3", "v0.2.0-rc.1"} {
		if err := valid(version); err != nil {
			t.Error(err)
		}
	}
}

func TestTagOfEachModule(t *testing.T) {
	t.Parallel()
	rooms, err := checkout(t).Modules()
	if err != nil {
		t.Fatal(err)
	}
	tags := Tags(rooms, "v0.1.0")
	for _, want := range []string{"v0.1.0", "producer/v0.1.0", "broker/rabbitmq/v0.1.0", "internal/ground/v0.1.0"} {
		if !slices.Contains(tags, want) {
			t.Errorf("the tags lack %s: %q", want, tags)
		}
	}
	if strange := slices.IndexFunc(tags, func(tag string) bool {
		return !regexp.MustCompile(`^([a-z/]+/)?v0\.1\.0$`).MatchString(tag)
	}); strange >= 0 {
		t.Errorf("a tag is %q", tags[strange])
	}
}

// checkout is the checkout of this test.
func checkout(t *testing.T) *Checkout {
	t.Helper()
	tree, err := In(".")
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// scratch makes a repository with one commit.
func scratch(t *testing.T, files map[string]string) *Checkout {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		write(t, filepath.Join(dir, name), text)
	}
	run(t, dir, nil, "git", "init", "--quiet")
	run(t, dir, nil, "git", "add", "--all")
	run(t, dir, nil, "git", "-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "--quiet", "-m", "all")
	tree, err := In(dir)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var failed bytes.Buffer
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s in %s: %v\n%s", name, strings.Join(args, " "), dir, err, &failed)
	}
	return string(out)
}
