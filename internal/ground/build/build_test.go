package build

import (
	"runtime"
	"testing"
)

func TestInfoForPeople(t *testing.T) {
	t.Parallel()
	i := Info{Version: "v0.1.0", Commit: "0123456789abcdef0123456789", Go: "go1.26.8", OS: "linux", Arch: "amd64"}
	if got, want := i.String(), "v0.1.0 (commit 0123456789ab, go1.26.8, linux/amd64)"; got != want {
		t.Errorf("the version reads %q, want %q", got, want)
	}
	i.Commit = ""
	if got, want := i.String(), "v0.1.0 (go1.26.8, linux/amd64)"; got != want {
		t.Errorf("without a commit the version reads %q, want %q", got, want)
	}
}

func TestReadKnowsTheRunningProgram(t *testing.T) {
	t.Parallel()
	if i := Read(); i.Version == "" || i.Go != runtime.Version() || i.OS != runtime.GOOS || i.Arch != runtime.GOARCH {
		t.Errorf("the build of the test is %+v", i)
	}
}
