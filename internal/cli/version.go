package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/msghandler/msghandler/internal/cli/commandline"
)

// version is set by the linker for a release; the default is the version that Go knows of the build.
var version string

type versionCommand struct {
	Output string `default:"table" enum:"table,json,yaml" help:"table for people, json or yaml for programs."`
}

// Run prints the version.
func (c *versionCommand) Run(s *commandline.Session) error {
	b := readBuild()
	return s.PrintDocument(c.Output, b, func() [][]string {
		return [][]string{{fmt.Sprintf("msghandler %s (%s, %s/%s)", b.Version, b.Go, b.OS, b.Arch)}}
	})
}

// build describes the running program.
type build struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func readBuild() build {
	b := build{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok && b.Version == "" {
		b.Version = info.Main.Version
	}
	if b.Version == "" {
		b.Version = "(devel)"
	}
	return b
}
