// Package packages installs, runs, upgrades, removes and purges the packages of two releases on a booted Debian
// system. make test-packages builds the releases and runs these tests as root, in a separate network.
package packages

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/test/servers"
)

var (
	before = flag.String("before", "", "directory of a release")
	after  = flag.String("after", "", "directory of a later release")
	base   = flag.String("base", "", "archive of a Debian system with systemd and rpm")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *before == "" { // an ordinary run: make test-packages gives the releases
		os.Exit(0)
	}
	servers.Main(m)
}

// find returns the package of a release for this machine, and its version.
func find(t *testing.T, release, pattern string) (path, version string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(release, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s has the packages %q (%v)", release, found, err)
	}
	archives, err := filepath.Glob(filepath.Join(release, "msghandler_*_linux_amd64.tar.gz"))
	if err != nil || len(archives) != 1 {
		t.Fatalf("%s has the archives %q (%v)", release, archives, err)
	}
	name := filepath.Base(archives[0])
	return found[0], "v" + strings.TrimSuffix(strings.TrimPrefix(name, "msghandler_"), "_linux_amd64.tar.gz")
}

// inside is the path of a package in the system.
func inside(path string) string { return "/packages/" + filepath.Base(path) }

// configure gives the service the addresses of real servers, as an administrator does.
func configure(t *testing.T, s *system) {
	t.Helper()
	s.write("etc/msghandler/secrets/redis-url", servers.Redis(t).URL())
	s.write("etc/msghandler/secrets/amqp-url", servers.RabbitMQ(t).URL)
	s.write("etc/msghandler/msghandler.yaml", s.read("etc/msghandler/msghandler.yaml")+"\nlog:\n  level: debug # mine\n")
	s.run("systemctl", "restart", "msghandler.service")
}

// runs checks that the service runs a version as its own user, and that all its parts are ready.
func runs(t *testing.T, s *system, version string) (pid string) {
	t.Helper()
	s.answers("/healthz")
	s.answers("/readyz")
	pid = s.property("MainPID")
	if state := s.property("ActiveState"); state != "active" {
		t.Errorf("the service is %s", state)
	}
	if user := strings.TrimSpace(s.run("ps", "-o", "user=", "-p", pid)); user != "msghandl+" && user != "msghandler" {
		t.Errorf("the service runs as %q", user)
	}
	if said := s.run("/proc/"+pid+"/exe", "--version"); !strings.HasPrefix(said, "msghandler "+version+" ") {
		t.Errorf("the service is %q, want %s", said, version)
	}
	s.run("msghandler", "stats")
	return pid
}

// rights checks who may read what.
func rights(t *testing.T, s *system) {
	t.Helper()
	for name, want := range map[string]string{
		"/etc/msghandler": "750 root msghandler", "/etc/msghandler/msghandler.yaml": "640 root msghandler",
		"/etc/msghandler/secrets": "700 root root", "/etc/msghandler/secrets/redis-url": "600 root root",
		"/etc/msghandler/secrets/amqp-url": "600 root root", "/usr/bin/msghandler": "755 root root",
		"/usr/lib/systemd/system/msghandler.service": "644 root root",
	} {
		if got := s.rights(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

func TestDeb(t *testing.T) {
	older, olderVersion := find(t, *before, "*_amd64.deb")
	newer, newerVersion := find(t, *after, "*_amd64.deb")
	s := bootDebian(t, older, newer)
	at := s.files()

	s.run("dpkg", "--install", inside(older))
	rights(t, s)
	s.answers("/healthz") // the service starts, and waits for Redis and RabbitMQ
	if enabled := strings.TrimSpace(s.run("systemctl", "is-enabled", "msghandler.service")); enabled != "enabled" {
		t.Errorf("after the installation the service is %s", enabled)
	}
	if changed := s.run("dpkg", "--verify", "msghandler"); changed != "" {
		t.Errorf("files differ from the package: %s", changed)
	}
	configure(t, s)
	first := runs(t, s, olderVersion)

	mine := s.read("etc/msghandler/msghandler.yaml")
	secret := s.read("etc/msghandler/secrets/redis-url")
	s.run("dpkg", "--install", inside(newer))
	if second := runs(t, s, newerVersion); second == first {
		t.Error("the upgrade has not restarted the service")
	}
	rights(t, s)
	if s.read("etc/msghandler/msghandler.yaml") != mine || s.read("etc/msghandler/secrets/redis-url") != secret {
		t.Error("the upgrade has changed the administrator's files")
	}

	s.run("dpkg", "--remove", "msghandler")
	gone(t, s)
	if s.read("etc/msghandler/msghandler.yaml") != mine {
		t.Error("the removal has changed the configuration")
	}
	s.run("dpkg", "--install", inside(newer))
	runs(t, s, newerVersion) // with the configuration that the removal left

	s.run("dpkg", "--purge", "msghandler")
	gone(t, s)
	for name, counts := range s.files() {
		if _, known := at[name]; !known && counts {
			t.Errorf("the purge has left %s", name)
		}
	}
}

// gone checks that the service has ended and its program is removed.
func gone(t *testing.T, s *system) {
	t.Helper()
	if state := s.property("ActiveState"); state != "inactive" {
		t.Errorf("the service is %s", state)
	}
	if out, err := s.try("test", "-e", "/usr/bin/msghandler"); err == nil {
		t.Errorf("the program is still there: %s", out)
	}
}

// The rpm goes onto Debian, whose rpm runs the scripts; the packages that it depends on are Debian's.
func TestRPM(t *testing.T) {
	older, olderVersion := find(t, *before, "*.x86_64.rpm")
	newer, newerVersion := find(t, *after, "*.x86_64.rpm")
	s := bootDebian(t, older, newer)
	rpm := func(args ...string) string {
		return s.run(append([]string{"rpm", "--force-debian", "--nodeps"}, args...)...)
	}
	list := s.run("rpm", "-qpl", inside(older))
	for _, name := range []string{"/usr/bin/msghandler", "/etc/msghandler/msghandler.yaml"} {
		if !strings.Contains(list, name+"\n") {
			t.Errorf("the package lacks %s:\n%s", name, list)
		}
	}
	rpm("--install", inside(older))
	rights(t, s)
	if state := s.property("ActiveState"); state != "inactive" {
		t.Errorf("after the installation the service is %s, and on such systems the administrator starts it", state)
	}
	configure(t, s)
	first := runs(t, s, olderVersion)

	mine := s.read("etc/msghandler/msghandler.yaml")
	rpm("--upgrade", inside(newer))
	if second := runs(t, s, newerVersion); second == first {
		t.Error("the upgrade has not restarted the service")
	}
	rights(t, s)
	if s.read("etc/msghandler/msghandler.yaml") != mine {
		t.Error("the upgrade has changed the administrator's file")
	}

	rpm("--erase", "msghandler")
	gone(t, s)
	if s.read("etc/msghandler/msghandler.yaml.rpmsave") != mine {
		t.Error("the removal has lost the configuration")
	}
}
