package servers_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/test/servers"
)

func TestServersAreOfTheChosenRelease(t *testing.T) {
	t.Parallel()
	rabbit := servers.PrivateRabbitMQ(t)
	redis := servers.Redis(t)
	for _, pid := range []int{redis.Pid(), rabbit.Pid()} {
		if shares := mountNamespace(t, pid) == mountNamespace(t, os.Getpid()); shares != (servers.Release() == "oldest") {
			t.Errorf("release %s: process %d shares the mounts of the test: %v", servers.Release(), pid, shares)
		}
	}
	var overview struct {
		Version string `json:"rabbitmq_version"`
	}
	if err := rabbit.Management().Call(http.MethodGet, "/api/overview", nil, &overview); err != nil {
		t.Fatal(err)
	}
	info := redis.CLI("INFO", "server")
	for server, version := range unpacked(t) {
		says := info
		if server == "rabbitmq" {
			says = "rabbitmq_version:" + overview.Version
		}
		if !strings.Contains(says, server+"_version:"+version) {
			t.Errorf("%s %s is unpacked, and the server says\n%s", server, version, says)
		}
	}
}

func TestMountsOfServersStayPrivate(t *testing.T) {
	t.Parallel()
	servers.Redis(t).CLI("PING")
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "/usr /usr ") {
		t.Errorf("a server's /usr is mounted for all processes:\n%s", text)
	}
}

func mountNamespace(t *testing.T, pid int) string {
	t.Helper()
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// unpacked returns the versions of the servers that scripts/install-newer-servers.sh has unpacked for this release:
// none for the system's own.
func unpacked(t *testing.T) map[string]string {
	t.Helper()
	if servers.Release() == "oldest" {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(servers.ReleaseDirectory(t), "versions"))
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	version := regexp.MustCompile(`(?m)^(\w+)-server (?:\d+:)?([\d.]+)`)
	for _, match := range version.FindAllStringSubmatch(string(text), -1) {
		found[match[1]] = match[2]
	}
	if len(found) != 2 {
		t.Fatalf("servers in\n%s\n%v", text, found)
	}
	return found
}
