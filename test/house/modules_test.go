package house

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var updateLinks = flag.Bool("update", false, "write what SDKs link and require into links.txt")

const linksFile = "links.txt"

// userPrograms are programs of users: what each imports, of one module.
var userPrograms = [][]string{
	{"producer", "producer/marker/memory"},
	{"producer", "producer/marker/sql", "producer/outbox", "producer/outbox/shards"},
	{"redis/redismarker"},
	{"broker/rabbitmq/rabbitmqoutbox"},
	{"broker/kafka/kafkaoutbox"},
	{"broker/nats/natsoutbox"},
	{"prometheus/outboxmetrics"},
	{"consumer", "consumer/dedup/memory", "consumer/envelope"},
	{"consumer", "consumer/inbox/sql"},
	{"redis/redisdedup"},
	{"prometheus/consumermetrics"},
	{"broker/rabbitmq/rabbitmqconsumer"},
	{"broker/kafka/kafkaconsumer"},
	{"broker/nats/natsconsumer"},
}

// Each SDK links and requires what links.txt lists, and nothing else: a requirement raises the version of a library in
// the programs of users, even where they do not link the library.
func TestUsersOfSDKGetLittleElse(t *testing.T) {
	t.Parallel()
	var is strings.Builder
	for _, imports := range userPrograms {
		links, requires := userOf(t, imports)
		fmt.Fprintf(&is, "%s\n", strings.Join(imports, ", "))
		for _, list := range []struct {
			name  string
			paths []string
		}{{"links", links}, {"requires besides", requires}} {
			fmt.Fprintf(&is, "  %s: %s\n", list.name, cmp.Or(strings.Join(list.paths, " "), "nothing"))
		}
	}
	if *updateLinks {
		if err := os.WriteFile(linksFile, []byte(is.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(linksFile)
	if err != nil {
		t.Fatal(err)
	}
	if is.String() != string(want) {
		t.Errorf("the dependencies of the SDKs have changed: are they worth it for every user? Then run "+
			"go test ./test/house -run %s -args -update\n%s", t.Name(), is.String())
	}
}

// userOf makes a module that imports packages of an SDK. It returns the modules of others whose packages the program
// links, and those that our modules require beside them.
func userOf(t *testing.T, imports []string) (links, requires []string) {
	t.Helper()
	dir := t.TempDir()
	required := map[string]string{}
	room := moduleOf(t, imports[0])
	require(t, room, required)
	// The user's go.mod is as `go mod tidy` makes it after the release: all modules of the graph in it, and ours replaced
	// by this checkout.
	text := "module example.com/user\n\ngo 1.26.0\n"
	for path, version := range required {
		text += fmt.Sprintf("require %s %s\n", path, version)
		if room, ours := strings.CutPrefix(path, module+"/"); ours {
			text += fmt.Sprintf("replace %s => %s\n", path, filepath.Join(top(t), room))
		}
	}
	sums, _ := os.ReadFile(filepath.Join(top(t), room, "go.sum")) // a module without requirements has none
	program := "package main\n\n"
	for _, room := range imports {
		program += fmt.Sprintf("import _ %q\n", module+"/"+room)
	}
	program += "\nfunc main() {}\n"
	for name, content := range map[string]string{"go.mod": text, "go.sum": string(sums), "main.go": program} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	linked := map[string]bool{}
	for path := range strings.Lines(goOf(t, dir, "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".")) {
		linked[strings.TrimSpace(path)] = true
	}
	for _, path := range slices.Sorted(maps.Keys(required)) {
		switch ours := under(path, module); {
		case ours:
		case linked[path]:
			links = append(links, path)
		default:
			requires = append(requires, path)
		}
	}
	return links, requires
}

// moduleOf is the directory of the module that has a package.
func moduleOf(t *testing.T, room string) string {
	t.Helper()
	for room != "." {
		if _, err := os.Stat(filepath.Join(top(t), room, "go.mod")); err == nil {
			return room
		}
		room = filepath.Dir(room)
	}
	t.Fatal("a package of an SDK is in no module of its own")
	return ""
}

// require collects what a module of ours requires, itself and through others of ours.
func require(t *testing.T, room string, required map[string]string) {
	t.Helper()
	if required[module+"/"+room] != "" {
		return
	}
	required[module+"/"+room] = "v0.0.0"
	var mod struct {
		Require []struct{ Path, Version string }
	}
	text := goOf(t, filepath.Join(top(t), room), "mod", "edit", "-json")
	if err := json.Unmarshal([]byte(text), &mod); err != nil {
		t.Fatal(err)
	}
	for _, r := range mod.Require {
		if other, ours := strings.CutPrefix(r.Path, module+"/"); ours {
			require(t, other, required)
		} else if old := required[r.Path]; old != "" && old != r.Version {
			t.Errorf("%s requires %s %s, and another module %s: all modules take the same version", room, r.Path, r.Version, old)
		}
		required[r.Path] = r.Version
	}
}

// Modules of this repository and of go.work are the same, and go.work alone finds each of ours in this checkout.
func TestTheWorkspaceHasEveryModule(t *testing.T) {
	t.Parallel()
	apart := []string{"internal/release", "internal/tools", "test/deploy/kubernetes"}
	var work struct {
		Use     []struct{ DiskPath string }
		Replace []struct {
			Old, New struct{ Path, Version string }
		}
	}
	if err := json.Unmarshal([]byte(goOf(t, top(t), "work", "edit", "-json")), &work); err != nil {
		t.Fatal(err)
	}
	used := slices.Clone(apart)
	for _, use := range work.Use {
		used = append(used, filepath.Clean(use.DiskPath))
	}
	replaced := map[string]string{}
	for _, r := range work.Replace {
		replaced[r.Old.Path] = filepath.Clean(r.New.Path)
	}
	for _, name := range committed(t) {
		if filepath.Base(name) != "go.mod" {
			continue
		}
		room := filepath.Dir(name)
		if !slices.Contains(used, room) {
			t.Errorf("go.work does not use %s, so neither tests nor linters see its packages", room)
		}
		if room != "." && !slices.Contains(apart, room) && replaced[module+"/"+room] != room {
			t.Errorf("go.work must replace %s by ./%s: no server has its version before the release", module+"/"+room, room)
		}
		if text, err := os.ReadFile(filepath.Join(top(t), name)); err != nil || strings.Contains(string(text), "\nreplace ") {
			t.Errorf("%s must not replace a module (%v): go install refuses it, and go.work replaces ours", name, err)
		}
	}
}

// goOf runs the go command in a directory, outside the workspace and without a network.
func goOf(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=off", "GOSUMDB=off")
	if args[0] == "work" {
		cmd.Env = os.Environ()
	}
	var failed strings.Builder
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s in %s: %v\n%s", strings.Join(args, " "), dir, err, failed.String())
	}
	return string(out)
}

// top is the directory of the checkout.
func top(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return path
}
