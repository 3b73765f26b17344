package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker for a release; otherwise what Go knows of the build is told.
var version string

type versionCommand struct {
	Output string `default:"table" enum:"table,json" help:"table for people, json for programs."`
}

// Run prints the version.
func (c *versionCommand) Run(s *session) error {
	b := readBuild()
	if c.Output == outputJSON {
		return s.printJSON(b)
	}
	_, err := fmt.Fprintf(s.Out, "msghandler %s (%s, %s/%s)\n", b.Version, b.Go, b.OS, b.Arch)
	return err
}

// build is what runs.
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
