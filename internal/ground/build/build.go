// Package build tells of which version and commit a program is.
package build

import (
	"cmp"
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
)

// version and commit are set by the linker of make build and make release.
var version, commit string

// shortCommit is the length of the hash that people read.
const shortCommit = 12

// Info describes a program.
type Info struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

// Read describes the running program. Without the linker's values, the go command's are used: go install stores a
// version, and go build in a checkout stores a commit.
func Read() Info {
	i := Info{Version: version, Commit: commit, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if stored, ok := debug.ReadBuildInfo(); ok {
		i.Version = cmp.Or(i.Version, stored.Main.Version)
		for _, setting := range stored.Settings {
			if setting.Key == "vcs.revision" {
				i.Commit = cmp.Or(i.Commit, setting.Value)
			}
		}
	}
	i.Version = cmp.Or(i.Version, "(devel)")
	return i
}

// released is the version of a release or of a candidate. Between two releases the go command makes other versions.
var released = regexp.MustCompile(`^v\d+\.\d+\.\d+(-rc\.\d+)?$`)

// Pages is the address of the repository's pages: those of the release, otherwise the latest.
func (i Info) Pages() string {
	ref := "main"
	if released.MatchString(i.Version) {
		ref = i.Version
	}
	return "https://github.com/msghandler/msghandler/blob/" + ref + "/"
}

// String is the version for people, such as "v0.1.0 (commit 0123456789ab, go1.26.8, linux/amd64)".
func (i Info) String() string {
	known := ""
	if i.Commit != "" {
		known = "commit " + i.Commit[:min(len(i.Commit), shortCommit)] + ", "
	}
	return fmt.Sprintf("%s (%s%s, %s/%s)", i.Version, known, i.Go, i.OS, i.Arch)
}
