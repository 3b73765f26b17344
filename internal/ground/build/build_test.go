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

func TestPagesAreThoseOfTheRelease(t *testing.T) {
	t.Parallel()
	for version, ref := range map[string]string{
		"v0.1.0": "v0.1.0", "v0.2.0-rc.1": "v0.2.0-rc.1", "(devel)": "main", "": "main", "v0.1.0+dirty": "main",
		"v0.1.1-0.20261129125500-0123456789ab": "main",
	} {
		if got := (Info{Version: version}).Pages(); got != "https://github.com/msghandler/msghandler/blob/"+ref+"/" {
			t.Errorf("version %q reads %s", version, got)
		}
	}
}
