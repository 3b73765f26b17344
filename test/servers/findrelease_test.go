package servers

import (
	"strings"
	"testing"
)

func TestUnknownReleaseIsRefused(t *testing.T) {
	if _, err := findRelease("latest"); err == nil || !strings.Contains(err.Error(), "newest") {
		t.Errorf("TEST_SERVERS=latest: %v", err)
	}
}

func TestMissingReleaseIsRefused(t *testing.T) {
	t.Setenv(DirectoryVariable, t.TempDir())
	if _, err := findRelease("newest"); err == nil || !strings.Contains(err.Error(), "install-newer-servers.sh newest") {
		t.Errorf("TEST_SERVERS=newest in an empty directory: %v", err)
	}
}
